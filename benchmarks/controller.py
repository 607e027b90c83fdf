"""How often Slurm's controller is asked for N active runs: the real plane and the real Slurm adapter, its commands answered from memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ischeduler.batch.commands import Answer
from ischeduler.batch.slurm_cli import SlurmCli
from ischeduler.batch.slurm_text import OWN_FIELDS, SEPARATOR
from ischeduler.core.estimate import Estimate
from ischeduler.core.event import Event
from ischeduler.core.jobs import Resources
from ischeduler.core.plan import Needs, Plan
from ischeduler.core.run import Run, RunState
from ischeduler.core.workload import Workload
from ischeduler.plane.loop import Plane
from ischeduler.testing.memory_store import MemoryStore

WARM_UP_S, MEASURED_S = 120.0, 1200.0


class StepClock:
    """Time that moves when told."""

    def __init__(self) -> None:
        self.time_s = 1_000_000.0

    def now(self) -> float:
        return self.time_s

    def sleep(self, seconds: float) -> None:
        self.time_s += seconds


class AnsweringSlurm:
    """Takes every job and says that it runs."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(self, argv: Sequence[str], *, stdin: str = "", timeout_s: float = 30.0) -> Answer:
        if "sbatch" in argv:
            self.names.append(next(line.split("=", 1)[1] for line in stdin.splitlines() if "--job-name=" in line))
            return Answer(0, f"{len(self.names)}\n", "")
        if "squeue" in argv:
            return Answer(0, "".join(self._row(i, name) for i, name in enumerate(self.names, 1)), "")
        return Answer(0, "", "")

    def _row(self, number: int, name: str) -> str:
        shown = {"JobID": str(number), "Name": name, "State": "RUNNING", "RestartCnt": "0", "NodeList": "g01", "TimeLimit": "8:00:00"}
        return "".join(shown.get(field, "") + SEPARATOR for field in OWN_FIELDS) + "\n"


class Quiet:
    """No events, no files, no notices."""

    def read(self, run: Run) -> tuple[Sequence[Event], Mapping[str, int]]:
        return (), run.spool_offsets

    def notify(self, run: Run, subject: str, text: str) -> None:
        return None

    def prepare(self, run: Run) -> None:
        return None

    def raise_fence(self, run: Run, token: str) -> None:
        return None

    def control(self, run: Run, token: str, word: str) -> None:
        return None

    def log_tail(self, run: Run, attempt: int) -> str:
        return ""


def calls_per_minute(runs: int) -> float:
    """squeue, sacct and scontrol calls a minute while that many runs are running."""
    clock, slurm, quiet = StepClock(), AnsweringSlurm(), Quiet()
    batch = SlurmCli("bench", slurm, user="bench", clock=clock)
    plane = Plane(MemoryStore(), {"bench": batch}, quiet, clock, quiet, quiet, owner="bench", holder="bench")
    for number in range(runs):
        plane.delegate(_run(number, clock.now()))
    before, until = 0, clock.now() + WARM_UP_S
    for span in (WARM_UP_S, MEASURED_S):
        before, until = sum(batch.calls.values()), clock.now() + span
        while clock.now() < until:
            clock.sleep(max(0.5, plane.tick().next_tick_s))
    return (sum(batch.calls.values()) - before) / (MEASURED_S / 60)


def _run(number: int, now: float) -> Run:
    hours = Estimate.exact(6 * 3600.0, "s", "bench")
    workload = Workload(name="bench", epochs=100, samples=1000, command=("python", "train.py"), directory="/tmp")
    plan = Plan(
        1, "bench", "gpu", "v100", workload, Resources(walltime_s=8 * 3600.0), (), Needs(), hours, hours, hours,
        Estimate.exact(0.0, "usd", "bench"),
    )  # fmt: skip
    return Run(f"r-{number}", "bench", plan, RunState.PLANNED, f"/tmp/bench/{number}", now, state_since=now)
