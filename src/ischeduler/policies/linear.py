"""Linear programmes of no special form, by HiGHS's interior point without crossover (never its simplex, which is slow on these)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ischeduler.core.errors import BadInput
from ischeduler.policies.problem import Floats, Ints
from ischeduler.policies.program import NoShares


@dataclass(frozen=True, slots=True, eq=False)
class Sparse:
    """A matrix by entries: ``value[i]`` at (``row[i]``, ``column[i]``), of ``rows`` rows and ``columns`` columns; no entry twice."""

    row: Ints
    column: Ints
    value: Floats
    rows: int
    columns: int


def highs() -> Any:
    """The solver's module. BadInput says how to install it."""
    try:
        import highspy
    except ImportError:
        raise BadInput("This policy needs the solver HiGHS, which is not installed; pip install 'ischeduler[policies]'.") from None
    return highspy


def by_column(matrix: Sparse) -> tuple[Ints, Ints, Floats]:
    """(start of each column, row of each entry, value) as HiGHS wants it."""
    order = np.lexsort((matrix.row, matrix.column))
    start = np.zeros(matrix.columns + 1, dtype=np.int64)
    np.cumsum(np.bincount(matrix.column, minlength=matrix.columns), out=start[1:])
    return start, matrix.row[order], matrix.value[order]


def model(gain: Floats, matrix: Sparse, limit: Floats, low: Floats, high: Floats) -> Any:
    """maximise gain . x, matrix x <= limit, low <= x <= high, as HiGHS's own object."""
    solver = highs()
    lp = solver.HighsLp()
    lp.num_col_, lp.num_row_ = matrix.columns, matrix.rows
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = gain, low, high
    lp.row_lower_, lp.row_upper_ = np.full(matrix.rows, -np.inf), limit
    lp.sense_ = solver.ObjSense.kMaximize
    start, row, value = by_column(matrix)
    lp.a_matrix_.format_ = solver.MatrixFormat.kColwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = start.astype(np.int32), row.astype(np.int32), value
    return lp


def maximise(gain: Floats, matrix: Sparse, limit: Floats, *, free: Ints | None = None) -> tuple[Floats, Floats, float]:
    """Maximise gain . x over x >= 0 (``free`` columns of any sign) with matrix x <= limit: (x, duals >= 0 of the rows, value).

    NoShares when there is no such x.
    """
    solver = highs()
    low = np.zeros(matrix.columns)
    if free is not None:
        low[free] = -np.inf
    problem = model(gain, matrix, limit, low, np.full(matrix.columns, np.inf))
    for method, crossover in (("ipm", "off"), ("ipm", "on"), ("simplex", "on")):
        engine = solver.Highs()
        engine.setOptionValue("output_flag", False)
        engine.setOptionValue("threads", 1)
        engine.setOptionValue("presolve", "off" if crossover == "off" else "on")
        engine.setOptionValue("solver", method)
        engine.setOptionValue("run_crossover", crossover)
        engine.passModel(problem)
        engine.run()
        if engine.getModelStatus() == solver.HighsModelStatus.kOptimal:
            answer = engine.getSolution()
            return np.asarray(answer.col_value), np.abs(np.asarray(answer.row_dual)), float(engine.getObjectiveValue())
    raise NoShares("The shares could not be computed: the floors asked for do not fit into the cluster together; lower them or add accelerators.")
