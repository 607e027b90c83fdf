"""The plain law: what share of their limit a user's ended jobs used, conditional on what the job has used already."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numba
import numpy as np

from ischeduler.estimators.jobruntime.history import elapsed_s, listing, position_after

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ischeduler.estimators.jobruntime.table import JobTable

LEVELS = np.arange(1, 10) / 10.0
"""The nine deciles every law here answers."""
FEWEST = 5
"""Fewer surviving jobs of the user than this, and everybody's are taken."""
LOOK_BACK = 2000


def remaining_deciles(
    table: JobTable, rows: NDArray[np.int64], at_s: NDArray[np.int64], *, look_back: int = LOOK_BACK
) -> NDArray[np.float64]:
    """Deciles of the remaining run time in seconds, shape (rows, 9): the user's law, everybody's where the user has too few."""
    rows, at_s = np.asarray(rows, np.int64), np.asarray(at_s, np.int64)
    left = (table.limit_s[rows] - elapsed_s(table, rows, at_s)).astype(float)
    out = np.repeat(left[:, None], len(LEVELS), axis=1)
    end = table.end_s
    user = np.unique(table.user, return_inverse=True)[1].astype(np.int64)
    for code in (np.zeros(len(table), np.int64), user):
        pointer, members = listing(code, end)
        _law(
            rows, at_s, elapsed_s(table, rows, at_s), code, pointer, members, end, table.run_s, table.limit_s, LEVELS,
            look_back, 1 if code is not user else FEWEST, out,
        )
    return out


@numba.njit(cache=True, nogil=True)
def _law(rows, at_s, elapsed, code, pointer, members, end, run, limit, levels, look_back, fewest, out):  # type: ignore[no-untyped-def]
    kept = np.empty(look_back)
    for r in range(len(rows)):
        j, gone = rows[r], elapsed[r]
        low = pointer[code[j]]
        high = position_after(members, low, pointer[code[j] + 1], end, at_s[r])
        alive = 0
        for p in range(high - 1, max(low, high - look_back) - 1, -1):
            k = members[p]
            total = run[k] / limit[k] * limit[j]
            if total > gone:
                kept[alive] = total - gone
                alive += 1
        if alive < fewest:
            continue
        kept[:alive].sort()
        for q in range(len(levels)):
            place = levels[q] * (alive - 1)
            below = int(place)
            above = min(below + 1, alive - 1)
            out[r, q] = kept[below] + (place - below) * (kept[above] - kept[below])
