"""OpenAPI 3.1 with the schemas of the very documents that the command line prints."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from ischeduler.service.api.documents import answers, component
from ischeduler.service.backend import Backend

_REF = re.compile(r"#/components/schemas/isched\.([a-z-]+)\.1\b")
API_PATHS = ("/v1/", "/healthz", "/readyz")
_PROBLEM = {
    "title": "Problem", "type": "object", "description": "RFC 9457. `fix` says what to do, '' where there is nothing.",
    "properties": {
        "type": {"type": "string"}, "title": {"type": "string"}, "status": {"type": "integer"}, "detail": {"type": "string"},
        "fix": {"type": "string"},
        "errors": {"type": "array", "items": {"type": "object", "properties": {"where": {"type": "string"}, "what": {"type": "string"}}}},
    },
    "required": ["type", "title", "status", "detail", "fix"],
}  # fmt: skip


def install(app: FastAPI, backend: Backend) -> None:
    """Let ``app.openapi()`` carry every document's schema."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = build(app, backend)
        return app.openapi_schema

    app.openapi = openapi


def build(app: FastAPI, backend: Backend) -> dict[str, Any]:
    """The description of the whole API."""
    described = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes, tags=app.openapi_tags)
    described["paths"] = {path: item for path, item in described["paths"].items() if path.startswith(API_PATHS)}
    for item in described["paths"].values():
        for operation in item.values():
            if "401" not in operation["responses"] and operation.get("security"):
                operation["responses"] |= {str(k): v for k, v in answers(None, 404, 409, 413).items() if int(k) >= 400}
    components = described.setdefault("components", {}).setdefault("schemas", {})
    components["Problem"] = _PROBLEM
    for name in sorted(set(_REF.findall(json.dumps(described)))):
        add_document(components, name, backend.schema(name))
    return described


def add_document(components: dict[str, Any], name: str, schema: Mapping[str, Any]) -> None:
    """A document's schema and its definitions as components; references are turned to where they now stand."""
    text = json.dumps({k: v for k, v in schema.items() if k != "$schema"}).replace("#/$defs/", "#/components/schemas/")
    turned = json.loads(text)
    components.update(turned.pop("$defs", {}))
    components[component(name)] = turned
