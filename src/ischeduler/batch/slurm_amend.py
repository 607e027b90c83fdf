"""Changing a waiting job: the words of ``scontrol update``, and what Slurm's refusals mean. Pure."""

from __future__ import annotations

import math
import re

from ischeduler.batch.commands import Answer
from ischeduler.batch.header import gres_request
from ischeduler.core.errors import AmendRefused, BadInput
from ischeduler.core.jobs import JobChange, Resources

NICE_MOST = 2147483645
_OPERATORS = ("Operator", "Administrator")
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.,:/@%+&[]")


def amend_words(job_id: str, change: JobChange) -> list[str]:
    """``scontrol update JobId=7 Partition=gpu Nice=1000``. BadInput for a change that is none, or that no user may ask for."""
    if change.nice is not None and not 0 <= change.nice <= NICE_MOST:
        raise BadInput(f"a nice value of {change.nice} is not a user's to give; it is from 0 (first) to {NICE_MOST}.")
    words: dict[str, str] = {}
    if change.partition is not None:
        words["Partition"] = change.partition
    if change.features is not None:
        words["Features"] = "&".join(change.features)
    if change.gres is not None:
        kind, count = change.gres
        request = gres_request(Resources(gpus_per_node=count, gres=kind or None))
        if not request:
            raise BadInput("accelerators cannot be taken from a job that waits: Slurm goes on asking for them; let it be queued anew.")
        # scontrol spells Gres as its own Slurm reads it. TresPerNode takes any text: 22.05 shows gres/gpu:1 then, and allocates what it had.
        words["Gres"] = request
    if change.exclude_nodes is not None:
        words["ExcNodeList"] = ",".join(change.exclude_nodes)
    if change.walltime_s is not None:
        words["TimeLimit"] = str(max(1, math.floor(change.walltime_s / 60)))
    if change.nice is not None:
        words["Nice"] = str(change.nice)
    if change.site_factor is not None:
        words["SiteFactor"] = str(change.site_factor)
    if not words:
        raise BadInput("nothing is to be changed; name a partition, features, GRES, nice value or time.")
    for name, value in words.items():
        if not set(value) <= _PLAIN:
            raise BadInput(f"{name} of a job cannot be {value!r}; give plain words of Slurm.")
    return ["scontrol", "update", f"JobId={job_id}", *(f"{name}={value}" for name, value in words.items())]


def amend_refused(job_id: str, change: JobChange, answer: Answer) -> AmendRefused:
    """The refusal as one sentence, with what helps where that is known."""
    said = answer.complaint.removeprefix("slurm_update error: ")
    text = (answer.err + answer.out).lower()
    help_ = ""
    if "denied" in text and change.site_factor is not None:
        help_ = "; SiteFactor needs an operator's rights: use nice"
    elif "not pending" in text or "running" in text:
        help_ = "; it runs already: move it at a checkpoint"
    return AmendRefused(f"Slurm did not change job {job_id}: {said}{help_}.")


def favour_refused(config: str, user: str, levels: str) -> str:
    """Why ``user`` may not set SiteFactor, '' where they may: by ``scontrol show config`` and by ``sacctmgr -nP show user NAME format=AdminLevel``.

    Slurm's own rule (slurm_update_job): an operator, an administrator, SlurmUser or root. priority/basic takes the factor and ignores it.
    """
    told = dict(re.findall(r"^(\w+)\s*= (.*)$", config, re.MULTILINE))
    kind = told.get("PriorityType", "").strip()
    if kind != "priority/multifactor":
        return f"Slurm ranks jobs by {kind or 'a rule that is not told'} here, which knows no SiteFactor; leave --site-factor out."
    if user == "root" or user == told.get("SlurmUser", "").partition("(")[0] or any(level.strip() in _OPERATORS for level in levels.splitlines()):
        return ""
    return f"SiteFactor needs the rights of a Slurm operator, which {user} has not; leave --site-factor out, or ask an administrator for them."
