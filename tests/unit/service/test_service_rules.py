"""The service's pure parts: rights, buckets, cursors, bodies, signatures, paths."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the service's libraries are not installed")

from hypothesis import given
from hypothesis import strategies as st

from ischeduler.core.elastic import Elastic
from ischeduler.core.errors import BadInput, ConfigError
from ischeduler.core.run import Caps
from ischeduler.core.service import Service
from ischeduler.core.workload import EnvironmentSpec, Workload
from ischeduler.service.api.bodies import CapsBody, ElasticBody, EnvironmentBody, ServiceBody, WorkloadBody
from ischeduler.service.api.problems import STATUS, of_error, slug_of
from ischeduler.service.auth.limits import Buckets, TooMany
from ischeduler.service.auth.principal import Principal, check_roles, check_scopes, check_user_name
from ischeduler.service.auth.secrets import Derived, make_key, read_key
from ischeduler.service.webhooks import signature
from ischeduler.store.run_pages import read_cursor, write_cursor


@pytest.mark.parametrize(("body", "kind"), [(WorkloadBody, Workload), (EnvironmentBody, EnvironmentSpec), (ServiceBody, Service), (ElasticBody, Elastic), (CapsBody, Caps)])
def test_a_body_has_the_very_fields_of_what_it_becomes(body: type, kind: type):
    assert set(body.model_fields) == {f.name for f in dataclasses.fields(kind)}  # pyright: ignore[reportAttributeAccessIssue]


def test_a_bodys_defaults_are_those_of_what_it_becomes():
    plain = WorkloadBody().model_dump()
    workload = Workload()
    for field in dataclasses.fields(Workload):
        if field.name != "environment":
            assert plain[field.name] == getattr(workload, field.name), field.name


def test_rights():
    plain = Principal("ada", scope=frozenset({"read", "write"}), administered=frozenset({"net"}))
    assert plain.may_see("ada", "")
    assert not plain.may_see("bob", "net")  # the scope admin is missing
    head = dataclasses.replace(plain, scope=frozenset({"read", "admin"}))
    assert head.may_see("bob", "net")
    assert not head.may_see("bob", "")
    assert not head.may_see("bob", "other")
    chief = Principal("eve", roles=frozenset({"centre_admin"}), scope=frozenset({"admin"}))
    assert chief.may_see("bob", "")
    assert not dataclasses.replace(chief, scope=frozenset({"read"})).may_see("bob", "")


@pytest.mark.parametrize("name", ["", "Ada", "../x", "a/b", "-rf", ".hidden", "a" * 33, "a\n", "ä", "a b", "$(x)", "a."])
def test_names_that_are_none(name: str):
    with pytest.raises(BadInput):
        check_user_name(name)


def test_words_that_are_none():
    with pytest.raises(BadInput, match="no role"):
        check_roles(("user", "god"))
    for scopes in ((), ("events",), ("everything",)):
        with pytest.raises(BadInput):
            check_scopes(scopes)


def test_a_bucket_drips():
    buckets = Buckets(rate=2.0, burst=3.0)
    assert [buckets.take("a", 0.0) for _ in range(3)] == [2.0, 1.0, 0.0]
    with pytest.raises(TooMany) as refused:
        buckets.take("a", 0.0)
    assert refused.value.retry_s == pytest.approx(0.5)
    assert buckets.take("b", 0.0) == 2.0
    assert buckets.take("a", 0.5) == pytest.approx(0.0)
    assert buckets.take("a", 1000.0) == 2.0


def test_buckets_forget_the_least_used():
    buckets = Buckets(rate=1.0, burst=1.0, most=2)
    for who in ("a", "b", "c"):
        buckets.take(who, 0.0)
    assert buckets.take("a", 0.0) == 0.0


@given(st.floats(0, 1e11), st.from_regex(r"r-[0-9a-f]{1,20}", fullmatch=True))
def test_a_cursor_is_read_back(at: float, run_id: str):
    assert read_cursor(write_cursor(at, run_id)) == (at, run_id)


def test_the_signature_is_that_of_the_standard():
    """The example of the Standard Webhooks specification."""
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    said = signature(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert said == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_every_error_of_the_house_is_a_problem():
    slugs = {slug_of(kind) for kind in STATUS}
    assert len(slugs) == len(STATUS)
    answer = of_error(BadInput("epochs is 0; give 1 or more."))
    assert (answer.status_code, answer.media_type) == (422, "application/problem+json")
    assert b'"fix":"give 1 or more."' in bytes(answer.body)


def test_the_key_is_read_from_a_private_file_only(tmp_path: Path):
    path = tmp_path / "keys" / "server.key"
    key = make_key(path)
    assert read_key(path) == key
    with pytest.raises(ConfigError, match="exists"):
        make_key(path)
    os.chmod(path, 0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_key(path)
    with pytest.raises(ConfigError, match="isched admin key"):
        read_key(tmp_path / "none")
    with pytest.raises(ConfigError):
        Derived(b"short")
    derived = Derived(key)
    assert derived.digest("token", "x") != derived.digest("session", "x")


def test_a_body_that_is_too_large_is_read_to_its_end_before_it_is_refused():
    """A proxy that is hung up on while it sends answers 502 to its own client."""
    import asyncio

    from ischeduler.service.headers import EVENT_BODY_BYTES, BodyLimit

    def told(parts: list[bytes], declared: bytes) -> tuple[int, int]:
        left, status = list(parts), 0

        async def receive() -> dict[str, object]:
            return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

        async def send(message: object) -> None:
            nonlocal status
            status = dict(message).get("status", status)  # type: ignore[call-overload]

        async def app(scope: object, receive: object, send: object) -> None:
            while (await receive())["type"] != "http.disconnect":  # type: ignore[operator]
                pass

        scope = {"type": "http", "path": "/v1/plans", "headers": [(b"content-length", declared)] if declared else []}
        asyncio.run(BodyLimit(app, most_bytes=10)(scope, receive, send))  # type: ignore[arg-type]
        return status, len(left)

    assert told([b"x" * 8] * 4, b"32") == (413, 0)
    assert told([b"x" * 8] * 4, b"") == (413, 0)  # no length declared: refused while it is read
    assert told([b"x" * (EVENT_BODY_BYTES // 2)] * 9, b"9999999999") == (413, 6)  # and nobody is read without end


def test_trusted_proxies_are_addresses_and_networks(tmp_path: Path):
    from ischeduler.helper.config import load_config
    from ischeduler.helper.serving import service_settings

    key = tmp_path / "key"
    make_key(key)

    def given(words: str) -> tuple[str, ...]:
        places = {"ISCHED_SYSTEM_CONFIG": "/dev/null", "XDG_CONFIG_HOME": str(tmp_path), "ISCHED_SERVE_KEY_FILE": str(key)}
        return service_settings(load_config(directory=tmp_path, environment={**places, "ISCHED_SERVE_TRUSTED_PROXIES": words})).trusted_proxies

    assert given("127.0.0.1,10.89.0.0/24") == ("127.0.0.1", "10.89.0.0/24")
    with pytest.raises(ConfigError, match=r"addresses and networks such as 10\.89\.0\.0/24, got 'proxy'"):
        given("proxy")
