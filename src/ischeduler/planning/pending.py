"""Why a job waits, when it may start, and what its owner can do: the answer of ``isched why``."""

from __future__ import annotations

from dataclasses import dataclass

from ischeduler.core.durations import human
from ischeduler.core.estimate import Estimate
from ischeduler.core.plan import Plan
from ischeduler.core.snapshot import NodeCounts, QueuedJob, QueueSnapshot
from ischeduler.core.waits import HOUR_S, QUICK_S, probability_left
from ischeduler.planning.cost import cost_words
from ischeduler.planning.reasons import NOTHING, reason_of
from ischeduler.planning.structure import count_of

_QUEUE_REASONS = ("Priority", "Resources", "None")


@dataclass(frozen=True, slots=True)
class Waiting:
    """One pending job as it stands. ``text`` is the batch system's own reason; ``waited_s`` since it was queued.

    ``wait`` is our estimate for the whole wait, ``system_start_s`` the batch system's own guess, ``start_by_s`` the last moment at which a
    start is in time for the run's deadline (both epoch seconds).
    """

    text: str
    partition: str
    job_id: str = ""
    node_type: str | None = None
    waited_s: float = 0.0
    wait: Estimate | None = None
    system_start_s: float | None = None
    start_by_s: float | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """``reason`` is the bare word; ``passes`` says whether waiting alone will help; lines are for people. ``source`` is who estimated the
    wait, and from what."""

    reason: str
    why: str
    expected: str
    action: str
    passes: bool
    source: str = ""

    def lines(self) -> tuple[str, ...]:
        """Why, when, who says so, what to do; the second and third only where something is known."""
        return tuple(line for line in (self.why, self.expected, self.source, f"Act: {self.action}") if line)


def why_pending(waiting: Waiting, snapshot: QueueSnapshot | None, now: float, better: Plan | None = None) -> Explanation:
    """Explain a pending job. ``better`` is a plan for the same training that would end sooner, where there is one."""
    word, reason = reason_of(waiting.text)
    facts = _facts(waiting, snapshot) if word in _QUEUE_REASONS and snapshot else ""
    why = f"PENDING {human(waiting.waited_s)} · reason {word}: {facts or reason.words}."
    action = reason.action.replace("JOB", waiting.job_id or "JOB")
    if better is not None:
        move = f"{better.where} would be done in {human(better.finish.p50)} for {cost_words(better.cost.p50, better.cost.unit)}"
        action = f"{action}; {move}: isched move RUN {better.where}"
    elif not reason.passes and reason.action == NOTHING:
        action = "cancel it and plan anew"
    expected, source = (_expected(waiting, now), _source(waiting, now)) if reason.passes else ("", "")
    return Explanation(word, why, expected, action, reason.passes, source)


def _facts(waiting: Waiting, snapshot: QueueSnapshot) -> str:
    """``no idle node in gpudbg (4: 3 allocated, 1 drained); 6 jobs rank above you``."""
    parts = [_nodes(waiting.partition, snapshot.counts(waiting.partition, waiting.node_type)), _rank(waiting, snapshot)]
    return "; ".join(p for p in parts if p)


def _nodes(partition: str, counts: tuple[NodeCounts, ...]) -> str:
    if not counts:
        return ""
    states = (
        (sum(n.idle for n in counts), "idle"), (sum(n.mixed for n in counts), "partly used"),
        (sum(n.allocated for n in counts), "allocated"), (sum(n.down for n in counts), "down"),
        (sum(n.drained for n in counts), "drained"),
    )
    idle, total = states[0][0], sum(n.total for n in counts)
    inside = ", ".join(f"{n} {word}" for n, word in states if n)
    return f"{count_of(idle, 'idle node') if idle else 'no idle node'} in {partition} ({total}: {inside})"


def _rank(waiting: Waiting, snapshot: QueueSnapshot) -> str:
    queue = snapshot.pending(waiting.partition)
    own = next((j for j in queue if j.job_id == waiting.job_id), None)
    others = [j for j in queue if j.job_id != waiting.job_id]
    if own is None or own.priority is None:
        return f"{count_of(len(others), 'other job')} wait{'s' if len(others) == 1 else ''} there" if others else ""
    above = sum(_above(j, own) for j in others)
    return f"{count_of(above, 'job')} rank{'s' if above == 1 else ''} above you" if above else "no job ranks above you"


def _above(other: QueuedJob, own: QueuedJob) -> bool:
    if other.priority is None or own.priority is None:
        return False
    if other.priority != own.priority or other.submit_s is None or own.submit_s is None:
        return other.priority > own.priority
    return other.submit_s < own.submit_s


def _expected(waiting: Waiting, now: float) -> str:
    parts: list[str] = []
    if waiting.wait is not None:
        low, high = (max(0.0, q - waiting.waited_s) for q in (waiting.wait.p50, waiting.wait.p90))
        chances = "" if high <= 0 else _chances(waiting, waiting.wait, now)
        ours = "later than we thought: past our nine-in-ten estimate" if high <= 0 else f"in {human(low)}–{human(high)} (ours{chances})"
        parts.append(f"Expected start {ours}")
    if waiting.system_start_s is not None:
        left_s = waiting.system_start_s - now
        says = f"in {human(left_s)}" if left_s > 0 else "any moment"
        parts.append(f"{'the batch system says' if parts else 'The batch system expects its start'} {says}")
    return "; ".join(parts) + "." if parts else ""


def _chances(waiting: Waiting, wait: Estimate, now: float) -> str:
    """``; within 10 min 40 %, within 1 h 80 %, in time for the deadline 95 %``: of a start, counted from now."""
    asked = [("within 10 min", QUICK_S), ("within 1 h", HOUR_S)]
    if waiting.start_by_s is not None:
        asked.append(("in time for the deadline", waiting.start_by_s - now))
    told = [f"{words} {probability_left(wait, left_s, waiting.waited_s) if left_s > 0 else 0.0:.0%}" for words, left_s in asked]
    return f"; {', '.join(told)}"


def _source(waiting: Waiting, now: float) -> str:
    """``Ours is of queue@1, 5m ago: learned from 812 jobs of this partition ...``."""
    wait = waiting.wait
    if wait is None or not wait.reason:
        return ""
    age_s = wait.age_s(now)
    return f"Ours is of {wait.source}{f', {human(age_s)} ago' if age_s else ''}: {wait.reason}."
