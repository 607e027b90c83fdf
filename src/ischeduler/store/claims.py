"""The statements of row leases: which runs are due, who carries them, and until when. Each function is part of one transaction.

A due time of 0 means that something woke the run: it stays 0 until the run is claimed, so that a worker who gives the run back
does not put the news off.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, case, func, or_, select, text, update

from ischeduler.core.run import RunState
from ischeduler.ports import Carried, Claim
from ischeduler.store.tables import LOOKS, RUNS

AT_ONCE = 0.0
_NOT_ENDED = text("state NOT IN ('completed', 'failed', 'cancelled')")
"""Literally the condition of the index ``ix_runs_due``, else it would not be used."""
_IN_HAND = (RUNS.c.id == bindparam("of_run")) & (RUNS.c.lease_token == bindparam("of_token")) & (RUNS.c.lease_holder == bindparam("of_holder"))
_NEXT = case((RUNS.c.due_at == AT_ONCE, AT_ONCE), else_=bindparam("next_due"))


def _due(now: float) -> Any:
    return _NOT_ENDED & (RUNS.c.due_at <= now) & (RUNS.c.lease_expires_at <= now)


def due_clusters(connection: Connection, now: float) -> Sequence[str]:
    """Clusters of the runs that are due and free."""
    return list(connection.execute(select(RUNS.c.cluster).where(_due(now)).distinct().order_by(RUNS.c.cluster)).scalars())


def claim(
    connection: Connection, holder: str, *, now: float, ttl_s: float, limit: int, clusters: Collection[str] | None
) -> Sequence[Any]:
    """Rows (doc, version, lease_token) of the runs taken. On PostgreSQL rows that another is taking are passed over."""
    wanted = select(RUNS.c.id).where(_due(now)).order_by(RUNS.c.due_at, RUNS.c.id).limit(limit)
    if clusters is not None:
        wanted = wanted.where(or_(RUNS.c.cluster.in_(list(clusters)), RUNS.c.state == RunState.PLANNED.value))
    taken = wanted.with_for_update(skip_locked=True).cte("taken")
    change = update(RUNS).where(RUNS.c.id == taken.c.id).values(
        lease_holder=holder, lease_token=RUNS.c.lease_token + 1, lease_expires_at=now + ttl_s, due_at=now
    )  # fmt: skip
    return connection.execute(change.returning(RUNS.c.doc, RUNS.c.version, RUNS.c.lease_token)).all()


def renew(connection: Connection, claims: Sequence[Claim], *, now: float, ttl_s: float) -> frozenset[str]:
    """Extend what is still held; the ids of those runs."""
    if not claims:
        return frozenset()
    rows = select(RUNS.c.id, RUNS.c.lease_token, RUNS.c.lease_holder).where(RUNS.c.id.in_([c.run.id for c in claims]))
    held = connection.execute(rows.order_by(RUNS.c.id).with_for_update()).all()
    mine = {c.run.id: (c.token, c.holder) for c in claims}
    kept = [row.id for row in held if mine[row.id] == (row.lease_token, row.lease_holder)]
    connection.execute(update(RUNS).where(RUNS.c.id.in_(kept)).values(lease_expires_at=now + ttl_s))
    return frozenset(kept)


def release(connection: Connection, releases: Iterable[tuple[Claim, float]]) -> None:
    """Free them and set their due times, in the order of their ids: two that release at once cannot lock each other out."""
    rows = [
        {"of_run": c.run.id, "of_token": c.token, "of_holder": c.holder, "next_due": due_at}
        for c, due_at in sorted(releases, key=lambda pair: pair[0].run.id)
    ]
    if not rows:
        return
    connection.execute(update(RUNS).where(_IN_HAND).values(lease_holder="", lease_expires_at=0.0, due_at=_NEXT), rows)


def hold(connection: Connection, carried: Sequence[Carried]) -> frozenset[str]:
    """Lock the rows of those that nobody has changed or taken. A row that another is just writing is passed over, not waited for."""
    wanted = {c.run.id: (c.run.version, c.claim.token, c.claim.holder) for c in carried}
    rows = select(RUNS.c.id, RUNS.c.version, RUNS.c.lease_token, RUNS.c.lease_holder).where(RUNS.c.id.in_(list(wanted)))
    held = connection.execute(rows.order_by(RUNS.c.id).with_for_update(skip_locked=True)).all()
    return frozenset(row.id for row in held if wanted[row.id] == (row.version, row.lease_token, row.lease_holder))


def write(connection: Connection, rows: Sequence[tuple[Carried, Mapping[str, Any]]], *, at: float) -> None:
    """Store locked rows and free them."""
    if rows:
        change = update(RUNS).where(RUNS.c.id == bindparam("of_run")).values(lease_holder="", lease_expires_at=0.0, updated_at=at, due_at=_NEXT)
        connection.execute(change, [{**row, "of_run": c.run.id, "next_due": c.due_at} for c, row in rows])


def wake(connection: Connection, run_ids: Collection[str]) -> None:
    """Due at once; row by row in the order of their ids, as all that lock several rows here."""
    if run_ids:
        change = update(RUNS).where(RUNS.c.id == bindparam("of_run")).values(due_at=AT_ONCE)
        connection.execute(change, [{"of_run": i} for i in sorted(run_ids)])


def reserve_look(connection: Connection, once: Any, cluster: str, *, now: float, interval_s: float) -> bool:
    """Move the cluster's next look on; False when it is not yet time. ``once`` is an insert that leaves an existing row alone."""
    connection.execute(once.values(cluster=cluster, next_at=0.0))
    # A next look further ahead than one interval was written by a clock that has been set back since: it binds nobody.
    free = (LOOKS.c.next_at <= now) | (LOOKS.c.next_at > now + interval_s)
    change = update(LOOKS).where(LOOKS.c.cluster == cluster, free).values(next_at=now + interval_s)
    return connection.execute(change, execution_options={"preserve_rowcount": True}).rowcount == 1


def database_now(connection: Connection) -> float:
    """PostgreSQL's own clock, one for all its clients."""
    return float(connection.execute(select(func.extract("epoch", func.clock_timestamp()))).scalar_one())

