"""The jobs of a simulated pool, by column, and their throughputs: what the readers give and the simulations take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import NamedTuple

import numpy as np

from ischeduler.core.errors import BadInput
from ischeduler.policies.problem import Accelerators, Floats, Ints, Throughputs


def class_name(job_type: str, accelerators: int) -> str:
    """The name of a job class: the same training at another size has other throughputs."""
    return f"{job_type}|{accelerators}"


class JobRow(NamedTuple):
    """One job as a file states it; ``deadline_s`` counts from its arrival, or it may take ``slowdown`` times its time on the fastest type."""

    name: str
    job_type: str
    accelerators: int
    arrival_s: float
    total_steps: float
    weight: float = 1.0
    deadline_s: float = float("inf")
    entity: str = ""
    slowdown: float = float("inf")


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """n jobs in order of arrival: class (row of the throughputs), accelerators, arrival, steps, weight, deadline (seconds after arrival)."""

    names: tuple[str, ...]
    job_class: Ints
    accelerators: Ints
    arrival_s: Floats
    total_steps: Floats
    weight: Floats
    deadline_s: Floats
    entity: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.names)

    @classmethod
    def of(cls, rows: Iterable[JobRow], throughputs: Throughputs) -> Workload:
        """Columns from rows, in order of arrival. BadInput, one sentence, names the first job that cannot be simulated and why."""
        jobs = list(rows)
        if not jobs:
            raise BadInput("There are no jobs; give a file with at least one.")
        known = {name: row for row, name in enumerate(throughputs.classes)}
        for job in jobs:
            _check(job, known)
        jobs.sort(key=lambda job: job.arrival_s)
        seen: set[str] = set()
        for job in jobs:
            if job.name in seen:
                raise BadInput(f"Two jobs are called '{job.name}'; give every job its own id.")
            seen.add(job.name)
        fastest = throughputs.rate.max(axis=1)
        at = [known[class_name(j.job_type, j.accelerators)] for j in jobs]
        return cls(
            tuple(j.name for j in jobs),
            np.array(at, np.int64),
            np.array([j.accelerators for j in jobs], np.int64),
            np.array([j.arrival_s for j in jobs], np.float64),
            np.array([j.total_steps for j in jobs], np.float64),
            np.array([j.weight for j in jobs], np.float64),
            np.array([min(j.deadline_s, j.slowdown * j.total_steps / fastest[c]) for j, c in zip(jobs, at, strict=True)], np.float64),
            tuple(j.entity for j in jobs),
        )

    def head(self, count: int) -> Workload:
        """The first ``count`` jobs."""
        return Workload(
            self.names[:count], self.job_class[:count], self.accelerators[:count], self.arrival_s[:count], self.total_steps[:count],
            self.weight[:count], self.deadline_s[:count], self.entity[:count], self.notes,
        )  # fmt: skip


def _check(job: JobRow, known: Mapping[str, int]) -> None:
    if job.accelerators < 1:
        raise BadInput(f"Job '{job.name}' asks for {job.accelerators} accelerators; ask for at least one.")
    if class_name(job.job_type, job.accelerators) not in known:
        types = {name.rsplit("|", 1)[0] for name in known}
        sizes = sorted(int(name.rsplit("|", 1)[1]) for name in known if name.rsplit("|", 1)[0] == job.job_type)
        if sizes:
            hint = f"it was measured with {', '.join(map(str, sizes))}"
        else:
            near = get_close_matches(job.job_type, types, 1)
            hint = f"did you mean '{near[0]}'?" if near else "add its throughputs"
        raise BadInput(f"Job '{job.name}' is of type '{job.job_type}' on {job.accelerators} accelerators, which nobody measured; {hint}.")
    for value, what in ((job.weight, "weight"), (job.total_steps, "number of steps")):
        if not np.isfinite(value) or value <= 0:
            raise BadInput(f"Job '{job.name}' has the {what} {value:g}; it must be above zero.")
    if not np.isfinite(job.arrival_s) or job.arrival_s < 0:
        raise BadInput(f"Job '{job.name}' arrives at {job.arrival_s:g} s; give seconds from zero.")
    if not job.deadline_s > 0:
        raise BadInput(f"Job '{job.name}' has a deadline {job.deadline_s:g} s after its arrival; give a time above zero, or none.")


def check_feasible(workload: Workload, throughputs: Throughputs, accelerators: Accelerators) -> None:
    """BadInput names the first job that no accelerator of this cluster can run, or whose deadline even the best of them, alone, cannot meet."""
    rate = throughputs.on(accelerators).rate[workload.job_class]
    best = np.where(workload.accelerators[:, None] <= accelerators.count[None, :], rate, 0.0).max(axis=1)
    if (best <= 0).any():
        row = int(np.argmax(best <= 0))
        raise BadInput(
            f"Job '{workload.names[row]}' ({throughputs.classes[int(workload.job_class[row])].rsplit('|', 1)[0]}, "
            f"{int(workload.accelerators[row])} accelerators) makes no progress on any type of this cluster ({', '.join(accelerators.types)}); "
            "give it accelerators that it runs on, make it smaller, or leave it out.")  # fmt: skip
    late = workload.total_steps / best > workload.deadline_s
    if late.any():
        row = int(np.argmax(late))
        raise BadInput(
            f"Job '{workload.names[row]}' needs {workload.total_steps[row] / best[row]:,.0f} s on the fastest type alone but has a deadline "
            f"{workload.deadline_s[row]:,.0f} s after its arrival; give it more time or fewer steps.")  # fmt: skip

