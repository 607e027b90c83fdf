"""Why a job of a pool is where it is: who is ahead of it and by which rule, what it was promised and what it got. Pure."""

from __future__ import annotations

import numpy as np

from ischeduler.core.durations import human
from ischeduler.core.errors import BadInput
from ischeduler.policies.problem import Accelerators
from ischeduler.simulator.pools.figures import PoolWhy, TypeAccount
from ischeduler.simulator.pools.results import PoolRun
from ischeduler.simulator.pools.workload import Workload

RULES = {
    "fifo": "first come, first served",
    "sjf": "the shortest job first",
    "srpt": "the least work left first",
    "srpt_fair": "the least work left first, but nobody below a share of the fair level",
    "srpt_bounded": "accelerators go where they gain most, short rests counting more, but who could end later than on its own slice goes first",
    "max_min_fairness": "the job with the least normalised progress is raised as far as can be",
    "las": "the job with the least normalised progress is raised as far as can be",
    "finish_time_fairness": "the job that would finish latest, against finishing on its own slice, is helped first",
    "min_total_duration": "the end of the last job is made as early as can be",
    "makespan": "the end of the last job is made as early as can be",
    "max_sum_throughput": "accelerators go where they make the most steps",
    "min_cost": "accelerators go where a step costs least",
    "hierarchical": "entities share by their weights, jobs within them by the entity's rule",
    "tiresias": "the job that has had the least accelerator time first",
    "allox": "jobs are put on accelerators so that the sum of completion times is least",
    "gandiva": "equal slices, and jobs share accelerators when there are too few",
    "isolated": "every job has the same slice of every type",
}


def rule_of(policy: str) -> str:
    """A policy's rule in words."""
    name = policy.removesuffix("_perf").removesuffix("_packed").removesuffix("_SLOs")
    while name and name not in RULES:
        name = name.rpartition("_")[0]
    return RULES.get(name, f"the policy {policy}") + ("; two jobs may share accelerators" if "_packed" in policy else "")


def why(job: str, run: PoolRun, workload: Workload, rate: np.ndarray, accelerators: Accelerators) -> PoolWhy:
    """Explain ``job`` in ``run``; ``rate`` (n, K) steps/s of every job on every type. BadInput when there is no such job."""
    if job not in workload.names:
        raise BadInput(f"There is no job '{job}' among the {len(workload)}; they are called {', '.join(workload.names[:3])} and so on.")
    at = workload.names.index(job)
    jct = float(run.jct_s[at])
    ended = None if np.isnan(jct) else jct
    arrived = float(workload.arrival_s[at])
    alone = float(workload.total_steps[at] / rate[at].max())
    accounts = () if run.promised_s is None or run.received_s is None else tuple(
        TypeAccount(t, float(p), float(r)) for t, p, r in zip(accelerators.types, run.promised_s[at], run.received_s[at], strict=True)
    )
    waited = None if run.started_s is None or np.isnan(run.started_s[at]) else float(run.started_s[at] - arrived)
    ends = workload.arrival_s + run.jct_s
    later = np.flatnonzero((workload.arrival_s > arrived) & (ends < (arrived + jct if ended is not None else np.inf)))
    overtook = tuple(workload.names[i] for i in later[np.argsort(ends[later])])
    restarts = None if run.restarts is None else int(run.restarts[at])
    rule = rule_of(run.policy)
    return PoolWhy(job, run.policy, rule, arrived, waited, ended, alone, restarts, accounts, overtook,
                   _words(job, run.policy, rule, waited, ended, alone, restarts, accounts, overtook))  # fmt: skip


def _words(
    job: str, policy: str, rule: str, waited: float | None, ended: float | None, alone: float, restarts: int | None,
    accounts: tuple[TypeAccount, ...], overtook: tuple[str, ...],
) -> str:  # fmt: skip
    said = [f"Under {policy}, {rule}."]
    if ended is None:
        said.append(f"Job {job} did not end in this simulation; alone on the fastest type it would take {human(alone)}.")
    else:
        said.append(f"Job {job} took {human(ended)}; alone on the fastest type it would have taken {human(alone)}.")
    if waited is not None:
        said.append(f"It first ran {human(waited)} after it arrived." if waited >= 1 else "It ran at once.")
    if accounts:
        shown = "; ".join(f"{a.type}: promised {human(a.promised_s)}, got {human(a.received_s)}" for a in accounts if a.promised_s >= 1 or a.received_s >= 1)
        said.append(f"Accelerator time by type: {shown or 'none'}.")
    if restarts is not None:
        said.append(f"It was started {restarts} times." if restarts != 1 else "It was started once.")
    if overtook:
        more = f" and {len(overtook) - 3} more" if len(overtook) > 3 else ""
        said.append(f"{len(overtook)} that came later ended sooner ({', '.join(overtook[:3])}{more}).")
    else:
        said.append("Nobody that came later ended sooner.")
    return " ".join(said)
