"""What is kept of events, and for how long. Small deletes, each its own transaction, beside everything else that goes on."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Engine, Table, delete, func, select, text, update

from ischeduler.core.run import RunState
from ischeduler.store.engine import WRITE
from ischeduler.store.ingest_tables import DEAD_LETTERS, EVENT_LANES, JOB_EVENTS, TELEMETRY
from ischeduler.store.tables import RUNS

_DAY_S = 86400.0
_ENDED = [s.value for s in RunState if s.ended]
_LANES_AT_ONCE = 200
_THIN_S = 60


@dataclass(frozen=True, slots=True)
class Keep:
    """Ages in seconds. The run's own log keeps every event of the plane for ever; these are the copies on the way to it.

    ``ended_s`` after a run's end its incoming events go; ``full_s`` telemetry is kept as it came, until ``minute_s`` one point
    a minute of each kind; ``refused_s`` refused messages.
    """

    ended_s: float = 7 * _DAY_S
    full_s: float = 1 * _DAY_S
    minute_s: float = 30 * _DAY_S
    refused_s: float = 30 * _DAY_S


@dataclass(frozen=True, slots=True)
class Swept:
    """How many rows went."""

    events: int = 0
    telemetry: int = 0
    refused: int = 0


def prune(engine: Engine, now: float, keep: Keep) -> Swept:
    """Remove what is older than ``keep`` says. May run beside itself; raises StoreUnavailable."""
    writing = engine.execution_options(**WRITE)
    events = _orphans(writing, JOB_EVENTS) + _ended(writing, now - keep.ended_s)
    telemetry = _orphans(writing, TELEMETRY) + _thin(writing, now, keep)
    with writing.begin() as connection:
        refused = connection.execute(delete(DEAD_LETTERS).where(DEAD_LETTERS.c.received_at < now - keep.refused_s)).rowcount
    return Swept(events, telemetry, refused)


def _orphans(engine: Engine, table: Table) -> int:
    """Events whose run was deleted: nothing refers from them to their lane."""
    with engine.begin() as connection:
        lost = select(table.c.lane).distinct().where(~select(EVENT_LANES.c.lane).where(EVENT_LANES.c.lane == table.c.lane).exists())
        return connection.execute(delete(table).where(table.c.lane.in_(lost))).rowcount


def _ended(engine: Engine, before: float) -> int:
    """Incoming events of runs that ended long ago. Their lanes stay, so that nothing of them is taken for new."""
    old = select(EVENT_LANES.c.lane).join(RUNS, RUNS.c.id == EVENT_LANES.c.run_id)
    old = old.where(RUNS.c.state.in_(_ENDED), RUNS.c.updated_at < before)
    old = old.where(select(JOB_EVENTS.c.lane).where(JOB_EVENTS.c.lane == EVENT_LANES.c.lane).exists())
    gone = 0
    while True:
        with engine.begin() as connection:
            lanes = list(connection.execute(old.limit(_LANES_AT_ONCE)).scalars())
            if not lanes:
                return gone
            gone += connection.execute(delete(JOB_EVENTS).where(JOB_EVENTS.c.lane.in_(lanes))).rowcount


def _thin(engine: Engine, now: float, keep: Keep) -> int:
    """Old telemetry to its first point of each minute and kind, older one to nothing; what went does not come back."""
    with engine.connect() as connection:
        stale = select(TELEMETRY.c.lane).where(TELEMETRY.c.at < now - keep.full_s).group_by(TELEMETRY.c.lane)
        lanes = list(connection.execute(stale).scalars())
    gone = 0
    for lane in lanes:
        with engine.begin() as connection:
            old = (TELEMETRY.c.lane == lane) & (TELEMETRY.c.at < now - keep.full_s)
            last = connection.execute(select(func.max(TELEMETRY.c.seq)).where(old)).scalar()
            gone += connection.execute(text(_THIN), {"lane": lane, "before": now - keep.full_s, "thin_s": _THIN_S}).rowcount
            gone += connection.execute(delete(TELEMETRY).where(TELEMETRY.c.lane == lane, TELEMETRY.c.at < now - keep.minute_s)).rowcount
            newer = (EVENT_LANES.c.lane == lane) & (EVENT_LANES.c.thinned_to < last)
            connection.execute(update(EVENT_LANES).where(newer).values(thinned_to=last))
    return gone


_THIN = (
    "DELETE FROM telemetry WHERE lane = :lane AND at < :before AND seq NOT IN ("
    " SELECT min(seq) FROM telemetry WHERE lane = :lane AND at < :before GROUP BY kind, CAST(at / :thin_s AS bigint))"
)
