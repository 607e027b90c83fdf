"""The simulator's forecast as a feature: when would the job start if the queue of that second were run forward? Pure.

Estimators do not know the simulator; whoever wires them passes its kernel in (:data:`RollOuts`). No arrivals are assumed: those of the last
days played over again told the learner nothing more. Five forecasts: first come first served with EASY backfill with every job using its
limit, and using its expected run time; then the expected run times under three other orders, from which the learner may guess the site's
own: large and long-waiting first (Cobalt's WFP), least work first, widest first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ischeduler.estimators.queuewait.jobs import Jobs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

RollOuts = Callable[..., "NDArray[Any]"]
"""``rollouts(submit_s, units, run_s, limit_s, capacity, fixed_start_s=, priority=, stop_at_job=, depth=)`` -> start seconds (roll-outs, jobs)."""
TWIN_NAMES = ("twin_limits", "twin_expected", "twin_aged", "twin_small", "twin_wide")
_AGE_S = 86400.0
_DEPTH = 200
_MOST_ALIVE = 2000
"""Jobs alive that are simulated, the oldest ones: beyond it a forecast costs more than it tells."""


def forecasts(jobs: Jobs, expected_s: NDArray[Any], most: NDArray[Any], rollouts: RollOuts, wanted: NDArray[Any]) -> NDArray[Any]:
    """Log of the forecast waits (jobs, 5), nan where not ``wanted``. ``expected_s`` are run times foretold at each job's submission,
    ``most`` the cluster's units as known then."""
    import numpy as np

    out = np.full((len(jobs), len(TWIN_NAMES)), np.nan)
    for row, alive in _alive(jobs, wanted):
        out[row] = _forecast(jobs, alive, row, expected_s, float(most[row]), rollouts)
    return out


def _alive(jobs: Jobs, wanted: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
    """Each wanted row with the earlier rows whose jobs had not ended."""
    import numpy as np

    live = np.empty(0, dtype=np.int64)
    last = 0
    for row in np.flatnonzero(wanted):
        live = np.concatenate([live, np.arange(last, row)])
        live = live[jobs.end_s[live] >= jobs.submit_s[row]]
        last = int(row)
        yield last, live[:_MOST_ALIVE]


def _forecast(
    jobs: Jobs, alive: NDArray[Any], row: int, expected_s: NDArray[Any], most: float, rollouts: RollOuts
) -> NDArray[Any]:
    import numpy as np

    now = jobs.submit_s[row]
    runs = jobs.start_s[alive] < now
    order = np.argsort(~runs, kind="stable")
    alive, runs = alive[order], runs[order]
    gone = np.where(runs, now - jobs.start_s[alive], 0.0)
    left = np.maximum(1.0, jobs.limit_s[alive] - gone)
    soon = np.clip(np.maximum(expected_s[alive] - gone, 0.3 * np.minimum(gone, left)), 1.0, left)
    own = jobs.limit_s[row]
    limit, run = np.append(left, own), np.append(soon, own)
    fixed = np.append(np.where(runs, 0, -1), -1)
    units = np.minimum(np.append(jobs.units[alive], jobs.units[row]), most)
    capacity = int(max(most, units[fixed == 0].sum()))
    age = np.append(now - jobs.submit_s[alive], 0.0)
    aged = (age + _AGE_S) ** 3 / limit**3 * units
    orders = np.stack([np.zeros(len(run)), np.zeros(len(run)), aged, -units * limit, units])
    starts = rollouts(
        np.zeros(len(run)), units, np.stack([limit, run, run, run, run]), limit, capacity, fixed_start_s=fixed, priority=orders,
        stop_at_job=len(run) - 1, depth=_DEPTH,
    )[:, -1]  # fmt: skip
    return np.where(starts < 0, np.nan, np.log1p(np.maximum(starts, 0)))
