"""Which version of slurmrestd's interface is spoken, and what a job's description may hold in it. Pure.

The server's own OpenAPI document decides: the newest version known here that it offers, and of that version which fields there
are and of what type. Versions: v0.0.38 (Slurm 22.05) to v0.0.45; older ones lack what is needed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from ischeduler.core.errors import BatchUnavailable

OLDEST, NEWEST = 38, 45
_SUBMIT = re.compile(r"/slurm/v0\.0\.(\d+)/job/submit/?")


@dataclass(frozen=True, slots=True)
class Dialect:
    """One version. ``fields`` maps each field of a job to its JSON type; ``kill_flags`` says whether a signal can be sent to the
    batch shell alone; ``accounting`` whether slurmdbd can be asked."""

    number: int
    fields: Mapping[str, str]
    kill_flags: bool
    accounting: bool

    @property
    def version(self) -> str:
        """``v0.0.40``."""
        return f"v0.0.{self.number}"

    def has(self, name: str) -> bool:
        """Whether a job may have this field."""
        return name in self.fields


def choose(document: Mapping[str, Any]) -> Dialect:
    """The dialect to speak with the server whose OpenAPI ``document`` this is.

    BatchUnavailable where it offers none that is known. Of versions all newer than known ones the oldest is tried.
    """
    paths: Mapping[str, Any] = document.get("paths") or {}
    offered = {int(m[1]): path for path in paths if (m := _SUBMIT.fullmatch(path))}
    known = [n for n in offered if OLDEST <= n <= NEWEST]
    newer = [n for n in offered if n > NEWEST]
    if not known and not newer:
        names = ", ".join(f"v0.0.{n}" for n in sorted(offered)) or "none"
        raise BatchUnavailable(
            f"slurmrestd offers no version that is known here (it has {names}; expected v0.0.{OLDEST} or later)."
        )
    number = max(known) if known else min(newer)
    fields = _job_fields(document, paths[offered[number]])
    if not fields:
        raise BatchUnavailable(
            f"slurmrestd does not say what a job of v0.0.{number} may hold; its OpenAPI document is incomplete."
        )
    kill = _operation(paths, f"/slurm/v0.0.{number}/job/{{job_id}}", "delete")
    flags = any(_resolve(document, p).get("name") == "flags" for p in kill.get("parameters") or [])
    return Dialect(number, fields, flags, f"/slurmdb/v0.0.{number}/jobs" in {p.rstrip("/") for p in paths})


def _job_fields(document: Mapping[str, Any], path: Mapping[str, Any]) -> dict[str, str]:
    content = _resolve(document, path.get("post", {}).get("requestBody") or {}).get("content") or {}
    body = _resolve(document, content.get("application/json", {}).get("schema") or {})
    job = _resolve(document, _properties(body).get("job") or {})
    return {name: _type(document, schema) for name, schema in _properties(job).items()}


def _type(document: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    found = _resolve(document, schema)
    if "oneOf" in found or "anyOf" in found:
        choices = found.get("oneOf") or found.get("anyOf")
        return _type(document, choices[0]) if choices else "string"
    return str(found.get("type") or ("object" if "properties" in found else "string"))


def _properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    return schema.get("properties") or {}


def _operation(paths: Mapping[str, Any], path: str, method: str) -> Mapping[str, Any]:
    entry = paths.get(path) or paths.get(path + "/") or {}
    return {"parameters": entry.get("parameters"), **(entry.get(method) or {})}


def _resolve(document: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follows ``$ref`` inside the document."""
    for _ in range(20):
        if "$ref" not in schema:
            return schema
        found: Any = document
        for word in str(schema["$ref"]).removeprefix("#/").split("/"):
            found = cast(Mapping[str, Any], found).get(word, {}) if isinstance(found, Mapping) else {}
        schema = cast(Mapping[str, Any], found)
    return {}
