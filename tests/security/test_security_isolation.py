"""Whatever the API's own description lists is tried by everybody who must not: a new endpoint is tried as soon as it is described."""

from __future__ import annotations

import hashlib
import json
import re
import time
from typing import Any

import pytest
from security_scene import Scene, smallest

from ischeduler.store.credentials import SessionRow

METHODS = ("get", "post", "put", "patch", "delete")
PUBLIC = {"GET /healthz", "GET /readyz"}
OWN_CREDENTIAL = {"POST /v1/hooks/tapis/{user}/{word}"}
"""Endpoints whose credential is not a person's: a word nobody guesses."""
OTHERS_RUN = {"POST /v1/guard", "POST /v1/agents/{cluster}/poll", "DELETE /v1/agents/{cluster}"}
"""Endpoints that are about whoever asks: they may answer, but tell nothing of anybody else."""
STREAMS = {"GET /v1/stream"}
"""Endless for somebody with runs of one's own; what they tell is tested with a real server."""


def operations(scene: Scene) -> list[tuple[str, str, dict[str, Any]]]:
    paths = scene.service.app.openapi()["paths"]
    return [(m, path, item[m]) for path, item in sorted(paths.items()) for m in METHODS if m in item]


def call(scene: Scene, method: str, path: str, operation: dict[str, Any], headers: dict[str, str], body: Any) -> Any:
    for parameter in operation.get("parameters", []):
        if parameter["in"] == "path":
            name = parameter["name"]
            assert name in scene.things, f"{path}: give tests/security/conftest.py a thing of the victim's for '{name}'"
            path = path.replace("{" + name + "}", scene.things[name])
    content = None if body is None else json.dumps(body)
    kind = {} if body is None else {"Content-Type": "application/json"}
    return scene.client.request(method.upper(), path, headers={**headers, **kind}, content=content)


def some_body(scene: Scene, operation: dict[str, Any]) -> Any:
    """A body that the description allows, so that it is not refused for its form alone."""
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    if "schema" not in content:
        return None
    described = scene.service.app.openapi()
    return _aimed(smallest(content["schema"], described["components"]["schemas"]), scene)


def _aimed(body: Any, scene: Scene) -> Any:
    """The body's own references are turned to the victim's things, too."""
    aims = {"plan": "plan_id", "saved": "workload_id", "project": "project"}
    if isinstance(body, dict):
        aimed = {k: scene.things[aims[k]] if k in aims and isinstance(v, str) else _aimed(v, scene) for k, v in body.items()}
        return aimed | ({"wait_s": 0} if "wait_s" in body else {})
    return body


def state(scene: Scene) -> str:
    """Everything that the victim has, as one digest."""
    store, desk = scene.service.centre.store, scene.service.app.state.desk
    run = store.get_run(scene.things["run_id"])
    parts = [
        repr(run), repr(store.events(run.id)), repr(desk.workloads.all("victim")), repr([w.url for w in desk.webhooks.all("victim")]),
        repr([(t.id, t.revoked_at) for t in desk.gate.credentials.tokens("victim")]), repr(desk.gate.identities.user("victim").roles),
        repr([p for p in desk.gate.identities.projects() if p[0] == "secretproject"]), repr(len(desk.pages.named("victim", "r-"))),
    ]  # fmt: skip
    return hashlib.sha256("".join(parts).encode()).hexdigest()


def test_the_description_lists_endpoints(scene: Scene):
    assert len(operations(scene)) >= 55


def test_a_word_that_is_not_the_secret_is_nothing(scene: Scene):
    before = state(scene)
    for word in ("0" * 64, "f" * 64, "x", "../runs"):
        answer = scene.client.post(f"/v1/hooks/tapis/alice/{word}", content=b"{}")
        assert answer.status_code in (404, 422), word
    assert state(scene) == before


def test_a_stranger_gets_nothing(scene: Scene):
    before = state(scene)
    for method, path, operation in operations(scene):
        name = f"{method.upper()} {path}"
        if name in PUBLIC | OWN_CREDENTIAL:
            continue
        for wrong in ({}, {"Authorization": "Bearer isc_0123456789abcdef_" + "A" * 43}, {"Authorization": "Basic YTpi"}, {"Cookie": "isched_session=x"}):
            answer = call(scene, method, path, operation, wrong, some_body(scene, operation) if not wrong else None)
            assert answer.status_code == 401, f"{name} answered {answer.status_code} to a stranger"
            assert answer.headers["content-type"] == "application/problem+json", name
    assert state(scene) == before


@pytest.mark.parametrize("who", ["another user", "an estimator developer", "another project's admin", "another run's job"])
def test_nobody_else_sees_or_touches_anything(scene: Scene, who: str):
    before = state(scene)
    for method, path, operation in operations(scene):
        name = f"{method.upper()} {path}"
        if name in PUBLIC | OWN_CREDENTIAL | STREAMS:
            continue
        body = some_body(scene, operation)
        answer = call(scene, method, path, operation, scene.people[who], body)
        text, asked = answer.text, answer.request.url.path + json.dumps(body)
        for needle in (n for n in scene.needles if n in asked):
            text = text.replace(needle, "")  # an answer may repeat what it was asked
        assert not any(n in text for n in scene.needles), f"{name} tells {who}: {answer.text[:300]}"
        if any(p in path for p in ("{run_id}", "{plan_id}", "{workload_id}", "{webhook_id}", "{token_id}", "{stress_id}", "/admin/")):
            assert answer.status_code in (403, 404, 422), f"{name} answered {answer.status_code} to {who}"
        assert answer.status_code < 500, f"{name}: {answer.text[:300]}"
    assert state(scene) == before


@pytest.mark.parametrize("who", ["another user", "an estimator developer", "another project's admin"])
def test_other_peoples_runs_and_no_runs_are_told_apart_by_nothing(scene: Scene, who: str):
    for method, path, operation in operations(scene):
        if "{run_id}" not in path:
            continue
        body = some_body(scene, operation)
        theirs = call(scene, method, path, operation, scene.people[who], body)
        none = call(Scene(**{**vars(scene), "things": scene.things | {"run_id": "r-000000000000"}}), method, path, operation, scene.people[who], body)
        same = theirs.text.replace(scene.things["run_id"], "RUN") == none.text.replace("r-000000000000", "RUN")
        assert (theirs.status_code, same) == (none.status_code, True), f"{method} {path}: {theirs.text} {none.text}"


def test_lists_hold_ones_own_things_only(scene: Scene):
    for url in ("/v1/runs?scope=all", "/v1/runs?project=secretproject&scope=all", "/v1/workloads", "/v1/tokens", "/v1/webhooks"):
        answer = scene.client.get(url, headers=scene.people["another user"])
        assert answer.status_code == 200
        assert not any(n in answer.text for n in scene.needles), url


def test_a_project_is_open_to_its_own_admin_and_the_centre_to_the_centres(scene: Scene):
    service, run_id = scene.service, scene.things["run_id"]
    service.gate.identities.add_user("chief")
    service.gate.identities.set_member("secretproject", "chief", admin=True)
    admin, plain = service.headers("chief", ("read", "admin")), service.headers("chief", ("read", "write"))
    assert scene.client.get(f"/v1/runs/{run_id}", headers=admin).status_code == 200
    assert scene.client.get(f"/v1/runs/{run_id}", headers=plain).status_code == 404  # the scope is what makes an admin's token one
    listed = scene.client.get("/v1/runs?scope=all", headers=admin).json()["runs"]
    assert [r["id"] for r in listed] == [run_id]
    root = service.add_user("root1", roles=("user", "centre_admin"), scopes=("read", "admin"))
    assert scene.client.get(f"/v1/runs/{run_id}", headers=root).status_code == 200
    service.gate.identities.remove_member("secretproject", "chief")
    assert scene.client.get(f"/v1/runs/{run_id}", headers=admin).status_code == 404


def test_pages_that_change_something_want_a_session_and_its_token(scene: Scene):
    """The dashboard's forms are not described by OpenAPI: they are found among the routes."""
    forms = [p for p, methods in _routes(scene.service.app) if not p.startswith(("/v1", "/auth")) and methods - {"GET", "HEAD", "OPTIONS"}]
    if not forms:
        pytest.skip("the dashboard is not here")
    gate, now = scene.service.gate, time.time()
    value = "a session's value that the browser alone knows"
    gate.credentials.add_session(SessionRow(gate.derived.digest("session", value), "victim", ("read", "write", "admin"), now, now + 600))
    before = state(scene)
    for path in forms:
        url = re.sub(r"{(\w+)}", lambda m: scene.things.get(m[1], "1"), path)
        for form in ({}, {"csrf_token": "0" * 64}):
            strange = scene.client.post(url, data=form, headers={"Cookie": "isched_session=guessed"})
            assert strange.status_code in (303, 401, 403, 404, 422), f"{path}: {strange.status_code}"
            assert not re.search(r'isched_session=[^";]', strange.headers.get("set-cookie", "")), path
            cookie = {"Cookie": f"isched_session={value}"}
            forged = scene.client.post(url, data=form, headers=cookie | {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"})
            assert forged.status_code in (401, 403, 404, 422), f"{path} from another site: {forged.status_code}"
            if path not in ("/login", "/logout", "/theme"):  # these three judge by where the form comes from
                own = scene.client.post(url, data=form, headers=cookie)
                assert own.status_code in (401, 403, 404, 422), f"{path} without its token: {own.status_code}"
    assert state(scene) == before
    assert gate.credentials.session(gate.derived.digest("session", value)) is not None, "signed out without the form's token"


def _routes(app: Any) -> list[tuple[str, set[str]]]:
    found: list[tuple[str, set[str]]] = []
    for route in app.routes:
        inner = getattr(route, "original_router", None)
        found += _routes(inner) if inner is not None else [(route.path, set(getattr(route, "methods", None) or ()))]
    return found
