"""A plane in a world, and ways to drive it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from world import FakeBatch, Files, Letters, Spools, Store, World

from ischeduler.core.plan import Plan
from ischeduler.core.run import Run
from ischeduler.plane.loop import Plane, TickReport
from ischeduler.plane.provisioners import Forecast, Informed, Newsvendor
from ischeduler.ports import Provisioner


class FixedReplanner:
    """Answers every question with the same plans."""

    def __init__(self, plans: Sequence[Plan]) -> None:
        self.plans, self.asked = plans, list[str]()

    def replan(self, run: Run, reason: str, now: float) -> Sequence[Plan]:
        self.asked.append(reason)
        return self.plans


@dataclass(frozen=True)
class Keeping(Informed):
    """A rule that is told how long before its predecessor's end a successor may start and stay."""

    told_s: float | None = None

    @property
    def keep_s(self) -> float | None:
        return self.told_s


class Foretold:
    """Every successor is said to wait that long, by a forecast made every ``every_s``; ``keep_s``: it may start so long before the end and stay."""

    def __init__(self, wait_s: float, *, keep_s: float | None = None, every_s: float = 0.0) -> None:
        self.wait_s, self.keep_s, self.every_s = wait_s, keep_s, every_s

    def provisioner(self, run: Run, now: float) -> tuple[Informed, str]:
        as_of = now - now % self.every_s if self.every_s else now
        return Keeping(Newsvendor(), Forecast(as_of, (0.5,), (self.wait_s,)), self.keep_s), ""


class Rig:
    """A world with its store and adapters; :meth:`plane` makes a new process on them."""

    def __init__(self, world: World | None = None, clusters: Sequence[str] = ("one",), **options: Any) -> None:
        self.world = world or World()
        self.store, self.files, self.letters = Store(), Files(self.world), Letters()
        self.batches = {name: FakeBatch(self.world, name) for name in clusters}
        self.options = options
        self._plane: Plane | None = None

    def plane(self, holder: str = "p1", provisioner: Provisioner | None = None) -> Plane:
        options = dict(self.options)
        if provisioner is not None:
            options["provisioner"] = provisioner
        return Plane(
            self.store, self.batches, Spools(self.world), self.world.clock, self.letters, self.files, owner="alice",
            holder=holder, **options,
        )

    def run(self, run_id: str = "r-1") -> Run:
        return self.store.get_run(run_id)

    def tick(self) -> TickReport:
        self._plane = self._plane or self.plane()
        return self._plane.tick()

    def drive(
        self, until: Callable[[Run], bool] | None = None, *, run_id: str = "r-1", hours: float = 6.0, every_s: float = 10.0
    ) -> Run:
        """Tick until the run satisfies ``until`` (default: has ended); AssertionError when it takes longer than ``hours``."""
        done = until or (lambda r: r.state.ended)
        end = self.world.now() + hours * 3600
        while self.world.now() < end:
            self.tick()
            run = self.run(run_id)
            if done(run):
                return run
            self.world.advance(every_s)
        run = self.run(run_id)
        raise AssertionError(f"after {hours} h: {run.state} {run.message} {[(a.number, a.state, a.cause) for a in run.attempts]}")
