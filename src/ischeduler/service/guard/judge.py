"""What there is to say about a job before it is submitted. Pure: the same job, cluster and past give the same advice.

Three things are looked at: whether it can run where it asks to, whether its walltime is far beyond what such jobs of its owner
ever needed, and whether it asks for GPUs that such jobs never used. Everything said names the figures it stands on.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ischeduler.core.cluster import Cluster, Partition
from ischeduler.core.durations import format_slurm, human
from ischeduler.core.history import HistoryRecord
from ischeduler.service.guard.job import AskedJob

FAR = 3.0
"""A walltime this many times the longest such job is worth a word."""
SPARE = 2.0
"""What is proposed in its place: this many times the longest such job."""
LEAST_SURPLUS_S = 1800.0
LEAST_TO_SAY, LEAST_TO_SET = 3, 5
"""Such jobs needed before anything is said, and before anything may be set unasked."""
_ROUNDING = ((3600.0, 300.0), (6 * 3600.0, 900.0), (math.inf, 3600.0))
"""A proposed walltime is rounded up: below an hour to 5 minutes, below six to a quarter, else to an hour."""


@dataclass(frozen=True, slots=True)
class Advice:
    """One thing to know. ``kind`` is 'partition', 'walltime' or 'gpus'; ``changes`` are options of sbatch the service is sure of."""

    kind: str
    text: str
    changes: Mapping[str, str] = field(default_factory=dict[str, str])


def judge(job: AskedJob, cluster: Cluster | None, past: Sequence[HistoryRecord]) -> tuple[Advice, ...]:
    """Advice on ``job``, most important first. ``past`` is its owner's own evidence; ``cluster`` None where it is not known."""
    found = list(_place(job, cluster)) if cluster is not None else []
    alike = similar(job, past)
    if not any("time" in a.changes or a.kind == "partition" for a in found):
        found += _walltime(job, alike)
    return (*found, *_gpus(job, alike))


def similar(job: AskedJob, past: Iterable[HistoryRecord]) -> list[HistoryRecord]:
    """Jobs of the same name (numbers in it aside), where there are enough of them; else those of the same place and GPUs."""
    ended = [r for r in past if r.run_s and (not job.cluster or r.cluster == job.cluster)]
    stem = _stem(job.name)
    named = [r for r in ended if stem and _stem(r.family) == stem and (r.gpus > 0) == (job.gpus > 0)]
    if len(named) >= LEAST_TO_SAY:
        return named
    return [r for r in ended if job.partition in (None, r.partition) and r.gpus == job.gpus and r.nodes == job.nodes]


def _stem(name: str) -> str:
    return re.sub(r"[\W\d_]+", "", name.lower())


def _place(job: AskedJob, cluster: Cluster) -> Iterable[Advice]:
    here = next((p for p in cluster.partitions if p.name == job.partition), None)
    if here is None:
        return
    reason = refusal(job, here, cluster)
    if not reason:
        return
    others = [p.name for p in cluster.partitions if p.name != here.name and not refusal(job, p, cluster)]
    where = f"; {others[0]} takes it" if others else "; no partition of this cluster takes it as it is"
    if len(others) > 1:
        where = f"; {', '.join(others[:3])} take it"
    changes = {"partition": others[0]} if len(others) == 1 else {}
    yield Advice("partition", f"this job has no chance in {here.name}: {reason}{where}.", changes)


def refusal(job: AskedJob, partition: Partition, cluster: Cluster) -> str:
    """Why the partition can never run the job, as one clause; '' when it can. What is unknown never refuses."""
    if partition.access is not None and not partition.access.allowed:
        return f"it is closed to you ({partition.access.reason})"
    if partition.allow_accounts and job.account and job.account not in partition.allow_accounts:
        return f"it does not take the account {job.account}"
    if job.walltime_s is not None and partition.max_walltime_s is not None and job.walltime_s > partition.max_walltime_s:
        return f"{human(job.walltime_s)} is asked for and its limit is {human(partition.max_walltime_s)}"
    if partition.max_nodes is not None and job.nodes > partition.max_nodes:
        return f"{job.nodes} nodes are asked for and it allows {partition.max_nodes}"
    return _hardware(job, partition, cluster)


def _hardware(job: AskedJob, partition: Partition, cluster: Cluster) -> str:
    types = [t for t in cluster.node_types if t.name in partition.node_types]
    if not types:
        return ""
    if job.gpus and max(t.accelerators_per_node for t in types) < job.gpus:
        most = max(t.accelerators_per_node for t in types)
        return f"{job.gpus} GPU(s) a node are asked for and its nodes have {most or 'none'}"
    cards = {t.accelerator.gres or t.accelerator.name for t in types if t.accelerator}
    if job.gpu_type and cards and job.gpu_type not in cards:
        return f"{job.gpu_type} GPUs are asked for and it has {', '.join(sorted(cards))}"
    cores = [t.cores for t in types]
    if all(c is not None for c in cores) and job.cpus_per_node > max(c or 0 for c in cores):
        return f"{job.cpus_per_node} cores a node are asked for and its nodes have {max(c or 0 for c in cores)}"
    return ""


def _walltime(job: AskedJob, alike: Sequence[HistoryRecord]) -> Iterable[Advice]:
    """Only jobs that ended by themselves tell how long such a job takes; one that was cut off would have gone on."""
    ran = [r.run_s for r in alike if r.run_s is not None and not (r.walltime_s and r.run_s >= 0.98 * r.walltime_s)]
    cut_off = len(ran) < len(alike)
    if job.walltime_s is None or len(ran) < LEAST_TO_SAY or cut_off:
        return
    longest = max(ran)
    if job.walltime_s < FAR * longest or job.walltime_s - longest < LEAST_SURPLUS_S:
        return
    proposed = _rounded(SPARE * longest)
    if proposed >= job.walltime_s:
        return
    asked = "no limit" if math.isinf(job.walltime_s) else human(job.walltime_s)
    words = (
        f"{asked} of walltime is asked for, and the longest of your {len(ran)} similar jobs took {human(longest)}; "
        f"--time={format_slurm(proposed)} is twice that and is likely to start sooner."
    )
    yield Advice("walltime", words, {"time": format_slurm(proposed)} if len(ran) >= LEAST_TO_SET else {})


def _rounded(seconds: float) -> float:
    step = next(step for below, step in _ROUNDING if seconds < below)
    return math.ceil(seconds / step) * step


def _gpus(job: AskedJob, alike: Sequence[HistoryRecord]) -> Iterable[Advice]:
    """Runs whose training reported its steps would have reported GPU memory, had it used any."""
    told = [r for r in alike if r.gpus and r.step_time_s is not None]
    if not job.gpus or len(told) < LEAST_TO_SAY or any(r.gpu_memory_bytes for r in told):
        return
    noun = "GPU" if job.gpus == 1 else f"{job.gpus} GPUs a node"
    yield Advice(
        "gpus",
        f"a {noun} is asked for, and none of your {len(told)} similar runs reported any GPU memory in use; "
        "look whether the training runs on the CPU, or leave the GPU to others.",
    )
