"""Schemathesis over the whole description, in this process: no server error, and nothing that the description does not say."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

pytest.importorskip("schemathesis", reason="schemathesis is not installed")

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.specs.openapi import checks as openapi_checks

from ischeduler.testing.service import FIGURES, WORKLOAD, TestService, make_service

EXAMPLES = 10
CHECKS = [
    schemathesis.checks.not_a_server_error, openapi_checks.status_code_conformance, openapi_checks.content_type_conformance,
    openapi_checks.response_schema_conformance, openapi_checks.use_after_free, openapi_checks.ignored_auth,
]  # fmt: skip
ENDLESS = ("/v1/stream", "/v1/runs/{run_id}/stream")
"""Streams end with their run or their client; they are tested with a real server."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> TestService:
    return make_service(tmp_path_factory.mktemp("schemathesis"))


@pytest.fixture(scope="module")
def token(service: TestService) -> dict[str, str]:
    roles = ("user", "centre_admin", "estimator_developer")
    return service.add_user("tester", roles=roles, scopes=("read", "write", "admin"))


@pytest.fixture(scope="module")
def known(service: TestService, token: dict[str, str]) -> dict[str, str]:
    """Things that there are, so that not every answer is 404."""
    plan_id, _ = service.centre.plan("tester", WORKLOAD, assume=FIGURES)
    return {"run_id": service.run("tester"), "plan_id": plan_id, "cluster": "local"}


def test_the_description_is_kept(service: TestService, token: dict[str, str], known: dict[str, str]):
    """One test over all operations, since they are known only once the service is made; every failure is told."""
    schema = schemathesis.openapi.from_asgi("/v1/openapi.json", service.app).exclude(path=list(ENDLESS))
    failures: list[str] = []
    tried = 0
    for result in schema.get_all_operations():
        operation = result.ok()
        tried += 1
        try:
            _examples(operation, token, known)
        except (Exception, BaseExceptionGroup) as error:
            failures.append(f"{operation.label}: {str(error)[:1500]}")
    assert not failures, "\n\n".join(failures)
    assert tried >= 53


def _examples(operation: Any, token: dict[str, str], known: dict[str, str]) -> None:
    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, derandomize=True, phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy())
    def check(case: Any) -> None:
        tame(case, known)
        case.call_and_validate(headers=token, checks=CHECKS)

    check()


def tame(case: Any, known: dict[str, str]) -> None:
    """Every other question is about things that there are; no example loads a model of gigabytes or waits on purpose."""
    parameters = case.path_parameters or {}
    for name in set(parameters) & set(known):
        if hash(str(case.body)) % 2:
            parameters[name] = known[name]
    body = case.body if isinstance(case.body, dict) else {}
    if isinstance(body.get("workload"), dict) and case.path in ("/v1/plans", "/v1/estimates"):
        body["workload"]["model"] = ""
        body["clusters"] = ["local"]
    if case.path.endswith("/poll") and isinstance(case.body, dict):
        body["wait_s"] = 0
    if case.path == "/v1/stress-tests" and isinstance(body.get("runs"), int):
        body["runs"] = min(body["runs"], 3)
    if case.path.startswith("/v1/admin/users/{user}") and parameters.get("user") == "tester":
        parameters["user"] = "nobody"


def test_what_the_tests_leave_out_is_only_the_streams(service: TestService):
    paths = service.app.openapi()["paths"]
    assert set(ENDLESS) <= set(paths)
    assert sum(len(item) for path, item in paths.items() if path not in ENDLESS) >= 53


def test_the_shipped_description_is_valid(service: TestService):
    text = json.dumps(service.app.openapi())
    assert '"$defs"' not in text
    described = json.loads(text)
    names = set(described["components"]["schemas"])
    assert set(re.findall(r'"#/components/schemas/([^"]+)"', text)) <= names
