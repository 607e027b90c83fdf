"""A pilot: holds one node's accelerators for a pool and runs in them, as job steps, what the pool's orders name.

`python -m ischeduler.training.pilot --pool DIR --type v100 --gpus 2`, itself under `isched exec` in an ordinary batch job
(docs/in-job-protocol.md). It speaks to nobody: orders are read from the pool's directory on the shared file system, and what it does is
written there. What the orders no longer name is asked to save and leave; before the pilot's own limit everything is. It ends with 85
as long as the pool has use for another one, so that its successor follows; the pool cancels those it has no use for.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ischeduler.training.context import number
from ischeduler.training.files import say
from ischeduler.training.pilot_files import PilotFolder, StepFolder
from ischeduler.training.pilot_step import Step, StepRunner
from ischeduler.training.rundir import RunDir
from ischeduler.training.token import Token

EXIT_MORE = 85
BEAT_S = 5.0
LAST_CALL_S = 3.0
"""Before its limit: what has not left by then is ended."""


@dataclass(frozen=True, slots=True)
class Holding:
    """What a pilot holds: accelerators of a type on its node, and shares of memory (MiB, 0: not limited) for steps that ask for none."""

    type: str
    gpus: int
    node: str
    memory_mb: int = 0
    gres: str = ""


class Pilot:
    """One pilot's life. ``clock`` tells epoch seconds; ``asked_to_leave`` is looked at in every turn."""

    def __init__(
        self, folder: PilotFolder, holding: Holding, runner: StepRunner, *, ends_at: float | None, grace_s: float,
        asked_to_leave: Callable[[], bool], clock: Callable[[], float] = time.time, sleep: Callable[[float], None] = time.sleep,
    ) -> None:  # fmt: skip
        self._folder, self._holding, self._runner = folder, holding, runner
        self._ends_at, self._grace_s = ends_at, grace_s
        self._asked, self._clock, self._sleep = asked_to_leave, clock, sleep
        self._started_at = clock()
        self._steps: dict[str, Step] = {}
        self._leaving = False
        self._said: tuple[object, ...] = ()
        self._beat_at = 0.0
        self._look_s = 1.0
        self._token = 0
        self._wanted: Mapping[str, float] = {}

    def run(self) -> int:
        """Until it has left; the exit code."""
        while True:
            try:
                self.turn()
            except OSError as error:
                say(f"the pool's directory fails ({error.strerror}: {error.filename}); looks again")
            if self._leaving and not self._steps:
                return EXIT_MORE
            self._sleep(self._look_s)

    def turn(self) -> None:
        """One look: what ended, what is wanted, what is to leave. Raises OSError when the directory fails; nothing is lost then."""
        now = self._clock()
        self._reap(now)
        self._leaving = self._leaving or self._asked() or (self._ends_at is not None and now >= self._ends_at - self._grace_s)
        self._read_orders()
        hurry = self._ends_at is not None and now >= self._ends_at - LAST_CALL_S
        for job_id, step in self._steps.items():
            if self._leaving or job_id not in self._wanted:
                step.leave(now)
            step.attend(now, hurry=hurry)
        if not self._leaving:
            self._start_wanted(now)
        self._say(now)

    def _reap(self, now: float) -> None:
        for job_id, step in list(self._steps.items()):
            if step.ended(now):
                del self._steps[job_id]

    def _read_orders(self) -> None:
        """The newest orders; those of a pool's keeper that was superseded are not heard."""
        orders = self._folder.orders()
        if orders is not None and orders.token >= self._token:
            self._token, self._wanted, self._look_s = orders.token, orders.steps, orders.look_s

    def _start_wanted(self, now: float) -> None:
        free = self._holding.gpus - sum(s.folder.gpus for s in self._steps.values())
        for job_id, limit_s in self._wanted.items():
            if job_id in self._steps:
                continue
            folder = self._folder.step(job_id)
            if folder is None or folder.gpus > free:
                continue
            if not folder.take(self._folder.name, self._holding.node, self._holding.type, now):
                continue  # it runs elsewhere, was cancelled, or has ended
            left_s = limit_s if self._ends_at is None else min(limit_s, self._ends_at - self._grace_s / 2 - now)
            self._steps[job_id] = self._runner.start(folder, self._holding, left_s, now)
            free -= folder.gpus

    def _say(self, now: float) -> None:
        said = (self._leaving, self._token, tuple(sorted(self._steps)))
        if said == self._said and now - self._beat_at < BEAT_S:
            return
        self._said, self._beat_at = said, now
        h = self._holding
        self._folder.say({
            "v": 1, "type": h.type, "node": h.node, "gpus": h.gpus, "started_at": self._started_at, "beat_at": now, "ends_at": self._ends_at,
            "leaving": self._leaving, "token": self._token, "steps": sorted(self._steps), "job_id": os.environ.get("SLURM_JOB_ID"),
        })  # fmt: skip


def main(argv: Sequence[str] | None = None, environ: Mapping[str, str] | None = None) -> int:
    """Parse, hold, run; exit code 2 with one sentence on a wrong command line."""
    env = os.environ if environ is None else environ
    asked = _parser().parse_args(argv)
    name = f"{env.get('ISCHED_RUN_ID', 'pilot')}-{env.get('ISCHED_TOKEN', '1.0')}"
    node = env.get("SLURMD_NODENAME") or os.uname().nodename
    holding = Holding(asked.type, asked.gpus, node, asked.memory_mb, asked.gres)
    runner = StepRunner(srun=bool(env.get("SLURM_JOB_ID")), environ=env)
    signals: list[int] = []
    for one in (signal.SIGUSR2, signal.SIGTERM):
        signal.signal(one, lambda number, frame: signals.append(number))
    ends_at, grace_s = number(env, "ISCHED_DEADLINE"), number(env, "ISCHED_GRACE_S") or 60.0

    def asked_to_leave() -> bool:
        """SIGTERM, or the plane's or a successor's word. SIGUSR2 only wakes: the limit is counted here, Slurm may warn a minute early."""
        if signal.SIGTERM in signals or (signals and ends_at is None):
            return True
        run_dir, token = env.get("ISCHED_RUN_DIR"), Token.try_parse(env.get("ISCHED_TOKEN", ""))
        return bool(run_dir and token) and RunDir(Path(str(run_dir))).read_control(token) in ("stop", "move")  # pyright: ignore[reportArgumentType]

    folder = PilotFolder(Path(asked.pool), name)
    return Pilot(folder, holding, runner, ends_at=ends_at, grace_s=grace_s, asked_to_leave=asked_to_leave).run()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m ischeduler.training.pilot", description=__doc__)
    parser.add_argument("--pool", required=True, help="the pool's directory")
    parser.add_argument("--type", required=True, help="the type of accelerators held")
    parser.add_argument("--gpus", type=int, required=True, help="how many of them")
    parser.add_argument("--memory-mb", type=int, default=0, help="what the node's job holds, in MiB; steps that ask for none get their share")
    parser.add_argument("--gres", default="", help="what a step asks Slurm for, as in gpu:v100 ('' for no GRES)")
    return parser


__all__ = ["Holding", "Pilot", "StepFolder", "main"]

if __name__ == "__main__":
    sys.exit(main())
