"""Jobs as columns: what the features are computed from, whether they come from a trace or from a live queue."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from ischeduler.core.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

NEVER_S = float(1 << 52)
"""A start or an end that has not happened yet: later than every clock, and still exact as a float."""
NEEDED = ("submit_s", "start_s", "end_s", "req_units", "req_walltime_s")
ASSUMED_LIMIT_S = 86400.0


@dataclass(frozen=True)
class Jobs:
    """Parallel arrays, sorted by ``submit_s`` (float64 seconds; codes are int64, -1 where unknown).

    ``start_s`` and ``end_s`` are :data:`NEVER_S` where they have not happened. ``units`` are nodes, processors or GPUs: whatever
    the cluster hands out, the same for all jobs. ``user``, ``queue`` and ``name`` are small codes.
    """

    submit_s: NDArray[Any]
    start_s: NDArray[Any]
    end_s: NDArray[Any]
    units: NDArray[Any]
    limit_s: NDArray[Any]
    user: NDArray[Any]
    queue: NDArray[Any]
    name: NDArray[Any]

    def __len__(self) -> int:
        return len(self.submit_s)

    @property
    def wait_s(self) -> NDArray[Any]:
        """Seconds from submission to start; near :data:`NEVER_S` for jobs that have not started."""
        return self.start_s - self.submit_s

    def take(self, which: Any) -> Jobs:
        """The rows of an index or a mask, in its order."""
        return Jobs(*(getattr(self, f.name)[which] for f in fields(self)))

    def known_at(self, now_s: float) -> Jobs:
        """What could be known at ``now_s``: no later submission, and of later starts and ends nothing."""
        import numpy as np

        seen = self.take(self.submit_s <= now_s)
        start = np.where(seen.start_s < now_s, seen.start_s, NEVER_S)
        return replace(seen, start_s=start, end_s=np.where(seen.end_s < now_s, seen.end_s, NEVER_S))


def from_columns(table: Mapping[str, Sequence[Any]], *, names: Sequence[str] = ()) -> Jobs:
    """Jobs of a table with the columns of :data:`NEEDED` (``user``, ``queue``, ``name`` where it has them), sorted by submission.

    Rows without a submission, a start after it, or a size are left out. ``names`` are the table's columns (default: its keys).
    Raises BadInput with one sentence when a column is missing or nothing is left.
    """
    import numpy as np

    have = tuple(names) or tuple(table)
    missing = [c for c in NEEDED if c not in have]
    if missing:
        raise BadInput(f"The trace has no column {', '.join(missing)}; expected {', '.join(NEEDED)}.")
    submit, start, end, units, limit = (np.asarray(table[c], dtype=float) for c in NEEDED)
    codes = [coded(table[c]) if c in have else np.full(len(submit), -1) for c in ("user", "queue", "name")]
    limit = np.where(np.isfinite(limit) & (limit > 0), limit, ASSUMED_LIMIT_S)
    good = np.isfinite(submit) & np.isfinite(start) & (start >= submit) & np.isfinite(units) & (units >= 1)
    if not good.any():
        raise BadInput("The trace holds no job that was submitted and started; expected seconds in submit_s and start_s.")
    end = np.where(np.isfinite(end) & (end >= start), end, start)
    jobs = Jobs(submit, start, end, units, limit, *codes).take(good)
    return jobs.take(np.argsort(jobs.submit_s, kind="stable"))


def coded(words: Sequence[Any]) -> NDArray[Any]:
    """Small codes of words in order of their first appearance; -1 for what stands for unknown ('', '-1', nan)."""
    import numpy as np

    codes: dict[str, int] = {}
    return np.array([-1 if (word := str(w)) in _UNKNOWN else codes.setdefault(word, len(codes)) for w in words], dtype=np.int64)


_UNKNOWN = frozenset({"", "-1", "nan", "None", "<NA>"})
