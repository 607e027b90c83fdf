"""A plane as its user would run it: one process of an ordinary user that delegates a run and ticks until the run has ended.

``python plane_driver.py CONFIG.json``. It prints one JSON line a tick, so that a test can act at the right moment, and can be
killed at the k-th call of the outside world (``crash_at``), to be started again by the test.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from ischeduler.batch.run_files import SharedRunFiles
from ischeduler.batch.slurm_cli import SlurmCli
from ischeduler.batch.spool_events import SpoolEvents
from ischeduler.core.codec import from_plain, to_plain
from ischeduler.core.errors import StoreConflict
from ischeduler.core.run import Run
from ischeduler.plane.cadence import Cadence
from ischeduler.plane.loop import Plane
from ischeduler.plane.policy import Policy
from ischeduler.plane.provisioners import Forecast, Informed, Newsvendor, rules
from ischeduler.store.sql_store import SqlStore


class SystemClock:
    """The machine's clock, off by ``skew_s``: a plane on a host whose clock is wrong."""

    def __init__(self, skew_s: float = 0.0) -> None:
        self.skew_s = skew_s

    def now(self) -> float:
        return time.time() + self.skew_s

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class Crashing:
    """Kills this process with -9 right before or right after the k-th call of the wrapped object."""

    calls = 0

    def __init__(self, inner: Any, crash_at: int) -> None:
        self._inner, self._crash_at = inner, crash_at

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not callable(value) or name.startswith("_"):
            return value

        def call(*args: Any, **kwargs: Any) -> Any:
            self._tick()
            result = value(*args, **kwargs)
            self._tick()
            return result

        return call

    def _tick(self) -> None:
        Crashing.calls += 1
        if Crashing.calls == self._crash_at:
            os.kill(os.getpid(), 9)


class Silent:
    """Tells nobody."""

    def notify(self, run: Run, subject: str, text: str) -> None:
        return None


class Foretold:
    """Says every time that one in two would wait ``wait_s`` and some nothing; who starts more than ``keep_s`` before the end gives back."""

    def __init__(self, wait_s: float, keep_s: float) -> None:
        self._wait_s = wait_s
        rules.KEPT_LEAST_S = keep_s

    def provisioner(self, run: Run, now: float) -> tuple[Informed, str]:
        return Informed(Newsvendor(kept=((0.5, 0.1),)), Forecast(now, (0.1, 0.5), (0.0, self._wait_s))), ""


class FixedPlans:
    """A replanner that knows the plans the test gave it."""

    def __init__(self, plans: list[Any]) -> None:
        self._plans = plans

    def replan(self, run: Run, reason: str, now: float) -> list[Any]:
        return self._plans


def main() -> int:
    config = json.loads(Path(sys.argv[1]).read_text())
    run = from_plain(Run, config["run"])
    clock = SystemClock(config.get("skew_s", 0.0))
    slurm = SlurmCli(run.plan.cluster, clock=clock)
    crash_at = config.get("crash_at", 0)
    store, batch = SqlStore(config["store"]), slurm
    if crash_at:
        store, batch = Crashing(store, crash_at), Crashing(slurm, crash_at)
    plans = [from_plain(type(run.plan), p) for p in config.get("plans", [])]
    plane = Plane(
        store, {run.plan.cluster: batch}, SpoolEvents(), clock, Silent(), SharedRunFiles(), owner=run.owner, holder=f"driver-{os.getpid()}",
        replanner=FixedPlans(plans), policy=Policy(**config.get("policy", {})), cadence=Cadence(fast_s=0.5, slow_s=1.0, idle_s=1.0),
        lease_ttl_s=config.get("lease_ttl_s", 60.0), foresight=Foretold(**config["foresight"]) if "foresight" in config else None,
    )  # fmt: skip
    try:
        plane.delegate(run)
    except StoreConflict:
        pass  # an earlier process of the test delegated it
    return _carry(plane, store, run.id, config.get("limit_s", 240.0), slurm.calls)


def _carry(plane: Plane, store: Any, run_id: str, limit_s: float, calls: Counter[str]) -> int:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        report = plane.tick()
        run = store.get_run(run_id)
        print(json.dumps({"run": to_plain(run), "problems": report.problems, "held": report.held, "calls": dict(calls)}), flush=True)
        if run.state.ended:
            return 0
        time.sleep(0.5)
    return 3


if __name__ == "__main__":
    sys.exit(main())
