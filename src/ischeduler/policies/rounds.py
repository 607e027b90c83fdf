"""The round mechanism: from shares of time that a policy promises to who runs on which type in the next round. Pure.

Every job keeps an account per type: seconds promised less seconds received (``owed_s``). At the start of a round a job is *due* on a type
what it is owed there and what the round adds, and not more than it is owed over all types: who had too much of one type and too little of
another is paid in the difference only. Accelerators go to what is due most, types together; a job that stays where it is needs no restart, so
what a restart costs counts in its favour (a lease is extended unless somebody is due more than that). A large job that is owed
``reserve_rounds`` takes the place of smaller ones that are due more each but, by accelerator, less together; where those cannot be moved
(pinned), what is free is kept for it, once a type, until it fits. What is then idle goes to jobs that wait, and to jobs that would run faster there by more
than the restart costs: nothing else stands idle while somebody can use it. Accounts are bounded, so that no promise of long ago rules now.

Sources: Narayanan et al., OSDI 2020, section 5 (rounds, received against promised); Shreedhar and Varghese, SIGCOMM 1995 (deficits); Tassiulas
and Ephremides, IEEE TAC 1992 (serving the set that is due most in all keeps every account within bounds wherever any rule can); Lifka, JSSPP
1995 (one reservation, so that large jobs are not passed for ever).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ischeduler.core.errors import BadInput
from ischeduler.policies.problem import Flags, Floats, Ints

NOWHERE = -1
LEAST_SHARE = 1e-6


@dataclass(frozen=True, slots=True)
class Rules:
    """``round_s`` seconds a round; ``restart_s`` what a job loses when it starts, moves or resumes (checkpoint and restore).

    ``memory_rounds``: accounts stay within so many rounds. ``hysteresis``: a lease is kept while nobody is due that many restarts more.
    ``reserve_rounds``: a job that is owed so many rounds on a type where it does not fit has room made or kept there for it; inf: never.
    """

    round_s: float = 360.0
    restart_s: float = 30.0
    memory_rounds: float = 2.0
    hysteresis: float = 4.0
    reserve_rounds: float = 1.0

    def __post_init__(self) -> None:
        if not self.round_s > 0:
            raise BadInput(f"A round of {self.round_s:g} s is none; give seconds above zero.")
        if self.restart_s < 0:
            raise BadInput(f"A restart cannot take {self.restart_s:g} s; give zero or more.")


@dataclass(frozen=True, slots=True, eq=False)
class Standing:
    """J jobs at a round's start: shares promised (J, K), seconds owed (J, K), steps/s (J, K), accelerators each, type held (-1: none).

    ``pinned``: jobs that keep what they hold (not preemptible). ``rank`` (J,): who is served first among equals, smaller first.
    """

    share: Floats
    owed_s: Floats
    rate: Floats
    size: Ints
    on: Ints
    pinned: Flags
    rank: Floats


def settle(owed_s: Floats, share: Floats, on: Ints, elapsed_s: float, rules: Rules) -> Floats:
    """The accounts after ``elapsed_s``: promised time is added, the time on the type held is taken off, all within bounds."""
    after = owed_s + share * elapsed_s
    holding = np.flatnonzero(on >= 0)
    after[holding, on[holding]] -= elapsed_s
    bound = rules.memory_rounds * rules.round_s
    return np.clip(after, -bound, bound)


def choose(standing: Standing, capacity: Ints, rules: Rules) -> Ints:
    """The type of each job in the coming round (J,), -1 for none. ``capacity`` (K,) accelerators; leases of pinned jobs come first."""
    chosen = np.full(len(standing.size), NOWHERE, np.int64)
    free = capacity.astype(np.int64).copy()
    for j in np.flatnonzero(standing.pinned & (standing.on >= 0)):
        chosen[j] = standing.on[j]
        free[standing.on[j]] -= standing.size[j]
    held = _serve_due(standing, rules, chosen, free)
    free[held] = 0
    _fill(standing, chosen, free)
    _improve(standing, rules, chosen, free)
    return chosen


def due(standing: Standing, rules: Rules) -> Floats:
    """Seconds due (J, K) in the coming round, with the bonus of a lease; zero where nothing is promised or the job does not run."""
    promised = (standing.share > LEAST_SHARE) & (standing.rate > 0)
    owed = standing.owed_s + standing.share * rules.round_s
    worth = standing.rate / np.maximum(standing.rate.max(axis=1, keepdims=True), 1e-300)
    in_all = np.maximum((owed * worth).sum(axis=1), 0.0)[:, None] / np.maximum(worth, 1e-9)
    seconds = np.where(promised, np.clip(owed, 0.0, in_all), 0.0)
    holding = np.flatnonzero(standing.on >= 0)
    kept = seconds[holding, standing.on[holding]]
    seconds[holding, standing.on[holding]] = np.where(kept > 0, kept + rules.hysteresis * rules.restart_s, 0.0)
    return seconds


PASSES = 3
"""Who loses a place to a larger job is looked at again, so often."""


def _serve_due(standing: Standing, rules: Rules, chosen: Ints, free: Ints) -> list[int]:
    """Who is due most sits first; the types on which what is free is kept for a job that does not fit yet."""
    seconds = due(standing, rules)
    jobs, types = np.nonzero(seconds > 0)
    order = np.lexsort((-standing.rate[jobs, types], standing.rank[jobs], -np.round(seconds[jobs, types], 6)))
    wishes = list(zip(jobs[order].tolist(), types[order].tolist(), strict=True))
    held: dict[int, int] = {}
    for _ in range(PASSES):
        before = chosen.copy()
        for j, k in wishes:
            if chosen[j] == NOWHERE and held.get(k, j) == j:
                _seat(standing, rules, seconds, j, k, chosen, free, held)
        held = {k: j for k, j in held.items() if chosen[j] == NOWHERE}
        if np.array_equal(before, chosen):
            break
    return list(held)


def _seat(standing: Standing, rules: Rules, seconds: Floats, j: int, k: int, chosen: Ints, free: Ints, held: dict[int, int]) -> None:
    size = standing.size
    if size[j] > free[k]:
        if standing.owed_s[j, k] < rules.reserve_rounds * rules.round_s:
            return
        aside = _less_due(standing, seconds, j, k, chosen, int(size[j] - free[k]))
        if not aside:
            held.setdefault(k, j)
            return
        chosen[aside] = NOWHERE
        free[k] += size[aside].sum()
    chosen[j] = k
    free[k] -= size[j]


def _less_due(standing: Standing, seconds: Floats, j: int, k: int, chosen: Ints, lacking: int) -> list[int]:
    """Smaller jobs on a type, the least due first, that make room for ``lacking`` and are due less in all than ``j``; none where there are not."""
    size = standing.size
    there = np.flatnonzero((chosen == k) & ~standing.pinned & (size < size[j]))
    aside: list[int] = []
    rest = float(size[j] * seconds[j, k])
    for v in there[np.argsort(seconds[there, k], kind="stable")].tolist():
        aside.append(v)
        rest -= float(size[v] * seconds[v, k])
        lacking -= int(size[v])
        if rest <= 0:
            return []
        if lacking <= 0:
            return aside
    return []


def _fill(standing: Standing, chosen: Ints, free: Ints) -> None:
    """Idle accelerators to jobs that wait: where they are, or where they are fastest; the most owed first."""
    waiting = np.flatnonzero(chosen == NOWHERE)
    if not len(waiting) or not (free > 0).any():
        return
    order = waiting[np.lexsort((standing.rank[waiting], -standing.owed_s[waiting].sum(axis=1)))]
    for j in order.tolist():
        here = standing.on[j]
        speed = np.where(standing.size[j] <= free, standing.rate[j], 0.0)
        k = int(here) if here >= 0 and speed[here] > 0 and speed[here] >= speed.max() else int(np.argmax(speed))
        if speed[k] > 0:
            chosen[j] = k
            free[k] -= standing.size[j]


def _improve(standing: Standing, rules: Rules, chosen: Ints, free: Ints) -> None:
    """Jobs move to idle faster types, the largest gain first, when a round there is worth more than one here and the restart."""
    for _ in range(len(chosen)):
        placed = np.flatnonzero((chosen >= 0) & ~standing.pinned)
        if not len(placed) or not (free > 0).any():
            return
        now = standing.rate[placed, chosen[placed]]
        fits = standing.size[placed][:, None] <= free[None, :]
        work = np.where(standing.on[placed] == chosen[placed], rules.round_s, rules.round_s - rules.restart_s)
        there = np.where(standing.on[placed][:, None] == np.arange(len(free))[None, :], rules.round_s, rules.round_s - rules.restart_s)
        gain = np.where(fits, standing.rate[placed] * there / np.maximum(now * work, 1e-300)[:, None], 0.0)
        best = int(np.argmax(gain))
        row, k = divmod(best, len(free))
        if gain[row, k] <= 1.0 + 1e-9:
            return
        j = placed[row]
        free[chosen[j]] += standing.size[j]
        free[k] -= standing.size[j]
        chosen[j] = k
