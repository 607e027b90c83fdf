"""A job history as columns: the only thing the run-time law knows about the world."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ischeduler.core.errors import BadInput

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NEEDED = ("submit_s", "start_s", "run_s", "req_units", "req_walltime_s")
_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class JobTable:
    """Jobs of one cluster, times in epoch seconds, sorted by ``submit_s``.

    ``run_s`` is what the batch system lets a job run: never beyond ``limit_s``. ``user``, ``name`` and ``queue`` are codes;
    a column the source lacks is one code for all. ``name`` joins names that differ in digits only (``train.17``, ``train.18``).
    A job that has not started in this world has ``start_s`` of :data:`NEVER`.
    """

    submit_s: NDArray[np.int64]
    start_s: NDArray[np.int64]
    run_s: NDArray[np.int64]
    limit_s: NDArray[np.int64]
    units: NDArray[np.int64]
    user: NDArray[np.int64]
    name: NDArray[np.int64]
    queue: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.submit_s)

    @property
    def end_s(self) -> NDArray[np.int64]:
        """When each job ends."""
        return self.start_s + self.run_s

    def take(self, rows: Any) -> JobTable:
        """The jobs of an index, slice or mask."""
        return JobTable(*(getattr(self, column)[rows] for column in self.__slots__))

    def started_at(self, start_s: NDArray[np.int64]) -> JobTable:
        """The same jobs in a world where they start at other times."""
        return replace(self, start_s=start_s)


NEVER = 1 << 60


def job_table(frame: Any) -> JobTable:
    """A table from a data frame (or mapping of columns) with :data:`NEEDED`; ``user``, ``name`` and ``queue`` where known.

    Jobs without a limit, units or times are left out. Raises BadInput when a needed column is missing.
    """
    import numpy as np

    missing = [c for c in NEEDED if c not in frame]
    if missing:
        raise BadInput(
            f"the trace has no column {', '.join(missing)}: give one with {', '.join(NEEDED)} (seconds; user, name, queue where known)"
        )
    values = {c: np.asarray(frame[c], dtype=float) for c in NEEDED}
    good = np.all([np.isfinite(v) for v in values.values()], axis=0)
    good &= (values["req_units"] > 0) & (values["req_walltime_s"] > 0) & (values["run_s"] >= 0)
    order = np.flatnonzero(good)
    order = order[np.argsort(values["submit_s"][order], kind="stable")]
    whole = {c: np.rint(v[order]).astype(np.int64) for c, v in values.items()}
    limit = np.maximum(whole["req_walltime_s"], 1)
    return JobTable(
        whole["submit_s"], whole["start_s"], np.minimum(whole["run_s"], limit), limit, np.maximum(whole["req_units"], 1),
        _codes(frame, "user", order), _codes(frame, "name", order, stem=True), _codes(frame, "queue", order),
    )


def _codes(frame: Mapping[str, Any] | Any, column: str, order: NDArray[np.int64], *, stem: bool = False) -> NDArray[np.int64]:
    import numpy as np

    if column not in frame:
        return np.zeros(len(order), np.int64)
    words = [str(v) for v in np.asarray(frame[column], dtype=object)[order]]
    if stem:
        words = [_DIGITS.sub("#", w) for w in words]
    return np.unique(np.array(words), return_inverse=True)[1].astype(np.int64)
