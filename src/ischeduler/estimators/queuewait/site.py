"""Waits learned at the site itself: from what accounting tells of finished jobs there, anew as jobs finish.

A model needs the queue as it was, so accounting must show everybody's jobs: where it tells only of one's own although the queue shows others',
nothing is learned and past waits count by themselves, as before. With fewer than :data:`FEWEST` jobs a site is new, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ischeduler.core.durations import human
from ischeduler.core.errors import IschedError
from ischeduler.core.snapshot import FinishedJob, QueueSnapshot

if TYPE_CHECKING:
    from ischeduler.estimators.queuewait.features import Asked
    from ischeduler.estimators.queuewait.jobs import Jobs
    from ischeduler.estimators.queuewait.model import WaitModel
    from ischeduler.estimators.queuewait.twin import RollOuts

FEWEST = 300
"""Finished jobs of a partition before a model is trusted."""
MOST = 4000
"""The newest ones that are learned from: training takes seconds, not minutes."""
FRESH_S = 6 * 3600.0
"""A model is grown anew when it is older and jobs have finished since."""


@dataclass(frozen=True)
class LearnedWait:
    """p10, p50, p90 in seconds, the chance of having started after so many seconds, and what it was learned from."""

    p10: float
    p50: float
    p90: float
    chance: Callable[[float], float]
    words: str
    as_of: float


class SiteWaits:
    """Models of the partitions of live clusters. ``finished`` tells a cluster's finished jobs; models are kept under ``keep``.

    ``twin`` hands out the simulator's kernel, whose forecasts become features; without it there are fewer features.
    """

    def __init__(
        self, finished: Callable[[str], Sequence[FinishedJob]], owner: str = "", *, twin: Callable[[], RollOuts] | None = None,
        keep: Path | None = None,
    ) -> None:  # fmt: skip
        self._finished, self._owner, self._twin, self._keep = finished, owner, twin, keep
        self._models: dict[tuple[str, str, bool], tuple[float, WaitModel | None]] = {}
        self._jobs: dict[str, tuple[QueueSnapshot, Sequence[FinishedJob]]] = {}
        self._in_vain: dict[tuple[str, str, bool], float] = {}

    def learned(
        self, snapshot: QueueSnapshot, partition: str, units: float, limit_s: float, capacity: float, *, by_gpu: bool, name: str = ""
    ) -> LearnedWait | None:
        """The wait of a job handed in as the snapshot was taken; None where the site has not told enough, or libraries are missing."""
        here = [j for j in self._told(snapshot) if j.partition == partition]
        if len(here) < FEWEST or not _everybodys(here, snapshot, partition):
            return None
        newest = max(j.end_s for j in here)
        if self._in_vain.get((snapshot.cluster, partition, by_gpu)) == newest:
            return None
        try:
            return self._answer(snapshot, partition, (units, limit_s, name), capacity, here, by_gpu)
        except IschedError:  # lightgbm or numba is not installed, or too few jobs had started
            self._in_vain[snapshot.cluster, partition, by_gpu] = newest
            return None

    def _told(self, snapshot: QueueSnapshot) -> Sequence[FinishedJob]:
        """Asked for once a snapshot."""
        kept = self._jobs.get(snapshot.cluster)
        if kept is None or kept[0] is not snapshot:
            try:
                kept = (snapshot, self._finished(snapshot.cluster))
            except IschedError:
                kept = (snapshot, ())  # accounting does not answer: past waits count, as before
            self._jobs[snapshot.cluster] = kept
        return kept[1]

    def _answer(
        self, snapshot: QueueSnapshot, partition: str, job: tuple[float, float, str], capacity: float, here: list[FinishedJob], by_gpu: bool
    ) -> LearnedWait | None:
        import numpy as np

        from ischeduler.estimators.queuewait.features import Asked, of_trace

        model = self._model(snapshot, partition, here, by_gpu, capacity)
        if model is None:
            return None
        jobs = jobs_of(here, snapshot, partition, by_gpu=by_gpu, asked=Asked(job[0], job[1], self._me(snapshot), job[2]))
        last = np.arange(len(jobs)) == len(jobs) - 1
        row = of_trace(jobs, capacity=capacity, twin=self._kernel(), wanted=last)[-1:]
        low, middle, high = (float(w) for w in model.waits_s(row)[0][:3])
        age_s = max(0.0, snapshot.taken_at - float(model.provenance["now_s"]))
        words = f"learned from {model.provenance['started']} jobs of this partition {human(age_s)} ago (version {model.provenance['code']})"
        return LearnedWait(low, middle, high, lambda s: _chance(model, row, s), words, snapshot.taken_at)

    def _me(self, snapshot: QueueSnapshot) -> str:
        return next((j.user for j in snapshot.jobs if j.mine and j.user), self._owner)

    def _kernel(self) -> RollOuts | None:
        return self._twin() if self._twin is not None else None

    def _model(self, snapshot: QueueSnapshot, partition: str, here: list[FinishedJob], by_gpu: bool, capacity: float) -> WaitModel | None:
        key = (snapshot.cluster, partition, by_gpu)
        kept = self._models.get(key)
        if kept is None:
            kept = self._read(key)
        newest = max(j.end_s for j in here)
        if kept is None or (snapshot.taken_at - kept[0] > FRESH_S and newest > kept[0]) or kept[0] > snapshot.taken_at:
            kept = (snapshot.taken_at, self._grown(key, snapshot, here, capacity))
        self._models[key] = kept
        return kept[1]

    def _grown(self, key: tuple[str, str, bool], snapshot: QueueSnapshot, here: list[FinishedJob], capacity: float) -> WaitModel:
        from ischeduler.estimators.queuewait.model import save, train
        from ischeduler.estimators.queuewait.service import CANDIDATES

        newest = sorted(here, key=lambda j: j.submit_s)[-MOST:]
        jobs = jobs_of(newest, snapshot, key[1], by_gpu=key[2])
        found = train(
            jobs, now_s=snapshot.taken_at, twin=self._kernel(), settings=CANDIDATES[-1], capacity=capacity, data=f"accounting of {key[0]}/{key[1]}",
        )  # fmt: skip
        if self._keep is not None:
            try:
                save(found, self._path(key))
            except OSError:
                pass  # only a cache
        return found

    def _read(self, key: tuple[str, str, bool]) -> tuple[float, WaitModel | None] | None:
        from ischeduler.estimators.queuewait.model import load

        if self._keep is None or not self._path(key).is_file():
            return None
        try:
            model = load(self._path(key))
        except IschedError:
            return None  # of another version: grown anew
        return (float(model.provenance["now_s"]), model) if model.twin == (self._twin is not None) else None

    def _path(self, key: tuple[str, str, bool]) -> Path:
        assert self._keep is not None
        cluster, partition = (re.sub(r"[^A-Za-z0-9_.-]", "_", word) for word in key[:2])
        return self._keep / f"wait-{cluster}-{partition}-{'gpus' if key[2] else 'nodes'}.json"


def jobs_of(
    finished: Sequence[FinishedJob], snapshot: QueueSnapshot, partition: str, *, by_gpu: bool = False, asked: Asked | None = None
) -> Jobs:
    """Finished, running and pending jobs of a partition as columns, and last the job asked about."""
    import numpy as np

    from ischeduler.estimators.queuewait.features import queued_rows
    from ischeduler.estimators.queuewait.jobs import NEVER_S, Jobs, coded

    now = snapshot.taken_at
    rows = [
        (j.submit_s, j.start_s, j.end_s, float(max(1, j.gpus if by_gpu else j.nodes)), j.limit_s, j.user, partition, j.name)
        for j in finished if j.partition == partition and j.submit_s <= j.start_s <= j.end_s <= now
    ]  # fmt: skip
    rows += queued_rows(snapshot, partition, "", by_gpu)
    rows.sort(key=lambda row: row[0])
    if asked is not None:
        rows.append((now, NEVER_S, NEVER_S, asked.units, asked.limit_s, asked.user, partition, asked.name))
    columns = list(zip(*rows, strict=True))
    numbers = [np.array(c, dtype=float) for c in columns[:5]]
    return Jobs(*numbers, *(coded(c) for c in columns[5:]))


def _everybodys(finished: Sequence[FinishedJob], snapshot: QueueSnapshot, partition: str) -> bool:
    """Whether accounting tells of others, too, where the queue shows others."""
    told = {j.user for j in finished}
    others = any(not j.mine and j.user not in told for j in snapshot.jobs if j.partition == partition)
    return len(told) > 1 or not others


def _chance(model: WaitModel, row: Any, seconds: float) -> float:
    for place, horizon in enumerate(model.horizons_s):
        if horizon == seconds:
            return float(model.chances(row)[0, place])
    return float(model.chance_by(row, seconds)[0])
