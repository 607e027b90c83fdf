"""The plane's Foresight: what the live queue says about a successor's wait, looked at seldom, for the provisioner of the settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ischeduler.core.errors import ConfigError, IschedError, NotFound
from ischeduler.core.jobs import JobState
from ischeduler.core.run import Attempt, Run
from ischeduler.core.snapshot import FinishedJob, NodeCounts, QueuedJob, QueueSnapshot
from ischeduler.plane.attempts import alive_attempts
from ischeduler.plane.provisioners import (
    REACTIVE,
    Average,
    Forecast,
    HandOver,
    Informed,
    Newsvendor,
    Prices,
    Rule,
    Twin,
    smoothed,
)
from ischeduler.plane.segments import next_walltime_s
from ischeduler.ports import Provisioner
from ischeduler.wiring import Services, Settings

if TYPE_CHECKING:
    from ischeduler.helper.provisioning.live import Look
    from ischeduler.helper.provisioning.model_file import TrainedProvisioner

LEVELS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
LOOKS_A_SEGMENT = 60
LOOK_LEAST_S, LOOK_MOST_S = 10.0, 300.0
AVERAGED = 3
"""Looks whose forecasts are averaged: a single one crosses a threshold by chance."""
STALE_LOOKS = 6
"""After so many looks that failed a forecast is given up, and the successor waits for its predecessor's end."""
HAND_OVER = Prices(19.0, 1.0)
HAND_OVER_SHARE = 0.25
"""Of a segment at most: a hand-over earlier than that would shred the run into short segments."""
RECENT_STARTS = 100
MODEL_LOOKS, MODEL_LOOK_MOST_S = 48, 3600.0
"""A trained model's smoothing was tuned on a forecast an hour in segments of 48 hours."""
JUST_NOW_S = 2.0
"""A look that is older may have been before a segment's start."""
_LEARNED = ("quantile", "twin", "trained", "hand-over")


@dataclass(frozen=True, slots=True)
class _Place:
    """Whose forecasts may be averaged. ``segment``: the attempt, where a model's forecast is about that alone."""

    cluster: str
    partition: str
    nodes: int
    gpus: int
    walltime_s: float
    segment: str = ""


class LiveForesight:
    """Forecasts for all runs of one plane: one look at a cluster's queue serves every run there."""

    def __init__(self, services: Services, settings: Settings) -> None:
        self._services, self._kind = services, str(settings["plane.provisioner"])
        self._pending_max = int(settings["plane.pending_successors"])
        prices = Prices(float(settings["plane.interruption_price"] or 0), float(settings["plane.overlap_price"] or 0))
        self._model = _trained(settings) if self._kind in _LEARNED else None
        self._rule = rule_of(self._kind, prices, self._model)
        self._averaged = self._model.tuning.window if self._model else AVERAGED
        self._seen: dict[str, QueueSnapshot] = {}
        self._looked: dict[str, list[Look]] = {}
        self._made: dict[_Place, list[Forecast]] = {}
        self._tried: dict[_Place, float] = {}
        self._problem: dict[_Place, str] = {}

    def provisioner(self, run: Run, now: float) -> tuple[Provisioner, str]:
        """The rule of the settings with the newest forecast, and what was wrong at the last look; reactive where nothing is known."""
        living = alive_attempts(run)
        waiting = sum(a.state is not JobState.RUNNING for a in living)
        enough = waiting >= self._pending_max and not any(_on_call(a) for a in living)
        if not living or len(living) - waiting > 1 or enough or living[0].cluster not in self._services.batches:
            return REACTIVE, ""
        attempt = living[0]
        gpus = attempt.resources.gpus_per_node * attempt.resources.nodes
        own = attempt.key if self._model and self._model.segments_own else ""
        place = _Place(attempt.cluster, attempt.partition, attempt.resources.nodes, gpus, round(next_walltime_s(run), -1), own)
        every_s = look_every_s(attempt, MODEL_LOOKS, MODEL_LOOK_MOST_S) if self._model else look_every_s(attempt)
        made = self._made.setdefault(place, [])
        if now - self._tried.get(place, 0.0) >= every_s:
            self._tried[place] = now
            self._look(place, attempt, run, now, every_s, made)
        fresh = [f for f in made[-self._averaged :] if now - f.as_of <= STALE_LOOKS * every_s]
        return Informed(self._rule, smoothed(fresh)) if fresh else REACTIVE, self._problem.get(place, "")

    def _look(self, place: _Place, attempt: Attempt, run: Run, now: float, every_s: float, made: list[Forecast]) -> None:
        try:
            made.append(self._forecast(place, attempt, run, now, every_s))
            self._problem[place] = ""
        except (IschedError, ImportError) as error:
            self._problem[place] = f"no forecast of its successor's wait ({error})"
        del made[: -2 * self._averaged]

    def _forecast(self, place: _Place, attempt: Attempt, run: Run, now: float, every_s: float) -> Forecast:
        if self._kind == "average":
            mean = mean_wait_s(self._finished(place, attempt), place.partition)
            if mean is None:
                raise NotFound(f"accounting tells of no job that started in {place.partition}; set plane.provisioner to twin or reactive.")
            return Forecast(now, mean_s=mean, source="average")
        snapshot = self._snapshot(place.cluster, now, every_s)
        if self._model is not None:
            if not any(j.job_id == attempt.job_id and j.state == "RUNNING" for j in snapshot.jobs):
                snapshot = self._snapshot(place.cluster, now, JUST_NOW_S)
            from ischeduler.helper.provisioning.live import BACK_S, forecast

            self._forget(now - BACK_S)
            past = self._looked.setdefault(attempt.key, [])
            return forecast(self._model, _without(snapshot, run), self._finished(place, attempt), attempt, now, past)
        if self._kind == "quantile":
            return self._estimated(attempt, run, snapshot, now)
        own = [a.job_id for a in run.attempts if a.job_id]
        return rolled_out(snapshot, self._finished(place, attempt), place.partition, place.nodes, place.gpus, place.walltime_s, own, now)

    def _estimated(self, attempt: Attempt, run: Run, snapshot: QueueSnapshot, now: float) -> Forecast:
        """The calibrated estimator's three quantiles."""
        cluster = self._services.cluster(attempt.cluster)
        partition = next((p for p in cluster.partitions if p.name == attempt.partition), None)
        node_type = next((n for n in cluster.node_types if n.name == attempt.node_type), None)
        found, _ = self._services.estimators().answer(
            "queue_wait", run.plan.workload, cluster, partition, node_type, attempt.resources, snapshot, now
        )
        return Forecast(now, (0.1, 0.5, 0.9), (found.p10, found.p50, found.p90), source=found.source)

    def _forget(self, before: float) -> None:
        """Segments that nobody has looked at since."""
        self._looked = {k: looks for k, looks in self._looked.items() if looks and looks[-1].at_s >= before}
        for place in [p for p, at in self._tried.items() if p.segment and at < before]:
            for kept in (self._made, self._tried, self._problem):
                kept.pop(place, None)

    def _snapshot(self, cluster: str, now: float, every_s: float) -> QueueSnapshot:
        kept = self._seen.get(cluster)
        if kept is None or not 0 <= now - kept.taken_at < every_s:
            kept = self._seen[cluster] = self._services.batches[cluster].snapshot()
        return kept

    def _finished(self, place: _Place, attempt: Attempt) -> tuple[FinishedJob, ...]:
        return self._services.finished_jobs(place.cluster, age_s=min(6 * 3600.0, max(60.0, attempt.resources.walltime_s)))


def _on_call(attempt: Attempt) -> bool:
    """Whether it waits, and gives its start back where a new wait would be short: then forecasts are still asked for."""
    return attempt.state is not JobState.RUNNING and attempt.keep_from is not None


def _without(snapshot: QueueSnapshot, run: Run) -> QueueSnapshot:
    """The queue as a successor would find it if the one that gives its start back had done so."""
    own = {a.job_id for a in alive_attempts(run) if _on_call(a)}
    return replace(snapshot, jobs=tuple(j for j in snapshot.jobs if j.job_id not in own)) if own else snapshot


def _trained(settings: Settings) -> TrainedProvisioner | None:
    path = str(settings["plane.provisioner_model"] or "")
    if not path:
        if settings["plane.provisioner"] == "trained":
            raise ConfigError("plane.provisioner = trained needs plane.provisioner_model, a file of isched provisioner train --method NAME.")
        return None
    try:
        from ischeduler.helper.provisioning.model_file import read
    except ImportError as error:
        raise ConfigError(f"plane.provisioner_model needs the extra 'provisioning' ({error}): pip install 'ischeduler[provisioning]'.") from None
    return read(Path(path).expanduser())


def rule_of(kind: str, prices: Prices, model: TrainedProvisioner | None = None) -> Rule:
    """The rule a setting names; a model's own levels where there is one."""
    if model is not None:
        return replace(model.handover(), longest_share=HAND_OVER_SHARE) if kind == "hand-over" else model.rule(prices)
    rules: dict[str, Rule] = {
        "average": Average(), "quantile": Newsvendor(prices), "twin": Twin(prices),
        "hand-over": HandOver(Twin(HAND_OVER), HAND_OVER_SHARE),
    }  # fmt: skip
    return rules.get(kind, REACTIVE)


def prepare(kind: str) -> None:
    """Compile what forecasts for this setting run through. It takes seconds once a machine, which a tick under a lease should not spend."""
    if kind not in _LEARNED:
        return
    waiting = QueuedJob("2", "p", "PENDING", submit_s=0.0, limit_s=60.0)
    jobs = (QueuedJob("1", "p", "RUNNING", submit_s=0.0, start_s=0.0, limit_s=60.0), waiting)
    counts = NodeCounts("p", "p", idle=0, mixed=0, allocated=1, idle_gpus=0, total_gpus=0)
    try:
        rolled_out(QueueSnapshot("none", 1.0, (counts,), jobs), (), "p", 1, 0, 60.0, (), 1.0)
    except (IschedError, ImportError):
        return  # the first look says what is missing


def look_every_s(attempt: Attempt, looks: int = LOOKS_A_SEGMENT, most_s: float = LOOK_MOST_S) -> float:
    """How old a forecast may be: a share of the segment, at least 10 s, at most ``most_s``."""
    return min(most_s, max(LOOK_LEAST_S, attempt.resources.walltime_s / looks))


def mean_wait_s(finished: Sequence[FinishedJob], partition: str) -> float | None:
    """The mean wait of the last hundred that started in a partition; None where nobody is known to have."""
    begun = sorted((j for j in finished if j.partition == partition), key=lambda j: j.start_s)[-RECENT_STARTS:]
    return sum(max(0.0, j.start_s - j.submit_s) for j in begun) / len(begun) if begun else None


def rolled_out(
    snapshot: QueueSnapshot, finished: Sequence[FinishedJob], partition: str, nodes: int, gpus: int, walltime_s: float,
    own_jobs: Sequence[str], now: float,
) -> Forecast:
    """Quantiles of the wait over roll-outs of the queue; ``own_jobs`` run to their limits. ``gpus`` over all nodes."""
    import numpy as np

    from ischeduler.simulator.live import live_queue, pool_of
    from ischeduler.simulator.outlook import Ask, draws, waits
    from ischeduler.simulator.runlaw import RunLaw

    queue = live_queue(snapshot, pool_of(snapshot, partition))
    drawn = draws(queue, RunLaw(finished), finished, np.random.default_rng(round(now)), to_their_limit=own_jobs)
    seconds = waits(queue, Ask(nodes, gpus, round(walltime_s)), drawn)
    levels = np.quantile(np.minimum(seconds, 30 * 86400.0), LEVELS)
    return Forecast(now, LEVELS, tuple(float(x) for x in levels), mean_wait_s(finished, partition), source="twin@1")
