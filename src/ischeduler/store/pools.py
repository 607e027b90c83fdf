"""Pools in the database (port :class:`ischeduler.ports.PoolStore`). Every method is one short transaction."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Engine, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from ischeduler.core.codec import from_plain, to_plain
from ischeduler.core.errors import NotFound, StoreConflict
from ischeduler.core.pool import Pool
from ischeduler.store.engine import WRITE
from ischeduler.store.pool_tables import POOLS


class SqlPools:
    """Over the store's own engine; ``clock`` dates the rows."""

    def __init__(self, engine: Engine, *, clock: Callable[[], float] = time.time) -> None:
        self._engine, self._writing, self._clock = engine, engine.execution_options(**WRITE), clock

    def create(self, pool: Pool) -> Pool:
        """Insert; StoreConflict when the owner has one of that name."""
        stored = replace(pool, version=1)
        row = {**_row(stored), "owner": pool.owner, "name": pool.name, "created_at": pool.created_at, "updated_at": self._clock()}
        try:
            with self._writing.begin() as connection:
                connection.execute(insert(POOLS).values(row))
        except IntegrityError:
            raise StoreConflict(f"you have a pool '{pool.name}' already; choose another name, or isched pool remove {pool.name}.") from None
        return stored

    def get(self, owner: str, name: str) -> Pool:
        """NotFound, with the names there are, when the owner has none of that name."""
        query = select(POOLS.c.doc, POOLS.c.version).where(POOLS.c.owner == owner, POOLS.c.name == name)
        with self._engine.connect() as connection:
            row = connection.execute(query).first()
        if row is None:
            raise NotFound(missing(name, [p.name for p in self.list(owner)]))
        return _pool_of(row)

    def list(self, owner: str) -> Sequence[Pool]:
        """An owner's pools, oldest first."""
        query = select(POOLS.c.doc, POOLS.c.version).where(POOLS.c.owner == owner).order_by(POOLS.c.created_at, POOLS.c.name)
        with self._engine.connect() as connection:
            return [_pool_of(row) for row in connection.execute(query)]

    def save(self, pool: Pool) -> Pool:
        """Save where the stored version equals ``pool.version``; StoreConflict else. Returns it with its new version."""
        stored = replace(pool, version=pool.version + 1)
        change = update(POOLS).where(POOLS.c.owner == pool.owner, POOLS.c.name == pool.name, POOLS.c.version == pool.version)
        with self._writing.begin() as connection:
            done = connection.execute(change.values(**_row(stored), updated_at=self._clock()))
        if not done.rowcount:
            self.get(pool.owner, pool.name)
            raise StoreConflict(f"pool {pool.name} was changed by someone else; read it again and retry.")
        return stored

    def delete(self, owner: str, name: str) -> None:
        """Forget a pool; nothing happens when there is none."""
        with self._writing.begin() as connection:
            connection.execute(delete(POOLS).where(POOLS.c.owner == owner, POOLS.c.name == name))


def missing(name: str, known: Sequence[str]) -> str:
    """Why a pool was not found, in a sentence."""
    return f"you have no pool '{name}'; " + (f"yours are {', '.join(known)}." if known else "make one with isched pool create.")


def _row(pool: Pool) -> dict[str, Any]:
    return {"version": pool.version, "doc": to_plain(pool)}


def _pool_of(row: Any) -> Pool:
    return replace(from_plain(Pool, row.doc), version=row.version)
