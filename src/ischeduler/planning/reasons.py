"""Slurm's words for why a job is pending, in plain words with what to do.

Source: squeue(1), "JOB REASON CODES", and the reasons' own definitions in Slurm 22.05 to 25.05.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reason:
    """``words`` say what holds the job; ``action`` what its owner can do; ``passes`` whether waiting alone will help."""

    words: str
    action: str
    passes: bool = True


NOTHING = "nothing needed"
REASONS: dict[str, Reason] = {
    "Priority": Reason("jobs of higher priority wait in front of it", NOTHING),
    "Resources": Reason("it is next, and waits until enough nodes are free", NOTHING),
    "None": Reason("the scheduler has not looked at it yet", NOTHING),
    "BeginTime": Reason("its earliest start lies ahead (a requeued job waits about two minutes)", NOTHING),
    "Dependency": Reason("it waits for another job to end", NOTHING),
    "DependencyNeverSatisfied": Reason("the job it waits for ended without releasing it", "cancel and submit again", False),
    "JobArrayTaskLimit": Reason("the array's own limit of tasks at once is reached", NOTHING),
    "Cleaning": Reason("its last attempt is still being cleaned up", NOTHING),
    "Prolog": Reason("the node is being prepared for it", NOTHING),
    "Licenses": Reason("a licence it asks for is in use", NOTHING),
    "JobHeldUser": Reason("its owner holds it", "release it: scontrol release JOB", False),
    "JobHeldAdmin": Reason("an administrator holds it", "ask the centre's support why", False),
    "InvalidAccount": Reason("its account is not valid here", "name another account: --account", False),
    "InvalidQOS": Reason("its QOS is not valid here", "name another QOS: --qos", False),
    "AccountNotAllowed": Reason("the partition does not take its account", "use another account or partition", False),
    "QOSNotAllowed": Reason("the partition or account does not take its QOS", "use another QOS or partition", False),
    "BadConstraints": Reason("no node has what it asks for", "ask for less, or for another partition", False),
    "PartitionTimeLimit": Reason("it asks for more time than the partition allows", "ask for a shorter walltime", False),
    "PartitionNodeLimit": Reason("it asks for more or fewer nodes than the partition allows", "change --nodes or move it", False),
    "PartitionConfig": Reason("it asks for something the partition does not allow", "ask for less, or move it", False),
    "PartitionDown": Reason("the partition starts no jobs at present", "wait, or move it to another partition"),
    "PartitionInactive": Reason("the partition takes no jobs at present", "move it to another partition", False),
    "NodeDown": Reason("a node it needs is down", "wait, or move it to another partition"),
    "ReqNodeNotAvail": Reason(
        "nodes it needs are down, drained or reserved (often: a maintenance starts before its walltime would end)",
        "ask for a shorter walltime that ends before the maintenance, or wait",
    ),
    "Reservation": Reason("its reservation has not begun", NOTHING),
    "ReservationDeleted": Reason("its reservation is gone", "submit again without the reservation", False),
    "SystemFailure": Reason("the batch system or a node failed while starting it", "ask the centre's support if it stays"),
    "NonZeroExitCode": Reason("the node's prolog failed", "ask the centre's support if it stays", False),
    "FrontEndDown": Reason("a front end is down", "wait for the centre"),
    "BurstBufferResources": Reason("burst buffer space is in use", NOTHING),
    "JobHoldMaxRequeue": Reason("it was requeued too often and is held", "look at its log, then: scontrol release JOB", False),
    "MaxMemPerLimit": Reason("it asks for more memory than a job may", "ask for less memory or another partition", False),
    "OutOfMemory": Reason("the scheduler had no memory to start it", "ask the centre's support"),
}
_LIMITS: tuple[tuple[str, Reason], ...] = (
    (r"MaxSubmit\w*", Reason("{who} limit of queued jobs is reached", "wait for one of them to end, or cancel one")),
    (
        r"Grp\w*RunM(in|ins|inutes)\w*",
        Reason("{who} running jobs hold as much machine time as they may", "wait for one to end, or ask for a shorter walltime"),
    ),
    (
        r"Grp\w*(Mins|Minutes)(Limit)?|GrpWall\w*|UsageThreshold",
        Reason("{who} budget of machine time is used up", "ask for more allocation, or use another account", False),
    ),
    (
        r"Max\w*(Mins|Minutes)\w*",
        Reason("it asks for more machine time than {who} limit for one job", "ask for a shorter walltime or for less", False),
    ),
    (
        r"Max\w*Wall\w*|TimeLimit",
        Reason("it asks for more walltime than {who} limit", "ask for a shorter walltime or use another QOS", False),
    ),
    (r"MaxJobs?\w*|GrpJobs?\w*|JobLimit", Reason("{who} limit of running jobs is reached", NOTHING)),
    (
        r"Max\w+Per(User|Account)\w*|Grp\w*|ResourceLimit",
        Reason("{who} limit of cores, GPUs, nodes or memory in use is reached", "wait for other jobs to end, or ask for less"),
    ),
    (r"M(ax|in)\w+", Reason("what it asks for is outside {who} limit for one job", "change what it asks for", False)),
)
_WHOSE = (("QOS", "the QOS's"), ("Association", "your account's"), ("Assoc", "your account's"))


def reason_of(text: str) -> tuple[str, Reason]:
    """The bare reason word of Slurm's text and what it means; an unknown word is passed on as it is, never dressed up."""
    word = re.split(r"[,\s:(]", text.strip().lstrip("("), maxsplit=1)[0].rstrip(")") or "None"
    if word in REASONS:
        return word, REASONS[word]
    for prefix, who in _WHOSE:
        for pattern, reason in _LIMITS if word.startswith(prefix) else ():
            if re.fullmatch(pattern, word.removeprefix(prefix)):
                return word, Reason(reason.words.format(who=who), reason.action, reason.passes)
    if "held" in text:
        return word, Reason(f"it is held ({text.strip('()')})", "look at its log, then: scontrol release JOB", False)
    return word, Reason(f"the batch system says {text.strip('()') or 'nothing'}", "if it stays, ask the centre what this means")
