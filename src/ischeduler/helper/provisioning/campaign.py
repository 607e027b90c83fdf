"""Many trainings of provisioners, one a trace and seed: here one after another, or as one array of batch jobs.

A folder holds everything: ``tasks.json``, one model file a task, ``array.json`` while an array is under way. A model file that is
there is never made again, so the same call goes on after a stop, a lost node or a walltime limit (each training keeps its own work).
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ischeduler.core.errors import BadInput, BatchUnavailable, IschedError, NotFound, RunFailed
from ischeduler.core.jobs import JobRef, JobSpec, JobState, Resources
from ischeduler.helper.provisioning.methods import DEPLOYED, Effort, check

if TYPE_CHECKING:
    from ischeduler.helper.provisioning.collecting import Advance
    from ischeduler.helper.session import Session
    from ischeduler.ports import BatchSystem

POLL_S = 2.0
LATE_S = 30.0
"""How long a model file may take to appear on the shared file system after its job has ended."""


@dataclass(frozen=True)
class Task:
    """One training: the trace and the machine's size, the segment, the seed, and how many episodes."""

    trace: str
    units: int
    seed: int
    nodes: int = 1
    segment_s: int = 2 * 86400
    train_until: str = "0.7"
    protocol: str = "corrected"
    training: int = 200
    episodes: int = 60
    rolls: int = 64
    method: str = DEPLOYED
    width: int = 64
    decisions: int = 40_000

    @property
    def name(self) -> str:
        """``kth-2n-seed0``, ``kth-2n-ppo-seed0``: the model file's name without its ending."""
        method = "" if self.method == DEPLOYED else f"{self.method}-"
        return f"{Path(self.trace).stem}-{self.nodes}n-{method}seed{self.seed}"

    def run(self, folder: Path, advance: Advance) -> dict[str, Any]:
        """Train into the folder's file of this task; what the model file says of itself."""
        return self.run_to(folder / f"{self.name}.json", advance)

    def run_to(self, out: Path, advance: Advance) -> dict[str, Any]:
        """Train into a file; what it says of itself."""
        from ischeduler.helper.provisioning.setting import read_setting
        from ischeduler.helper.provisioning.training import Order, train

        check(self.method)

        setting = read_setting(
            Path(self.trace), units=self.units, train_until=self.train_until, protocol=self.protocol, segment_s=self.segment_s
        )
        effort = Effort(width=self.width, decisions=self.decisions)
        order = Order(self.nodes, self.training, self.episodes, self.seed, self.rolls, method=self.method, effort=effort)
        return train(setting, order, out, advance=advance)


@dataclass(frozen=True)
class Where:
    """The batch system's place of an array, and what each of its jobs asks for. ``at_once``: how many run side by side (0: all)."""

    cluster: str
    partition: str
    walltime_s: float
    cpus: int = 1
    memory_bytes: int | None = None
    account: str | None = None
    qos: str | None = None
    at_once: int = 0


def tasks_of(traces: Sequence[Path], units: Sequence[int], seeds: Sequence[int], **common: Any) -> list[Task]:
    """Every trace with every seed. BadInput where sizes do not belong to traces, or two tasks would write the same file."""
    if len(units) not in (1, len(traces)):
        raise BadInput(f"{len(units)} --units for {len(traces)} --trace: give one for all traces, or one for each in their order.")
    sizes = list(units) * (len(traces) if len(units) == 1 else 1)
    tasks = [Task(str(t.resolve()), u, s, **common) for t, u in zip(traces, sizes, strict=True) for s in seeds]
    names = [t.name for t in tasks]
    if len(set(names)) < len(names):
        raise BadInput("two traces have the same file name, or a seed comes twice; their models would overwrite each other.")
    for trace in traces:
        if not trace.is_file():
            raise BadInput(f"{trace} is not here: give a table of jobs (parquet or csv) with --trace.")
    return tasks


def train_here(tasks: Sequence[Task], folder: Path, advance: Advance) -> None:
    """One after another; those whose model is there are left alone."""
    folder.mkdir(parents=True, exist_ok=True)
    for task in missing(tasks, folder):
        task.run(folder, lambda what, done, of, name=task.name: advance(f"{name}: {what}", done, of))


def train_there(here: Session, tasks: Sequence[Task], folder: Path, where: Where, advance: Advance) -> None:
    """One array of batch jobs for the models that are missing; waits for it. An array of an earlier call that is alive is waited for.

    NotFound for a place that cannot be reached; RunFailed, with the job's last words, where a model is missing in the end.
    """
    batch = here.services.batches.get(where.cluster)
    if batch is None:
        raise NotFound(f"cluster '{where.cluster}' cannot be reached from here; live is {', '.join(here.live) or 'none'}.")
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if not missing(tasks, folder):
        return
    ref = _alive(batch, folder) or _submit(batch, tasks, folder, where)
    _wait(here, batch, ref, tasks, folder, advance)
    lost = missing(tasks, folder)
    if lost:
        raise RunFailed(f"{len(lost)} of {len(tasks)} models are missing, {lost[0].name} the first: {_words(folder)}; the same command goes on.")


def missing(tasks: Sequence[Task], folder: Path) -> list[Task]:
    """Tasks whose model file is not there."""
    return [t for t in tasks if not (folder / f"{t.name}.json").exists()]


def place_of(text: str) -> tuple[str, str]:
    """``CLUSTER/PARTITION`` in two. BadInput otherwise."""
    cluster, slash, partition = text.partition("/")
    if not (cluster and slash and partition):
        raise BadInput(f"--on '{text}' is no place; give CLUSTER/PARTITION.")
    return cluster, partition


def _submit(batch: BatchSystem, tasks: Sequence[Task], folder: Path, where: Where) -> JobRef:
    todo = missing(tasks, folder)
    (folder / "logs").mkdir(exist_ok=True)
    key = f"provisioners-{secrets.token_hex(3)}"
    _write(folder / "tasks.json", [asdict(t) for t in todo])
    job = JobSpec(
        key, key, where.partition,
        Resources(cpus_per_node=where.cpus, memory_bytes=where.memory_bytes, walltime_s=where.walltime_s),
        (sys.executable, "-m", "ischeduler.helper.provisioning.campaign", str(folder)), str(folder), str(folder / "logs" / key),
        account=where.account, qos=where.qos, signal_lead_s=None, array=len(todo), array_at_once=where.at_once,
    )  # fmt: skip
    ref = JobRef(key, batch.submit(job))
    _write(folder / "array.json", {"key": key, "job_id": ref.job_id})
    return ref


def _alive(batch: BatchSystem, folder: Path) -> JobRef | None:
    """The array of an earlier call, where any of its jobs has not ended."""
    try:
        known = json.loads((folder / "array.json").read_text())
        ref = JobRef(known["key"], known["job_id"])
    except (OSError, ValueError, KeyError):
        return None
    return ref if any(not s.state.ended for s in batch.observe([ref]).jobs.get(ref.key, ())) else None


def _wait(here: Session, batch: BatchSystem, ref: JobRef, tasks: Sequence[Task], folder: Path, advance: Advance) -> None:
    ended_at: float | None = None
    while left := missing(tasks, folder):
        advance(f"array {ref.job_id}", len(tasks) - len(left), len(tasks))
        try:
            states = [s.state for s in batch.observe([ref]).jobs.get(ref.key, ())]
        except BatchUnavailable:
            states = [JobState.UNKNOWN]  # says nothing about any job
        if states and all(s.ended for s in states):
            ended_at = here.clock.now() if ended_at is None else ended_at
            if here.clock.now() - ended_at > LATE_S:
                return
        here.clock.sleep(POLL_S)
    advance(f"array {ref.job_id}", len(tasks), len(tasks))


def _words(folder: Path) -> str:
    """The newest log's last line."""
    logs = sorted((folder / "logs").glob("*"), key=lambda p: p.stat().st_mtime)
    lines = logs[-1].read_text(errors="replace").strip().splitlines() if logs else []
    return lines[-1][-300:] if lines else "its jobs printed nothing"


def _write(path: Path, data: Any) -> None:
    half = path.with_name(f".{path.name}.{os.getpid()}")
    half.write_text(json.dumps(data))
    half.replace(path)


def main(folder: Path, index: int, say: Callable[[str], None]) -> int:
    """Inside the job: the task of this index."""
    task = Task(**json.loads((folder / "tasks.json").read_text())[index])
    try:
        task.run(folder, lambda what, done, of: None)
    except IschedError as error:
        say(f"{task.name}: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(os.environ["SLURM_ARRAY_TASK_ID"]), lambda words: print(words, flush=True)))
