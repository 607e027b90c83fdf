"""A trace: the jobs of a cluster as columns, sorted by submission."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ischeduler.core.errors import BadInput

Ints = NDArray[np.int64]
UNKNOWN = -1


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Jobs as numpy columns of equal length, sorted by ``submit_s``, equal seconds by job number.

    Times are whole seconds (epoch seconds where the file says so). ``units`` are the nodes or processors a job asks for; ``limit_s``
    is its requested walltime, its true ``run_s`` where the file has none. ``start_s`` is the recorded start, -1 where unknown.
    ``user`` and ``queue`` are places in ``users`` and ``queues``. ``capacity`` is the machine's size where the file says it.
    ``notes`` say in words what the reader left out or made up.
    """

    name: str
    job_id: NDArray[Any]
    submit_s: Ints
    units: Ints
    run_s: Ints
    limit_s: Ints
    start_s: Ints
    user: NDArray[np.int32]
    queue: NDArray[np.int32]
    users: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    capacity: int | None = None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.submit_s)

    @property
    def wait_s(self) -> Ints:
        """Recorded wait, -1 where unknown."""
        return np.where(self.start_s >= 0, self.start_s - self.submit_s, UNKNOWN)

    @property
    def has_limits(self) -> bool:
        """Whether any job's requested walltime differs from its true run time."""
        return bool((self.limit_s != self.run_s).any())

    @property
    def span_s(self) -> int:
        """Seconds from the first to the last submission."""
        return int(self.submit_s[-1] - self.submit_s[0]) if len(self) else 0

    def head(self, jobs: int) -> Trace:
        """The first jobs."""
        return self.take(np.arange(min(jobs, len(self))))

    def take(self, chosen: NDArray[Any]) -> Trace:
        """The chosen jobs, in the order of the trace."""
        columns = {name: getattr(self, name)[chosen] for name in COLUMNS}
        return replace(self, **columns)

    def peak_units(self) -> int:
        """The most units that were in use at once by the recorded starts, at least the widest job; 0 for an empty trace."""
        if not len(self):
            return 0
        known = self.start_s >= 0
        begin, width = self.start_s[known], self.units[known]
        times = np.concatenate([begin, begin + self.run_s[known]])
        change = np.concatenate([width, -width])
        order = np.lexsort((change, times))
        used = int(np.cumsum(change[order]).max()) if len(order) else 0
        return max(used, int(self.units.max()))


COLUMNS = tuple(
    f.name for f in fields(Trace) if f.name not in ("name", "users", "queues", "capacity", "notes")
)


def make_trace(name: str, columns: Mapping[str, Any], *, capacity: int | None = None, notes: tuple[str, ...] = ()) -> Trace:
    """A checked and sorted trace. ``columns``: job_id, submit_s, units, run_s and, where known, limit_s, start_s, user, queue.

    Numeric columns may be floats with NaN for unknown. Jobs without a submission, a run time or a unit are left out, and a note
    says so. BadInput when nothing is left. Equal submissions are sorted by job number, since batch systems number jobs as they
    come; where ids are no numbers the order of the file stays.
    """
    given = {key: np.asarray(value) for key, value in columns.items() if key not in ("user", "queue")}
    submit, run, units = (_numbers(given[key]) for key in ("submit_s", "run_s", "units"))
    reasons = {
        "submission": ~np.isfinite(submit),
        "run time (never started or not ended)": ~np.isfinite(run) | (run < 0),
        "nodes or processors": ~np.isfinite(units) | (units < 1),
    }
    bad = np.zeros(len(submit), bool)
    for why, mask in reasons.items():
        fresh = int((mask & ~bad).sum())
        if fresh:
            notes = (*notes, f"{fresh:,} jobs without {why} are left out" if fresh > 1 else f"one job without {why} is left out")
        bad |= mask
    if bad.all():
        raise BadInput(f"{name} holds no job that ran; expected at least one with a submission, a run time and units.")
    keep = np.flatnonzero(~bad)
    ids = given["job_id"][keep]
    order = np.lexsort((_job_numbers(ids), submit[keep]))
    keep = keep[order]
    return _assembled(name, columns, given, keep, ids[order], capacity, notes)


def _assembled(
    name: str, columns: Mapping[str, Any], given: Mapping[str, NDArray[Any]], keep: NDArray[Any], ids: NDArray[Any],
    capacity: int | None, notes: tuple[str, ...],
) -> Trace:  # fmt: skip
    run = _whole(given["run_s"][keep])
    limit = given.get("limit_s")
    if limit is None or not (_numbers(limit[keep]) > 0).any():
        limit = run
        notes = (*notes, "no requested walltimes: schedulers are told the true run times")
    else:
        asked = _numbers(limit[keep])
        known = np.isfinite(asked) & (asked > 0)
        limit = np.where(known, np.ceil(np.where(known, asked, 0)), run).astype(np.int64)
    start = _numbers(given["start_s"][keep]) if "start_s" in given else np.full(len(keep), np.nan)
    start = np.where(np.isfinite(start) & (start >= 0), np.floor(np.nan_to_num(start)), UNKNOWN).astype(np.int64)
    user, users = _codes(columns.get("user"), keep)
    queue, queues = _codes(columns.get("queue"), keep)
    return Trace(
        name, ids, _whole(given["submit_s"][keep]), _whole(given["units"][keep]), run, limit, start, user, queue, users, queues,
        capacity, notes,
    )  # fmt: skip


def _numbers(values: NDArray[Any]) -> NDArray[Any]:
    return values if values.dtype.kind in "iuf" else values.astype(np.float64)


def _whole(values: NDArray[Any]) -> Ints:
    return np.ascontiguousarray(np.floor(values) if values.dtype.kind == "f" else values, dtype=np.int64)


def _job_numbers(ids: NDArray[Any]) -> NDArray[Any]:
    """What sorts equal submissions: the job numbers, or the order of the file."""
    if ids.dtype.kind in "iu":
        return ids
    return np.arange(len(ids))


def _codes(column: Any, keep: NDArray[Any]) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    """Places in the list of names; ``column`` is (codes, names) or None."""
    if column is None:
        return np.zeros(len(keep), np.int32), ("",)
    codes, names = column
    return np.asarray(codes, np.int32)[keep], tuple(names)
