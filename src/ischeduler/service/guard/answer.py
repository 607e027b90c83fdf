"""The guard's question and answer as documents and as the lines the filter reads. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ischeduler.core.errors import BadInput
from ischeduler.service.guard.judge import Advice

SCHEMA = "isched.guard/1"
LONGEST_QUESTION = 8192
SETTABLE = ("time", "partition")


def read_question(text: str) -> Mapping[str, str]:
    """The job's fields of ``{"schema": "isched.guard/1", "job": {...}}``. BadInput otherwise.

    The schema also keeps text that was sealed for another purpose from being taken for a question.
    """
    try:
        document: Any = json.loads(text) if len(text) <= LONGEST_QUESTION else None
    except ValueError:
        document = None
    job = document.get("job") if isinstance(document, dict) and document.get("schema") == SCHEMA else None
    if not isinstance(job, dict):
        raise BadInput(f'this is no question of the guard; expected {{"schema": "{SCHEMA}", "job": {{...}}}}.')
    return {str(k): v for k, v in job.items() if isinstance(v, str)}


def document(advice: Sequence[Advice]) -> dict[str, Any]:
    """The answer for programs."""
    return {"schema": SCHEMA, "advice": [{"kind": a.kind, "text": a.text, "changes": dict(a.changes)} for a in advice]}


def lines(advice: Sequence[Advice], *, rewrite: bool) -> str:
    """The answer for the filter: ``say WORDS`` and, where the site lets the guard rewrite, ``set OPTION VALUE`` before it is told."""
    found: list[str] = []
    for one in advice:
        changes = {k: v for k, v in one.changes.items() if k in SETTABLE} if rewrite else {}
        found += [f"set {key} {value}" for key, value in changes.items()]
        told = "".join(f" (set: --{k}={v}; ISCHED_GUARD=off keeps yours)" for k, v in changes.items())
        found.append(f"say {' '.join(one.text.split())}{told}")
    return "".join(f"{line}\n" for line in found)
