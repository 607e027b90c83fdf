"""What others foretell of waits, behind the interface that our own forecasts have: a constant, means, order statistics, Slurm's plan.

Each peer is told the whole trace and may look, for each job, only at what was known as that job was submitted. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from ischeduler.estimators.queuewait.features import names
from ischeduler.estimators.queuewait.learner import HORIZONS_S, Settings
from ischeduler.estimators.queuewait.model import CALIBRATED
from ischeduler.estimators.queuewait.service import CANDIDATES, serve

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ischeduler.estimators.queuewait.jobs import Jobs

FEWEST_OBSERVED = 59
"""With fewer waits no order statistic bounds the 95 % quantile with 95 % confidence."""
_MEDIAN, _BOUND = CALIBRATED.index(0.5), CALIBRATED.index(0.95)


@dataclass(frozen=True)
class Told:
    """Forecasts (jobs): log waits at :data:`CALIBRATED` levels and scores of starting within each of :data:`HORIZONS_S`.

    nan where a method says nothing. A higher score means sooner; only a method's ``chances`` that are probabilities lie within 0 and 1.
    """

    log_waits: NDArray[Any]
    chances: NDArray[Any]


class Forecaster(Protocol):
    """Foretells the waits of all jobs submitted from ``from_s`` on, in order of submission."""

    @property
    def name(self) -> str:
        """As tables show it."""
        ...

    def told(self, jobs: Jobs, features: NDArray[Any], from_s: float) -> Told:
        """``features`` (all jobs, names with the twin's)."""
        ...


@dataclass(frozen=True)
class Trees:
    """Our own: boosted quantiles, grown again now and then, calibrated with late labels."""

    settings: tuple[Settings, ...] = CANDIDATES
    name: str = "ours"

    def told(self, jobs: Jobs, features: NDArray[Any], from_s: float) -> Told:
        served = serve(jobs, features, from_s, settings=self.settings)
        return Told(served.log_waits, served.chances)


@dataclass(frozen=True)
class ConstantMedian:
    """The median wait, and the share of early starts, of the jobs that had started as the forecasts began."""

    name: str = "constant median"

    def told(self, jobs: Jobs, features: NDArray[Any], from_s: float) -> Told:
        import numpy as np

        waits = jobs.wait_s[jobs.start_s < from_s]
        told = _silent(int((jobs.submit_s >= from_s).sum()))
        told.log_waits[:] = np.log1p(np.quantile(waits, CALIBRATED))
        told.chances[:] = [(waits <= h).mean() for h in HORIZONS_S]
        return told


@dataclass(frozen=True)
class MeanOfLast:
    """The mean wait of the last jobs that started (Mirage's 'average')."""

    last: int = 100

    @property
    def name(self) -> str:
        return f"mean of last {self.last}"

    def told(self, jobs: Jobs, features: NDArray[Any], from_s: float) -> Told:
        import numpy as np

        rows, by_start, known = _observed(jobs, from_s)
        told = _silent(len(rows))
        for place, end in enumerate(known):
            waits = jobs.wait_s[by_start[max(0, end - self.last) : end]]
            if len(waits):
                told.log_waits[place, _MEDIAN] = np.log1p(waits.mean())
                told.chances[place] = [(waits <= h).mean() for h in HORIZONS_S]
        return told


@dataclass(frozen=True)
class Bmbp:
    """Upper bounds by order statistics of the last waits: with 95 % confidence the 95 % quantile lies below.

    Brevik, Nurmi and Wolski, Predicting bounds on queuing delay for batch-scheduled parallel machines, PPoPP 2006. ``groups`` and
    ``misses`` make it QBETS (Nurmi, Brevik and Wolski, JSSPP 2007): jobs of similar size by themselves, and after so many bounds missed
    in a row only the last :data:`FEWEST_OBSERVED` waits count.
    """

    last: int = 500
    groups: int = 1
    misses: int = 0
    confidence: float = 0.95

    @property
    def name(self) -> str:
        return "QBETS" if self.misses else f"BMBP, last {self.last}"

    def told(self, jobs: Jobs, features: NDArray[Any], from_s: float) -> Told:
        import numpy as np

        rows = np.flatnonzero(jobs.submit_s >= from_s)
        whole = _silent(len(jobs))
        work = jobs.units * jobs.limit_s
        edges = np.quantile(work[jobs.submit_s < from_s], np.linspace(0, 1, self.groups + 1)[1:-1])
        group = np.searchsorted(edges, work, side="right")
        for which in range(self.groups):
            self._follow(jobs, np.flatnonzero(group == which), whole)
        return Told(whole.log_waits[rows], whole.chances[rows])

    def _follow(self, jobs: Jobs, members: NDArray[Any], whole: Told) -> None:
        """One group's jobs in order of submission; waits become known in order of start."""
        import numpy as np

        by_start = members[np.argsort(jobs.start_s[members], kind="stable")]
        known = np.searchsorted(jobs.start_s[by_start], jobs.submit_s[members], side="left")
        first, seen, missed = 0, 0, 0
        for row, end in zip(members, known, strict=True):
            while self.misses and seen < end:
                bound = whole.log_waits[by_start[seen], _BOUND]
                missed = missed + 1 if np.log1p(jobs.wait_s[by_start[seen]]) > bound else 0
                seen += 1
                if missed >= self.misses:
                    first, missed = max(first, seen - FEWEST_OBSERVED), 0
            waits = np.sort(jobs.wait_s[by_start[max(first, end - self.last) : end]])
            if len(waits) >= FEWEST_OBSERVED:
                whole.log_waits[row] = np.log1p([waits[_rank(len(waits), q, self.confidence if q > 0.5 else 0.5)] for q in CALIBRATED])
                whole.chances[row] = [(waits <= h).mean() for h in HORIZONS_S]


@dataclass(frozen=True)
class AtLimits:
    """When enough is free if every job uses its whole limit: among the running alone, or after the queue's plan as Slurm makes it."""

    column: str
    name: str

    def told(self, jobs: Jobs, features: NDArray[Any], from_s: float) -> Told:
        import numpy as np

        waits = features[jobs.submit_s >= from_s, names(twin=True).index(self.column)]
        told = _silent(len(waits))
        told.log_waits[:, _MEDIAN] = waits
        told.chances[:] = -waits[:, None]
        told.chances[np.isnan(waits)] = np.nan
        return told


PEERS: tuple[Forecaster, ...] = (
    Bmbp(), Bmbp(groups=3, misses=3), AtLimits("twin_limits", "Slurm's plan (limits)"), AtLimits("fit_at_limits", "free at limits"), MeanOfLast(),
    ConstantMedian(),
)  # fmt: skip


@cache
def _rank(count: int, level: float, confidence: float) -> int:
    """The place, from 0, of the smallest order statistic that exceeds the quantile with that confidence."""
    from scipy.stats import binom

    return min(count - 1, int(binom.ppf(confidence, count, level)))


def _observed(jobs: Jobs, from_s: float) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """(rows to foretell, all rows in order of start, how many of those had started as each row was submitted)."""
    import numpy as np

    rows = np.flatnonzero(jobs.submit_s >= from_s)
    by_start = np.argsort(jobs.start_s, kind="stable")
    return rows, by_start, np.searchsorted(jobs.start_s[by_start], jobs.submit_s[rows], side="left")


def _silent(count: int) -> Told:
    import numpy as np

    return Told(np.full((count, len(CALIBRATED)), np.nan), np.full((count, len(HORIZONS_S)), np.nan))
