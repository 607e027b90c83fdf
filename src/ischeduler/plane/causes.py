"""Why an attempt ended: read from the batch system, the job's own last words, its log and the plane's intentions together.

No single source suffices: Slurm calls a segment that checkpointed at its limit FAILED (85:0), a job killed for its memory
FAILED (0:9) where no cgroups are set up, and a CUDA out-of-memory error is an ordinary exit code 1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ischeduler.core.jobs import Cause, JobState
from ischeduler.core.pilots import ROUND_OVER
from ischeduler.core.run import Attempt, Run
from ischeduler.plane.attempts import speaks
from ischeduler.plane.policy import Policy
from ischeduler.plane.services import is_service

MORE_TO_DO, SUPERSEDED, DOUBLED, RETURNED = 85, 86, 87, 88
REFUSED, NEVER_SENT = "refused", "never sent"
"""Exit reasons of attempts that never became a job."""
_HOST_OOM = re.compile(
    r"exceeded (?:job )?memory limit|oom[-_ ]?kill|out of memory|cannot allocate memory|MemoryError", re.IGNORECASE
)
_CUDA_OOM = re.compile(r"CUDA out of memory|OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED|HIP out of memory", re.IGNORECASE)
_NEAR_LIMIT = 0.9
_KILLED = frozenset({9, 128 + 9, -9})
_NODE_STATES = frozenset({"BOOT_FAIL", "NODE_FAIL"})
_ENDINGS: dict[str, Cause] = {
    "user": Cause.CANCELLED, "deadline": Cause.CANCELLED, "budget": Cause.CANCELLED, "closing": Cause.SUPERSEDED,
    "superseded": Cause.SUPERSEDED, "handed_over": Cause.SUPERSEDED, "moved": Cause.MOVED, "stuck": Cause.MOVED, "stalled": Cause.STALLED,
    "hung": Cause.STALLED,
}


@dataclass(frozen=True, slots=True)
class Why:
    """A cause and the evidence for it in words."""

    cause: Cause
    text: str


def settled(attempt: Attempt, now: float, policy: Policy) -> bool:
    """Whether all evidence that can still come has had its time: an ended job's last lines may arrive seconds later."""
    ended_at = attempt.ended_seen_at
    if ended_at is None:
        return False
    if wants_log(attempt) and now - ended_at < policy.evidence_s:
        return False
    if attempt.exit_reason or attempt.state not in (JobState.FAILED, JobState.COMPLETED):
        return True
    if attempt.exit_code in (MORE_TO_DO, SUPERSEDED, DOUBLED) or _gave_back(attempt) or attempt.finished:
        return True
    return now - ended_at >= policy.evidence_s


def wants_log(attempt: Attempt) -> bool:
    """Whether the end of the output may hold what nothing else tells: killed or failed, and no word of the wrapper."""
    over = attempt.ended_seen_at is not None and attempt.state is JobState.FAILED
    return over and not attempt.log_read and attempt.exit_reason in ("", "error", "signal") and not attempt.oom_where


def oom_in(text: str) -> tuple[str, str]:
    """('cuda' or 'host', the line that says so), or ('', '')."""
    for where, pattern in (("cuda", _CUDA_OOM), ("host", _HOST_OOM)):
        line = next((line for line in reversed(text.splitlines()) if pattern.search(line)), "")
        if line:
            return where, line.strip()[:500]
    return "", ""


def classify(run: Run, attempt: Attempt) -> Why:
    """The cause of an ended attempt. The training's success counts before everything else, the plane's own intention next."""
    if _done(run, attempt):
        return Why(Cause.FINISHED, "the training is done")
    if attempt.exit_reason == REFUSED:
        return Why(Cause.REFUSED, attempt.reason)
    if attempt.ending in _ENDINGS:
        return Why(_ENDINGS[attempt.ending], f"ended by the plane ({attempt.ending})")
    if attempt.exit_code in (SUPERSEDED, DOUBLED) or attempt.exit_reason == "superseded":
        return Why(Cause.SUPERSEDED, "it met a newer attempt, or another job of the same attempt")
    if _gave_back(attempt):
        return Why(Cause.RETURNED, "it started before it was needed and gave its allocation back")
    if attempt.reason == ROUND_OVER:
        return Why(Cause.MOVED, ROUND_OVER)
    return _from_state(attempt) or _from_memory(attempt) or _from_limit(attempt) or _from_code(run, attempt)


def _gave_back(attempt: Attempt) -> bool:
    """Its wrapper leaves before it says a word; a training that was asked for no such thing may use that exit code for its own ends."""
    return attempt.exit_code == RETURNED and attempt.keep_from is not None and not attempt.spool_started


def _done(run: Run, attempt: Attempt) -> bool:
    """Exit 0 of a training that reports progress counts only with all its epochs, or with its own word that it is done."""
    if not _clean(attempt) or is_service(run):
        return False  # a service never finishes by itself
    if attempt.exit_reason == "" and attempt.exit_code == 0:
        return True  # no last word of the wrapper (a full disk, say): its exit code is the channel that remains, 85 were more to do
    p = run.progress
    return attempt.finished or not speaks(run) or (p.epochs > 0 and p.epochs_done >= p.epochs)


def _clean(attempt: Attempt) -> bool:
    """Exit 0 by the wrapper's own word, or by a batch system that calls the job completed (0:9 and 0:0 of a timeout are not)."""
    if attempt.exit_reason in ("", "unknown"):
        return attempt.exit_code == 0 and attempt.state is JobState.COMPLETED
    return attempt.exit_reason == "completed"


def _from_state(attempt: Attempt) -> Why | None:
    where = f" on {', '.join(attempt.nodes)}" if attempt.nodes else ""
    if attempt.state is JobState.NODE_FAIL or attempt.raw_state in _NODE_STATES:
        return Why(Cause.NODE_FAILURE, f"a node failed{where}")
    if attempt.state is JobState.PREEMPTED:
        return Why(Cause.PREEMPTED, f"preempted{where}")
    at_limit = attempt.exit_reason == "checkpointed" and attempt.signalled != "TERM"
    if attempt.state is JobState.CANCELLED and not at_limit:
        return Why(Cause.CANCELLED, "cancelled outside iScheduler")
    if attempt.state is JobState.OUT_OF_MEMORY and attempt.oom_where != "cuda":
        return Why(Cause.OUT_OF_MEMORY, "the batch system ended it for its memory")
    return None


def _from_memory(attempt: Attempt) -> Why | None:
    if _clean(attempt) or attempt.exit_reason == "checkpointed" or attempt.exit_code == MORE_TO_DO:
        return None
    if attempt.oom_where == "cuda":
        return Why(Cause.GPU_OUT_OF_MEMORY, attempt.oom_text or "the accelerator's memory was full")
    if attempt.oom_where or _HOST_OOM.search(attempt.reason) or attempt.exit_reason == "oom":
        return Why(Cause.OUT_OF_MEMORY, attempt.oom_text or attempt.reason or "the host's memory was full")
    return None


def _from_limit(attempt: Attempt) -> Why | None:
    if attempt.exit_reason == "left":
        return Why(Cause.WALLTIME, "the service left before the limit")
    if attempt.exit_reason == "checkpointed" or attempt.exit_code == MORE_TO_DO:
        return Why(Cause.WALLTIME, "checkpointed before the limit; there is more to do")
    if attempt.state is JobState.TIMEOUT:
        return Why(Cause.WALLTIME, "the walltime ran out")
    killed = (attempt.exit_code is not None and attempt.exit_code > 128) or attempt.exit_reason == "signal"
    if attempt.signalled == "USR2" and killed:
        return Why(Cause.WALLTIME, "it was warned of its limit and did not end in time")
    return None


def _from_code(run: Run, attempt: Attempt) -> Why:
    if attempt.state is JobState.UNKNOWN and not attempt.exit_reason:
        return Why(Cause.LOST, "neither the batch system nor the job itself says what became of it")
    if _killed_near_limit(run, attempt):
        return Why(Cause.OUT_OF_MEMORY, "killed while it used nearly all the memory it had asked for")
    if _clean(attempt):
        done, total = run.progress.epochs_done, run.progress.epochs
        return Why(Cause.UNKNOWN, f"ended with exit code 0 after {done} of {total} epochs")
    if attempt.exit_code and not (attempt.exit_code in _KILLED or attempt.exit_reason == "signal"):
        what = "service" if is_service(run) else "training"
        return Why(Cause.USER_ERROR, f"the {what} ended with exit code {attempt.exit_code}")
    if attempt.signal or attempt.exit_code is not None:
        killer = attempt.signal or abs(attempt.exit_code or 0) % 128
        return Why(Cause.UNKNOWN, f"killed by signal {killer}" if killer else "it failed without saying why")
    return Why(Cause.UNKNOWN, attempt.reason or "it failed without saying why")


def _killed_near_limit(run: Run, attempt: Attempt) -> bool:
    limit = attempt.resources.memory_bytes
    killed = attempt.signal == 9 or attempt.exit_code in _KILLED
    return killed and limit is not None and run.progress.peak_rss_bytes >= _NEAR_LIMIT * limit
