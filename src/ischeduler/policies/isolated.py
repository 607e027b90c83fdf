"""Every job its own slice: what the other policies are measured against.

'isolated': job j alone on w_j / sum w of every type, x[j,k] = count_k w_j / (size_j sum w), rows cut to 1 (a static partition; the
sharing-incentive yardstick of Ghodsi et al., Dominant Resource Fairness, NSDI 2011, and of Themis). 'proportional': all jobs alike,
x[j,k] = count_k / max(sum of counts, sum of sizes) (the yardstick of Gavel's normalisation, Narayanan et al., OSDI 2020). O(J K).
"""

from __future__ import annotations

import numpy as np

from ischeduler.policies.problem import Accelerators, Allocation, Jobs, Objective, Throughputs, allocation, isolated_shares, rates


def allocate(
    jobs: Jobs, throughputs: Throughputs, accelerators: Accelerators, objective: Objective, now: float, previous: Allocation | None = None,
) -> Allocation:
    """See the module."""
    rate = rates(jobs, throughputs, accelerators, objective)
    if objective.name == "isolated":
        share = isolated_shares(jobs, accelerators)
    else:
        total = max(float(accelerators.count.sum()), float(jobs.accelerators.sum()), 1.0)
        share = np.repeat(accelerators.count[None, :] / total, len(jobs), axis=0)
    share = np.where(rate > 0, share, 0.0)
    return allocation(jobs, accelerators, share, score=(rate * share).sum(axis=1))
