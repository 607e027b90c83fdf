"""Requests checked against the OpenAPI documents that tapipy ships: the path, its parameters, the body."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from ischeduler.batch.tapis.schema import _resolve, openapi

RESOURCES = ("jobs", "systems", "apps", "files", "authenticator")


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a document. ``body`` is its JSON body's schema, no unknown fields allowed; None for none."""

    name: str
    method: str
    pattern: re.Pattern[str]
    query: frozenset[str]
    body: Mapping[str, Any] | None
    free: bool


class Wrong(Exception):
    """A request that the real services would refuse: an HTTP status and why."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@cache
def operations() -> tuple[Operation, ...]:
    """Every operation of the documents, the more literal paths first."""
    found: list[tuple[int, Operation]] = []
    for resource in RESOURCES:
        document = openapi(resource)
        for path, item in document["paths"].items():
            whole = path if path.startswith("/v3/") else f"/v3{path}"
            for method, operation in item.items():
                if method in ("get", "post", "put", "patch", "delete") and "operationId" in operation:
                    found.append((whole.count("{"), _operation(document, resource, whole, method, operation)))
    return tuple(o for _, o in sorted(found, key=lambda pair: pair[0]))


def match(method: str, path: str) -> tuple[Operation, dict[str, str]]:
    """The operation of a request and its path's parameters. Wrong (404) when there is none."""
    for operation in operations():
        found = operation.pattern.fullmatch(path)
        if found and operation.method == method:
            return operation, found.groupdict()
    raise Wrong(404, f"no operation {method} {path}")


def check(operation: Operation, query: Mapping[str, str], body: Any) -> None:
    """Wrong (400) for an unknown parameter or a body that does not fit."""
    from jsonschema import Draft7Validator

    for name in query:
        if name not in operation.query and not operation.free:
            raise Wrong(400, f"{operation.name} knows no parameter '{name}'")
    if operation.body is not None and isinstance(body, Mapping):
        errors = list(Draft7Validator(dict(operation.body)).iter_errors(body))
        if errors:
            raise Wrong(400, f"{operation.name}: {'.'.join(map(str, errors[0].path))}: {errors[0].message[:200]}")


def _operation(document: Mapping[str, Any], resource: str, path: str, method: str, operation: Mapping[str, Any]) -> Operation:
    """The last parameter of a path may hold slashes (file names)."""
    names = re.findall(r"\{(\w+)\}", path)
    pattern = re.escape(path).replace(r"\{", "{").replace(r"\}", "}")
    for name in names:
        inner = ".*" if path.endswith(f"{{{name}}}") and name in ("path", "outputPath") else "[^/]+"
        pattern = pattern.replace(f"{{{name}}}", f"(?P<{name}>{inner})")
    content = (operation.get("requestBody") or {}).get("content") or {}
    schema = (content.get("application/json") or {}).get("schema")
    parameters = {p["name"] for p in operation.get("parameters") or [] if p.get("in") == "query"}
    free = operation["operationId"] in ("getJobSearchList", "searchSystemsQueryParameters")
    body = _resolve(document, schema) if schema is not None else None
    return Operation(
        f"{resource}.{operation['operationId']}", method.upper(), re.compile(pattern), frozenset(parameters), body, free
    )
