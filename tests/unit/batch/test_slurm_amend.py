"""The words of ``scontrol update`` and what its refusals mean."""

from __future__ import annotations

import pytest

from ischeduler.batch.commands import Answer
from ischeduler.batch.slurm_amend import amend_refused, amend_words
from ischeduler.core.errors import BadInput
from ischeduler.core.jobs import JobChange


def test_each_change_is_one_word_of_scontrol():
    change = JobChange("gpu", ("v100", "ib"), ("v100", 2), 1000, 5400.0, ("n1", "n2"))
    assert amend_words("7", change) == [
        "scontrol", "update", "JobId=7", "Partition=gpu", "Features=v100&ib", "TresPerNode=gres/gpu:v100:2", "ExcNodeList=n1,n2",
        "TimeLimit=90", "Nice=1000",
    ]  # fmt: skip
    assert amend_words("7", JobChange(features=(), gres=("", 0)))[3:] == ["Features=", "TresPerNode="]


@pytest.mark.parametrize(
    ("change", "words"),
    [(JobChange(), "nothing is to be changed"), (JobChange(nice=-5), "not a user's to give"), (JobChange(partition="a b\n"), "cannot be"),
     (JobChange(features=("x;rm",)), "cannot be")],
)  # fmt: skip
def test_what_no_user_may_ask_is_one_sentence(change: JobChange, words: str):
    with pytest.raises(BadInput, match=words):
        amend_words("7", change)


def test_refusals_say_what_helps():
    denied = Answer(1, "", "slurm_update error: Access/permission denied\n")
    assert "use nice" in str(amend_refused("7", JobChange(site_factor=5), denied))
    running = Answer(1, "", "slurm_update error: Job is no longer pending execution\n")
    assert "job 7" in str(amend_refused("7", JobChange(partition="gpu"), running))
