"""What was asked of the service and must be remembered: answers by idempotency key, kept plans, saved workloads."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from ischeduler.core.errors import NotFound, StoreConflict
from ischeduler.store.centre_tables import IDEMPOTENCY, PLANS, WORKLOADS
from ischeduler.store.engine import WRITE

KEEP_KEYS_S = 86400.0
ABANDONED_S = 120.0
KEEP_PLANS_S = 7 * 86400.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request was answered. ``status`` is None while it is being worked on."""

    digest: str
    status: int | None
    headers: Mapping[str, str]
    body: str


class AnswersByKey:
    """One answer a user and idempotency key, for a day."""

    def __init__(self, engine: Engine, *, clock: Callable[[], float] = time.time) -> None:
        self._engine, self._writing, self._clock = engine, engine.execution_options(**WRITE), clock

    def begin(self, user: str, key: str, digest: str) -> Answer | None:
        """None when this caller is to do the work; else what is known of the one who does or did.

        A request begun two minutes ago and never answered (its process was killed) is taken over by the same request.
        """
        now = self._clock()
        mine = (IDEMPOTENCY.c.user == user) & (IDEMPOTENCY.c.key == key)
        row = {"user": user, "key": key, "digest": digest, "headers": {}, "body": "", "created_at": now, "expires_at": now + KEEP_KEYS_S}
        try:
            with self._writing.begin() as connection:
                connection.execute(delete(IDEMPOTENCY).where(IDEMPOTENCY.c.expires_at < now))
                connection.execute(insert(IDEMPOTENCY).values(row))
            return None
        except IntegrityError:
            pass
        with self._writing.begin() as connection:
            old = connection.execute(select(IDEMPOTENCY).where(mine)).first()
            if old is None:
                raise StoreConflict("that key was just given up by another request; send this one again.")
            abandoned = old.status is None and old.digest == digest and now - old.created_at > ABANDONED_S
            taken = abandoned and connection.execute(
                update(IDEMPOTENCY).where(mine, IDEMPOTENCY.c.created_at == old.created_at).values(created_at=now)
            ).rowcount  # fmt: skip
        return None if taken else Answer(old.digest, old.status, old.headers, old.body)

    def finish(self, user: str, key: str, status: int, headers: Mapping[str, str], body: str) -> None:
        """Remember the answer."""
        mine = (IDEMPOTENCY.c.user == user) & (IDEMPOTENCY.c.key == key)
        with self._writing.begin() as connection:
            connection.execute(update(IDEMPOTENCY).where(mine).values(status=status, headers=dict(headers), body=body))

    def give_up(self, user: str, key: str) -> None:
        """Forget a request that changed nothing."""
        mine = (IDEMPOTENCY.c.user == user) & (IDEMPOTENCY.c.key == key) & IDEMPOTENCY.c.status.is_(None)
        with self._writing.begin() as connection:
            connection.execute(delete(IDEMPOTENCY).where(mine))


class KeptPlans:
    """Plans as documents, by id; each user has their own."""

    def __init__(self, engine: Engine, *, clock: Callable[[], float] = time.time) -> None:
        self._engine, self._writing, self._clock = engine, engine.execution_options(**WRITE), clock

    def keep(self, plan_id: str, owner: str, doc: Mapping[str, Any]) -> None:
        """Keep a new plan, and forget this user's old ones."""
        now = self._clock()
        with self._writing.begin() as connection:
            connection.execute(delete(PLANS).where(PLANS.c.owner == owner, PLANS.c.made_at < now - KEEP_PLANS_S))
            connection.execute(insert(PLANS).values(id=plan_id, owner=owner, made_at=now, doc=dict(doc)))

    def get(self, plan_id: str, owner: str) -> tuple[Mapping[str, Any], float]:
        """The document and when it was kept. NotFound for other people's and for none."""
        query = select(PLANS.c.doc, PLANS.c.made_at).where(PLANS.c.id == plan_id, PLANS.c.owner == owner)
        with self._engine.connect() as connection:
            row = connection.execute(query).first()
        if row is None:
            raise NotFound(f"you have no plan '{plan_id[:40]}'; plans are kept for a week: make it again.")
        return row.doc, row.made_at


@dataclass(frozen=True, slots=True)
class SavedWorkload:
    """A workload kept under a name, to be planned again. ``workload`` holds its fields as people write them."""

    id: str
    name: str
    created_at: float
    workload: Mapping[str, Any]


class SavedWorkloads:
    """Workloads by id; each user has their own."""

    def __init__(self, engine: Engine, *, clock: Callable[[], float] = time.time) -> None:
        self._engine, self._writing, self._clock = engine, engine.execution_options(**WRITE), clock

    def save(self, workload_id: str, owner: str, name: str, fields: Mapping[str, Any]) -> SavedWorkload:
        """StoreConflict when the user has one of that name."""
        row = {"id": workload_id, "owner": owner, "name": name, "created_at": self._clock(), "doc": dict(fields)}
        try:
            with self._writing.begin() as connection:
                connection.execute(insert(WORKLOADS).values(row))
        except IntegrityError:
            raise StoreConflict(f"you have a workload '{name}' already; give this one another name.") from None
        return SavedWorkload(workload_id, name, row["created_at"], row["doc"])

    def get(self, workload_id: str, owner: str) -> SavedWorkload:
        """NotFound for other people's and for none."""
        query = select(WORKLOADS).where(WORKLOADS.c.id == workload_id, WORKLOADS.c.owner == owner)
        with self._engine.connect() as connection:
            row = connection.execute(query).first()
        if row is None:
            raise NotFound(f"you have no workload '{workload_id[:40]}'.")
        return SavedWorkload(row.id, row.name, row.created_at, row.doc)

    def all(self, owner: str, *, limit: int = 200) -> Sequence[SavedWorkload]:
        """Newest first."""
        query = select(WORKLOADS).where(WORKLOADS.c.owner == owner).order_by(WORKLOADS.c.created_at.desc(), WORKLOADS.c.id).limit(limit)
        with self._engine.connect() as connection:
            return [SavedWorkload(r.id, r.name, r.created_at, r.doc) for r in connection.execute(query)]

    def remove(self, workload_id: str, owner: str) -> None:
        """NotFound for other people's and for none."""
        with self._writing.begin() as connection:
            gone = connection.execute(delete(WORKLOADS).where(WORKLOADS.c.id == workload_id, WORKLOADS.c.owner == owner))
        if gone.rowcount == 0:
            raise NotFound(f"you have no workload '{workload_id[:40]}'.")
