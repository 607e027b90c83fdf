"""The world in which every job has its slice: how far each would have come, and when it would end. The yardstick of lateness.

Job j runs at rate_j . share_j with share_jk = w_j / W * count_k / size_j, rows cut to 1, W the weights of those that have not ended in that
world (they may have ended in ours). Followed event by event: O(V) for each end, V jobs. Source: Friedman and Henderson, SIGMETRICS 2003
(the fair sojourn protocol: nobody ends later than under processor sharing).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ischeduler.policies.problem import Accelerators, Flags, Floats, Jobs

ENDED = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Slices:
    """V jobs at the second ``at``: steps left, steps/s with the whole cluster to itself, the largest part of it that it can use, weight.

    ``ended_s``: when jobs ended there that still run here.
    """

    at: float
    ids: tuple[str, ...] = ()
    left: Floats = field(default_factory=lambda: np.zeros(0))
    whole: Floats = field(default_factory=lambda: np.zeros(0))
    most: Floats = field(default_factory=lambda: np.zeros(0))
    weight: Floats = field(default_factory=lambda: np.zeros(0))
    ended_s: Mapping[str, float] = field(default_factory=dict[str, float])

    def pace(self) -> Floats:
        """Steps/s of each on its slice."""
        return self.whole * np.minimum(self.weight / max(float(self.weight.sum()), 1e-300), self.most)

    def until(self, now: float) -> Slices:
        """The same world at ``now``; a clock that goes back changes nothing."""
        world = self
        while world.ids and world.at < now:
            pace = world.pace()
            step = min(float((world.left / pace).min()), now - world.at)
            world = world._without_ended(world.at + step, world.left - step * pace, pace)
        return Slices(max(now, self.at), world.ids, world.left, world.whole, world.most, world.weight, world.ended_s)

    def _without_ended(self, at: float, left: Floats, pace: Floats) -> Slices:
        stays: Flags = left > ENDED * np.maximum(self.left, pace)
        ended = {**self.ended_s, **{i: at for i, s in zip(self.ids, stays, strict=True) if not s}}
        ids = tuple(i for i, s in zip(self.ids, stays, strict=True) if s)
        return Slices(at, ids, left[stays], self.whole[stays], self.most[stays], self.weight[stays], ended)

    def having(self, jobs: Jobs, rate: Floats, accelerators: Accelerators) -> Slices:
        """With ``jobs`` (J) as they are now, at ``rate`` (J, K); those not known yet begin with what they have left."""
        place = {job: row for row, job in enumerate(self.ids)}
        new = np.array([job not in place and job not in self.ended_s for job in jobs.ids], dtype=np.bool_)
        ids = self.ids + tuple(job for job, fresh in zip(jobs.ids, new, strict=True) if fresh)
        whole = np.concatenate([self.whole, np.zeros(int(new.sum()))])
        most, weight = (np.concatenate([a, np.zeros(int(new.sum()))]) for a in (self.most, self.weight))
        known = {job: row for row, job in enumerate(ids)}
        there = np.array([job in known for job in jobs.ids], dtype=np.bool_)
        at = np.array([known[job] for job, t in zip(jobs.ids, there, strict=True) if t], dtype=np.int64)
        # With the whole cluster for itself a job of several accelerators would stand there several times over.
        whole[at] = ((rate @ accelerators.count) / jobs.accelerators)[there]
        most[at] = np.minimum(1.0, jobs.accelerators / accelerators.count.sum())[there]
        weight[at] = jobs.weight[there]
        running = set(jobs.ids)
        return Slices(self.at, ids, np.concatenate([self.left, jobs.steps_left[new]]), whole, most, weight,
                      {job: s for job, s in self.ended_s.items() if job in running})  # fmt: skip

    def ends_s(self, jobs: Jobs) -> Floats:
        """When each of ``jobs`` (J,) ended there, or will if as many come as go."""
        soon = dict(zip(self.ids, (self.at + self.left / self.pace()).tolist(), strict=True)) if self.ids else {}
        return np.array([self.ended_s[job] if job in self.ended_s else soon[job] for job in jobs.ids], dtype=np.float64)
