"""Lists of runs page by page, for services with many: a keyset over (created_at, id), newest first."""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Engine, and_, func, or_, select

from ischeduler.core.errors import BadInput
from ischeduler.core.run import Run, RunState
from ischeduler.store.engine import reading
from ischeduler.store.sql_store import _run_of as run_of
from ischeduler.store.tables import RUNS


class RunPages:
    """Pages of runs as one principal sees them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = reading(engine)

    def page(
        self, *, owner: str | None, projects: Collection[str] = (), states: Collection[RunState] | None = None, limit: int = 50,
        cursor: str | None = None, project: str | None = None,
    ) -> tuple[Sequence[Run], str | None]:
        """Runs of ``owner`` (None: of everybody) or of ``projects``, and the cursor of the next page (None: this is the last)."""
        query = select(RUNS.c.doc, RUNS.c.version, RUNS.c.created_at, RUNS.c.id)
        query = query.where(*_seen(owner, projects)).order_by(RUNS.c.created_at.desc(), RUNS.c.id.desc()).limit(limit + 1)
        if states is not None:
            query = query.where(RUNS.c.state.in_([s.value for s in states]))
        if project is not None:
            query = query.where(RUNS.c.project == project)
        if cursor:
            at, run_id = read_cursor(cursor)
            query = query.where(or_(RUNS.c.created_at < at, and_(RUNS.c.created_at == at, RUNS.c.id < run_id)))
        with self._engine.connect() as connection:
            rows = connection.execute(query).all()
        more = len(rows) > limit
        last = rows[limit - 1] if more else None
        return [run_of(row) for row in rows[:limit]], write_cursor(last.created_at, last.id) if last is not None else None

    def versions(self, *, owner: str | None, projects: Collection[str] = ()) -> dict[str, tuple[int, str]]:
        """Version and state of every run that has not ended, by id: a cheap look for changes."""
        ended = [s.value for s in RunState if s.ended]
        query = select(RUNS.c.id, RUNS.c.version, RUNS.c.state).where(*_seen(owner, projects), RUNS.c.state.notin_(ended))
        with self._engine.connect() as connection:
            return {row.id: (row.version, row.state) for row in connection.execute(query)}

    def version(self, run_id: str) -> int | None:
        """A run's version, None when it is gone."""
        with self._engine.connect() as connection:
            return connection.execute(select(RUNS.c.version).where(RUNS.c.id == run_id)).scalar()

    def named(self, owner: str, prefix: str) -> Sequence[str]:
        """Ids that begin so of an owner's runs that have not ended, oldest first. ``prefix`` holds no ``%`` or ``_``."""
        ended = [s.value for s in RunState if s.ended]
        query = select(RUNS.c.id).where(RUNS.c.owner == owner, RUNS.c.id.startswith(prefix), RUNS.c.state.notin_(ended))
        with self._engine.connect() as connection:
            return [row.id for row in connection.execute(query.order_by(RUNS.c.created_at, RUNS.c.id))]

    def changed(
        self, since: float, *, run_ids: Collection[str] = (), owners: Collection[str] = (), projects: Collection[str] = ()
    ) -> Sequence[tuple[str, str, str, int, float]]:
        """Id, owner, project, version and time of each run saved since then that is named, or of one of the owners or projects."""
        wanted = or_(RUNS.c.id.in_(sorted(run_ids)), RUNS.c.owner.in_(sorted(owners)), RUNS.c.project.in_(sorted(projects)))
        query = select(RUNS.c.id, RUNS.c.owner, RUNS.c.project, RUNS.c.version, RUNS.c.updated_at)
        query = query.where(RUNS.c.updated_at >= since, wanted).order_by(RUNS.c.updated_at)
        with self._engine.connect() as connection:
            return [(r.id, r.owner, r.project, r.version, r.updated_at) for r in connection.execute(query)]

    def counts(self) -> dict[str, int]:
        """Runs of everybody by state."""
        with self._engine.connect() as connection:
            return {row[0]: row[1] for row in connection.execute(select(RUNS.c.state, func.count()).group_by(RUNS.c.state))}


def _seen(owner: str | None, projects: Collection[str]) -> list[Any]:
    if owner is None:
        return []
    mine = RUNS.c.owner == owner
    return [or_(mine, RUNS.c.project.in_(sorted(projects)))] if projects else [mine]


def write_cursor(at: float, row_id: str) -> str:
    """An opaque word for a place in a list."""
    return base64.urlsafe_b64encode(json.dumps([at, row_id]).encode()).decode().rstrip("=")


def read_cursor(text: str) -> tuple[float, str]:
    """The place. BadInput for a word that this service did not make."""
    try:
        padded = text + "=" * (-len(text) % 4)
        at, row_id = json.loads(base64.urlsafe_b64decode(padded.encode("ascii")))
        if isinstance(at, bool) or not isinstance(at, (int, float)) or not isinstance(row_id, str) or at != at or abs(at) > 1e12:
            raise ValueError
    except (ValueError, TypeError, RecursionError):
        raise BadInput("the cursor is none of this service's; leave it out to begin anew.") from None
    return float(at), row_id
