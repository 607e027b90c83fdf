"""The audit log: who did what to what, when and from where. Lines are added; the database itself refuses to change or remove one."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Engine, insert, select

from ischeduler.store.centre_tables import AUDIT
from ischeduler.store.engine import WRITE


@dataclass(frozen=True, slots=True)
class AuditLine:
    """One deed. ``origin`` is the address it came from; ``outcome`` is 'done', 'refused' or 'failed'. ``detail`` holds no secret."""

    who: str
    what: str
    about: str = ""
    origin: str = ""
    token_id: str = ""
    outcome: str = "done"
    detail: Mapping[str, Any] = field(default_factory=dict[str, Any])
    at: float = 0.0
    row: int = 0


class AuditLog:
    """Add lines, read lines."""

    def __init__(self, engine: Engine, *, clock: Callable[[], float] = time.time) -> None:
        self._engine, self._writing, self._clock = engine, engine.execution_options(**WRITE), clock

    def add(self, line: AuditLine) -> None:
        """Write a line, dated now."""
        values = {
            "at": self._clock(), "who": line.who[:64], "token_id": line.token_id[:32], "origin": line.origin[:64], "what": line.what[:64],
            "about": line.about[:300], "outcome": line.outcome[:32], "detail": dict(line.detail),
        }  # fmt: skip
        with self._writing.begin() as connection:
            connection.execute(insert(AUDIT).values(values))

    def lines(self, *, who: str | None = None, before: int | None = None, limit: int = 100) -> Sequence[AuditLine]:
        """Newest first; ``before`` is the row number of the last line seen."""
        query = select(AUDIT).order_by(AUDIT.c.row.desc()).limit(limit)
        if who is not None:
            query = query.where(AUDIT.c.who == who)
        if before is not None:
            query = query.where(AUDIT.c.row < before)
        with self._engine.connect() as connection:
            return [
                AuditLine(r.who, r.what, r.about, r.origin, r.token_id, r.outcome, r.detail, r.at, r.row)
                for r in connection.execute(query)
            ]
