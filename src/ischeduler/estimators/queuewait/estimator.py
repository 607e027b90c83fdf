"""The 'queue' estimator: what was learned at the site where it can be, else past waits and the live queue, each saying what it weighs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from ischeduler.core.durations import human
from ischeduler.core.estimate import Estimate
from ischeduler.core.jobs import Resources
from ischeduler.core.waits import HOUR_S, QUICK_S, probability_within
from ischeduler.estimators.evidence import resources_of
from ischeduler.estimators.queuewait.live import LiveWait, live_wait
from ischeduler.estimators.queuewait.past import Waits, past_waits
from ischeduler.estimators.queuewait.prior import SHARE, mixed
from ischeduler.estimators.queuewait.site import LearnedWait, SiteWaits
from ischeduler.ports import EstimateRequest, EstimatorInfo

SOURCE = "queue@1"
NOTHING_KNOWN_S = (60.0, 3600.0, 86400.0)
LIVE_WEIGHT = 4.0
"""The live queue counts as much as four fresh past waits."""
IDLE_WEIGHT = 12.0
PROBE_SHARE = 0.15
"""Slurm's own guess misses by a factor of 40-60 (mean squared error of log10 wait 2.5-3.2), so it moves the median little."""
STALE_S = 900.0


@dataclass(frozen=True)
class Foretold:
    """A wait with its source, age and reason, and the chance of having started after so many seconds."""

    wait: Estimate
    chance: Callable[[float], float]
    asked_at: float
    """Epoch seconds; a deadline is counted from here."""

    @property
    def within_10min(self) -> Estimate:
        """The chance of a start within ten minutes."""
        return self._probability(self.chance(QUICK_S))

    @property
    def within_1h(self) -> Estimate:
        """The chance of a start within the hour."""
        return self._probability(self.chance(HOUR_S))

    def started_by(self, deadline_s: float) -> Estimate:
        """The chance of having started by a deadline (epoch seconds); none once it has passed."""
        return self._probability(self.chance(deadline_s - self.asked_at) if deadline_s > self.asked_at else 0.0)

    def _probability(self, value: float) -> Estimate:
        return replace(self.wait, p10=value, p50=value, p90=value, unit="probability")


class QueueEstimator:
    """Seconds a job of the request's size waits in a partition. ``site`` learns from accounting, where there is one."""

    info = EstimatorInfo(
        "queue", "1", ("queue_wait",), "live", "learned from the site's finished jobs, else past waits of this user and the live queue",
    )

    def __init__(self, site: SiteWaits | None = None) -> None:
        self._live: dict[tuple[object, ...], tuple[object, LiveWait | None]] = {}
        self._site = site

    def estimate(self, request: EstimateRequest) -> Estimate:
        """Always answers: with nothing to go by, widely, and says so. The option ``start_by_s`` (epoch seconds) is the last moment at which
        a start is in time for the user's deadline; the reason then tells that chance, too."""
        told = self.foretell(request)
        by_s = request.options.get("start_by_s")
        if by_s is None:
            return told.wait
        left_s = float(by_s) - request.now
        words = f"in time for the deadline (within {human(left_s)})" if left_s > 0 else "in time for the deadline"
        return replace(told.wait, reason=f"{told.wait.reason}, {words}: {told.started_by(float(by_s)).p50:.0%}")

    def foretell(self, request: EstimateRequest) -> Foretold:
        """The wait and the chances of a start within 10 minutes, an hour, by a deadline."""
        resources, partition = resources_of(request), request.partition.name if request.partition is not None else ""
        live = self._queue(request, partition, resources)
        learned = self._learned(request, live, partition, resources)
        if learned is not None:
            return Foretold(_with_probe(_told(learned, request), request), learned.chance, request.now)
        answer = self._by_rule(request, live)
        return Foretold(answer, lambda seconds: probability_within(answer, seconds), request.now)

    def _learned(self, request: EstimateRequest, live: LiveWait | None, partition: str, resources: Resources) -> LearnedWait | None:
        snapshot = request.snapshot
        if self._site is None or snapshot is None or live is None or not live.possible or request.now - snapshot.taken_at > STALE_S:
            return None
        return self._site.learned(
            snapshot, partition, float(live.need), resources.walltime_s, float(live.whole), by_gpu=live.by_gpu, name=request.workload.name,
        )

    def _by_rule(self, request: EstimateRequest, live: LiveWait | None) -> Estimate:
        assert request.cluster is not None  # the contract was checked
        assert request.partition is not None
        resources, partition = resources_of(request), request.partition.name
        here = (r for r in request.history if r.cluster == request.cluster.name)
        past = past_waits(here, partition, resources.nodes, request.now)
        if live is not None and not live.possible:
            return _estimate((live.p10, live.p50, live.p90), "live", request, f"{live.words}; until nodes come back")
        answer = _combined(request, past, live)
        return _with_probe(answer, request) if not (live and live.idle) else answer

    def _queue(self, request: EstimateRequest, partition: str, resources: Resources) -> LiveWait | None:
        snapshot = request.snapshot
        if snapshot is None:
            return None
        node_type = request.node_type.name if request.node_type else None
        key = (snapshot.cluster, partition, node_type, resources.nodes, resources.gpus_per_node)
        kept = self._live.get(key)
        if kept is None or kept[0] is not snapshot:
            kept = (snapshot, live_wait(snapshot, partition, node_type, resources, snapshot.taken_at))
            self._live[key] = kept
        return kept[1]


def _told(learned: LearnedWait, request: EstimateRequest) -> Estimate:
    """What a model says; p10 to p90 are calibrated on late labels, the chances come from its classifiers."""
    soon, hour = learned.chance(QUICK_S), learned.chance(HOUR_S)
    age = max(0.0, request.now - learned.as_of)
    words = f"{learned.words}; the queue as of {human(age)} ago" if age > 0 else learned.words
    reason = f"{words}; starts within 10 min: {soon:.0%}, within 1 h: {hour:.0%}"
    return Estimate(learned.p10, learned.p50, learned.p90, "s", SOURCE, basis="live", as_of=learned.as_of, reason=reason)


def _cold(live: LiveWait) -> tuple[float, float, float]:
    """The replayed queue, drawn towards what such jobs wait elsewhere under such a load."""
    replayed = (live.p10, live.p50, live.p90)
    return replayed if live.prior is None else mixed(replayed, live.prior)


def _combined(request: EstimateRequest, past: Waits | None, live: LiveWait | None) -> Estimate:
    if past is None and live is None:
        words = "neither past waits nor a live queue: anything from a minute to a day"
        return _estimate(NOTHING_KNOWN_S, "analytic", request, words)
    if live is None:
        assert past is not None
        return _estimate((past.p10, past.p50, past.p90), "history", request, _past_words(past), past.newest)
    words = live.words if live.prior is None else f"{live.words}; the prior, what jobs waited elsewhere under such a load, counts {SHARE:.0%}"
    if past is None:
        return _estimate(_cold(live), "live", request, f"{words}; no past waits here")
    low, middle, high = _cold(live)
    weight = IDLE_WEIGHT if live.idle else LIVE_WEIGHT
    share = weight / (weight + past.weight)
    pairs = ((low, past.p10), (middle, past.p50), (high, past.p90))
    both = [math.exp(share * math.log(max(1.0, a)) + (1 - share) * math.log(max(1.0, b))) for a, b in pairs]
    low, middle, high = min(both[0], low, past.p10), both[1], max(both[2], min(high, past.p90))
    words = f"{words}; {_past_words(past)}; the live queue counts {share:.0%}"
    return _estimate((low, max(low, middle), max(middle, high)), "live", request, words)


def _estimate(
    quantiles: tuple[float, float, float], basis: str, request: EstimateRequest, words: str, as_of: float | None = None
) -> Estimate:
    snapshot = request.snapshot
    if basis == "live" and snapshot is not None:
        as_of = snapshot.taken_at
        if request.now - snapshot.taken_at > STALE_S:
            words += f" (the queue as seen {human(request.now - snapshot.taken_at)} ago)"
            quantiles = (quantiles[0], quantiles[1], quantiles[2] * 2)
    answer = Estimate(*quantiles, "s", SOURCE, basis=basis, as_of=as_of)
    chances = f"starts within 10 min: {probability_within(answer):.0%}, within 1 h: {probability_within(answer, HOUR_S):.0%}"
    return replace(answer, reason=f"{words}; {chances}")


def _past_words(past: Waits) -> str:
    return f"{past.n} past wait{'s' if past.n != 1 else ''}, median {human(past.p50)}"


def _with_probe(answer: Estimate, request: EstimateRequest) -> Estimate:
    start = request.options.get("probe_start_s")
    if start is None:
        return answer
    says = max(1.0, float(start) - request.now)
    middle = math.exp((1 - PROBE_SHARE) * math.log(max(1.0, answer.p50)) + PROBE_SHARE * math.log(says))
    middle = min(max(answer.p10, middle), answer.p90)
    return replace(answer, p50=middle, reason=f"{answer.reason}; the batch system says {human(says)}, which counts 15 %")
