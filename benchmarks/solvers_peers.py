"""The same max-min programme and Sia-like choice put to other solvers, for ``benchmarks.solvers``; CPU seconds of this process."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import scipy.sparse as sp

from ischeduler.policies.choice import FORBIDDEN
from ischeduler.policies.problem import Floats, Ints


@dataclass(frozen=True)
class MaxMin:
    """Normalised speeds (J, K), sizes (J,), counts (K,)."""

    speed: Floats
    size: Floats
    count: Floats


@dataclass(frozen=True)
class Elastic:
    """Gains (J, C) of configurations, their accelerators (C,), types (C,), counts (K,) and what serving nobody costs."""

    gain: Floats
    use: Ints
    kind: Ints
    count: Floats
    nobody: float


def max_min(jobs: int, kinds: int, seed: int) -> MaxMin:
    """Distinct random throughputs, sizes 1 to 8, two weights; about 1.75 times more demand than there are accelerators."""
    rng = np.random.default_rng(seed)
    base = np.geomspace(1.0, 0.2, kinds)
    rate = rng.uniform(0.3, 1.0, (jobs, kinds)) * base * rng.lognormal(0.0, 1.0, (jobs, 1))
    rate[rng.random((jobs, kinds)) < 0.05] = 0.0
    rate[:, 0] = np.maximum(rate[:, 0], 1e-3)
    size = rng.choice([1.0, 2.0, 4.0, 8.0], jobs, p=[0.7, 0.1, 0.15, 0.05])
    count = np.full(kinds, max(8.0, round(jobs * 3.5 / (2 * kinds))), dtype=np.float64)
    weight = rng.choice([1.0, 5.0], jobs, p=[0.8, 0.2])
    even = rate @ (count / count.sum())
    return MaxMin(rate * (size / (weight * even))[:, None], size, count)


def elastic(jobs: int, seed: int) -> Elastic:
    """Sia-like: 25 configurations on three types, concave scaling, most jobs hold one already, costs rounded to two decimals."""
    rng = np.random.default_rng(seed)
    use = np.array([1, 2, 4, 8, 12, 16, 20, 24, 1, 2, 4, 8, 16, 24, 32, 40, 1, 2, 4, 8, 12, 16, 20, 24, 28])
    kind = np.repeat([0, 1, 2], [8, 8, 9])
    good = (rng.uniform(0.3, 1.0, (jobs, 3)) * np.array([1.0, 2.5, 0.6]))[:, kind] * use ** rng.uniform(0.3, 0.95, (jobs, 1))
    can = use <= rng.choice([1, 4, 8, 16, 32, 64], (jobs, 1))
    good /= np.where(can, good, np.inf).min(axis=1, keepdims=True)
    held = np.where(rng.random(jobs) < 0.7, [rng.choice(np.flatnonzero(row)) for row in can], -1)
    stays = (np.arange(25) == held[:, None]) | (held[:, None] < 0)
    cost = np.round((good * np.where(stays, 1.0, rng.uniform(0.5, 0.95, (jobs, 1)))) ** -0.5, 2)
    count = np.asarray(np.round(jobs * np.array([0.35, 0.3, 0.35])), dtype=np.float64)
    return Elastic(np.where(can, 1.1 - cost, FORBIDDEN), use, kind, count, 1.1 * jobs)


def timed(work: Callable[[], float], repeats: int = 1) -> tuple[float, float]:
    """(least CPU seconds, the value)."""
    best, value = float("inf"), float("nan")
    for _ in range(repeats):
        start = time.process_time()
        value = work()
        best = min(best, time.process_time() - start)
    return best, value


def _rows(p: MaxMin) -> tuple[Any, Floats]:
    """A x <= b over the shares row by row and t last: demand, time, capacity."""
    jobs, kinds = p.speed.shape
    n = jobs * kinds
    job = np.repeat(np.arange(jobs), kinds)
    demand = sp.hstack([sp.csr_matrix((-p.speed.ravel(), (job, np.arange(n))), (jobs, n)), np.ones((jobs, 1))])
    time_ = sp.csr_matrix((np.ones(n), (job, np.arange(n))), (jobs, n + 1))
    room = sp.csr_matrix((np.repeat(p.size, kinds), (np.tile(np.arange(kinds), jobs), np.arange(n))), (kinds, n + 1))
    return sp.vstack([demand, time_, room]).tocsr(), np.concatenate([np.zeros(jobs), np.ones(jobs), p.count])


def highs(p: MaxMin, method: str, crossover: str) -> float:
    """HiGHS through highspy; the level."""
    import highspy

    matrix, limit = _rows(p)
    columns = matrix.tocsc()
    lp: Any = highspy.HighsLp()
    lp.num_row_, lp.num_col_ = matrix.shape
    cost = np.zeros(lp.num_col_)
    cost[-1] = 1.0
    lp.col_cost_, lp.sense_ = cost, highspy.ObjSense.kMaximize
    lp.col_lower_, lp.col_upper_ = np.zeros(lp.num_col_), np.full(lp.num_col_, np.inf)
    lp.row_lower_, lp.row_upper_ = np.full(lp.num_row_, -np.inf), limit
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = columns.indptr, columns.indices, columns.data
    engine = highspy.Highs()
    for option, setting in (("output_flag", False), ("threads", 1), ("solver", method), ("run_crossover", crossover)):
        engine.setOptionValue(option, setting)
    engine.passModel(lp)
    engine.run()
    return float(engine.getObjectiveValue())


def scipy_highs(p: MaxMin) -> float:
    """scipy.optimize.linprog as most would call it."""
    from scipy.optimize import linprog

    matrix, limit = _rows(p)
    cost = np.zeros(matrix.shape[1])
    cost[-1] = -1.0
    return -float(linprog(cost, A_ub=matrix, b_ub=limit, bounds=(0, None), method="highs").fun)


def cvxpy(p: MaxMin, solver: str) -> float:
    """The programme as Gavel writes it."""
    import cvxpy as cp

    x = cp.Variable(p.speed.shape)
    level = cp.min(cp.sum(cp.multiply(p.speed, x), axis=1))
    limits = [x >= 0, cp.sum(x, axis=1) <= 1, cp.sum(cp.multiply(np.repeat(p.size[:, None], len(p.count), axis=1), x), axis=0) <= p.count]
    problem = cp.Problem(cp.Maximize(level), limits)
    problem.solve(solver=solver)
    return float(np.asarray(problem.value))


def highs_choice(e: Elastic, gap: float, time_limit_s: float) -> tuple[float, float]:
    """(value, bound) of the whole integer programme by HiGHS through scipy."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    job, column = np.nonzero(e.gain > 0)
    n = len(job)
    at = np.arange(n)
    once = sp.csr_matrix((np.ones(n), (job, at)), (len(e.gain), n))
    room = sp.csr_matrix((e.use[column].astype(float), (e.kind[column], at)), (len(e.count), n))
    # The constant keeps the relative gap that of Sia's objective, not of the gain.
    found = milp(-e.gain[job, column], constraints=[LinearConstraint(once, ub=1), LinearConstraint(room, -np.inf, cast("Any", e.count))], bounds=Bounds(0, 1),
                 integrality=np.ones(n), options={"mip_rel_gap": gap, "time_limit": time_limit_s})
    return -float(found.fun), -float(found.mip_dual_bound)
