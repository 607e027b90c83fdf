"""Runs that are due and that no worker holds: the first sign that workers are missing or cannot keep up."""

from __future__ import annotations

from sqlalchemy import Engine, func, select

from ischeduler.core.run import RunState
from ischeduler.store.tables import RUNS

PATIENCE_S = 60.0


def late_claims(engine: Engine, now: float) -> tuple[int, float]:
    """How many, and for how long the longest has waited (seconds); those due for less than a minute do not count."""
    ended = [s.value for s in RunState if s.ended]
    waiting = RUNS.c.state.not_in(ended) & (RUNS.c.due_at <= now - PATIENCE_S) & (RUNS.c.lease_expires_at <= now)
    query = select(func.count(), func.min(func.coalesce(func.nullif(RUNS.c.due_at, 0.0), RUNS.c.created_at))).where(waiting)
    with engine.connect() as connection:
        count, since = connection.execute(query).one()
    return int(count), max(0.0, now - float(since)) if count else 0.0
