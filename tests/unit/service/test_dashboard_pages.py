"""Pages answer to whom they should, escape what they show, need no script and nothing from elsewhere."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

sys.path.insert(0, str(Path(__file__).parent))

from dashboard_world import EVIL, NOW, World

from ischeduler.core.event import Event
from ischeduler.core.incoming import Incoming, Refused
from ischeduler.service.dashboard import rendering
from ischeduler.service.dashboard.access import local_path
from ischeduler.service.dashboard.charts import curve_plot, gantt_lane, ratio_dots, share_bar
from ischeduler.service.dashboard.routes import router
from ischeduler.service.dashboard.views.curves import Curve, Line
from ischeduler.service.dashboard.views.timeline import Bar, Lane, Timeline
from ischeduler.service.settings import OidcSettings
from ischeduler.store.ingest import EventInbox
from ischeduler.store.run_log import RunLog

PAGES = ("/runs", "/runs/r-7f3a01", "/runs/r-2b9c44", "/runs/r-0e71ab", "/runs/r-7f3a01/cancel", "/runs/r-7f3a01/move", "/clusters", "/plan", "/estimators")
PARTS = ("/runs/live", "/runs/r-7f3a01/live", "/clusters/live")
FORM = {"model": "timm:resnet50", "samples": "20000", "epochs": "50", "batch_size": "32,64", "goal": "soonest"}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def alice(world: World) -> Iterator[TestClient]:
    with signed_in(world, "alice") as client:
        yield client


def signed_in(world: World, name: str) -> TestClient:
    client = TestClient(world.app, follow_redirects=False)
    assert client.post("/login", data={"token": world.tokens[name]}).status_code == 303
    return client


def csrf(client: TestClient) -> str:
    found = re.search(r'name="csrf_token" value="([0-9a-f]+)"', client.get("/plan").text)
    assert found is not None
    return found[1]


def once(client: TestClient, path: str) -> str:
    found = re.search(r'name="once" value="([^"]+)"', client.get(path).text)
    assert found is not None
    return found[1]


class Outline(HTMLParser):
    """What a page is made of: tags with their attributes, and ids."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [a for t, a in self.tags if t == tag]


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_whole_and_marked_up_for_everybody(alice: TestClient, path: str) -> None:
    answer = alice.get(path)
    assert answer.status_code == 200
    outline = Outline(answer.text)
    assert len(outline.all("h1")) == 1
    assert next(a["href"] for a in outline.all("a")) == "#main"
    assert {"header", "nav", "main", "footer"} <= {t for t, _ in outline.tags}
    ids = [a["id"] for _, a in outline.tags if "id" in a]
    assert len(ids) == len(set(ids))
    for tag, attributes in outline.tags:
        if tag in ("input", "select") and attributes.get("type") not in ("hidden", "checkbox"):
            assert any(label.get("for") == attributes["id"] for label in outline.all("label"))
        if tag == "svg" and attributes.get("aria-hidden") != "true":
            assert attributes["role"] == "img"
            assert attributes["aria-label"]


@pytest.mark.parametrize("path", [*PAGES, *PARTS, "/login"])
def test_nothing_is_inline_and_nothing_comes_from_elsewhere(alice: TestClient, path: str) -> None:
    answer = alice.get(path)
    for tag, attributes in Outline(answer.text).tags:
        assert "style" not in attributes
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("src", "href", "action", "hx-get", "sse-connect"):
            assert (attributes.get(name) or "/").startswith(("/", "#")), (tag, attributes)
        if tag == "script":
            assert attributes["src"]
    policy = answer.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", [*PAGES, *PARTS])
def test_what_users_and_jobs_wrote_is_text(alice: TestClient, path: str) -> None:
    text = alice.get(path).text
    assert EVIL not in text
    assert "<script>alert" not in text
    assert "<img src=x" not in text


def test_names_messages_logs_events_and_notes_are_shown_escaped(alice: TestClient) -> None:
    page = alice.get("/runs/r-0e71ab").text
    assert page.count("&lt;script&gt;alert(&#39;run&#39;)") >= 4
    sent = alice.post("/plan", data=FORM | {"csrf_token": csrf(alice), "name": EVIL})
    options = alice.get(sent.headers["location"]).text
    assert "pitzer: &lt;script&gt;" in options
    again = alice.post("/plan", data=FORM | {"csrf_token": csrf(alice), "name": EVIL, "epochs": EVIL})
    assert again.status_code == 422
    assert EVIL not in again.text
    assert "&lt;script&gt;" in again.text


def test_curve_data_cannot_break_out_of_its_attribute(alice: TestClient) -> None:
    for attributes in Outline(alice.get("/runs/r-7f3a01").text).all("div"):
        if "data-curve" in attributes:
            assert (attributes["data-curve"] or "").startswith('{"title"')
            return
    pytest.fail("no curve was drawn")


@pytest.mark.parametrize("path", [*PAGES, "/admin", "/plan/p-0001", "/plan/p-0001/1"])
def test_strangers_are_led_to_the_sign_in(world: World, path: str) -> None:
    stranger = TestClient(world.app, follow_redirects=False)
    answer = stranger.get(path)
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/login?back=/")


def test_a_live_part_of_an_ended_session_sends_its_page_to_the_sign_in(world: World) -> None:
    answer = TestClient(world.app, follow_redirects=False).get("/runs/live", headers={"HX-Request": "true"})
    assert (answer.status_code, answer.headers["hx-redirect"]) == (401, "/login")


def _pages_of_a_run() -> list[tuple[str, str]]:
    return [(m, r.path) for part in _parts(router) for r in [part] if "{run_id}" in r.path for m in r.methods]


def _parts(found: Any) -> Iterator[Any]:
    for route in found.routes:
        inner = getattr(route, "original_router", None) or getattr(route, "router", None)
        if hasattr(route, "path") and hasattr(route, "methods"):
            yield route
        elif inner is not None:
            yield from _parts(inner)


def test_other_peoples_runs_do_not_exist_on_any_page(world: World) -> None:
    """Generated from the router: a new page of a run cannot be forgotten."""
    routes = _pages_of_a_run()
    assert len(routes) >= 6
    with signed_in(world, "alice") as client:
        token = csrf(client)
        for method, path in routes:
            for run_id in ("r-b0b123", "r-dddddd"):
                data = {"csrf_token": token, "where": "pitzer/gpu"} if method == "POST" else None
                answer = client.request(method, path.replace("{run_id}", run_id), data=data)
                assert answer.status_code == 404, (method, path)
                assert "bobs-secret" not in answer.text
    assert world.shelf.asked == []


def test_lists_hold_ones_own_runs_only(world: World) -> None:
    with signed_in(world, "alice") as client:
        assert "bobs-secret" not in client.get("/runs").text
        assert "bobs-secret" not in client.get("/runs?everybody=1").text
    with signed_in(world, "carol") as client:
        assert "No runs yet" in client.get("/runs").text
        assert "bobs-secret" in client.get("/runs?everybody=1").text


def test_other_peoples_plans_do_not_exist(world: World) -> None:
    with signed_in(world, "alice") as client:
        made = client.post("/plan", data=FORM | {"csrf_token": csrf(client)}).headers["location"]
        assert client.get(made).status_code == 200
    with signed_in(world, "bob") as client:
        assert client.get(made).status_code == 404
        assert client.get(f"{made}/1").status_code == 404
        assert client.post(f"{made}/1", data={"csrf_token": csrf(client)}).status_code == 404


def test_administration_is_for_administrators(world: World) -> None:
    with signed_in(world, "alice") as client:
        assert client.get("/admin").status_code == 404
        assert 'href="/admin"' not in client.get("/runs").text
    with signed_in(world, "carol") as client:
        page = client.get("/admin")
        assert page.status_code == 200
        for words in ("Users", "Workers", "Queues", "Controllers", "alice", "centre admin"):
            assert words in page.text


@pytest.mark.parametrize("path", ["/runs/r-7f3a01/cancel", "/runs/r-7f3a01/move", "/plan", "/plan/p-0001/1"])
def test_a_form_without_its_token_does_nothing(world: World, path: str) -> None:
    with signed_in(world, "alice") as client:
        for given in ({}, {"csrf_token": "0" * 64}, {"csrf_token": ""}):
            assert client.post(path, data=FORM | {"where": "pitzer/gpu"} | given).status_code == 403
        assert client.post(path, data=FORM | {"csrf_token": csrf(client)}, headers={"Origin": "https://evil.example"}).status_code == 403
    assert [a for a in world.shelf.asked if a[0] != "plan"] == []


def test_another_sessions_token_is_of_no_use(world: World) -> None:
    with signed_in(world, "bob") as bob, signed_in(world, "alice") as client:
        assert client.post("/runs/r-7f3a01/cancel", data={"csrf_token": csrf(bob)}).status_code == 403


def test_cancel_asks_first_and_then_does_it(world: World) -> None:
    with signed_in(world, "alice") as client:
        question = client.get("/runs/r-7f3a01/cancel").text
        assert "Checkpoints stay" in question
        assert world.shelf.asked == []
        done = client.post("/runs/r-7f3a01/cancel", data={"csrf_token": csrf(client)})
        assert (done.status_code, done.headers["location"]) == (303, "/runs/r-7f3a01")
        assert world.shelf.asked == [("cancel", "alice", "r-7f3a01")]
        assert "is being cancelled" in client.get("/runs/r-7f3a01").text


def test_an_ended_run_is_not_ended_again(world: World) -> None:
    with signed_in(world, "alice") as client:
        answer = client.post("/runs/r-5e1177/cancel", data={"csrf_token": csrf(client)})
        assert answer.status_code == 422
        assert "there is nothing to cancel" in answer.text
        assert "Plan again" in client.get("/runs/r-5e1177").text


def test_a_run_goes_to_a_project_of_ones_own_only(world: World) -> None:
    identities = world.app.state.gate.identities
    identities.add_project("vision")
    identities.set_member("vision", "alice")
    with signed_in(world, "alice") as client:
        token = csrf(client)
        client.post("/plan", data=FORM | {"csrf_token": token})
        assert "project vision" in client.get("/plan/p-0001/1").text
        assert client.post("/plan/p-0001/1", data={"csrf_token": token, "project": "physics"}).status_code == 422
        assert client.post("/plan/p-0001/1", data={"csrf_token": token, "project": "vision"}).status_code == 303
    assert world.shelf.store.get_run("r-fe5400").project == "vision"


def test_move_says_what_is_wrong_and_keeps_what_was_written(world: World) -> None:
    with signed_in(world, "alice") as client:
        token = csrf(client)
        for where, said in (("gpu", "CLUSTER/PARTITION"), ("nowhere/x", "there is no place")):
            answer = client.post("/runs/r-7f3a01/move", data={"csrf_token": token, "where": where})
            assert answer.status_code == 422
            assert said in answer.text
            assert f'value="{where}"' in answer.text
        assert client.post("/runs/r-7f3a01/move", data={"csrf_token": token, "where": "pitzer/a100"}).status_code == 303
        assert world.shelf.asked[-1] == ("move", "alice", "r-7f3a01", "pitzer/a100")


def test_from_the_form_over_the_options_to_a_run(world: World) -> None:
    with signed_in(world, "alice") as client:
        token = csrf(client)
        sent = client.post("/plan", data=FORM | {"csrf_token": token, "clusters": "pitzer", "goal": "deadline", "goal_value": "12h"})
        assert (sent.status_code, sent.headers["location"]) == (303, "/plan/p-0001")
        _, user, fields, asked = world.shelf.asked[-1]
        assert (user, asked) == ("alice", {"goal": "deadline=12h", "clusters": ["pitzer"]})
        assert fields == {"model": "timm:resnet50", "samples": "20000", "epochs": "50", "batch_size": "32,64"}
        options = client.get("/plan/p-0001").text
        for words in ("pitzer/gpudbg", "3 x 40m cascade", "does not fit: needs 41 GB", "batch 48 fits", "1 more option"):
            assert words in options
        assert "At most" in client.get("/plan/p-0001/2").text
        sent_once = {"csrf_token": token, "max_cost": "0.50", "allow_move": "1", "once": once(client, "/plan/p-0001/2")}
        answer = client.post("/plan/p-0001/2", data=sent_once)
        assert answer.headers["location"] == "/runs/r-fe5400"
        assert world.shelf.asked[-1] == ("submit", "alice", "p-0001", "2", {"allow_move": True, "allow_smaller_batch": False, "max_cost": 0.5})
        again = client.post("/plan/p-0001/2", data=sent_once)
        assert again.headers["location"] == "/runs/r-fe5400"
        other = client.post("/plan/p-0001/2", data=sent_once | {"once": once(client, "/plan/p-0001/2")})
        assert other.headers["location"] == "/runs/r-fe5401"


@pytest.mark.parametrize("cap", ["-1", "lots", "nan", "inf", "1e99", "0"])
def test_a_cap_that_is_no_amount_is_refused(world: World, cap: str) -> None:
    with signed_in(world, "alice") as client:
        token = csrf(client)
        client.post("/plan", data=FORM | {"csrf_token": token})
        answer = client.post("/plan/p-0001/1", data={"csrf_token": token, "max_cost": cap})
        assert answer.status_code == 422
        assert "no amount to spend" in answer.text
    assert [a[0] for a in world.shelf.asked] == ["plan"]


def test_a_mistake_in_the_form_stands_beside_its_field(world: World) -> None:
    with signed_in(world, "alice") as client:
        answer = client.post("/plan", data=FORM | {"csrf_token": csrf(client), "epochs": "many"})
        assert answer.status_code == 422
        epochs = next(a for a in Outline(answer.text).all("input") if a.get("name") == "epochs")
        assert (epochs["value"], epochs["aria-invalid"], epochs["aria-describedby"]) == ("many", "true", "e-epochs ")
        assert 'value="20000"' in answer.text


def test_change_leads_back_to_the_form_as_it_was(world: World) -> None:
    with signed_in(world, "alice") as client:
        client.post("/plan", data=FORM | {"csrf_token": csrf(client)})
        back = next(a["href"] for a in Outline(client.get("/plan/p-0001").text).all("a") if (a["href"] or "").startswith("/plan?"))
        form = Outline(client.get(back or "").text)
        values = {a["name"]: a.get("value") for a in form.all("input") if a.get("name") in FORM}
        assert values["model"] == "timm:resnet50"
        assert values["batch_size"] == "32,64"


def test_a_wrong_token_opens_nothing(world: World) -> None:
    client = TestClient(world.app, follow_redirects=False)
    for token in ("", "isc_0000", "isc_0000000000000000_" + "a" * 43, world.tokens["alice"][:-1] + "!"):
        answer = client.post("/login", data={"token": token})
        assert answer.status_code == 401
        assert "isched_session" not in client.cookies
        assert token == "" or token not in answer.text
    assert client.post("/login", data={"token": world.tokens["alice"]}, headers={"Origin": "https://evil.example"}).status_code == 403


def test_the_institutions_sign_in_is_offered_where_there_is_one(world: World, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = World(tmp_path / "other", oidc=OidcSettings("https://login.example.org", "isched"))
    link = next(a["href"] for a in Outline(TestClient(other.app).get("/login?back=/clusters").text).all("a") if "/auth/" in (a["href"] or ""))
    assert link == "/auth/start?next=%2Fclusters"
    assert "/auth/" not in TestClient(world.app).get("/login").text


def test_signing_out_ends_the_session(world: World) -> None:
    client = signed_in(world, "alice")
    cookie = client.cookies["isched_session"]
    assert client.post("/logout", data={"csrf_token": csrf(client)}).status_code == 303
    again = TestClient(world.app, follow_redirects=False, cookies={"isched_session": cookie})
    assert again.get("/runs").status_code == 303


@pytest.mark.parametrize("back", ["//evil.example", "https://evil.example/x", "/\\evil.example", "javascript:alert(1)", "/a\nb", "", "runs"])
def test_after_the_sign_in_nobody_is_led_elsewhere(back: str) -> None:
    assert local_path(back) == "/runs"
    assert local_path("/runs/r-1?log=2") == "/runs/r-1?log=2"


def test_the_theme_is_kept_without_a_script(world: World) -> None:
    client = TestClient(world.app, follow_redirects=False)
    assert "data-theme" not in client.get("/login").text
    assert client.post("/theme", data={"theme": "dark", "back": "/login"}).headers["location"] == "/login"
    assert '<html lang="en" data-theme="dark">' in client.get("/login").text
    client.post("/theme", data={"theme": '"><script>'})
    assert "data-theme" not in client.get("/login").text


def test_files_are_kept_by_their_fingerprint_and_nothing_else_is_served(world: World) -> None:
    client = TestClient(world.app)
    for name in ("app.css", "app.js", "icon.svg", "vendor/htmx.min.js", "vendor/uplot.min.js"):
        answer = client.get(rendering.static_url(name))
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
        assert client.get(rendering.static_url(name), headers={"If-None-Match": answer.headers["etag"]}).status_code == 304
    for name in ("../routes.py", "%2e%2e/routes.py", "..%2froutes.py", "vendor/../../routes.py", "/etc/passwd", "nothing.css"):
        assert client.get(f"/static/{name}").status_code == 404


def test_shipped_libraries_are_those_that_are_named() -> None:
    vendor = rendering.HERE / "static" / "vendor"
    named = re.findall(r"^\| (\S+) \|.*\| ([0-9a-f]{64}) \|$", (vendor / "README.md").read_text(), re.MULTILINE)
    assert {name for name, _ in named} == {p.name for p in vendor.iterdir() if p.suffix in (".js", ".css")}
    for name, digest in named:
        assert hashlib.sha256((vendor / name).read_bytes()).hexdigest() == digest
        assert (vendor / f"{name.partition('.')[0]}.LICENSE").exists()


def test_a_controller_that_does_not_answer_leaves_the_rest_of_the_page(alice: TestClient) -> None:
    page = alice.get("/clusters").text
    assert "the controller of cardinal does not answer" in page
    assert 'aria-label="6 of 64 v100-32g idle"' in page
    assert "queue 40s ago" in page
    assert "facts 400d00h ago" in page


def test_a_forecast_is_not_made_anew_for_every_look(world: World) -> None:
    made: list[str] = []
    real = world.shelf.forecasts
    world.shelf.forecasts = lambda user, cluster, *a, **k: made.append(user) or real(user, cluster)  # type: ignore[method-assign,func-returns-value]
    with signed_in(world, "alice") as client, signed_in(world, "bob") as bob:
        assert "5h12–26h00" in client.get("/clusters").text
        assert "5h12–26h00" in client.get("/clusters/live").text
        bob.get("/clusters")
    assert made == ["alice", "bob"]


def test_without_the_simulators_libraries_counts_are_shown(world: World) -> None:
    def missing(*args: Any, **more: Any) -> Any:
        raise ModuleNotFoundError("No module named 'numba'")

    world.shelf.forecasts = missing  # type: ignore[method-assign]
    with signed_in(world, "alice") as client:
        page = client.get("/clusters")
    assert page.status_code == 200
    assert 'aria-label="6 of 64 v100-32g idle"' in page.text


def test_charts_escape_and_tell_in_words() -> None:
    lane = Lane(1, EVIL, EVIL, "running", (Bar("run", 0.1, 0.5),), (0.2,), 1, "live", EVIL, "1m", "2m", "", "")
    axis = Timeline(0, 100, (lane,), (), 0.5, (0.1, 0.2, 0.3), "")
    curve = Curve(EVIL, "step", "", (0.0, 1.0), (Line(EVIL, (1.0, 2.0)),))
    for drawn in (gantt_lane(lane, axis), curve_plot(curve), share_bar(0.5, EVIL), ratio_dots([(1.0, True)], EVIL)):
        assert "<script" not in drawn
        assert "&lt;script&gt;" in drawn
        assert "style=" not in drawn


def test_a_gap_in_a_curve_is_not_drawn_over() -> None:
    curve = Curve("x", "step", "GB", (0.0, 1.0, 2.0, 3.0, 4.0), (Line("y", (1.0, 2.0, None, 3.0, 4.0)),))
    assert curve_plot(curve).count("<polyline") == 2


def test_a_long_runs_page_reads_a_choice_of_its_events(world: World) -> None:
    store = world.shelf.store
    told = [Event("r-2b9c44", "progress", NOW - 9000 + i, "job", "1.0", i, {"step": i, "loss": 1.0}) for i in range(1, 5001)]
    store.save_run(store.get_run("r-2b9c44"), [*told, Event("r-2b9c44", "started", NOW, "job", "1.0", 9000)])
    log = RunLog(store.engine)
    some = log.thinned("r-2b9c44", ("progress",))
    assert len(some) <= 1000
    assert some[-1].seq == 5000
    assert [e.kind for e in log.newest("r-2b9c44", but=("progress",))] == ["started"]
    with signed_in(world, "alice") as client:
        page = client.get("/runs/r-2b9c44").text
    assert "5000 more" in page
    assert "Loss by step" in page


def test_what_a_job_has_just_sent_is_drawn_before_the_plane_has_looked(world: World) -> None:
    inbox = EventInbox(world.shelf.engine)
    data = [("progress", {"step": s, "loss": 1.0 / s}) for s in (1, 2, 3)] + [("performance", {"accuracy": 0.1 * s}) for s in (1, 2, 3)]
    inbox.write([Incoming("r-2b9c44", "job", "1.0", i, kind, NOW - 100 + i, json.dumps(d)) for i, (kind, d) in enumerate(data, 1)])
    with signed_in(world, "alice") as client:
        page = client.get("/runs/r-2b9c44").text
    assert "loss from 1 to 0.333, lowest 0.333" in page
    assert "accuracy from 0.1 to 0.3" in page


def test_administrators_see_what_was_refused_as_text(world: World) -> None:
    EventInbox(world.shelf.engine).write([], [Refused("http", f"not an event: {EVIL}", EVIL.encode(), "r-2b9c44")])
    with signed_in(world, "carol") as client:
        page = client.get("/admin").text
    assert "not an event: &lt;script&gt;" in page
    assert EVIL not in page
