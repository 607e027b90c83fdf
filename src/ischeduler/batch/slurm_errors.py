"""What Slurm's error texts mean. Pure. Texts: slurm_errno.c and sbatch's own, Slurm 20.11 to 25.05."""

from __future__ import annotations

import re

from ischeduler.batch.commands import Answer
from ischeduler.core.errors import BatchUnavailable, IschedError, SubmitRefused, SubmitUncertain

_NOT_REACHED = re.compile(
    r"unable to contact slurm controller|connect failure|connection refused|could not establish a configuration source"
    r"|munge encode failed|failed to access \"?/|temporarily unable to accept job|slurm_?ctld is in standby|backup controller"
    r"|no route to host|name or service not known|host lookup failure|unable to connect to database|controller is not ready",
    re.IGNORECASE,
)
_UNCERTAIN = re.compile(
    r"timed out|zero bytes were|receive fail|recv|connection (?:reset|closed|aborted)|communication (?:connection|shutdown|failure)"
    r"|transport endpoint|unexpected message|broken pipe|header lengths? are longer|insane message|protocol version has changed",
    re.IGNORECASE,
)
_WAITING_HELPS = re.compile(
    r"MaxSubmit|MaxJobs|GrpSubmit|GrpJobs|(?:PerUser|PerAccount|PerAcct)\w*Limit|\bGrp\w+Limit|QOSGrp\w+|AssocGrp\w+"
    r"|job submit limit|submit limit|partition not available|partition configuration not available|node not available"
    r"|maximum number of jobs|too many jobs",
    re.IGNORECASE,
)
_NEVER = re.compile(r"PerJob|MaxWall|MinCpus|MinTRES|MinGRES", re.IGNORECASE)
_GONE = re.compile(r"invalid job id specified|already completing or completed|already finished|no longer running|not running", re.IGNORECASE)


def submit_error(answer: Answer) -> IschedError:
    """The error of an sbatch that did not print an id.

    Only what certainly never reached the controller is BatchUnavailable; broken conversations are SubmitUncertain.
    """
    text = answer.err + "\n" + answer.out
    if answer.code < 0 or _UNCERTAIN.search(text):
        return SubmitUncertain(f"sbatch was cut short ({answer.complaint}); the job may have been accepted: look its key up.")
    if _NOT_REACHED.search(text):
        return unavailable("sbatch", answer)
    if answer.code == 0:
        return SubmitUncertain("sbatch succeeded without printing a job id; look the job's key up.")
    return SubmitRefused(f"Slurm refused the job: {refusal(answer)}", kind=refusal_kind(text))


def refusal_kind(text: str) -> str:
    """``site_limit`` when the same job may be taken later, ``invalid`` when it never will be."""
    if _NEVER.search(text):
        return "invalid"
    return "site_limit" if _WAITING_HELPS.search(text) else "invalid"


def refusal(answer: Answer) -> str:
    """All that sbatch complained of, in one line, without its own name."""
    lines = [re.sub(r"^(?:sbatch: )?(?:error: |fatal: )?(?:Batch job submission failed: |allocation failure: )?", "", raw.strip())
             for raw in answer.err.splitlines()]  # fmt: skip
    return "; ".join(dict.fromkeys(line for line in lines if line)) or answer.complaint


def unavailable(program: str, answer: Answer) -> BatchUnavailable:
    """The batch system did not answer; the sentence says what was asked and what was heard."""
    return BatchUnavailable(f"{program} got no answer from Slurm: {answer.complaint}")


def not_reached(answer: Answer) -> bool:
    """True when the conversation itself failed, so that the answer says nothing about the job."""
    text = answer.err + "\n" + answer.out
    return answer.code < 0 or bool(_NOT_REACHED.search(text) or _UNCERTAIN.search(text))


def job_gone(answer: Answer) -> bool:
    """True when scancel complains only that there is nothing left to signal."""
    return bool(_GONE.search(answer.err))


def accounting_is_off(answer: Answer) -> bool:
    """True when the site keeps no accounting at all, which asking again will not change."""
    return bool(re.search(r"accounting storage is disabled|accounting_storage/none", answer.err, re.IGNORECASE))
