"""One service for the security suites: two users with a thing of every kind, and everybody who might try to get at them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from fastapi.testclient import TestClient
from hypothesis import find, settings
from hypothesis import strategies as st

from ischeduler.testing.service import FIGURES, WORKLOAD, TestService


@dataclass(frozen=True)
class Scene:
    """``things`` are the victim's, by the name of the path parameter that would name them."""

    service: TestService
    client: TestClient
    things: dict[str, str]
    people: dict[str, dict[str, str]]
    needles: tuple[str, ...]


def make_scene(service: TestService, client: TestClient) -> Scene:
    people = service.gate.identities
    victim = service.add_user("victim", scopes=("read", "write", "admin"))
    people.add_project("secretproject", "hush")
    people.set_member("secretproject", "victim")
    mallory = service.add_user("mallory", scopes=("read", "write", "admin"))
    developer = service.add_user("developer", roles=("user", "estimator_developer"), scopes=("read", "write", "admin"))
    head = service.add_user("head", roles=("user", "project_admin"), scopes=("read", "write", "admin"))
    people.add_project("otherproject")
    people.set_member("otherproject", "head", admin=True)
    people.set_member("otherproject", "mallory")
    things = _things(service, client, victim)
    mine = service.run("mallory")
    job = service.gate.tokens.make_for_job("mallory", mine, 3600)[0]
    attackers = {
        "another user": mallory, "an estimator developer": developer, "another project's admin": head,
        "another run's job": {"Authorization": f"Bearer {job}"},
    }  # fmt: skip
    needles = (things["run_id"], things["plan_id"], things["workload_id"], things["webhook_id"], things["token_id"], "hushhush")
    return Scene(service, client, things, {"victim": victim, **attackers}, needles)


def _things(service: TestService, client: TestClient, victim: dict[str, str]) -> dict[str, str]:
    def made(path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = client.post(path, json=body, headers=victim)
        assert answer.status_code == 201, answer.text
        return answer.json()

    workload = dict(WORKLOAD) | {"name": "hushhush"}
    plan = made("/v1/plans", {"workload": workload, "assume": FIGURES})
    run = made("/v1/runs", {"plan": plan["id"], "project": "secretproject"})
    service.gate.identities.change_user("developer", roles=["user", "estimator_developer"])
    people = service.gate.identities
    people.change_user("victim", roles=["user", "estimator_developer"])
    stress = made("/v1/stress-tests", {"plan": plan["id"], "runs": 1})
    people.change_user("victim", roles=["user"])
    return {
        "run_id": run["run"]["id"], "plan_id": plan["id"], "stress_id": stress["id"], "token_id": victim["Authorization"].split("_")[1],
        "workload_id": made("/v1/workloads", {"name": "hushhush", "workload": workload})["workload"]["id"],
        "webhook_id": service.app.state.desk.webhooks.add("h-00000000000000ff", "victim", "https://hushhush.example/", []).id,
        "user": "victim", "project": "secretproject", "cluster": "local", "kind": "progress", "word": "0" * 32,
    }  # fmt: skip


def smallest(schema: Any, components: dict[str, Any]) -> Any:
    """A small value that a JSON Schema of ours allows, every field given."""
    if "$ref" in schema:
        return smallest(components[schema["$ref"].rsplit("/", 1)[1]], components)
    for known in ("const", "default"):
        if known in schema:
            return schema[known]
    if "enum" in schema:
        return schema["enum"][0]
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            return smallest(schema[choice][0], components)
    return _by_type(schema, components)


def _by_type(schema: Any, components: dict[str, Any]) -> Any:
    kind = schema.get("type")
    if kind == "object":
        return {name: smallest(inner, components) for name, inner in schema.get("properties", {}).items()}
    if kind == "array":
        return [smallest(schema.get("items", {}), components) for _ in range(schema.get("minItems", 0))]
    if kind in ("integer", "number"):
        return schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1)
    if kind == "string":
        return _matching(schema["pattern"]) if "pattern" in schema else "x" * schema.get("minLength", 1)
    return kind == "boolean"


@cache
def _matching(pattern: str) -> str:
    for known in ("alice", "p-0123456789abcdef", "w-0123456789abcdef", "https://example.org/", "1.0", "a"):
        if re.search(pattern, known):
            return known
    return find(st.from_regex(pattern, fullmatch=True), lambda _: True, settings=settings(database=None, max_examples=20))
