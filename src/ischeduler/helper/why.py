"""``isched why``: a run's state in words, with what to do. Pure; whoever calls has looked at the queue."""

from __future__ import annotations

import re

from ischeduler.core.durations import human
from ischeduler.core.jobs import Cause, JobState
from ischeduler.core.plan import Plan
from ischeduler.core.run import Attempt, Run, RunState
from ischeduler.core.snapshot import QueueSnapshot
from ischeduler.plane.services import hung, hung_s, hung_words, serving
from ischeduler.planning.pending import Waiting, why_pending

NOTHING = "Act: nothing needed."
ADVICE: dict[Cause, str] = {
    Cause.OUT_OF_MEMORY: "ask for more memory (--mem) or plan for a bigger node",
    Cause.GPU_OUT_OF_MEMORY: "a smaller batch with --grad-accum, a bigger card, or isched submit --allow-smaller-batch",
    Cause.USER_ERROR: "the training itself fails; read its last words: isched logs RUN",
    Cause.WALLTIME: "save more often, or a partition with a longer limit",
    Cause.REFUSED: "see what the batch system said, then isched plan again",
    Cause.STALLED: "it was alive but made no step; look for a deadlock: isched logs RUN",
    Cause.NODE_FAILURE: "isched submit again; the nodes that failed are avoided within one run",
    Cause.LOST: "isched submit again; checkpoints are kept",
}


def explain_run(
    run: Run, now: float, *, snapshot: QueueSnapshot | None = None, better: Plan | None = None, plane_alive: bool = True
) -> str:
    """One to five lines: why, when, who says so, what to do."""
    lines = _lines(run, now, snapshot, better)
    if not plane_alive and not run.state.ended:
        lines.append("No plane is alive to carry it on: isched plane run (or any isched command takes one look).")
    return "\n".join(re.sub(r"\bRUN\b", run.id, line) for line in lines)


def _lines(run: Run, now: float, snapshot: QueueSnapshot | None, better: Plan | None) -> list[str]:
    attempt = run.attempt
    if run.state.ended:
        return _ended(run)
    if run.state is RunState.UNKNOWN or run.query_failures:
        return _unanswered(run, now)
    if attempt is not None and attempt.state is JobState.PENDING:
        return [*_silent_before(run, attempt), *_waiting(run, attempt, now, snapshot, better)]
    if attempt is not None and attempt.state is JobState.RUNNING:
        return _running(run, attempt, now)
    return _between(run, now)


def _waiting(run: Run, attempt: Attempt, now: float, snapshot: QueueSnapshot | None, better: Plan | None) -> list[str]:
    since = attempt.submitted_at if attempt.submitted_at is not None else attempt.created_at
    waiting = Waiting(
        attempt.reason or "None",
        attempt.partition,
        attempt.job_id or "",
        attempt.node_type or None,
        max(0.0, now - since),
        run.plan.segments[0].wait if run.plan.segments else run.plan.wait,
        attempt.expected_start_s,
        None if run.caps.deadline is None else run.caps.deadline - run.plan.run.p50,
    )
    return list(why_pending(waiting, snapshot, now, better).lines())


def _running(run: Run, attempt: Attempt, now: float) -> list[str]:
    p = run.progress
    since = f" {human(max(0.0, now - attempt.started_at))}" if attempt.started_at is not None else ""
    nodes = f" ({', '.join(attempt.nodes)})" if attempt.nodes else ""
    where = f"{attempt.cluster}/{attempt.partition}{nodes}"
    head = f"{run.state.value.upper()}{since} · attempt {attempt.number}, job {attempt.job_id or '-'} on {where}"
    if run.plan.workload.service is not None:
        return [*_serving(run, attempt, now, head), NOTHING]
    lines = [f"{head}: epoch {p.epochs_done} of {p.epochs or run.plan.workload.epochs}."]
    if run.state is RunState.STALLED:
        quiet = f" for {human(max(0.0, now - p.at))}" if p.at is not None else ""
        return [
            *lines,
            f"It is alive but has made no step{quiet}.",
            "Act: look at isched logs RUN; the plane ends and resumes it by itself.",
        ]
    if attempt.started_at is not None:
        left = attempt.started_at + attempt.resources.walltime_s - now
        lines.append(f"Its limit is in {human(max(0.0, left))}; it saves and the next job goes on from there.")
    return [*lines, NOTHING]


def _serving(run: Run, attempt: Attempt, now: float, head: str) -> list[str]:
    up = serving(run)
    silent_s = hung_s(attempt)
    quiet = "not ready yet." if silent_s is None else f"it lives, but has not answered its probe for {human(silent_s)}."
    lines = [f"{head}: " + (f"serves at {up.endpoint}." if up is not None else quiet), *_silent_before(run, attempt)]
    service = run.plan.workload.service
    if silent_s is not None and service is not None and service.replace_after_s > 0:
        lines.append(f"A successor is queued once it has not answered for {human(service.replace_after_s)}, and takes over when it is ready.")
    if attempt.service_restarts:
        lines.append(f"Started again {attempt.service_restarts} time(s) in this job: {run.message}.")
    if attempt.started_at is not None:
        left = attempt.started_at + attempt.resources.walltime_s - now
        lines.append(f"Its limit is in {human(max(0.0, left))}; a successor is queued ahead, and it leaves when that one is ready.")
    return lines


def _silent_before(run: Run, attempt: Attempt) -> list[str]:
    """Of predecessors that hang, which is what the newest job is for."""
    return [f"{hung_words(a).capitalize()}." for a in run.attempts if a.number < attempt.number and hung(run, a)]


def _between(run: Run, now: float) -> list[str]:
    words = run.message or "the next job is being prepared"
    wait = f" The next try is in {human(run.not_before - now)}." if run.not_before is not None and run.not_before > now else ""
    return [f"{run.state.value.replace('_', ' ').upper()}: {words}.{wait}", NOTHING]


def _unanswered(run: Run, now: float) -> list[str]:
    before = f", it was {run.state_before_unknown.value} before" if run.state_before_unknown else ""
    since = human(max(0.0, now - run.state_since))
    words = f"the batch system has not answered {run.query_failures} time(s){before}; that says nothing about the job"
    return [
        f"UNKNOWN {since} · {words}.",
        "Act: nothing needed, the plane asks again; isched doctor looks at the controller.",
    ]


def _ended(run: Run) -> list[str]:
    head = f"{run.state.value.upper()}: {run.message or 'no reason was recorded'}."
    if run.state is not RunState.FAILED:
        return [
            head,
            NOTHING if run.state is RunState.COMPLETED else "Act: isched submit again when wanted; its checkpoints are kept.",
        ]
    causes = [a.cause for a in run.attempts if a.cause is not None and a.cause is not Cause.RETURNED]
    story = "isched logs RUN and isched events RUN tell the story"
    advice = ADVICE.get(causes[-1], story) if causes else story
    last = next((a for a in reversed(run.attempts) if a.oom_text or a.exit_reason), None)
    said = f'The last attempt said: "{(last.oom_text or last.exit_reason)[:200]}".' if last else ""
    return [line for line in (head, said, f"Act: {advice}.") if line]
