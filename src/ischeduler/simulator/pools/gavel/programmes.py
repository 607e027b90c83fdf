"""Gavel's allocators that solve programmes: max-min fairness, makespan, finish-time fairness, most throughput."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ischeduler.core.errors import IschedError
from ischeduler.policies.problem import Accelerators, Floats
from ischeduler.simulator.pools.gavel.allocators import Scene, columns, slices

FIRST_BOUNDS_S = (100.0, 1_000_000.0)
TOLERANCE = 1.05
NEWTON_STEPS = 30
LAST_DIGITS = 1e-11


class NotSolved(IschedError):
    """A programme that has a solution was not solved: an error of this project."""


def solve(
    accelerators: Accelerators, size: Any, speed: Floats, *, need: Floats | None = None, floor: Floats | None = None,
    gain: Floats | None = None, level: float = 0.0,
) -> tuple[Floats, float, bool]:  # fmt: skip
    """Shares (J, K), the level and whether there is a solution; see :mod:`~ischeduler.simulator.pools.gavel.embedding`."""
    from ischeduler.simulator.pools.gavel.embedding import INFEASIBLE, OPTIMAL, follow

    order = columns(accelerators)
    zero = np.zeros(len(size))
    demands = need is not None or floor is not None
    share, reached, ended = follow(
        np.ascontiguousarray(speed[:, order]), zero if need is None else need, zero if floor is None else floor,
        size.astype(np.float64), accelerators.count[order], np.zeros(speed.shape) if gain is None else np.ascontiguousarray(gain[:, order]),
        level, demands,
    )  # fmt: skip
    if ended != OPTIMAL and ended != INFEASIBLE:
        raise NotSolved(f"The programme of {len(size)} jobs was not solved; please report this with the jobs' file.")
    result = np.zeros(speed.shape)
    result[:, order] = share.clip(0.0, 1.0)
    return result, float(reached), ended == OPTIMAL


def nearest_shares(accelerators: Accelerators, scene: Scene, rate: Floats, isolated: Floats) -> tuple[Floats, float, bool]:
    """Shares (J, K) of the least finish-time ratio, the ratio, and whether they were found; ``isolated`` (J,) seconds."""
    from ischeduler.simulator.pools.gavel.finish_times import nearest

    order = columns(accelerators)
    result = np.zeros(rate.shape)
    try:
        share, ratio, found = nearest(
            np.ascontiguousarray(rate[:, order]), scene.since_s, scene.steps_left, isolated, scene.size.astype(np.float64), accelerators.count[order],
        )  # fmt: skip
    except (ZeroDivisionError, np.linalg.LinAlgError):  # at the very end a step may round onto the cone's edge
        return result, 0.0, False
    result[:, order] = share.clip(0.0, 1.0)
    return result, float(ratio), bool(found)


def proportional(accelerators: Accelerators, rate: Floats) -> Floats:
    """Steps/s (J,) under Gavel's proportional split: every type in proportion to its number, all of the time."""
    split = accelerators.count / len(rate)
    return (rate * (split / split.sum())).sum(axis=1)


def _nothing(scene: Scene, types: int) -> Floats:
    return np.zeros((len(scene.pair), types))


@dataclass
class MaxMin:
    """max min_j sum_k rate_jk size_j x_jk / (weight_j proportional_j). Not ``aware``: every rate is 1, even where a job does not run.

    Then all jobs get the same shares, and who goes first is told by the solver's last digits: all of Gavel's solver's are equal but those
    of the oldest job, which are a little off, either way. Here they are drawn by lot.
    """

    accelerators: Accelerators
    aware: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        self.lot = np.random.default_rng(self.seed)

    def shares(self, scene: Scene) -> tuple[Floats, Floats]:
        """The shares."""
        rate = scene.rate if self.aware else np.ones_like(scene.rate)
        worth = 1.0 / scene.weight / proportional(self.accelerators, rate)
        share, _, _ = solve(
            self.accelerators, scene.size, rate * worth[:, None] * scene.size[:, None], need=np.ones(len(rate)), level=1.0,
        )  # fmt: skip
        if not self.aware:
            share[0] *= 1.0 + LAST_DIGITS * self.lot.standard_normal(len(self.accelerators.types))
        return share, _nothing(scene, rate.shape[1])


@dataclass
class MostThroughput:
    """max sum_jk rate_jk x_jk, in steps, whatever a step is worth."""

    accelerators: Accelerators

    def shares(self, scene: Scene) -> tuple[Floats, Floats]:
        """The shares."""
        share, _, _ = solve(self.accelerators, scene.size, np.zeros(scene.rate.shape), gain=scene.rate)
        return share, _nothing(scene, scene.rate.shape[1])


def reference_rate(accelerators: Accelerators, scene: Scene) -> Floats:
    """What Gavel's policies that do not know throughputs take for them: the v100's everywhere (the fastest type's where there is none)."""
    one = scene.rate[:, accelerators.types.index("v100")] if "v100" in accelerators.types else scene.rate.max(axis=1)
    return np.repeat(one[:, None], scene.rate.shape[1], axis=1)


@dataclass
class Makespan:
    """Least T with sum_k rate_jk x_jk >= steps_j / T, by bisection until the bounds are 5 % apart: some point at the last T that works."""

    accelerators: Accelerators
    aware: bool = True

    def shares(self, scene: Scene) -> tuple[Floats, Floats]:
        """The shares at the last T found possible."""
        rate = scene.rate if self.aware else reference_rate(self.accelerators, scene)
        unit = float(scene.steps_left.max())
        _, reached, _ = solve(self.accelerators, scene.size, rate, need=scene.steps_left / unit, level=1.0)
        least = unit / reached
        share, _, possible = solve(self.accelerators, scene.size, rate, floor=scene.steps_left / bisected(least))
        if not possible:
            share, _, _ = solve(self.accelerators, scene.size, rate, floor=scene.steps_left / (least * TOLERANCE))
        return share, _nothing(scene, rate.shape[1])


def bisected(least_s: float) -> float:
    """The T at which Gavel's bisection ends when every T from ``least_s`` on is possible."""
    low, high = FIRST_BOUNDS_S
    top = high
    while True:
        found = None
        while TOLERANCE * low < high:
            middle = (low + high) / 2.0
            if middle >= least_s:
                found = high = middle
            else:
                low = middle
        if found is not None:
            return found
        low, high, top = top, top * 10.0, top * 10.0


@dataclass
class FinishTime:
    """min max_j (since_j + left_j / (rate_j . x_j)) / isolated_j, Themis' ratio with Gavel's account of the isolated time.

    A cone programme (:mod:`~ischeduler.simulator.pools.gavel.finish_times`). Without cones: for a ratio r the demands are
    left_j / (r isolated_j - since_j), convex in r: Newton's steps, each one linear programme with the level -r.
    """

    accelerators: Accelerators
    aware: bool = True
    spent_s: dict[int, float] = field(default_factory=dict[int, float])
    before: dict[int, tuple[float, float]] = field(default_factory=dict[int, "tuple[float, float]"])
    last: float = 0.0

    def shares(self, scene: Scene) -> tuple[Floats, Floats]:
        """The shares at the least ratio; what is left and the isolated speed are remembered."""
        rate = scene.rate if self.aware else reference_rate(self.accelerators, scene)
        alone = (rate * slices(self.accelerators.count, scene.size)).sum(axis=1)
        for row, job in enumerate(scene.job.tolist()):
            left, speed = self.before.get(job, (0.0, 0.0))
            self.spent_s[job] = self.spent_s.get(job, 0.0) + ((left - scene.steps_left[row]) / speed if speed else 0.0)
        isolated = np.array([self.spent_s[job] for job in scene.job.tolist()]) + scene.steps_left / alone
        share = self._least(scene, rate, isolated)
        self.before = {job: (scene.steps_left[row], alone[row]) for row, job in enumerate(scene.job.tolist())}
        return share, _nothing(scene, rate.shape[1])

    def _least(self, scene: Scene, rate: Floats, isolated: Floats) -> Floats:
        """By the cone programme, as Gavel; where rounding stops that early, by linear ones, at another solution with the same ratio."""
        share, ratio, found = nearest_shares(self.accelerators, scene, rate, isolated)
        if not found:
            return self._linear(scene, rate, isolated)
        self.last = ratio
        return share

    def _linear(self, scene: Scene, rate: Floats, isolated: Floats) -> Floats:
        """The tangents of the demands lie below them, so that after the first step the ratio rises to the least one, quadratically."""
        lowest = float(((scene.since_s + scene.steps_left / rate.max(axis=1)) / isolated).max()) * (1.0 + 1e-9)
        ratio = max(lowest, self.last)
        share = np.zeros(rate.shape)
        for _ in range(NEWTON_STEPS):
            spare = ratio * isolated - scene.since_s
            share, less, possible = solve(
                self.accelerators, scene.size, rate * (spare / scene.steps_left)[:, None], need=isolated / spare, floor=np.ones(len(spare)),
                level=1.0,
            )  # fmt: skip
            if not possible:
                raise NotSolved("The fair finish times were not found; please report this with the jobs' file.")
            before, ratio = ratio, max(ratio - less, lowest)
            if abs(ratio - before) <= 1e-9 * ratio:
                break
        self.last = ratio
        return share
