"""Signing in: OpenID Connect against a stand-in provider, Tapis tokens, sessions and their forms, personal and job tokens."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the service's libraries are not installed")

import httpx2 as httpx
import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from fastapi.testclient import TestClient

from ischeduler.service.auth.oidc import safe_path
from ischeduler.service.settings import OidcSettings, TapisSettings
from ischeduler.testing.oidc_provider import FAULTS, StandInProvider, stand_in_provider
from ischeduler.testing.service import BASE_URL, TestService, make_service

ISSUER = "https://dev.tapis.example/v3/tokens"


@pytest.fixture(scope="module")
def key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


@pytest.fixture(scope="module")
def provider() -> Iterator[StandInProvider]:
    with stand_in_provider() as found:
        yield found


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, provider: StandInProvider, key: rsa.RSAPrivateKey) -> TestService:
    pem = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo).decode()
    return make_service(
        tmp_path_factory.mktemp("sign-in"), open_registration=True, tapis=TapisSettings(ISSUER, pem, "dev"),
        oidc=OidcSettings(provider.url, provider.client_id, provider.client_secret),
    )  # fmt: skip


@pytest.fixture
def browser(service: TestService, provider: StandInProvider) -> Iterator[TestClient]:
    provider.fault, provider.subject = "", "subject-1"
    with TestClient(service.app, raise_server_exceptions=False, follow_redirects=False) as found:
        yield found


def sign_in(browser: TestClient, next_path: str = "/v1/me") -> httpx.Response:
    """The three redirects, as a browser follows them."""
    begun = browser.get("/auth/start", params={"next": next_path})
    if begun.status_code != 303:
        return begun
    there = httpx.get(begun.headers["location"], follow_redirects=False)
    assert there.status_code == 302, there.text
    return browser.get(there.headers["location"].removeprefix(BASE_URL))


def test_signing_in_opens_a_session(browser: TestClient):
    done = sign_in(browser)
    assert (done.status_code, done.headers["location"]) == (303, "/v1/me")
    cookie = done.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    assert browser.get("/v1/me").json()["me"]["user"] == "alice"


@pytest.mark.parametrize("fault", [f for f in FAULTS if f not in ("", "away")])
def test_a_wrong_identity_is_none(browser: TestClient, provider: StandInProvider, fault: str):
    provider.fault = fault
    done = sign_in(browser)
    assert done.status_code == 401, done.text
    assert browser.get("/v1/me").status_code == 401


def test_the_answer_is_taken_once_and_from_this_browser_only(browser: TestClient, provider: StandInProvider, service: TestService):
    begun = browser.get("/auth/start")
    there = httpx.get(begun.headers["location"], follow_redirects=False)
    path = there.headers["location"].removeprefix(BASE_URL)
    with TestClient(service.app, follow_redirects=False) as other:
        assert other.get(path).status_code == 401
    state = dict(browser.cookies)
    assert browser.get(path).status_code == 303
    before = provider.exchanges
    browser.cookies.update(state)
    assert browser.get(path).status_code == 401
    assert provider.exchanges == before


def test_a_taken_name_is_not_given_to_somebody_else(browser: TestClient, provider: StandInProvider):
    assert sign_in(browser).status_code == 303
    browser.cookies.clear()
    provider.subject = "subject-2"
    answer = sign_in(browser)
    assert answer.status_code == 401
    assert "somebody's here already" in answer.json()["detail"]


def test_a_provider_that_is_away_is_a_sentence(tmp_path: Path):
    service = make_service(tmp_path, oidc=OidcSettings("http://127.0.0.1:9", "id", "secret"))
    with TestClient(service.app) as client:
        answer = client.get("/auth/start", follow_redirects=False)
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:ischeduler:problem:provider-away")


@pytest.mark.parametrize("text", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", "", "/a\nb", "\\\\x"])
def test_no_redirect_to_elsewhere(text: str):
    assert safe_path(text) == "/"


def test_a_session_changes_nothing_without_its_csrf_token(browser: TestClient, service: TestService):
    sign_in(browser)
    body = {"name": "x", "workload": {"model": "timm:resnet50"}}
    assert browser.post("/v1/workloads", json=body).status_code == 403
    assert browser.post("/v1/workloads", json=body, headers={"X-CSRF-Token": "0" * 64}).status_code == 403
    value = browser.cookies["isched_session"]
    right = {"X-CSRF-Token": service.gate.derived.digest("csrf", value)}
    assert browser.post("/v1/workloads", json=body, headers=right | {"Origin": "https://evil.example"}).status_code == 403
    assert browser.post("/v1/workloads", json=body, headers=right | {"Origin": BASE_URL}).status_code == 201
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert browser.post("/v1/workloads", content="a=b", headers=form).status_code == 403


def tapis(key: rsa.RSAPrivateKey, **change: Any) -> dict[str, str]:
    claims = {
        "iss": ISSUER, "sub": "carol@dev", "exp": int(time.time()) + 300, "tapis/tenant_id": "dev", "tapis/token_type": "access",
        "tapis/username": "carol",
    }  # fmt: skip
    return {"X-Tapis-Token": jwt.encode({k: v for k, v in (claims | change).items() if v is not None}, key, algorithm="RS256")}


def test_tapis_tokens(browser: TestClient, key: rsa.RSAPrivateKey):
    good = tapis(key)
    assert browser.get("/v1/me", headers=good).json()["me"]["user"] == "carol"
    assert browser.get("/v1/me", headers={"Authorization": f"Bearer {good['X-Tapis-Token']}"}).status_code == 200


@pytest.mark.parametrize(
    "change",
    [{"iss": "https://other"}, {"exp": 1}, {"exp": None}, {"tapis/tenant_id": "prod"}, {"tapis/token_type": "refresh"}, {"sub": None}],
)  # fmt: skip
def test_wrong_tapis_tokens(browser: TestClient, key: rsa.RSAPrivateKey, change: dict[str, Any]):
    assert browser.get("/v1/me", headers=tapis(key, **change)).status_code == 401


def test_tapis_tokens_of_another_signer_or_of_none(browser: TestClient, key: rsa.RSAPrivateKey):
    assert browser.get("/v1/me", headers=tapis(rsa.generate_private_key(65537, 2048))).status_code == 401
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    claims = {"iss": ISSUER, "sub": "carol@dev", "exp": int(time.time()) + 300}
    unsigned = jwt.encode(claims, "", algorithm="none")
    assert browser.get("/v1/me", headers={"X-Tapis-Token": unsigned}).status_code == 401
    import base64
    import hashlib
    import hmac
    import json

    def part(value: Any) -> bytes:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")

    head = part({"alg": "HS256", "typ": "JWT"}) + b"." + part(claims)
    signed = head + b"." + base64.urlsafe_b64encode(hmac.digest(public, head, hashlib.sha256)).rstrip(b"=")
    assert browser.get("/v1/me", headers={"X-Tapis-Token": signed.decode()}).status_code == 401


def test_tokens_expire_are_withdrawn_and_their_users_disabled(browser: TestClient, service: TestService):
    who = service.add_user("dora")
    token_id = who["Authorization"].split("_")[1]
    assert browser.get("/v1/me", headers=who).status_code == 200
    old, row = service.gate.tokens.make("dora", scopes=("read",), ttl_s=60)
    service.gate.credentials.revoke(row.id)
    assert browser.get("/v1/me", headers={"Authorization": f"Bearer {old}"}).status_code == 401
    assert browser.delete(f"/v1/tokens/{token_id}", headers=who).status_code == 204
    assert browser.get("/v1/me", headers=who).status_code == 401
    again = service.headers("dora")
    service.gate.identities.change_user("dora", disabled=True)
    assert browser.get("/v1/me", headers=again).status_code == 401


def test_an_expired_token_is_none(browser: TestClient, service: TestService, monkeypatch: pytest.MonkeyPatch):
    who = service.add_user("erik")
    later = time.time() + 7200
    monkeypatch.setattr(type(service.centre.clock), "now", lambda _: later)
    assert browser.get("/v1/me", headers=who).status_code == 401


def test_a_jobs_token_does_nothing_but_its_own_runs_events(browser: TestClient, service: TestService):
    service.add_user("finn")
    mine, other = service.run("finn"), service.run("finn")
    text, _ = service.gate.tokens.make_for_job("finn", mine, 600)
    job = {"Authorization": f"Bearer {text}"}
    assert browser.get(f"/v1/runs/{mine}/control", headers=job).json()["word"] == ""
    assert browser.get(f"/v1/runs/{other}/control", headers=job).status_code == 404
    assert browser.get(f"/v1/runs/{mine}", headers=job).status_code == 403
    assert browser.post(f"/v1/runs/{mine}/cancel", headers=job).status_code == 403
    assert browser.post("/v1/tokens", json={}, headers=job).status_code == 403


def test_a_token_gives_no_more_than_it_has(browser: TestClient, service: TestService):
    service.add_user("gina", roles=("user", "centre_admin"))
    narrow = service.headers("gina", ("read", "write"))
    assert browser.post("/v1/tokens", json={"scopes": ["admin"]}, headers=narrow).status_code == 403
    assert browser.get("/v1/admin/users", headers=narrow).status_code == 403
    assert browser.get("/v1/admin/users", headers=service.headers("gina", ("admin",))).status_code == 200
    made = browser.post("/v1/tokens", json={"scopes": ["read"], "days": 1}, headers=narrow).json()
    assert browser.get("/v1/me", headers={"Authorization": f"Bearer {made['secret']}"}).json()["me"]["scope"] == ["read"]
    listed = browser.get("/v1/tokens", headers=narrow).text
    assert made["secret"] not in listed
    assert "digest" not in listed


def test_the_database_holds_no_secret(browser: TestClient, service: TestService):
    sign_in(browser)
    who = service.add_user("hans")
    path = service.centre.engine.url.database
    assert path is not None
    with service.centre.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    stored = Path(path).read_bytes()
    assert who["Authorization"].removeprefix("Bearer ").encode() not in stored
    assert browser.cookies["isched_session"].encode() not in stored


def test_what_was_done_is_in_the_audit_log_and_stays(browser: TestClient, service: TestService):
    from ischeduler.store.centre_tables import AUDIT
    from ischeduler.store.engine import WRITE

    who = service.add_user("ines")
    run_id = service.run("ines")
    assert browser.post(f"/v1/runs/{run_id}/cancel", headers=who).status_code == 200
    assert browser.post(f"/v1/runs/{run_id}/move", json={"where": "no/where"}, headers=who).status_code == 409
    lines = service.gate.log.lines(who="ines")
    assert [(a.what, a.outcome) for a in lines] == [("run.move", "NoFeasiblePlan"), ("run.cancel", "done")]
    assert {a.about for a in lines} == {run_id}
    assert all(a.origin and a.token_id for a in lines)
    writing = service.centre.engine.execution_options(**WRITE)
    for statement in (AUDIT.update().values(who="nobody"), AUDIT.delete()):
        with pytest.raises(Exception, match="append-only"), writing.begin() as connection:
            connection.execute(statement)
    assert len(service.gate.log.lines(who="ines")) == 2
