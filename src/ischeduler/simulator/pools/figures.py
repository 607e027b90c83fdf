"""The figures of a simulated pool, without what computes them: this module needs no numpy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PoolSummary:
    """The figures of one run: jobs judged and done, completion times (seconds), the end, use of accelerators, cost, fairness.

    ``fairness_worst`` and ``fairness_mean``: completion time over that with an equal slice of every type all along (1 or less: no job is
    worse off than on its own); None when that was not simulated. ``cost``: accelerator hours at the given prices.
    """

    policy: str
    mode: str
    jobs: int
    done: int
    jct_mean_s: float
    jct_p50_s: float
    jct_p90_s: float
    jct_p99_s: float
    makespan_s: float
    utilisation: float
    cost: float
    restarts_mean: float | None
    fairness_worst: float | None
    fairness_mean: float | None
    decisions: int
    cpu_s: float


@dataclass(frozen=True, slots=True)
class TypeAccount:
    """A job's time on a type over its life: promised by the policy, received in rounds (seconds)."""

    type: str
    promised_s: float
    received_s: float


@dataclass(frozen=True, slots=True)
class PoolWhy:
    """The answer: the rule, the accounts, who went ahead (jobs that came later and ended earlier), and one paragraph of words."""

    job: str
    policy: str
    rule: str
    arrived_s: float
    waited_s: float | None
    jct_s: float | None
    alone_s: float
    restarts: int | None
    accounts: tuple[TypeAccount, ...]
    overtaken_by: tuple[str, ...]
    words: str
