"""One run's step, whoever carries it: what it is told, and then decide, store, act, until nothing more follows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ischeduler.core import meters
from ischeduler.core.errors import BatchUnavailable, IschedError
from ischeduler.core.event import Event
from ischeduler.core.jobs import JobRef
from ischeduler.core.run import Run
from ischeduler.plane.actions import Note
from ischeduler.plane.decide import decide_all
from ischeduler.plane.execute import Hands
from ischeduler.plane.inputs import Delegated, Input, JobEvent, Observed, QueryFailed, Tick
from ischeduler.plane.observe import watched
from ischeduler.plane.policy import Policy
from ischeduler.plane.provisioners.standby import Standby
from ischeduler.plane.services import is_service
from ischeduler.ports import BatchSystem, Clock, EventSource, Foresight, Provisioner

ROUNDS_MAX = 12
Answers = Mapping[str, Observed | QueryFailed]
"""What each cluster said."""
Heard = tuple[Sequence[Event], Mapping[str, int]]
"""An event source's answer for one run: new events and the offsets to remember."""


@dataclass(frozen=True, slots=True)
class Told:
    """A run with its new offsets, what it is told, and the events to store with it."""

    run: Run
    inputs: tuple[Input, ...]
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """Where a run stands after a step, how many actions were taken, and what went wrong."""

    run: Run
    acted: int
    faults: tuple[str, ...]


def wanted_jobs(runs: Iterable[Run]) -> dict[str, list[JobRef]]:
    """The jobs worth looking for, by cluster."""
    refs: dict[str, list[JobRef]] = {}
    for run in runs:
        for attempt in watched(run):
            refs.setdefault(attempt.cluster, []).append(JobRef(attempt.key, attempt.job_id))
    return refs


def ask(cluster: str, batch: BatchSystem | None, wanted: Sequence[JobRef], clock: Clock) -> Observed | QueryFailed:
    """One query for all jobs of a cluster."""
    asked_at = clock.now()
    if batch is None:
        return QueryFailed(cluster, f"cluster '{cluster}' is not configured here")
    try:
        with meters.timed("isched_controller_call_seconds", cluster=cluster, call="observe"):
            seen = Observed(cluster, asked_at, batch.observe(wanted))
    except BatchUnavailable as error:
        meters.count("isched_controller_calls_total", cluster=cluster, call="observe", outcome="unavailable")
        return QueryFailed(cluster, str(error))
    meters.count("isched_controller_calls_total", cluster=cluster, call="observe", outcome="ok")
    return seen


def listen(events: EventSource, run: Run) -> Heard | str:
    """What the run's jobs said, or why that could not be read."""
    if not run.attempts:
        return (), run.spool_offsets
    try:
        return events.read(run)
    except (OSError, IschedError) as error:
        return f"{run.id}: events could not be read ({error})"


def tell(run: Run, answers: Answers, heard: Heard) -> Told:
    """Put together what a run is told. Events are read after the query, so that a job seen ended has all its words read."""
    events, offsets = heard
    clusters = dict.fromkeys(a.cluster for a in watched(run))
    inputs: list[Input] = [JobEvent(e) for e in events]
    inputs += [answers[c] for c in clusters if c in answers]
    inputs.append(Tick() if run.attempts else Delegated())
    changed = dict(offsets) != dict(run.spool_offsets)
    return Told(replace(run, spool_offsets=dict(offsets)) if changed else run, tuple(inputs), tuple(events))


class Advance:
    """Takes runs a step on with one owner's hands. ``foresight``, where given, names each run's provisioner."""

    def __init__(
        self, hands: Hands, clock: Clock, *, policy: Policy, provisioner: Provisioner, foresight: Foresight | None = None,
    ) -> None:
        self._hands, self._clock, self._policy = hands, clock, policy
        self._provisioner, self._foresight = provisioner, foresight

    def step(
        self, stored: Run, told: Told, save: Callable[[Run, Sequence[Event]], Run], holds: Callable[[], bool], *,
        later: Callable[[Run, Sequence[Event]], None] | None = None,
    ) -> Step:
        """Decide, ``save``, and act where ``holds`` says that this is still one's right. Raises only what ``save`` raises.

        ``later``, where given, gets a run about which there is nothing to do: it may be stored together with others.
        """
        run, inputs, events = told.run, list(told.inputs), list(told.events)
        acted, faults = 0, list[str]()
        rule = self._rule(run, faults)
        for _ in range(ROUNDS_MAX):
            now = self._clock.now()
            run, actions = decide_all(run, inputs, now, policy=self._policy, provisioner=rule)
            events += [Event(run.id, a.kind, now, source="plane", data=a.data) for a in actions if isinstance(a, Note)]
            todo = [a for a in actions if not isinstance(a, Note)]
            if run != stored or events:
                if later is not None and not todo and not acted:
                    later(run, events)
                    break
                stored = run = save(run, events)
            inputs, events = list[Input](), list[Event]()
            for action in todo:
                acted += 1
                if holds():
                    inputs += self._hands.do(run, action, faults)
                else:
                    faults.append(f"{run.id}: the lease was lost before an action; the next tick asks for it again")
            if not inputs:
                break
        return Step(run, acted, tuple(faults))

    def _rule(self, run: Run, faults: list[str]) -> Provisioner:
        rule = self._foreseen(run, faults)
        return Standby(rule) if is_service(run) else rule

    def _foreseen(self, run: Run, faults: list[str]) -> Provisioner:
        if self._foresight is None:
            return self._provisioner
        rule, problem = self._foresight.provisioner(run, self._clock.now())
        if problem:
            faults.append(f"{run.id}: {problem}")
        return rule
