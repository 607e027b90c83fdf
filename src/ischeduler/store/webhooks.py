"""Webhooks and how far each has been told: a cursor over the rows of the events table."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, delete, func, insert, select, update

from ischeduler.core.errors import NotFound, StoreConflict
from ischeduler.store.centre_tables import WEBHOOKS
from ischeduler.store.engine import WRITE
from ischeduler.store.tables import EVENTS, RUNS

MOST_EACH = 20


@dataclass(frozen=True, slots=True)
class Webhook:
    """Where events of a user's runs go. ``cursor`` is the last row told; ``paused`` after too many failures, until it is resumed."""

    id: str
    owner: str
    url: str
    kinds: tuple[str, ...]
    created_at: float
    cursor: int
    failures: int
    next_try_at: float
    paused: bool
    last_error: str


class Webhooks:
    """Each user has their own."""

    def __init__(self, engine: Engine, *, clock: Callable[[], float] = time.time) -> None:
        self._engine, self._writing, self._clock = engine, engine.execution_options(**WRITE), clock

    def add(self, webhook_id: str, owner: str, url: str, kinds: Sequence[str]) -> Webhook:
        """From now on. StoreConflict beyond twenty of a user."""
        now = self._clock()
        with self._writing.begin() as connection:
            mine = connection.execute(select(func.count()).where(WEBHOOKS.c.owner == owner)).scalar() or 0
            if mine >= MOST_EACH:
                raise StoreConflict(f"you have {mine} webhooks already; remove one first.")
            newest = connection.execute(select(func.max(EVENTS.c.row))).scalar() or 0
            row = {
                "id": webhook_id, "owner": owner, "url": url, "kinds": list(kinds), "created_at": now, "cursor": newest, "failures": 0,
                "next_try_at": now, "paused": False, "last_error": "",
            }  # fmt: skip
            connection.execute(insert(WEBHOOKS).values(row))
        return self.get(webhook_id, owner)

    def get(self, webhook_id: str, owner: str) -> Webhook:
        """NotFound for other people's and for none."""
        with self._engine.connect() as connection:
            row = connection.execute(select(WEBHOOKS).where(WEBHOOKS.c.id == webhook_id, WEBHOOKS.c.owner == owner)).first()
        if row is None:
            raise NotFound(f"you have no webhook '{webhook_id[:40]}'.")
        return _webhook(row)

    def all(self, owner: str) -> Sequence[Webhook]:
        """Newest first."""
        query = select(WEBHOOKS).where(WEBHOOKS.c.owner == owner).order_by(WEBHOOKS.c.created_at.desc(), WEBHOOKS.c.id)
        with self._engine.connect() as connection:
            return [_webhook(row) for row in connection.execute(query)]

    def remove(self, webhook_id: str, owner: str) -> None:
        """NotFound for other people's and for none."""
        with self._writing.begin() as connection:
            gone = connection.execute(delete(WEBHOOKS).where(WEBHOOKS.c.id == webhook_id, WEBHOOKS.c.owner == owner))
        if gone.rowcount == 0:
            raise NotFound(f"you have no webhook '{webhook_id[:40]}'.")

    def resume(self, webhook_id: str, owner: str) -> Webhook:
        """Go on after a pause, from where it was."""
        mine = (WEBHOOKS.c.id == webhook_id) & (WEBHOOKS.c.owner == owner)
        with self._writing.begin() as connection:
            connection.execute(update(WEBHOOKS).where(mine).values(paused=False, failures=0, next_try_at=self._clock()))
        return self.get(webhook_id, owner)

    def claim_due(self, hold_s: float, limit: int = 50) -> Sequence[Webhook]:
        """Webhooks to be served now, each by one process: their next try is put off by ``hold_s`` for all others."""
        now = self._clock()
        due = (WEBHOOKS.c.paused.is_(False)) & (WEBHOOKS.c.next_try_at <= now)
        claimed: list[Webhook] = []
        with self._writing.begin() as connection:
            query = select(WEBHOOKS).where(due).order_by(WEBHOOKS.c.next_try_at).limit(limit)
            for row in connection.execute(query.with_for_update(skip_locked=True)).all():
                connection.execute(update(WEBHOOKS).where(WEBHOOKS.c.id == row.id).values(next_try_at=now + hold_s))
                claimed.append(_webhook(row))
        return claimed

    def newest_row(self) -> int:
        """The largest row number of the events there are."""
        with self._engine.connect() as connection:
            return connection.execute(select(func.max(EVENTS.c.row))).scalar() or 0

    def news(self, hook: Webhook, upto: int, limit: int) -> tuple[int, Sequence[Mapping[str, Any]]]:
        """How far this goes, and the events beyond the cursor and up to a row that its owner's runs had, of the kinds wanted."""
        query = (
            select(EVENTS).join(RUNS, RUNS.c.id == EVENTS.c.run_id)
            .where(RUNS.c.owner == hook.owner, EVENTS.c.row > hook.cursor, EVENTS.c.row <= upto).order_by(EVENTS.c.row).limit(limit)
        )  # fmt: skip
        with self._engine.connect() as connection:
            rows = connection.execute(query).all()
        told = [r for r in rows if not hook.kinds or r.kind in hook.kinds]
        events = [
            {"row": r.row, "run_id": r.run_id, "kind": r.kind, "at": r.at, "source": r.source, "token": r.token, "seq": r.seq, "data": r.data}
            for r in told
        ]
        return (rows[-1].row if rows else hook.cursor), events

    def advance(self, hook: Webhook, cursor: int, now: float) -> None:
        """What was told is told."""
        with self._writing.begin() as connection:
            change = update(WEBHOOKS).where(WEBHOOKS.c.id == hook.id, WEBHOOKS.c.cursor == hook.cursor)
            connection.execute(change.values(cursor=cursor, failures=0, next_try_at=now, last_error=""))

    def failed(self, hook: Webhook, error: str, next_try_at: float, paused: bool) -> None:
        """Try again later, or not before its owner says so."""
        with self._writing.begin() as connection:
            change = update(WEBHOOKS).where(WEBHOOKS.c.id == hook.id)
            connection.execute(change.values(failures=hook.failures + 1, last_error=error[:300], next_try_at=next_try_at, paused=paused))


def _webhook(row: Any) -> Webhook:
    return Webhook(
        row.id, row.owner, row.url, tuple(row.kinds), row.created_at, row.cursor, row.failures, row.next_try_at, bool(row.paused),
        row.last_error,
    )
