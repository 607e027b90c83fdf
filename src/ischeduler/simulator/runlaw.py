"""How much of their requested time jobs really use: by user and job name where that was seen, else as everybody does. Pure.

A job that runs already has shown a lower bound, so its law is the part beyond what has elapsed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ischeduler.core.snapshot import FinishedJob

if TYPE_CHECKING:
    from numpy import float64, int64
    from numpy.random import Generator
    from numpy.typing import NDArray

    from ischeduler.simulator.live import LiveQueue

EVERYBODY = (
    0.0, 0.004, 0.012, 0.025, 0.046, 0.082, 0.144, 0.212, 0.278, 0.351, 0.42, 0.498, 0.584, 0.656, 0.727, 0.812, 0.902, 0.992, 0.999, 1.0, 1.0,
)
"""Used of requested time at 0, 5, ... 100 %: mean quantiles of three public traces (Lonestar6 A100 nodes 2022-23, CC BY 4.0; KTH SP2; Theta
2022). Print them with ``python -m benchmarks.forecast --law``."""
KEPT = 50
"""Of a user's jobs, the newest so many; of a name's."""
_PRIOR = 5.0
"""Everybody's law weighs like so many jobs of the user's own."""


class RunLaw:
    """Fitted on finished jobs; without any it is everybody's law."""

    def __init__(self, finished: Iterable[FinishedJob] = ()) -> None:
        import numpy as np

        jobs = sorted(finished, key=lambda j: j.end_s)
        self.n = len(jobs)
        users: dict[str, list[float]] = defaultdict(list)
        names: dict[tuple[str, str], list[float]] = defaultdict(list)
        for job in jobs:
            users[job.user].append(job.share)
            names[job.user, _stem(job.name)].append(job.share)
        self._users = {u: np.sort(np.array(s[-KEPT:])) for u, s in users.items()}
        self._names = {n: np.sort(np.array(s[-KEPT:])) for n, s in names.items()}
        site = np.array([j.share for j in jobs[-20 * KEPT :]])
        shipped = np.interp(np.linspace(0, 1, 201), np.linspace(0, 1, len(EVERYBODY)), EVERYBODY)
        self._everybody = np.sort(np.concatenate([shipped, site]))

    def sample(self, queue: LiveQueue, rolls: int, random: Generator) -> NDArray[int64]:
        """Run times in seconds, shape (rolls, jobs), each above what has elapsed and at most the limit."""
        import numpy as np

        runs = np.empty((rolls, len(queue.jobs)), dtype=np.int64)
        for i, job in enumerate(queue.jobs):
            elapsed, limit = max(0, int(queue.elapsed_s[i])), int(queue.limit_s[i])
            user, name = (job.user, job.name) if job is not None else ("", "")
            share = self._shares(user, name, elapsed / limit, rolls, random)
            runs[:, i] = np.clip(np.rint(share * limit), elapsed + 1, limit)
        return runs

    def _shares(self, user: str, name: str, beyond: float, rolls: int, random: Generator) -> NDArray[float64]:
        import numpy as np

        own = self._names.get((user, _stem(name)), self._users.get(user))
        mine = own[np.searchsorted(own, beyond, side="right") :] if own is not None else np.empty(0)
        all_of_them = self._everybody[np.searchsorted(self._everybody, beyond, side="right") :]
        others = _picked(all_of_them, beyond, random.random(rolls))
        if not len(mine):
            return others
        from_own = random.random(rolls) < len(mine) / (len(mine) + _PRIOR)
        return np.where(from_own, mine[(random.random(rolls) * len(mine)).astype(np.int64)], others)


def _picked(values: NDArray[float64], beyond: float, places: NDArray[float64]) -> NDArray[float64]:
    """A value at each place of the sorted ones; between what has elapsed and the limit where none is left."""
    import numpy as np

    if not len(values):
        return beyond + (1.0 - beyond) * places
    return values[(places * len(values)).astype(np.int64)]


def _stem(name: str) -> str:
    """A job's name without the digits that differ from one of a series to the next."""
    return "".join(c for c in name if not c.isdigit())
