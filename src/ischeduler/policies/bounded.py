"""Least mean completion time with a bound on lateness: whoever could become late against its own slice goes first, then the others by worth.

    maximise  sum_jk weight_j (rate_jk / top_j) (top_j / steps_left_j)^power x_jk,   top_j = max_k rate_jk
    subject to  sum_k rate_jk x_jk >= need_j   for every job with need_j > laxity * top_j
    need_j = steps_left_j / (arrived_j + bound (slice_j - arrived_j) - now), at most top_j

slice_j: when job j ends (or ended) in the world in which every job has its slice (:mod:`ischeduler.policies.slices`). ``bound`` (option,
default 1): how much later than there a job may end, as a ratio of completion times; a smaller one is fairer and costs some of the mean. Where
not all can keep it, the least that they can keep together takes its place. ``laxity`` (option, default 0.3, in (0, 1]): a job that needs less
of its full speed than that can wait. ``power`` (option, default 0.15): how much more short rests count; types that fit a job count in full,
since a second gained is worth as much to a long job as to a short one. Two linear programmes, O(J K^2) per step, some more where the bound
cannot be kept. Sources: the order is shortest remaining time (Schrage 1968), tempered; the bound is the fair sojourn protocol's (Friedman and
Henderson, SIGMETRICS 2003) over types; both as one programme is ours.

``memory``: the world of slices; give the allocation back. Without it the world begins with the jobs as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ischeduler.core.errors import BadInput
from ischeduler.policies.packing import PackedLevels, best_level
from ischeduler.policies.problem import Accelerators, Allocation, Floats, Ints, Jobs, Objective, Throughputs, allocation, rates
from ischeduler.policies.program import most_gain
from ischeduler.policies.slices import Slices

BOUND, LAXITY, POWER = 1.0, 0.3, 0.15
INSIDE = 1.0 - 1e-6
HALVINGS, LOOSEST = 5, 1e6


def allocate(
    jobs: Jobs, throughputs: Throughputs, accelerators: Accelerators, objective: Objective, now: float, previous: Allocation | None = None,
) -> Allocation:
    """See the module. ``score``: each job's part of the bound used up at its pace (negative; below -1: late); ``priority``: what it needs."""
    bound, laxity, power = (float(objective.options.get(k, d)) for k, d in (("bound", BOUND), ("laxity", LAXITY), ("power", POWER)))
    if not bound > 0:
        raise BadInput(f"The option bound={bound:g} is a ratio of completion times; give a number above zero, such as 1.")
    if not 0 < laxity <= 1:
        raise BadInput(f"The option laxity={laxity:g} is a part of a job's full speed; give a number above 0 and at most 1.")
    if not power >= 0:
        raise BadInput(f"The option power={power:g} is an exponent; give zero or more.")
    rate = rates(jobs, throughputs, accelerators, objective)
    world = previous.memory.until(now) if previous is not None and isinstance(previous.memory, Slices) else Slices(now)
    world = world.having(jobs, rate, accelerators)
    left = np.maximum(jobs.steps_left, 1e-9 * np.maximum(jobs.total_steps, 1e-300))
    top = rate.max(axis=1)
    speed = rate / top[:, None]

    def reach(rows: Ints, need: Floats) -> float:
        return best_level(jobs.take(rows), throughputs, accelerators, rate[rows], speed[rows], objective, need=need)[0]

    pressing = _Pressing(left / top, now - jobs.arrived_s, world.ends_s(jobs) - jobs.arrived_s, laxity)
    need, floor = pressing.needs(bound), pressing.floors(bound, reach)
    short = top / left
    gain = jobs.weight[:, None] * speed * ((short / short.max()) ** power)[:, None]
    if objective.sharing:
        both = PackedLevels(jobs, throughputs, accelerators, rate, objective).gain(gain, floor, speed=speed)
        return replace(both, score=-need / np.maximum(np.asarray(both.score), 1e-12), priority=need, memory=world)
    found = most_gain(gain, jobs.accelerators, accelerators.count, speed=speed, floor=floor)
    pace = (speed * found.share).sum(axis=1)
    return allocation(jobs, accelerators, found.share, value=found.level, score=-need / np.maximum(pace, 1e-12), priority=need, memory=world)


@dataclass(frozen=True, slots=True, eq=False)
class _Pressing:
    """Who presses (J,): seconds left at full speed, seconds since arrival, seconds it would take on its slice; the laxity."""

    left_s: Floats
    elapsed_s: Floats
    slice_s: Floats
    laxity: float

    def needs(self, bound: float) -> Floats:
        """Parts of full speed (J,) to end within the bound."""
        return np.minimum(self.left_s / np.maximum(bound * self.slice_s - self.elapsed_s, 1e-9), 1.0)

    def floors(self, bound: float, reach: Callable[[Ints, Floats], float]) -> Floats | None:
        """What the pressing ones must get (J,) under the least bound that can be kept; -1 for the others. ``reach``: the part of their needs that
        these jobs can have together."""
        rows = np.flatnonzero(self.needs(bound) > self.laxity)
        if not len(rows):
            return None

        def fits(at: float) -> bool:
            return reach(rows, self.needs(at)[rows]) >= INSIDE

        low = high = bound
        while not fits(high) and high < LOOSEST * bound:
            low, high = high, 2.0 * high
        for _ in range(HALVINGS if high > low else 0):
            middle = 0.5 * (low + high)
            low, high = (low, middle) if fits(middle) else (middle, high)
        floor = np.full(len(self.left_s), -1.0)
        floor[rows] = self.needs(high)[rows] * INSIDE**2
        return floor
