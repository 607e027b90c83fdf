"""How a job carries its idempotency key. Pure.

The key travels in the job's **name** because every Slurm keeps that, with and without accounting; the comment, which accounting
keeps only with ``AccountingStoreFlags=job_comment``, is for people and for jobs whose name somebody changed.
"""

from __future__ import annotations

import re

from ischeduler.core.errors import BadInput

PREFIX = "isched-"
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_COMMENT = re.compile(r"isched:([A-Za-z0-9][A-Za-z0-9._-]{0,99})(?:\s|$)")


def job_name(key: str) -> str:
    """``isched-KEY``; BadInput for a key that a batch system could not carry unharmed."""
    if not _KEY.fullmatch(key):
        raise BadInput(f"'{key}' is not a job key; expected up to 100 letters, digits, '.', '_' and '-'.")
    return PREFIX + key


def job_comment(key: str, text: str = "") -> str:
    """``isched:KEY text``."""
    return f"isched:{key} {text}".strip()


def key_of(name: str, comment: str = "") -> str | None:
    """The key a job carries, by its name or else by its comment; None for a job that is not ours."""
    candidate = name.removeprefix(PREFIX)
    if name.startswith(PREFIX) and _KEY.fullmatch(candidate):
        return candidate
    match = _COMMENT.match(comment)
    return match[1] if match else None
