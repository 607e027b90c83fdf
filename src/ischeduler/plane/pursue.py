"""Bringing the next attempt about: written down before it is sent, sent again only when its key is known to be absent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ischeduler.core.jobs import JobState
from ischeduler.core.run import Attempt, Run, RunState
from ischeduler.plane.actions import Action, Control, Note, Prepare, RaiseFence, Submit
from ischeduler.plane.attempts import (
    alive,
    alive_attempts,
    all_understood,
    by_key,
    change,
    progressed,
    returned,
    saved_and_leaving,
    spent,
    token,
)
from ischeduler.plane.causes import REFUSED
from ischeduler.plane.inputs import SubmitFailed, Submitted
from ischeduler.plane.policy import Policy
from ischeduler.plane.provisioners import RETURNS_MAX
from ischeduler.plane.provisioners.rules import segment_of
from ischeduler.plane.reactions import end_as
from ischeduler.plane.reestimate import training_left
from ischeduler.plane.renewal import is_pilot
from ischeduler.plane.reschedule import RESCHEDULE
from ischeduler.plane.segments import job_spec, least_s, next_walltime_s
from ischeduler.plane.services import LEAST_SEGMENT_S, failed_attempts, hung, hung_words, is_service, outlasts

HAND_OVER_MAX = 2
LOOK_ELSEWHERE_TRIES = 2
"""A closed partition and a reached limit sound alike: waiting may help, but another place may be open."""


def key_of(run_id: str, number: int) -> str:
    """The idempotency key of an attempt. The batch adapters put it into the job's name, so that people find it in ``squeue``."""
    return f"{run_id}-{number}"


def absorb_submitted(run: Run, done: Submitted, now: float) -> Run:
    """The batch system accepted a submission. What is known of the job already stays."""
    attempt = by_key(run, done.key)
    if attempt is None or attempt.job_id is not None:
        return run
    state = JobState.PENDING if attempt.ended_seen_at is None else attempt.state
    return change(
        run, attempt.number, job_id=done.job_id, state=state, last_try_at=None, last_seen_at=now,
        submitted_at=attempt.submitted_at or now,
    )


def absorb_submit_failure(run: Run, failed: SubmitFailed, now: float, policy: Policy) -> Run:
    """A submission failed, or nobody knows: then the key stays open until a look at the queue settles it."""
    attempt = by_key(run, failed.key)
    if attempt is None or attempt.job_id is not None or attempt.ended_seen_at is not None:
        return run
    if failed.tries != attempt.submit_tries or attempt.last_try_at is None:
        return run
    if failed.uncertain:
        return replace(run, message=f"not known whether the batch system took the job: looks it up ({failed.message})")
    if failed.kind == "invalid":
        return change(
            run, attempt.number, state=JobState.FAILED, reason=failed.message, last_try_at=None, ended_seen_at=now,
            exit_reason=REFUSED,
        )
    first_s = policy.site_limit_s if failed.kind == "site_limit" else policy.retry_s
    wait_s = policy.backoff_s(first_s, attempt.submit_tries)
    run = change(run, attempt.number, last_try_at=None, reason=failed.message)
    looks = attempt.submit_tries == LOOK_ELSEWHERE_TRIES and not any(a.state is JobState.PENDING for a in alive_attempts(run))
    if failed.kind == "site_limit" and looks and run.caps.allow_move and run.move_to is None:
        run = replace(run, replan_reason=run.replan_reason or f"stuck: {failed.message}")
    return replace(run, not_before=now + wait_s, message=f"waits {wait_s:.0f} s: {failed.message}")


def pursue(
    run: Run, now: float, policy: Policy, succeed_at: float | None, keep_s: float | None = None
) -> tuple[Run, tuple[Action, ...]]:
    """Create the next attempt when there is to be one, and send what is written down and not sent yet.

    ``keep_s``: how long before its predecessor's end a successor may start and stay, None: at any time.
    """
    if run.verdict is not None or run.cancel_requested:
        return run, ()
    notes: tuple[Action, ...] = ()
    if _wanted(run, now, policy, succeed_at):
        run, notes = _create(run, now, policy, keep_s)
    run, actions = _send(run, now)
    run, words = _tell(run, now, keep_s)
    return run, notes + actions + words


def _tell(run: Run, now: float, keep_s: float | None) -> tuple[Run, tuple[Action, ...]]:
    """Tell successors that wait whether they stay if they start now, where that is no longer what they were told last."""
    living, words = alive_attempts(run), list[Action]()
    if keep_s is None or not living or living[0].state is not JobState.RUNNING or living[0].started_at is None:
        return run, ()
    end = living[0].started_at + living[0].resources.walltime_s
    for waiting in living[1:]:
        if waiting.keep_from is None or waiting.job_id is None or waiting.state is not JobState.PENDING or waiting.ending:
            continue
        knows = waiting.told or ("stay" if now >= waiting.keep_from else "return")
        word = "stay" if now >= end - keep_s else "return"
        if word != knows:
            run = change(run, waiting.number, told=word)
            words.append(Control(token(waiting), word))
    return run, tuple(words)


def _wanted(run: Run, now: float, policy: Policy, succeed_at: float | None) -> bool:
    if run.replan_reason not in ("", RESCHEDULE) or run.unanswered or _too_early(run, now):
        return False
    living = alive_attempts(run)
    if not living:
        return all_understood(run)
    newest, last = living[-1], run.attempts[-1]
    if newest.ending or run.query_failures or (not alive(last) and last.cause is None):
        return False
    due = succeed_at is not None and succeed_at <= now
    if newest.state is not JobState.RUNNING:
        return due and _one_more(run, living, policy)
    if len(living) >= HAND_OVER_MAX:
        return False
    if (due or hung(run, newest)) and _outlasts(run, newest):
        return True
    return policy.relay and saved_and_leaving(newest) and progressed(run, newest) and run.move_to is None


def _one_more(run: Run, living: Sequence[Attempt], policy: Policy) -> bool:
    """Whether another job may wait behind those that do, for what they leave of the training. A service waits with one only."""
    running = living[0] if living[0].state is JobState.RUNNING else None
    waiting = living if running is None else living[1:]
    if is_service(run) or len(waiting) >= policy.pending_max or living[0].ending:
        return False
    queued_s = sum(a.resources.walltime_s for a in waiting)
    if not all(a.state is JobState.PENDING and a.job_id is not None for a in waiting):
        return False
    if running is not None:
        return _outlasts(run, running, queued_s)
    left = training_left(run)
    return left is not None and left.p50 > queued_s


def _outlasts(run: Run, newest: Attempt, queued_s: float = 0.0) -> bool:
    """Whether the training probably goes on after the running job's limit and ``queued_s`` more, for which others wait already:
    a successor that finds nothing to do was queued in vain."""
    if newest.spool_started_at is None:
        return False
    if is_service(run):
        return outlasts(run, newest)
    left, seen_at = training_left(run), max(newest.spool_started_at, run.progress.at or 0.0)
    return left is None or seen_at + left.p50 > newest.spool_started_at + newest.resources.walltime_s + queued_s


def _too_early(run: Run, now: float) -> bool:
    return run.not_before is not None and now < run.not_before


def _create(run: Run, now: float, policy: Policy, keep_s: float | None) -> tuple[Run, tuple[Action, ...]]:
    if is_service(run) and run.caps.deadline is not None and run.caps.deadline - now < LEAST_SEGMENT_S:
        return end_as(run, RunState.COMPLETED, "served to the end that was asked for", now), ()
    ceiling_s, problem = _room(run, now)
    if problem:
        return end_as(run, RunState.FAILED, problem, now), ()
    plan, number = run.plan, len(run.attempts) + 1
    rate = plan.cost.p50 / plan.run.p50 if plan.run.p50 > 0 else 0.0
    attempt = Attempt(
        number=number, key=key_of(run.id, number), cluster=plan.cluster, partition=plan.partition, node_type=plan.node_type,
        resources=replace(plan.resources, walltime_s=next_walltime_s(run, ceiling_s)), batch_size=plan.workload.batch,
        grad_accum=plan.workload.grad_accum, created_at=now, start_step=run.progress.checkpoint_step,
        step=run.progress.checkpoint_step, checkpoint_step=run.progress.checkpoint_step, cost_rate=rate,
        keep_from=_keep_from(run, keep_s),
    )
    later = run.replan_after if run.replan_after is not None else now + policy.replan_first_s
    run = replace(run, attempts=(*run.attempts, attempt), not_before=None, replan_after=later)
    where: dict[str, Any] = {"attempt": number, "key": attempt.key, "where": plan.where, "walltime_s": attempt.resources.walltime_s}
    silent = next((a for a in alive_attempts(run)[:-1] if hung(run, a)), None)
    if silent is None:
        return run, (Note("attempt", where),)
    return replace(run, message=hung_words(silent)), (Note("attempt", {**where, "why": hung_words(silent)}),)


def _keep_from(run: Run, keep_s: float | None) -> float | None:
    """When the next attempt may start and stay; None where it always may: nothing runs before it, or enough others gave back already."""
    segment = segment_of(run)
    if keep_s is None or segment is None or is_service(run) or is_pilot(run):
        return None
    before = alive_attempts(run)[-1]
    return None if saved_and_leaving(before) or len(returned(run, before.number)) >= RETURNS_MAX else segment[1] - keep_s


def _room(run: Run, now: float) -> tuple[float, str]:
    """The longest walltime that the caps still allow, or why none is."""
    caps, ceiling_s = run.caps, math.inf
    if (failed_attempts(run) if is_service(run) else len(run.attempts) - len(returned(run))) >= caps.max_attempts:
        return 0.0, f"the cap of {caps.max_attempts} attempts is reached: {run.message}"
    if caps.deadline is not None:
        ceiling_s = caps.deadline - now
        if ceiling_s <= 0:
            return 0.0, "the deadline passed before the training was done"
    rate = run.plan.cost.p50 / run.plan.run.p50 if run.plan.run.p50 > 0 else 0.0
    if caps.max_cost is not None and rate > 0:
        ceiling_s = min(ceiling_s, (caps.max_cost - spent(run)) / rate)
    need_s = least_s(run)
    if ceiling_s < min(need_s, next_walltime_s(run)):
        return 0.0, f"budget or deadline leave {max(0.0, ceiling_s):.0f} s, less than one segment needs ({need_s:.0f} s)"
    return ceiling_s, ""


def _send(run: Run, now: float) -> tuple[Run, tuple[Action, ...]]:
    actions: list[Action] = []
    for attempt in alive_attempts(run):
        sent = attempt.job_id is not None or attempt.last_try_at is not None or attempt.spool_started
        if sent or run.query_failures or _too_early(run, now) or attempt.ending:
            continue
        run = change(run, attempt.number, submit_tries=attempt.submit_tries + 1, last_try_at=now)
        written = run.attempts[attempt.number - 1]
        actions.append(Prepare())
        if attempt.number > 1 and len(alive_attempts(run)) == 1:
            actions.append(RaiseFence(token(attempt)))
        actions.append(Submit(attempt.cluster, attempt.number, attempt.key, written.submit_tries, job_spec(run, written)))
    return run, tuple(actions)
