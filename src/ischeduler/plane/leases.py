"""Holding on to the right to act during a long tick."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ischeduler.ports import Claim, Clock, Lease, SharedStore, Store


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


class StoreClock:
    """The clock of the store, on which all workers live: a host whose own clock is wrong neither steals leases nor loses patience.

    ``ticking`` is a clock that is never set (seconds, any origin); it carries the time from one :meth:`sync` to the next.
    """

    def __init__(self, store: SharedStore, ticking: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self._store, self._ticking, self._sleep = store, ticking, sleep
        self._ahead_s: float | None = None

    def sync(self) -> float:
        """Ask the store; the time. Raises what the store raises."""
        asked = self._ticking()
        told = self._store.now()
        answered = self._ticking()
        self._ahead_s = told - (asked + answered) / 2
        return told + (answered - asked) / 2

    def now(self) -> float:
        """Epoch seconds by the store's clock."""
        return self.sync() if self._ahead_s is None else self._ticking() + self._ahead_s

    def sleep(self, seconds: float) -> None:
        """Wait that long."""
        self._sleep(seconds)


class ClaimKeeper:
    """Renews a batch of claims at half of their time. One that another took is lost for good; the others go on."""

    def __init__(self, store: SharedStore, clock: Clock, claims: Iterable[Claim], ttl_s: float) -> None:
        self._store, self._clock, self._ttl_s = store, clock, ttl_s
        self._held = {c.run.id: c for c in claims}

    def holds(self, run_id: str) -> bool:
        """Whether acting for the run is still this worker's right, for at least half of the lease's time to come."""
        claim = self._held.get(run_id)
        if claim is None:
            return False
        now = self._clock.now()
        if claim.expires_at - now <= self._ttl_s / 2:
            self._held = dict(self._store.renew_claims(self._held.values(), now=now, ttl_s=self._ttl_s))
        return run_id in self._held
