"""The words of ``scontrol update`` and what its refusals mean."""

from __future__ import annotations

import pytest

from ischeduler.batch.commands import Answer
from ischeduler.batch.slurm_amend import amend_refused, amend_words, favour_refused
from ischeduler.core.errors import BadInput
from ischeduler.core.jobs import JobChange


def test_each_change_is_one_word_of_scontrol():
    change = JobChange("gpu", ("v100", "ib"), ("v100", 2), 1000, 5400.0, ("n1", "n2"))
    assert amend_words("7", change) == [
        "scontrol", "update", "JobId=7", "Partition=gpu", "Features=v100&ib", "Gres=gpu:v100:2", "ExcNodeList=n1,n2",
        "TimeLimit=90", "Nice=1000",
    ]  # fmt: skip
    assert amend_words("7", JobChange(features=(), gres=("", 2)))[3:] == ["Features=", "Gres=gpu:2"]


@pytest.mark.parametrize(
    ("change", "words"),
    [(JobChange(), "nothing is to be changed"), (JobChange(nice=-5), "not a user's to give"), (JobChange(partition="a b\n"), "cannot be"),
     (JobChange(features=("x;rm",)), "cannot be"), (JobChange(gres=("", 0)), "queued anew")],
)  # fmt: skip
def test_what_no_user_may_ask_is_one_sentence(change: JobChange, words: str):
    with pytest.raises(BadInput, match=words):
        amend_words("7", change)


def test_refusals_say_what_helps():
    denied = Answer(1, "", "slurm_update error: Access/permission denied\n")
    assert "use nice" in str(amend_refused("7", JobChange(site_factor=5), denied))
    running = Answer(1, "", "slurm_update error: Job is no longer pending execution\n")
    assert "job 7" in str(amend_refused("7", JobChange(partition="gpu"), running))


@pytest.mark.parametrize(
    ("user", "levels", "kind", "words"),
    [("alice", "None\n", "priority/multifactor", "alice has not"), ("alice", "", "priority/multifactor", "alice has not"),
     ("alice", "Operator\n", "priority/multifactor", ""), ("alice", "Administrator\n", "priority/multifactor", ""),
     ("slurm", "", "priority/multifactor", ""), ("root", "", "priority/multifactor", ""),
     ("root", "Administrator\n", "priority/basic", "priority/basic here, which knows no SiteFactor")],
)  # fmt: skip
def test_who_may_set_a_site_factor(user: str, levels: str, kind: str, words: str):
    config = f"PriorityType            = {kind}\nSlurmUser               = slurm(64030)\n"
    told = favour_refused(config, user, levels)
    assert words in told
    assert bool(told) == bool(words)
