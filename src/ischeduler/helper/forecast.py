"""When would a job start on each partition? A live queue run forward a few hundred times, and what would change if less were asked for."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ischeduler.core.durations import human
from ischeduler.core.errors import BadInput, IschedError, NotFound
from ischeduler.core.estimate import Estimate
from ischeduler.core.snapshot import FinishedJob, QueueSnapshot
from ischeduler.helper.suggest import did_you_mean
from ischeduler.simulator.live import Pool, live_queue, pool_of
from ischeduler.simulator.outlook import ROLLS, Ask, Draws, draws, holes, waits
from ischeduler.simulator.runlaw import RunLaw

if TYPE_CHECKING:
    from ischeduler.helper.session import Session

SOURCE = "twin@1"
SOON_S = (600.0, 3600.0, 8 * 3600.0)
EDGES_S = (60.0, 600.0, 1800.0, 3600.0, 2 * 3600.0, 4 * 3600.0, 8 * 3600.0, 16 * 3600.0, 86400.0, 2 * 86400.0, 4 * 86400.0, math.inf)
"""Upper ends of the picture's columns: a minute, ten, half an hour, ... and beyond four days."""
LEAST_LIMIT_S = 600.0
ROLLS_MOST = 10_000


@dataclass(frozen=True, slots=True)
class Question:
    """A job that might be handed in. ``gpus`` are for each node."""

    nodes: int = 1
    gpus: int | None = None
    walltime_s: float | None = None
    what_if: bool = False
    rolls: int = ROLLS
    seed: int = 0

    def __post_init__(self) -> None:
        if self.nodes < 1:
            raise BadInput(f"--nodes {self.nodes} cannot be; give 1 or more.")
        if self.gpus is not None and self.gpus < 0:
            raise BadInput(f"--gpus {self.gpus} cannot be; give 0 or more.")
        if self.walltime_s is not None and not 60 <= self.walltime_s < math.inf:
            raise BadInput("--time must be a minute or more, and have an end: --time 4h.")
        if not 10 <= self.rolls <= ROLLS_MOST:
            raise BadInput(f"--rolls {self.rolls} cannot be; give 10 to {ROLLS_MOST}.")


@dataclass(frozen=True, slots=True)
class Variant:
    """The same job with less asked for, and the seconds sooner it would start (median of roll-out against roll-out)."""

    words: str
    nodes: int
    gpus: int
    walltime_s: float
    wait: Estimate
    sooner_s: float


@dataclass(frozen=True, slots=True)
class HoleNow:
    """Free now for ``seconds`` (None: as long as one likes): a job no longer than that may start at once."""

    amount: float
    unit: str
    seconds: float | None


@dataclass(frozen=True, slots=True)
class PartitionForecast:
    """A job's wait on one partition. ``chances`` by seconds, ``picture`` the share of roll-outs up to each of :data:`EDGES_S`.

    ``problem`` says why there is no forecast.
    """

    cluster: str
    partition: str
    nodes: int
    gpus: int
    walltime_s: float
    running: int = 0
    waiting: int = 0
    wait: Estimate | None = None
    chances: dict[str, float] = field(default_factory=dict[str, float])
    picture: tuple[float, ...] = ()
    holes: tuple[HoleNow, ...] = ()
    what_if: tuple[Variant, ...] = ()
    problem: str = ""


def forecast(here: Session, cluster: str, partitions: Sequence[str], question: Question) -> list[PartitionForecast]:
    """One forecast a partition (default: all the live queue shows), soonest first. NotFound, BatchUnavailable with a sentence."""
    batches = here.services.batches
    name = cluster or next(iter(batches), "")
    if name not in batches:
        troubles = f" ({'; '.join(here.services.troubles)})" if here.services.troubles else ""
        raise NotFound(f"the queue of '{cluster or 'any cluster'}' cannot be seen from here{troubles}; live is {', '.join(batches) or 'none'}.")
    snapshot = batches[name].snapshot()
    known = sorted({n.partition for n in snapshot.nodes})
    for wanted in partitions:
        if wanted not in known:
            raise NotFound(f"{name} shows no partition '{wanted}'{did_you_mean(wanted, known)}.")
    finished = here.services.finished_jobs(name)
    limits = _limits(here, name)
    found = [of_partition(snapshot, finished, p, question, limits.get(p)) for p in (partitions or known)]
    return sorted(found, key=lambda f: (f.wait is None, f.wait.p50 if f.wait else 0.0, f.partition))


def forecast_of_trace(path: str, at: str, units: int | None, question: Question) -> list[PartitionForecast]:
    """The same for the queue of a trace at an instant (a time such as 2023-03-10T12:00, or epoch seconds). ``units``: the machine's size;
    where unknown, the most that were ever in use. BadInput with a sentence."""
    from ischeduler.simulator.instant import PARTITION, queue_of
    from ischeduler.simulator.readers import read_trace

    if units is not None and units < 1:
        raise BadInput(f"--units {units} cannot be; give the machine's nodes or processors.")
    trace = read_trace(path)
    snapshot, finished = queue_of(trace, _instant(at), units or trace.capacity or trace.peak_units())
    return [of_partition(snapshot, finished, PARTITION, question)]


def _instant(text: str) -> float:
    try:
        if text.replace(".", "", 1).isdigit():
            return float(text)
        return datetime.datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise BadInput(f"--at '{text}' is no time; give one like 2023-03-10T12:00, or epoch seconds.") from None


def of_partition(
    snapshot: QueueSnapshot, finished: Sequence[FinishedJob], partition: str, question: Question, longest_s: float | None = None
) -> PartitionForecast:
    """The forecast for one partition of a snapshot; ``longest_s`` is its walltime limit where known."""
    import numpy as np

    pool = pool_of(snapshot, partition)
    gpus = question.gpus if question.gpus is not None else (1 if pool.unit == "GPU" else 0)
    walltime_s = question.walltime_s or min(3600.0, longest_s or 3600.0)
    blank = PartitionForecast(snapshot.cluster, partition, question.nodes, gpus, walltime_s)
    problem = _problem(pool, question.nodes, gpus, walltime_s, longest_s)
    if problem:
        return _with(blank, problem=problem)
    queue = live_queue(snapshot, pool)
    drawn = draws(queue, RunLaw(finished), finished, np.random.default_rng(question.seed), question.rolls)
    seconds = waits(queue, Ask(question.nodes, gpus * question.nodes, round(walltime_s)), drawn)
    as_of, how = snapshot.taken_at, _how(question.rolls, finished, drawn)
    variants = tuple(_variants(queue, drawn, question, gpus, walltime_s, seconds, as_of)) if question.what_if else ()
    return _with(
        blank, running=queue.running, waiting=len(queue.jobs) - queue.running, wait=_estimate(seconds, as_of, how),
        chances={f"{s:.0f}": float((seconds <= s).mean()) for s in SOON_S}, picture=_picture(seconds),
        holes=tuple(HoleNow(h.amount, pool.unit, h.seconds) for h in holes(queue)), what_if=variants,
    )


def _problem(pool: Pool, nodes: int, gpus: int, walltime_s: float, longest_s: float | None) -> str:
    if longest_s is not None and walltime_s > longest_s:
        return f"at most {human(longest_s)} here"
    if gpus and pool.unit != "GPU":
        return "no GPUs here"
    if pool.unit == "GPU" and gpus == 0:
        return "only GPUs are counted here; give --gpus"
    if gpus > pool.gpus_per_node > 0:
        return f"a node has {pool.gpus_per_node} GPUs"
    wanted, there = (gpus * nodes, "GPUs") if pool.unit == "GPU" else (nodes, "nodes")
    have = pool.capacity // 1000
    return f"{have} {there} are up, {wanted} asked for" if wanted > have else ""


def _variants(
    queue: Any, drawn: Draws, question: Question, gpus: int, walltime_s: float, base: Any, as_of: float
) -> Iterator[Variant]:
    """Less time, fewer GPUs, fewer nodes: those that make a job of the same kind, with the same draws."""
    import numpy as np

    shorter = {w for w in (walltime_s / 2, walltime_s - 2 * 3600, walltime_s - 4 * 3600) if LEAST_LIMIT_S <= w < walltime_s}
    asks = [("", question.nodes, gpus, w) for w in sorted(shorter, reverse=True)]
    asks += [("", question.nodes, g, walltime_s) for g in sorted({gpus // 2, gpus - 2}, reverse=True) if 0 < g < gpus]
    asks += [("", n, gpus, walltime_s) for n in sorted({question.nodes // 2}, reverse=True) if 0 < n < question.nodes]
    for _, nodes, cards, limit in asks:
        seconds = waits(queue, Ask(nodes, cards * nodes, round(limit)), drawn)
        sooner = float(np.median(_less(base, seconds)))
        yield Variant(_words(question.nodes, gpus, walltime_s, nodes, cards, limit), nodes, cards, limit, _estimate(seconds, as_of, ""), sooner)


def _words(nodes: int, gpus: int, walltime_s: float, fewer: int, cards: int, limit_s: float) -> str:
    if limit_s < walltime_s:
        return f"--time {human(limit_s)} ({human(walltime_s - limit_s)} less)"
    return f"--gpus {cards} ({gpus - cards} less)" if cards < gpus else f"--nodes {fewer} ({nodes - fewer} less)"


def _less(base: Any, other: Any) -> Any:
    """base - other, roll-out by roll-out; two that never start differ by nothing."""
    import numpy as np

    both = np.isinf(base) & np.isinf(other)
    return np.where(both, 0.0, np.where(both, 0.0, base) - np.where(both, 0.0, other))


def _estimate(seconds: Any, as_of: float, how: str) -> Estimate:
    ordered = sorted(float(s) for s in seconds)
    low, middle, high = (ordered[min(len(ordered) - 1, round(q * (len(ordered) - 1)))] for q in (0.1, 0.5, 0.9))
    return Estimate(low, middle, high, "s", SOURCE, basis="live", as_of=as_of, reason=how)


def _how(rolls: int, finished: Sequence[FinishedJob], drawn: Draws) -> str:
    seen = f"{len(finished)} finished jobs tell how much of their time jobs use" if finished else "nothing is known of these users' jobs"
    later = "" if any(len(s[0]) for s in drawn.streams) else "; later arrivals are not reckoned with"
    return f"{rolls} roll-outs of the live queue; {seen}{later}"


def _picture(seconds: Any) -> tuple[float, ...]:
    """The share of roll-outs in each column."""
    counts = [0] * len(EDGES_S)
    for s in seconds:
        counts[next(i for i, edge in enumerate(EDGES_S) if s <= edge)] += 1
    return tuple(c / len(seconds) for c in counts)


def _limits(here: Session, name: str) -> dict[str, float]:
    """Walltime limits of the partitions, where the cluster is known."""
    try:
        cluster = here.services.cluster(name)
    except IschedError:
        return {}
    return {p.name: p.max_walltime_s for p in cluster.partitions if p.max_walltime_s is not None and math.isfinite(p.max_walltime_s)}


def _with(blank: PartitionForecast, **fields: Any) -> PartitionForecast:
    from dataclasses import replace

    return replace(blank, **fields)
