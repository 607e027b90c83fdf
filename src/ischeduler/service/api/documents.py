"""The service's JSON answers are the command line's own documents: ``{"schema": "isched.NAME/1", ...}``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import Response
from fastapi.responses import JSONResponse

from ischeduler.core.codec import to_plain
from ischeduler.service.api.problems import MEDIA_TYPE

PROBLEM = {"$ref": "#/components/schemas/Problem"}
_WORDS = {
    304: "Not changed since the version named in If-None-Match.",
    401: "Nobody is signed in.", 403: "The credential may not do this.", 404: "There is no such thing for you.",
    409: "It cannot be done as things are: nothing fits, it has ended, or somebody else was faster.",
    412: "It was changed since the version named in If-Match.", 413: "The body is too large.",
    422: "The request cannot be; the detail says why.", 429: "Too many requests; Retry-After says when to come again.",
    502: "An estimator could not answer.", 503: "The batch system or the database does not answer, or the service is busy.",
}  # fmt: skip


def document(name: str, body: Mapping[str, Any], *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """One document; dataclasses in it are written plainly."""
    return JSONResponse({"schema": f"isched.{name}/1", **to_plain(dict(body))}, status_code=status, headers=dict(headers or {}))


def component(name: str) -> str:
    """The name of a document's schema among OpenAPI's components."""
    return f"isched.{name}.1"


def answers(name: str | None, *problems: int, status: int = 200, words: str = "The document.", also: tuple[int, ...] = ()) -> dict[int | str, Any]:
    """An endpoint's ``responses``: its document and the problems that it may answer with; every endpoint may say 401, 403, 422, 429."""
    found: dict[int | str, Any] = {}
    for code in (status, *also):
        found[code] = {"description": words}
        if name is not None:
            found[code]["content"] = {"application/json": {"schema": {"$ref": f"#/components/schemas/{component(name)}"}}}
    for code in sorted({401, 403, 422, 429, 503, *problems}):
        found[code] = {"description": _WORDS[code]}
        if code != 304:
            found[code]["content"] = {MEDIA_TYPE: {"schema": PROBLEM}}
    return found
