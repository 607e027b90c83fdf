"""Pairs in the round mechanism: which two jobs share accelerators in the coming round. Pure.

A pair has an account of its own, like a job alone: seconds promised together less seconds had together. At a round's start each job is
alone or in one of its pairs, whichever is due most; what runs as it is has the bonus of a lease. The units so formed (jobs alone, pairs)
then go through :mod:`ischeduler.policies.rounds` like jobs. In between rounds nothing is parted, and a job that waits may join a running one
with which it was promised time. Pairs are chosen greedily.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ischeduler.policies.problem import Flags, Floats, Ints
from ischeduler.policies.rounds import LEAST_SHARE, NOWHERE, Rules, Standing, due


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """P pairs at a round's start: rows of the two jobs (P, 2), shares promised (P, K), seconds owed (P, K), the type held together (P,; -1: none).

    ``rate`` (P, K): the parts of their best rates that the two make together, summed; 0 where they cannot be together.
    """

    rows: Ints
    share: Floats
    owed_s: Floats
    on: Ints
    rate: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """Who goes through the round as one: ``first`` (U,) and ``second`` (U,; -1: alone) rows of jobs, ``pair`` (U,; -1: none), their standing.

    A unit's place is its ``first`` job's.
    """

    first: Ints
    second: Ints
    pair: Ints
    standing: Standing


def units(jobs: Standing, pairs: Pairs, rules: Rules, *, parted: bool) -> Units:
    """The units of a round; not ``parted``: those that run together stay so and nobody else is paired."""
    n = len(jobs.size)
    partner = np.full(n, -1, np.int64)
    held = np.flatnonzero(pairs.on >= 0)
    taken: list[int] = held.tolist() if not parted else _most_due(jobs, pairs, rules)
    for p in taken:
        partner[pairs.rows[p]] = pairs.rows[p][::-1]
    # Two that stood in one place and part: the one that is owed more keeps it.
    on = jobs.on.copy()
    for p in held.tolist():
        a, b = pairs.rows[p].tolist()
        if partner[a] != b:
            on[a if jobs.owed_s[a].sum() < jobs.owed_s[b].sum() else b] = NOWHERE
    first, second = np.flatnonzero(partner < 0), np.zeros((0, 2), np.int64)
    if taken:
        second = np.array([_host_first(pairs.rows[p], on) for p in taken], np.int64)
    lead = np.concatenate([first, second[:, 0]])
    chosen = np.array(taken, np.int64)
    standing = Standing(
        np.concatenate([jobs.share[first], pairs.share[chosen]]), np.concatenate([jobs.owed_s[first], pairs.owed_s[chosen]]),
        np.concatenate([jobs.rate[first], pairs.rate[chosen]]), jobs.size[lead], on[lead], jobs.pinned[lead] & (on[lead] >= 0), jobs.rank[lead],
    )  # fmt: skip
    nobody = np.full(len(first), -1, np.int64)
    return Units(lead, np.concatenate([nobody, second[:, 1]]), np.concatenate([nobody, chosen]), standing)


def _host_first(rows: Ints, on: Ints) -> list[int]:
    a, b = rows.tolist()
    return [b, a] if on[a] < 0 <= on[b] else [a, b]


def _most_due(jobs: Standing, pairs: Pairs, rules: Rules) -> list[int]:
    """Pairs that are due more than either of the two is otherwise, the most due first."""
    together = np.flatnonzero(np.isin(np.arange(len(jobs.size)), pairs.rows[pairs.on >= 0]))
    alone_on = jobs.on.copy()
    alone_on[together] = NOWHERE
    alone = due(Standing(jobs.share, jobs.owed_s, jobs.rate, jobs.size, alone_on, jobs.pinned, jobs.rank), rules).sum(axis=1)
    size = jobs.size[pairs.rows[:, 0]]
    never: Flags = np.zeros(len(size), np.bool_)
    both = due(Standing(pairs.share, pairs.owed_s, pairs.rate, size, pairs.on, never, np.zeros(len(size))), rules).sum(axis=1)
    free = np.ones(len(jobs.size), np.bool_)
    taken: list[int] = []
    wishes = [(-float(both[p]), 0, p) for p in np.flatnonzero(both > 0).tolist()] + [(-float(alone[j]), 1, j) for j in np.flatnonzero(alone > 0).tolist()]
    for _, kind, i in sorted(wishes):
        if kind == 1:
            free[i] = False
        elif free[pairs.rows[i]].all():
            free[pairs.rows[i]] = False
            taken.append(i)
    return taken


def joins(chosen: Ints, partner: Ints, pairs: Pairs) -> list[int]:
    """Pairs to form in between rounds: one of the two waits, the other runs alone (``chosen`` (J,), ``partner`` (J,)) where they can be together."""
    formed: list[int] = []
    where, mate = chosen.copy(), partner.copy()
    for p in np.argsort(-pairs.owed_s.sum(axis=1), kind="stable").tolist():
        a, b = pairs.rows[p].tolist()
        k = max(where[a], where[b])
        if mate[a] < 0 and mate[b] < 0 and min(where[a], where[b]) < 0 <= k and pairs.share[p, k] > LEAST_SHARE and pairs.rate[p, k] > 0:
            where[a] = where[b] = k
            mate[a], mate[b] = b, a
            formed.append(p)
    return formed
