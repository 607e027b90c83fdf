"""Space sharing: two jobs on the same accelerators where that was measured, by classes of identical jobs instead of pairs of jobs.

Jobs that look alike to the programme form a group; its variables are a job's share alone on each type and the total share of every
pair of groups on each type (G groups: K G + K G(G+1)/2 columns at most, instead of as many pairs as there are jobs). Pairs whose
normalised rates sum to at most 1 are left out: taking turns is never worse (exact, no heuristic). The total of two groups is handed out
so that every job of a group gets the same, in n + m - 1 pairs. Source: Gavel (OSDI 2020), section 3.1 and appendix.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ischeduler.policies.linear import Sparse, maximise
from ischeduler.policies.problem import Accelerators, Allocation, Floats, Ints, Jobs, Objective, Throughputs
from ischeduler.policies.program import raise_level

MORE_THAN_TURNS = 1.0 + 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class _Columns:
    """The programme's columns: first G*K shares alone (group g, type k at g K + k), then pairs (one, other, kind) with their paces."""

    member: list[Ints]
    first: Ints
    one: Ints
    other: Ints
    kind: Ints
    part_one: Floats
    part_other: Floats


class PackedLevels:
    """One set of jobs, solved for any demands with pairs allowed."""

    def __init__(self, jobs: Jobs, throughputs: Throughputs, accelerators: Accelerators, rate: Floats, objective: Objective) -> None:
        """``rate`` (J, K): steps/s alone, as the objective may know them. BadInput when no pair was ever measured."""
        self._jobs, self._accelerators, self._rate = jobs, accelerators, rate
        self._kept = throughputs.on(accelerators).kept(aware=objective.aware)

    def solve(self, speed: Floats, need: Floats | None = None, floor: Floats | None = None) -> tuple[Allocation, Floats]:
        """Maximise t with pace_j >= need_j t + floor_j; pace_j counts ``speed`` (J, K) alone and its fraction in pairs. Also the duals (J,)."""
        return self._run(speed, np.ones(len(speed)) if need is None else need, floor, None, None)

    def gain(self, gain: Floats, floor: Floats | None = None, *, speed: Floats | None = None, charge: Floats | None = None) -> Allocation:
        """Maximise the sum of ``gain`` (J, K; a job's fraction of it in pairs) less ``charge`` (J, K; a pair pays it once), with the pace by
        ``speed`` (default: the rates) at least ``floor`` (J,).
        """
        paid = np.zeros_like(gain) if charge is None else charge
        return self._run(self._rate if speed is None else speed, np.zeros(len(gain)), floor, gain, paid)[0]

    def _run(
        self, speed: Floats, need: Floats, floor: Floats | None, gain: Floats | None, charge: Floats | None,
    ) -> tuple[Allocation, Floats]:
        jobs, kinds = self._jobs, len(self._accelerators.types)
        least = np.zeros(len(jobs)) if floor is None else np.maximum(floor, 0.0)
        rows = [speed, need[:, None], least[:, None], jobs.job_class[:, None].astype(float), jobs.accelerators[:, None].astype(float)]
        if gain is not None and charge is not None:
            rows += [gain, charge]
        columns = self._columns(np.concatenate(rows, axis=1))
        g = len(columns.first)
        many = np.array([len(m) for m in columns.member], dtype=np.float64)
        size = jobs.accelerators[columns.first].astype(np.float64)
        fast, wanted, low = speed[columns.first], need[columns.first], least[columns.first]
        scale = np.maximum(fast.max(axis=1), 1e-300)
        fast, wanted, low = fast / scale[:, None], wanted / scale, low / scale
        stretch = 1.0 / max(float(wanted.max()), 1e-300)
        group, kind, pairs = np.repeat(np.arange(g), kinds), np.tile(np.arange(kinds), g), np.arange(len(columns.one))
        at = g * kinds + pairs
        level = g * kinds + len(pairs)
        # Rows: demand (g), time (g), capacity (kinds). A pair of one group with itself enters its two rows twice.
        row = [group, columns.one, columns.other, np.arange(g), g + group, g + columns.one, g + columns.other, 2 * g + kind, 2 * g + columns.kind]
        column = [np.arange(g * kinds), at, at, np.full(g, level), np.arange(g * kinds), at, at, np.arange(g * kinds), at]
        value = [-fast.ravel(), -fast[columns.one, columns.kind] * columns.part_one / many[columns.one],
                 -fast[columns.other, columns.kind] * columns.part_other / many[columns.other], wanted * stretch,
                 np.ones(g * kinds), 1.0 / many[columns.one], 1.0 / many[columns.other], (many * size)[group], size[columns.one]]
        matrix = _summed(np.concatenate(row), np.concatenate(column), np.concatenate(value), 2 * g + kinds, level + 1)
        aim = np.zeros(level + 1)
        unit = 1.0
        if gain is None or charge is None:
            aim[level] = 1.0
        else:
            worth, paid = gain[columns.first], charge[columns.first]
            unit = max(float(worth.max()), 1e-300)
            aim[: g * kinds] = ((worth - paid) * many[:, None] / unit).ravel()
            together = worth[columns.one, columns.kind] * columns.part_one + worth[columns.other, columns.kind] * columns.part_other
            aim[at] = (together - paid[columns.one, columns.kind]) / unit
        limit = np.concatenate([-low, np.ones(g), self._accelerators.count])
        x, dual, best = maximise(aim, matrix, limit, free=np.array([level]) if gain is None else None)
        found = self._handed_out(columns, x, many, size, kinds, speed, best * stretch if gain is None else best * unit)
        return found, self._by_job(columns, dual[:g] / many * stretch / scale)

    def _by_job(self, columns: _Columns, values: Floats) -> Floats:
        out = np.zeros(len(self._jobs))
        for rows, value in zip(columns.member, values, strict=True):
            out[rows] = value
        return out

    def _columns(self, looks: Floats) -> _Columns:
        """Groups of jobs that look alike, and every pair of groups that beats taking turns somewhere."""
        jobs = self._jobs
        _, first, of = np.unique(looks, axis=0, return_index=True, return_inverse=True)
        of = of.reshape(-1)
        order = np.argsort(of, kind="stable")
        member = np.split(order, np.cumsum(np.bincount(of, minlength=len(first)))[:-1])
        one, other = np.triu_indices(len(first))
        alike = jobs.accelerators[first[one]] == jobs.accelerators[first[other]]
        number = np.array([len(m) for m in member])
        keep = alike & ((one != other) | (number[one] > 1))
        one, other = one[keep], other[keep]
        a, b = jobs.job_class[first[one]], jobs.job_class[first[other]]
        part_one = np.where(self._rate[first[one]] > 0, self._kept[a, b], 0.0)
        part_other = np.where(self._rate[first[other]] > 0, self._kept[b, a], 0.0)
        useful = (part_one > 0) & (part_other > 0) & (part_one + part_other > MORE_THAN_TURNS)
        pair, kind = np.nonzero(useful)
        return _Columns(member, first, one[pair], other[pair], kind, part_one[pair, kind], part_other[pair, kind])

    def _handed_out(self, c: _Columns, x: Floats, many: Floats, size: Floats, kinds: int, speed: Floats, value: float) -> Allocation:
        """Group totals to jobs and pairs of jobs, scaled inside time and count."""
        g = len(c.first)
        alone = np.maximum(x[: g * kinds], 0.0).reshape(g, kinds)
        total = np.maximum(x[g * kinds : g * kinds + len(c.one)], 0.0)
        total[total < 1e-9] = 0.0
        time = alone.sum(axis=1) + (np.bincount(c.one, total, g) + np.bincount(c.other, total, g)) / many
        used = np.zeros(kinds)
        used += (alone * (many * size)[:, None]).sum(axis=0)
        np.add.at(used, c.kind, total * size[c.one])
        fit = min(1.0, 1.0 / max(float(time.max(initial=0.0)), 1e-300), float(np.min(self._accelerators.count / np.maximum(used, 1e-300), initial=1.0)))
        share, reached = np.zeros((len(self._jobs), kinds)), np.zeros(len(self._jobs))
        for rows, row in zip(c.member, alone * fit, strict=True):
            share[rows] = row
        reached += (speed * share).sum(axis=1)
        together: dict[tuple[int, int], Floats] = {}
        for i in np.flatnonzero(total):
            one, other, k = c.member[int(c.one[i])], c.member[int(c.other[i])], int(c.kind[i])
            for a, b, part in _spread(one, other, fit * float(total[i]), bool(c.one[i] == c.other[i])):
                together.setdefault((a, b), np.zeros(kinds))[k] += part
                reached[a] += part * speed[a, k] * c.part_one[i]
                reached[b] += part * speed[b, k] * c.part_other[i]
        pairs = np.array(list(together), dtype=np.int64).reshape(-1, 2)
        pair_share = np.array(list(together.values())).reshape(-1, kinds)
        return Allocation(self._jobs.ids, self._accelerators.types, share, pairs, pair_share, value=value, score=reached)


def _spread(one: Ints, other: Ints, total: float, same: bool) -> list[tuple[int, int, float]]:
    """Pairs of jobs with their shares: every job of ``one`` gets total / len(one), every job of ``other`` total / len(other)."""
    if same:
        n = len(one)
        if n == 2:
            return [(int(one[0]), int(one[1]), total)]
        return [(int(one[i]), int(one[(i + 1) % n]), total / n) for i in range(n)]
    out = list[tuple[int, int, float]]()
    i, j, left_i, left_j = 0, 0, total / len(one), total / len(other)
    while i < len(one) and j < len(other):
        part = min(left_i, left_j)
        if part > 1e-12 * total:
            out.append((int(one[i]), int(other[j]), part))
        left_i, left_j = left_i - part, left_j - part
        if left_i <= left_j:
            i, left_i = i + 1, total / len(one)
        else:
            j, left_j = j + 1, total / len(other)
    return out


def _summed(row: Ints, column: Ints, value: Floats, rows: int, columns: int) -> Sparse:
    """Entries at the same place added up."""
    place, inverse = np.unique(column * rows + row, return_inverse=True)
    summed = np.bincount(inverse.reshape(-1), value)
    return Sparse(place % rows, place // rows, summed.astype(np.float64), rows, columns)


def best_level(
    jobs: Jobs, throughputs: Throughputs, accelerators: Accelerators, rate: Floats, speed: Floats, objective: Objective, need: Floats | None = None,
) -> tuple[float, Floats]:
    """The largest t with pace_j >= need_j t, in pairs where the objective shares, and the worth (J,) of a unit less need."""
    if objective.sharing:
        found, worth = PackedLevels(jobs, throughputs, accelerators, rate, objective).solve(speed, need=need)
        return found.value, worth
    alone = raise_level(speed, jobs.accelerators, accelerators.count, need=need)
    return alone.level, alone.worth
