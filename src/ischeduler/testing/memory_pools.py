"""Pools in a dictionary: the twin of the SQL ones for unit tests and simulations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ischeduler.core.codec import from_plain, to_plain
from ischeduler.core.errors import NotFound, StoreConflict
from ischeduler.core.pool import Pool


class MemoryPools:
    """What it returns is a copy made by the codec, as from a database."""

    def __init__(self) -> None:
        self._pools: dict[tuple[str, str], Pool] = {}

    def create(self, pool: Pool) -> Pool:
        """Insert; StoreConflict when the owner has one of that name."""
        if (pool.owner, pool.name) in self._pools:
            raise StoreConflict(f"you have a pool '{pool.name}' already; choose another name, or isched pool remove {pool.name}.")
        return self._put(replace(pool, version=1))

    def get(self, owner: str, name: str) -> Pool:
        """NotFound when the owner has none of that name."""
        if (owner, name) not in self._pools:
            raise NotFound(f"you have no pool '{name}'; make one with isched pool create.")
        return self._pools[owner, name]

    def list(self, owner: str) -> Sequence[Pool]:
        """An owner's pools, oldest first."""
        return sorted((p for p in self._pools.values() if p.owner == owner), key=lambda p: (p.created_at, p.name))

    def save(self, pool: Pool) -> Pool:
        """Compare and swap on the version."""
        if self.get(pool.owner, pool.name).version != pool.version:
            raise StoreConflict(f"pool {pool.name} was changed by someone else; read it again and retry.")
        return self._put(replace(pool, version=pool.version + 1))

    def delete(self, owner: str, name: str) -> None:
        """Forget a pool; nothing happens when there is none."""
        self._pools.pop((owner, name), None)

    def _put(self, pool: Pool) -> Pool:
        self._pools[pool.owner, pool.name] = from_plain(Pool, to_plain(pool))
        return self._pools[pool.owner, pool.name]
