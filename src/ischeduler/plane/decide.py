"""``decide(run, input, now) -> (run, actions)``: the plane's whole judgement. Pure, total and idempotent.

Two steps: what an input says is taken in (:func:`absorb`), then what follows is worked out from the run alone
(:func:`reconcile`). So a crash may swallow any action: the next reconcile asks for it again, and an attempt whose answer is
missing is looked up by its key before it is sent again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ischeduler.core.jobs import Cause, JobState
from ischeduler.core.run import Attempt, Run, RunState
from ischeduler.plane.actions import Action, Note, Notify, RaiseFence, ReadLog, RecordHistory, Replan
from ischeduler.plane.attempts import alive_attempts, all_understood, by_key, by_number, change, returned, used_s
from ischeduler.plane.causes import classify, oom_in, settled, wants_log
from ischeduler.plane.evidence import records
from ischeduler.plane.inputs import (
    Amended,
    AvoidAsked,
    CancelAsked,
    Delegated,
    Input,
    JobEvent,
    LogRead,
    MoveAsked,
    Observed,
    QueryFailed,
    Recorded,
    Replanned,
    SubmitFailed,
    Submitted,
    Tick,
)
from ischeduler.plane.observe import absorb_observation, absorb_query_failure
from ischeduler.plane.policy import DEFAULT, Policy
from ischeduler.plane.provisioners import REACTIVE, Informed
from ischeduler.plane.pursue import absorb_submit_failure, absorb_submitted, pursue
from ischeduler.plane.reactions import end_as, react, unanswered
from ischeduler.plane.reschedule import absorb_amended, adopt, answer
from ischeduler.plane.services import with_end
from ischeduler.plane.spool import absorb_event
from ischeduler.plane.supervise import supervise
from ischeduler.plane.transitions import move
from ischeduler.ports import Provisioner

Decision = tuple[Run, tuple[Action, ...]]
_SHOWN_UNKNOWN = frozenset({
    RunState.SUBMITTING, RunState.QUEUED, RunState.RUNNING, RunState.CHECKPOINTING, RunState.HANDING_OVER, RunState.STALLED,
    RunState.UNKNOWN,
})


def decide(
    run: Run, given: Input, now: float, *, policy: Policy = DEFAULT, provisioner: Provisioner = REACTIVE
) -> Decision:
    """The run after one input, and what is to be done. An ended run stays as it is, whatever comes."""
    return decide_all(run, (given,), now, policy=policy, provisioner=provisioner)


def decide_all(
    run: Run, given: Iterable[Input], now: float, *, policy: Policy = DEFAULT, provisioner: Provisioner = REACTIVE
) -> Decision:
    """The run after several inputs of one instant: all are taken in before anything is concluded."""
    actions: list[Action] = []
    for one in given:
        run, more = absorb(run, one, now, policy)
        actions += more
    run, more = reconcile(run, now, policy, provisioner)
    return run, (*actions, *more)


def absorb(run: Run, given: Input, now: float, policy: Policy = DEFAULT) -> Decision:
    """Only take an input in. This alone is safe without the lease: it asks for nothing but the end of doubled jobs."""
    if run.state.ended:
        return run, ()
    match given:
        case Observed():
            return absorb_observation(run, given, now, policy)
        case QueryFailed():
            return absorb_query_failure(run, given, policy), ()
        case JobEvent():
            return absorb_event(run, given.event), ()
        case Submitted():
            return absorb_submitted(run, given, now), ()
        case SubmitFailed():
            return absorb_submit_failure(run, given, now, policy), ()
        case CancelAsked():
            return (run if run.verdict is not None else replace(run, cancel_requested=True)), ()
        case MoveAsked():
            refused = run.verdict is not None or run.cancel_requested or given.plan == run.plan
            return (run if refused else replace(run, move_to=given.plan)), ()
        case Amended():
            return absorb_amended(run, given, now, policy), ()
        case AvoidAsked():
            kept = [n for n in run.excluded_nodes if n not in given.nodes] + list(given.nodes)
            return replace(run, excluded_nodes=tuple(kept[-policy.excluded_nodes_max :])), ()
        case Replanned():
            return answer(run, given, now, policy), ()
        case LogRead():
            return _log_read(run, given), ()
        case Recorded():
            return (replace(run, recorded=True) if run.verdict is not None else run), ()
        case Delegated() | Tick():
            return run, ()


def _log_read(run: Run, log: LogRead) -> Run:
    attempt = by_key(run, log.key)
    if attempt is None or attempt.log_read:
        return run
    where, text = oom_in(log.text)
    run = change(run, attempt.number, log_read=True)
    return change(run, attempt.number, oom_where=where, oom_text=text) if where and not attempt.oom_where else run


def reconcile(run: Run, now: float, policy: Policy = DEFAULT, provisioner: Provisioner = REACTIVE) -> Decision:
    """What follows from the run as it is known. Doing it twice changes nothing more."""
    if run.state.ended:
        return run, ()
    before, actions = run, list[Action]()
    run = with_end(run, now)
    run, more = _understand(run, now, policy)
    actions += more
    run = unanswered(run, now, policy)
    run, more = supervise(run, now, policy)
    actions += more
    run, more = _understand(run, now, policy)
    actions += more
    run = _show(run, now, policy)
    run = _between(run, now, policy)
    keep_s = provisioner.keep_s if isinstance(provisioner, Informed) else None
    run, more = pursue(run, now, policy, _succeed_at(run, now, provisioner), keep_s)
    run = _show(run, now, policy)
    run, closing = _close(run, now)
    actions += [*more, *closing]
    if run.replan_reason:
        actions.append(Replan(run.replan_reason))
    return run, (*_notes(before, run), *actions)


def _succeed_at(run: Run, now: float, provisioner: Provisioner) -> float | None:
    """When the successor is to be queued. What came back too early was queued on a forecast that was wrong: a newer one is waited for."""
    living = alive_attempts(run)
    if not living:
        return None
    if isinstance(provisioner, Informed) and provisioner.forecast is not None:
        back = [a.ended_seen_at for a in returned(run, living[0].number) if a.ended_seen_at is not None]
        if back and provisioner.forecast.as_of <= max(back):
            return None
    return provisioner.submit_at(run, now)


def _understand(run: Run, now: float, policy: Policy) -> Decision:
    """Find the cause of every attempt that ended, book its cost, and react."""
    actions: list[Action] = []
    for number in [a.number for a in run.attempts if a.ended_seen_at is not None and a.cause is None]:
        attempt = by_number(run, number)
        assert attempt is not None
        if wants_log(attempt):
            actions.append(ReadLog(attempt.key, attempt.number))
        if not settled(attempt, now, policy):
            continue
        run = _with_cause(run, attempt)
        attempt = by_number(run, number)
        assert attempt is not None
        run = react(run, attempt, now, policy)
        actions.append(Note("attempt_ended", {"attempt": number, "cause": str(attempt.cause), "why": attempt.reason}))
    return run, tuple(actions)


def _with_cause(run: Run, attempt: Attempt) -> Run:
    why = classify(run, attempt)
    run = change(run, attempt.number, cause=why.cause, reason=why.text, checkpointing=False)
    return replace(run, spent=run.spent + used_s(attempt) * attempt.cost_rate)


def _between(run: Run, now: float, policy: Policy) -> Run:
    """Nothing is alive: take the cancel or the move that was asked for."""
    if alive_attempts(run) or not all_understood(run) or run.verdict is not None:
        return run
    if run.cancel_requested:
        return end_as(run, RunState.CANCELLED, "cancelled as you asked", now)
    return adopt(run, run.move_to, now, policy) if run.move_to is not None else run


def _show(run: Run, now: float, policy: Policy) -> Run:
    """Set the state that the attempts amount to."""
    return move(run, _state(run, policy), now)


def _state(run: Run, policy: Policy) -> RunState:
    living = alive_attempts(run)
    if not living:
        untouched = not run.attempts and run.verdict is None and run.state is RunState.PLANNED
        return RunState.PLANNED if untouched else RunState.BETWEEN_SEGMENTS
    if run.query_failures >= policy.unknown_after and run.state in _SHOWN_UNKNOWN:
        return RunState.UNKNOWN
    newest = living[-1]
    if any(a.ending == "stalled" for a in living):
        return RunState.STALLED
    if newest.ending == "moved" or (len(living) > 1 and any(a.state is not JobState.PENDING for a in living)):
        return RunState.HANDING_OVER
    if newest.job_id is None:
        return RunState.SUBMITTING
    if newest.state is not JobState.RUNNING:
        return RunState.QUEUED
    return RunState.CHECKPOINTING if newest.checkpointing else RunState.RUNNING


def _close(run: Run, now: float) -> Decision:
    """The last step of a run: its evidence first, then the final state."""
    if run.verdict is None or alive_attempts(run) or not all_understood(run):
        return run, ()
    run = move(run, RunState.BETWEEN_SEGMENTS, now)
    if not run.recorded:
        return run, (*_fence_off(run), RecordHistory(records(run)))
    run = move(run, run.verdict or RunState.FAILED, now)
    return run, (Notify(f"{run.id} {run.state}", run.message),)


def _fence_off(run: Run) -> tuple[Action, ...]:
    """A job that was taken for lost may still run: whatever it is, it shall stop."""
    lost = any(a.cause is Cause.LOST for a in run.attempts)
    return (RaiseFence(f"{len(run.attempts) + 1}.0"),) if lost else ()


def _notes(before: Run, after: Run) -> tuple[Action, ...]:
    if before.state is after.state:
        return ()
    return (Note("state", {"from": str(before.state), "to": str(after.state), "why": after.message}),)
