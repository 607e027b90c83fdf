"""A run's log as people look at it: the newest of what is told, and an even choice of what comes by the hundred."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Engine, func, select

from ischeduler.core.event import Event
from ischeduler.store.tables import EVENTS


class RunLog:
    """Reads of the events table whose cost does not grow with what is shown."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def count(self, run_id: str) -> int:
        """Events of the run."""
        with self._engine.connect() as connection:
            return connection.execute(select(func.count()).where(EVENTS.c.run_id == run_id)).scalar_one()

    def newest(self, run_id: str, *, but: Collection[str] = (), limit: int = 60) -> Sequence[Event]:
        """The newest events that are not of the kinds ``but``, oldest first."""
        query = select(EVENTS).where(EVENTS.c.run_id == run_id, EVENTS.c.kind.notin_(sorted(but))).order_by(EVENTS.c.row.desc()).limit(limit)
        with self._engine.connect() as connection:
            return [_event(row) for row in connection.execute(query)][::-1]

    def thinned(self, run_id: str, kinds: Collection[str], *, limit: int = 1000) -> Sequence[Event]:
        """At most ``limit`` events of these kinds in order of arrival, evenly chosen, the newest always among them."""
        mine = (EVENTS.c.run_id == run_id) & EVENTS.c.kind.in_(sorted(kinds))
        numbered = select(EVENTS, func.row_number().over(order_by=EVENTS.c.row.desc()).label("number")).where(mine).subquery()
        with self._engine.connect() as connection:
            count = connection.execute(select(func.count()).select_from(EVENTS).where(mine)).scalar_one()
            step = max(1, -(-count // limit))
            query = select(numbered).where((numbered.c.number - 1) % step == 0).order_by(numbered.c.row)
            return [_event(row) for row in connection.execute(query)]


def _event(row: Any) -> Event:
    return Event(row.run_id, row.kind, row.at, row.source, row.token, row.seq, row.data)
