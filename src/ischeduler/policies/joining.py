"""Joining: jobs that found no room share the accelerators of a running job, for the policies that serve a queue.

In the queue's order, each waiting job joins the job of its size that runs alone and with which it keeps the largest sum of normalised
rates, if that is more than ``packing_threshold`` (option, default 1.5; 1 is taking turns). Source: Gavel's packed FIFO (OSDI 2020). O(J^2).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from ischeduler.core.errors import BadInput
from ischeduler.policies.problem import Accelerators, Allocation, Jobs, Objective, Throughputs

THRESHOLD = 1.5


def joined(
    found: Allocation, waiting: Iterable[int], jobs: Jobs, throughputs: Throughputs, accelerators: Accelerators, objective: Objective, *,
    strict: bool = False,
) -> Allocation:
    """``found`` (every job wholly on one type, or nowhere) with pairs, where the objective shares; ``strict``: nobody passes one that must wait."""
    if not objective.sharing:
        return found
    kept = throughputs.on(accelerators).kept(aware=objective.aware)
    threshold = float(objective.options.get("packing_threshold", THRESHOLD))
    if not threshold >= 1.0:
        raise BadInput(f"The option packing_threshold={threshold:g} is a sum of normalised rates; give 1 (taking turns) or more.")
    whole = np.flatnonzero(found.share.max(axis=1, initial=0.0) >= 1.0 - 1e-9)
    kind = np.argmax(found.share[whole], axis=1)
    alone = np.ones(len(whole), dtype=np.bool_)
    share, pairs = found.share.copy(), list[tuple[int, int, int]]()
    for j in waiting:
        mine, theirs = kept[jobs.job_class[j], jobs.job_class[whole], kind], kept[jobs.job_class[whole], jobs.job_class[j], kind]
        fits = alone & (jobs.accelerators[whole] == jobs.accelerators[j]) & (mine > 0)
        together = np.where(fits, mine + theirs, 0.0)
        best = int(np.argmax(together)) if len(whole) else -1
        if best < 0 or together[best] <= threshold:
            if strict:
                break
            continue
        alone[best] = False
        share[whole[best]], share[j] = 0.0, 0.0
        pairs.append((int(whole[best]), j, int(kind[best])))
    pair_share = np.zeros((len(pairs), len(found.types)))
    for p, (_, _, k) in enumerate(pairs):
        pair_share[p, k] = 1.0
    return replace(found, share=share, pairs=np.array([(i, j) for i, j, _ in pairs], dtype=np.int64).reshape(-1, 2), pair_share=pair_share)
