"""How many runs and leases there are: two small questions to the database."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Column, Engine, case, func, select

from ischeduler.core.run import RunState
from ischeduler.store.tables import LEASES, RUNS


def runs_by_state(engine: Engine) -> Mapping[str, float]:
    """Every state with its number of runs, states without any included: a line that vanishes from a chart says nothing."""
    with engine.connect() as connection:
        found = {row[0]: float(row[1]) for row in connection.execute(select(RUNS.c.state, func.count()).group_by(RUNS.c.state))}
    return {state.value: found.get(state.value, 0.0) for state in RunState}


def leases(engine: Engine, now: float) -> Mapping[str, float]:
    """Named leases and, where plane workers claim runs row by row, those: held, and late (held, but expired)."""
    counts = {"held": 0.0, "late": 0.0}
    with engine.connect() as connection:
        for holder, expires_at in _holders():
            late = func.sum(case((expires_at <= now, 1), else_=0))
            total, expired = connection.execute(select(func.count(), late).where(holder != "", holder.is_not(None))).one()
            counts["held"] += float(total - (expired or 0))
            counts["late"] += float(expired or 0)
    return counts


def _holders() -> list[tuple[Column[str], Column[float]]]:
    tables = [(LEASES, "holder", "expires_at"), (RUNS, "lease_holder", "lease_expires_at")]
    return [(t.c[holder], t.c[expires]) for t, holder, expires in tables if holder in t.c]
