"""At most one configuration a job, under the counts of a few types: an integer programme solved by prices first.

    maximise  sum_jc gain[j,c] X[j,c]   subject to  sum_c X[j,c] <= 1,  sum_j sum_{c on type k} use[c] X[j,c] <= count[k],  X in {0, 1}

1. The linear relaxation by an interior point whose only dense system has one unknown a type (O(J C) per step, about 20 steps) gives a price
   per type. Any prices give a bound: prices . count + sum_j max(0, max_c gain - price use).
2. Everybody takes what is best at those prices; a repair undoes what does not fit (cheapest first) and a fill spends what is left.
3. A choice that is further below its job's best than the gap between bound and repair cannot be in a better solution: what is left after
   striking those is a small core, and HiGHS solves that exactly (``gap`` absolute). When its clock runs out, or it is not installed,
   the repaired solution stands, and the bound says how far off it may be.

A multiple-choice knapsack of several dimensions (Kellerer, Pferschy, Pisinger, Knapsack Problems, 2004, chapter 11); the programme is Sia's
(Jayaram Subramanya et al., SOSP 2023, section 3.4).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ischeduler.core.errors import BadInput
from ischeduler.policies.linear import Sparse, highs, model
from ischeduler.policies.problem import Flags, Floats, Ints

FORBIDDEN = -1.0
"""Gains at or below 0 are never chosen; this marks what a job cannot use."""
INTERIOR_STEPS = 60
CORES = (150, 1000, 1 << 60)
"""How many choices besides everybody's best the exact solver sees, one try after another."""


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """``chosen`` (J,): a configuration's column or -1; ``value`` its gain; no solution has more than ``bound``; ``prices`` (K,); how it was found."""

    chosen: Ints
    value: float
    bound: float
    prices: Floats
    way: str


def choose(
    gain: Floats, use: Ints, kind: Ints, count: Floats, *, gap: float = 0.0, time_limit_s: float = 2.0, exact: bool = True,
) -> Choice:
    """Solve; shapes (J, C), (C,), (C,), (K,). ``gap``: stop when that close (absolute) to the bound. ``exact`` False: relaxation and repair only."""
    if gain.ndim != 2 or gain.shape[1] != len(use) or len(use) != len(kind):
        raise BadInput(f"The gains have the shape {gain.shape} for {len(use)} configurations; give one row a job and one column a configuration.")
    units = use.astype(np.float64)
    possible = (gain > 0) & (units <= count[kind])[None, :]
    worth = np.where(possible, gain, 0.0)
    if not possible.any():
        return Choice(np.full(len(gain), -1, dtype=np.int64), 0.0, 0.0, np.zeros(len(count)), "nothing to choose")
    prices = _prices(worth, possible, units, kind, count)
    reduced = np.where(possible, worth - (prices[kind] * units)[None, :], -np.inf)
    best = np.maximum(reduced.max(axis=1), 0.0)
    bound = float(np.dot(prices, count) + best.sum())
    chosen = _filled(_repaired(reduced, units, kind, count), worth, possible, units, kind, count)
    value = _value(chosen, worth)
    if bound - value <= max(gap, 1e-9 * abs(bound)) or not exact:
        return Choice(chosen, value, bound, prices, "relaxation and repair")
    slack = np.where(possible, best[:, None] - reduced, np.inf)
    way = "relaxation and repair (the clock ran out)"
    for size in CORES:
        # First the few choices closest to their job's best, where nearly all improvement lies; then all that can still matter.
        matter = bound - value + 1e-9
        near = float(np.partition(slack[slack > 0], size)[size]) if size < int((slack <= matter).sum()) else matter
        found = _core(worth, slack, best, units, kind, count, chosen, min(near, matter), gap, time_limit_s)
        if found is None:
            break
        chosen, proved = found
        value = _value(chosen, worth)
        if near >= matter:
            bound = min(bound, max(proved, value))
        if bound - value <= max(gap, 1e-9 * abs(bound)) or near >= matter:
            way = "exact on the core" if near >= matter else "core of the nearest choices"
            break
    return Choice(chosen, value, max(bound, value), prices, way)


def _value(chosen: Ints, worth: Floats) -> float:
    rows = np.flatnonzero(chosen >= 0)
    return float(worth[rows, chosen[rows]].sum())


@dataclass(frozen=True, slots=True, eq=False)
class _Relaxed:
    """The relaxation's numbers: gains (J, C) near one, which are open (0 or 1), what each configuration takes of each type (C, K), counts."""

    gain: Floats
    open: Floats
    member: Floats
    units: Floats
    kind: Ints
    count: Floats


@dataclass(frozen=True, slots=True, eq=False)
class _At:
    """A point, or a change of one: shares x (J, C), slacks v (J,) and w (K,), multipliers m (J,), price (K,) and z (J, C)."""

    x: Floats
    v: Floats
    w: Floats
    m: Floats
    price: Floats
    z: Floats


def _prices(worth: Floats, possible: Flags, units: Floats, kind: Ints, count: Floats) -> Floats:
    """The duals (K,) of the counts in the linear relaxation, by Mehrotra's predictor and corrector."""
    scale = float(worth.max())
    member = np.zeros((len(units), len(count)))
    member[np.arange(len(units)), kind] = units
    r = _Relaxed(worth / scale, possible.astype(np.float64), member, units, kind, count)
    at = _middle(r)
    for _ in range(INTERIOR_STEPS):
        following = _onward(r, at)
        if following is None:
            break
        at = following
    return np.where(at.price * count > 1e-7, at.price, 0.0) * scale


def _middle(r: _Relaxed) -> _At:
    options = np.maximum(r.open.sum(axis=1), 1.0)
    load: Floats = ((r.open / options[:, None]) @ r.member).sum(axis=0)
    fill = 0.5 * min(1.0, float(np.min(np.where(load > 0, r.count / np.maximum(load, 1e-300), 1.0))))
    x = np.where(r.open > 0, fill / options[:, None], 1.0)
    v = 1.0 - (x * r.open).sum(axis=1)
    w = np.maximum(r.count - ((x * r.open) @ r.member).sum(axis=0), 0.05 * np.maximum(r.count, 1.0))
    mu = 0.5 * fill / float(options.mean())
    return _At(x, v, w, mu / v, mu / w, np.where(r.open > 0, mu / x, 1.0))


def _onward(r: _Relaxed, at: _At) -> _At | None:
    """The next point; None when this one is the optimum."""
    inside = at.x * r.open
    time, room = 1.0 - inside.sum(axis=1) - at.v, r.count - (inside @ r.member).sum(axis=0) - at.w
    shares = (at.m[:, None] + (at.price[r.kind] * r.units)[None, :] - r.gain - at.z) * r.open
    pairs = float(r.open.sum()) + len(at.v) + len(at.w)
    mu = (float((inside * at.z).sum()) + float(at.v @ at.m) + float(at.w @ at.price)) / pairs
    worst = max(float(np.abs(time).max()), float((np.abs(room) / (1.0 + r.count)).max()), float(np.abs(shares).max()))
    if mu * pairs < 1e-7 * (1e-9 + float((r.gain * inside).sum())) and worst < 1e-7:
        return None
    d = inside / at.z
    part: Floats = d @ r.member
    c = d.sum(axis=1) + at.v / at.m
    squares = (d * (r.units * r.units)[None, :]).sum(axis=0)
    system = np.diag(np.bincount(r.kind, squares, len(at.w)) + at.w / at.price) - (part / c[:, None]).T @ part
    system = system + np.eye(len(at.w)) * 1e-13 * float(np.trace(system))

    def direction(cx: Floats, cv: Floats, cw: Floats) -> _At:
        dh = d * ((cx / at.x - shares) * r.open)
        e2 = dh.sum(axis=1) + cv / at.m - time
        rhs: Floats = (dh @ r.member).sum(axis=0) + cw / at.price - room - (part / c[:, None]).T @ e2
        dp: Floats = np.asarray(np.linalg.solve(system, rhs), dtype=np.float64)
        dm: Floats = (e2 - part @ dp) / c
        dx = dh - d * (dm[:, None] + (dp[r.kind] * r.units)[None, :])
        return _At(dx, (cv - at.v * dm) / at.m, (cw - at.w * dp) / at.price, dm, dp, (cx - at.z * dx) / at.x * r.open)

    look = direction(-inside * at.z, -at.v * at.m, -at.w * at.price)
    primal, dual = _steps(1.0, at, look)
    ahead = (float(((inside + primal * look.x) * (at.z + dual * look.z) * r.open).sum())
             + float((at.v + primal * look.v) @ (at.m + dual * look.m)) + float((at.w + primal * look.w) @ (at.price + dual * look.price))) / pairs
    aim = mu * min(1.0, ahead / mu) ** 3
    go = direction((aim - inside * at.z - look.x * look.z) * r.open, aim - at.v * at.m - look.v * look.m, aim - at.w * at.price - look.w * look.price)
    primal, dual = _steps(0.9995, at, go)
    return _At(at.x + primal * go.x, at.v + primal * go.v, at.w + primal * go.w,
               at.m + dual * go.m, at.price + dual * go.price, at.z + dual * go.z)


def _steps(short: float, at: _At, go: _At) -> tuple[float, float]:
    """The largest primal and dual steps <= 1, ``short`` of the boundary."""
    return (_step(short, (at.x, go.x), (at.v, go.v), (at.w, go.w)), _step(short, (at.m, go.m), (at.price, go.price), (at.z, go.z)))


def _step(short: float, *moves: tuple[Floats, Floats]) -> float:
    worst = min(float(np.min(change / value)) for value, change in moves)
    return min(1.0, short if worst >= -1.0 else -short / worst)


def _repaired(reduced: Floats, units: Floats, kind: Ints, count: Floats) -> Ints:
    """Everybody's best at the prices, then the cheapest changes per accelerator freed until every type fits."""
    best = reduced.argmax(axis=1)
    top = reduced[np.arange(len(reduced)), best]
    chosen = np.where(top > 0, best, -1).astype(np.int64)
    free = count - np.bincount(kind[chosen[chosen >= 0]], units[chosen[chosen >= 0]], len(count))
    for k in np.argsort(free):
        while free[k] < -1e-9:
            rows = np.flatnonzero((chosen >= 0) & (kind[np.maximum(chosen, 0)] == k))
            frees = units[chosen[rows]]
            # Alternatives: fewer accelerators of this type, another type with room, or nothing (the last column).
            room = np.where(kind[None, :] == k, units[None, :] < frees[:, None], units[None, :] <= free[kind][None, :])
            loss = np.where(room, reduced[rows, chosen[rows]][:, None] - reduced[rows], np.inf)
            loss = np.column_stack([loss, reduced[rows, chosen[rows]]])
            freed = np.column_stack([np.where(kind[None, :] == k, frees[:, None] - units[None, :], frees[:, None]), frees])
            per_unit = loss / np.minimum(np.maximum(freed, 1e-9), max(-free[k], 1e-9))
            row, column = np.unravel_index(int(np.argmin(per_unit)), per_unit.shape)
            j, old = int(rows[row]), int(chosen[rows[row]])
            free[k] += units[old]
            chosen[j] = -1
            if column < len(units):
                chosen[j] = column
                free[kind[column]] -= units[column]
    return chosen


def _filled(chosen: Ints, worth: Floats, possible: Flags, units: Floats, kind: Ints, count: Floats) -> Ints:
    """The best single improvement that fits, again and again; a pass over all pairs is one array operation."""
    chosen = chosen.copy()
    free = count - np.bincount(kind[chosen[chosen >= 0]], units[chosen[chosen >= 0]], len(count))
    now = np.where(chosen >= 0, worth[np.arange(len(chosen)), chosen], 0.0)
    for _ in range(4 * len(chosen)):
        candidates = np.flatnonzero(units <= free[kind] + np.where(free[kind] < count[kind], units.max(), 0.0))
        if len(candidates) == 0:
            break
        back = np.where(chosen[:, None] >= 0, np.where(kind[np.maximum(chosen, 0)][:, None] == kind[None, candidates], units[chosen][:, None], 0.0), 0.0)
        fits = possible[:, candidates] & (units[candidates][None, :] <= free[kind[candidates]][None, :] + back + 1e-9)
        more = np.where(fits, worth[:, candidates] - now[:, None], 0.0)
        row, at = np.unravel_index(int(np.argmax(more)), more.shape)
        if more[row, at] <= 1e-12:
            break
        j, c = int(row), int(candidates[at])
        if chosen[j] >= 0:
            free[kind[chosen[j]]] += units[chosen[j]]
        chosen[j], now[j] = c, worth[j, c]
        free[kind[c]] -= units[c]
    return chosen


def _core(
    worth: Floats, slack: Floats, best: Floats, units: Floats, kind: Ints, count: Floats, chosen: Ints, within: float, gap: float, time_limit_s: float,
) -> tuple[Ints, float] | None:
    """(choice, proved bound) with only what is ``within`` its job's best, and what is chosen now; None when there is no solver or no answer in time."""
    try:
        solver = highs()
    except BadInput:
        return None
    value = _value(chosen, worth)
    keep = slack <= within
    taking = np.flatnonzero(chosen >= 0)
    keep[taking, chosen[taking]] = True
    nothing = (best <= within) | (chosen < 0)
    number = keep.sum(axis=1) + nothing
    settled = number <= 1
    fixed = np.where(settled & (keep.sum(axis=1) == 1), keep.argmax(axis=1), -1)
    taken = fixed[fixed >= 0]
    left = count - np.bincount(kind[taken], units[taken], len(count))
    rows = np.flatnonzero(~settled)
    if len(rows) == 0:
        return (fixed, value) if (left >= -1e-9).all() else None
    job, column = np.nonzero(keep[rows])
    n = len(job)
    at = np.arange(n)
    must = ~nothing[rows]
    matrix = Sparse(np.concatenate([job, len(rows) + kind[column]]), np.concatenate([at, at]), np.concatenate([np.ones(n), units[column]]),
                    len(rows) + len(count), n)
    lp = model(worth[rows[job], column], matrix, np.concatenate([np.ones(len(rows)), left]), np.zeros(n), np.ones(n))
    lower = np.asarray(lp.row_lower_).copy()
    lower[: len(rows)][must] = 1.0
    lp.row_lower_ = lower
    lp.integrality_ = [solver.HighsVarType.kInteger] * n
    engine = solver.Highs()
    for option, setting in (("output_flag", False), ("threads", 1), ("time_limit", time_limit_s), ("mip_abs_gap", max(gap, 1e-9)), ("mip_rel_gap", 0.0)):
        engine.setOptionValue(option, setting)
    engine.passModel(lp)
    inside = chosen[rows]
    hint = np.zeros(n)
    hint[inside[job] == column] = 1.0
    solution = solver.HighsSolution()
    solution.col_value = hint.tolist()
    engine.setSolution(solution)
    engine.run()
    info = engine.getInfo()
    if info.primal_solution_status != 2:
        return None
    picked = np.asarray(engine.getSolution().col_value) > 0.5
    out = fixed.astype(np.int64)
    out[rows[job[picked]]] = column[picked]
    if _value(out, worth) < value:
        out = chosen
    base = float(worth[np.flatnonzero(fixed >= 0), taken].sum())
    return out, base + float(info.mip_dual_bound)
