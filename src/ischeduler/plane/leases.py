"""Holding on to the right to act during a long tick."""

from __future__ import annotations

from ischeduler.ports import Clock, Lease, Store


class LeaseKeeper:
    """Renews a lease at half of its time; once someone else has had it, it is lost for good."""

    def __init__(self, store: Store, clock: Clock, lease: Lease, ttl_s: float) -> None:
        self._store, self._clock, self._lease, self._ttl_s = store, clock, lease, ttl_s
        self._lost = False

    def holds(self) -> bool:
        """Whether acting is still this holder's right."""
        now = self._clock.now()
        if self._lost or self._lease.expires_at - now > self._ttl_s / 2:
            return not self._lost
        expired = self._lease.expires_at <= now
        renewed = self._store.acquire_lease(self._lease.name, self._lease.holder, self._ttl_s, now)
        if renewed is None or (expired and renewed.token != self._lease.token):
            self._lost = True
            return False
        self._lease = renewed
        return True
