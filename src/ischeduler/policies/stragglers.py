"""Nodes on which a job is persistently slower than it is elsewhere. Pure; robust against single slow steps and few looks.

A job is its own measure: its step times on a node, each the median of a look, against the median over its other nodes of the same type. The
node is slow for it when that ratio is above ``ratio`` and almost all looks there say so, not their mean: a sign test at level ``doubt`` on
how many of the node's looks are slower than the others' median times ``ratio``. Where several jobs agree, the node itself is to blame.
Source: the ratio of medians and the sign test are textbook (Lehmann, Nonparametrics, 1975); Gavel (OSDI 2020) leaves stragglers to leases.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median

from ischeduler.core.errors import BadInput

LOOKS_LEAST = 4
"""Fewer looks than this, here or elsewhere, judge nothing."""


@dataclass(frozen=True, slots=True)
class Look:
    """One observation: a job's step time (seconds, the median since the last look) on a node of a type of accelerators."""

    job: str
    type: str
    node: str
    step_time_s: float


@dataclass(frozen=True, slots=True)
class Straggler:
    """A node that is slow for a job: by how much (ratio of medians), from how many looks, and the chance that as many were slow by luck."""

    job: str
    type: str
    node: str
    ratio: float
    looks: int
    chance: float

    @property
    def words(self) -> str:
        """For people."""
        return f"{self.node} is {self.ratio:.2f} times slower for {self.job} than other {self.type} nodes ({self.looks} looks)"


def stragglers(looks: Iterable[Look], *, ratio: float = 1.2, doubt: float = 0.01, least: int = LOOKS_LEAST) -> tuple[Straggler, ...]:
    """The slow nodes, the slowest first. O(n log n) in the looks. BadInput for a ratio of no more than 1 or a step time that is none."""
    if not ratio > 1 or not 0 < doubt < 1:
        raise BadInput(f"a straggler is slower by a ratio above 1 with a doubt between 0 and 1, not by {ratio:g} with {doubt:g}.")
    by_job: dict[tuple[str, str], dict[str, list[float]]] = {}
    for look in looks:
        if not 0 < look.step_time_s < math.inf:
            raise BadInput(f"a step time of {look.step_time_s} s on {look.node} is none; give seconds above zero.")
        by_job.setdefault((look.job, look.type), {}).setdefault(look.node, []).append(look.step_time_s)
    found = [s for (job, kind), nodes in by_job.items() for s in _slow_nodes(job, kind, nodes, ratio, doubt, least)]
    return tuple(sorted(found, key=lambda s: (-s.ratio, s.job, s.node)))


def _slow_nodes(job: str, kind: str, nodes: Mapping[str, list[float]], ratio: float, doubt: float, least: int) -> list[Straggler]:
    found: list[Straggler] = []
    for node, here in nodes.items():
        others = [median(times) for other, times in nodes.items() if other != node and len(times) >= least]
        if len(here) < least or not others:
            continue
        usual = median(others)
        slow = sum(t > ratio * usual for t in here)
        chance = _tail(len(here), slow)
        if median(here) > ratio * usual and chance <= max(doubt, 0.5 ** len(here)):
            found.append(Straggler(job, kind, node, median(here) / usual, len(here), chance))
    return found


def _tail(n: int, k: int) -> float:
    """The chance of k or more heads in n tosses."""
    return sum(math.comb(n, i) for i in range(k, n + 1)) / 2**n


def avoided(found: Iterable[Straggler], job: str, *, agreed: int = 2) -> tuple[str, ...]:
    """Nodes that a job should not get: those slow for itself, and those slow for at least ``agreed`` jobs."""
    listed = list(found)
    votes: dict[str, set[str]] = {}
    for s in listed:
        votes.setdefault(s.node, set()).add(s.job)
    own = [s.node for s in listed if s.job == job]
    return tuple(dict.fromkeys([*own, *(node for node, jobs in votes.items() if len(jobs) >= agreed)]))
