"""What the guard says about a job is a pure function of the job, the cluster and its owner's past."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ischeduler.core.cluster import Accelerator, Access, Cluster, NodeType, Partition
from ischeduler.core.errors import BadInput
from ischeduler.core.history import HistoryRecord
from ischeduler.service.guard import answer
from ischeduler.service.guard.job import AskedJob, read_job
from ischeduler.service.guard.judge import judge

V100 = Accelerator("v100-32g", 32 << 30, gres="v100")
CLUSTER = Cluster(
    "pitzer",
    partitions=(
        Partition("cpu", ("thin",), max_walltime_s=4 * 86400.0),
        Partition("gpu", ("fat",), max_walltime_s=86400.0),
        Partition("gpudebug", ("fat",), max_walltime_s=3600.0),
        Partition("secret", ("fat",), access=Access(False, "not in the list of users", 0.0)),
    ),
    node_types=(NodeType("thin", cores=40), NodeType("fat", cores=48, accelerator=V100, accelerators_per_node=2)),
)


def past(count: int = 6, **changes: object) -> list[HistoryRecord]:
    """Jobs of an hour each that had asked for a day."""
    base = HistoryRecord(
        "r-1", "attempt", "alice", "resnet", "pitzer", "gpu", "fat", 0.0, gpus=1, walltime_s=86400.0, run_s=3600.0, cause="completed"
    )
    return [replace(base, run_id=f"r-{i}", **changes) for i in range(count)]


JOB = AskedJob("pitzer", "gpu", 86400.0, gpus=1, name="resnet-17")


def kinds(job: AskedJob, history: list[HistoryRecord] | None = None, cluster: Cluster | None = CLUSTER) -> list[str]:
    return [a.kind for a in judge(job, cluster, history or [])]


def test_a_walltime_far_beyond_what_such_jobs_took_is_told_with_the_figures() -> None:
    (advice,) = judge(JOB, CLUSTER, past())
    assert advice.kind == "walltime"
    assert advice.changes == {"time": "02:00:00"}
    assert "longest of your 6 similar jobs took 1h00" in advice.text


@pytest.mark.parametrize(
    ("job", "history"),
    [
        (JOB, past(2)),  # too few to say anything
        (replace(JOB, walltime_s=7200.0), past()),  # not far beyond
        (replace(JOB, walltime_s=1200.0), past(run_s=60.0)),  # far in proportion, little in minutes
        (replace(JOB, walltime_s=None), past()),
        (JOB, [*past(), *past(1, run_s=86400.0)]),  # one was cut off at its limit: nobody knows how long it would have been
        (replace(JOB, cluster="owens"), past()),  # another machine
    ],
)
def test_nothing_is_said_where_it_is_not_known(job: AskedJob, history: list[HistoryRecord]) -> None:
    assert kinds(job, history) == []


def test_few_jobs_are_enough_to_say_it_but_not_to_change_anything() -> None:
    (advice,) = judge(JOB, CLUSTER, past(3))
    assert advice.changes == {}


def test_jobs_of_the_same_name_count_before_jobs_of_the_same_place() -> None:
    other = past(8, family="transformer", run_s=80000.0)
    assert kinds(JOB, [*other, *past()]) == ["walltime"]
    assert kinds(replace(JOB, name="new"), [*other, *past()]) == []


@pytest.mark.parametrize(
    ("changes", "words", "other"),
    [
        ({"partition": "cpu"}, "1 GPU(s) a node are asked for and its nodes have none", "gpu"),
        ({"partition": "gpudebug"}, "24h00 is asked for and its limit is 1h00", "gpu"),
        ({"partition": "secret"}, "it is closed to you", "gpu"),
        ({"gpus": 3}, "its nodes have 2", ""),
        ({"gpu_type": "a100"}, "it has v100", ""),
        ({"gpus": 0, "cpus_per_node": 64}, "its nodes have 48", ""),
        ({"gpus": 0, "walltime_s": 2 * 86400.0}, "its limit is 24h00", "cpu"),
    ],
)
def test_a_place_without_a_chance_is_told_with_where_to_go(changes: dict[str, object], words: str, other: str) -> None:
    (advice,) = judge(replace(JOB, **changes), CLUSTER, [])
    assert advice.kind == "partition"
    assert words in advice.text
    assert dict(advice.changes) == ({"partition": other} if other else {})


def test_a_hopeless_walltime_is_not_also_called_generous() -> None:
    assert kinds(replace(JOB, walltime_s=9 * 86400.0), past()) == ["partition"]


def test_gpus_that_no_training_ever_used() -> None:
    unused = past(4, kind="run", step_time_s=0.1, run_s=80000.0)
    assert kinds(JOB, unused) == ["gpus"]
    assert kinds(JOB, [*unused, *past(1, kind="run", step_time_s=0.1, run_s=80000.0, gpu_memory_bytes=1 << 30)]) == []
    assert kinds(JOB, past(4, kind="run", run_s=80000.0)) == [], "whoever reports no steps reports no memory either"


def test_what_is_unknown_never_refuses() -> None:
    bare = Cluster("pitzer", partitions=(Partition("gpu", ()),))
    assert kinds(replace(JOB, gpus=8, gpu_type="h100", cpus_per_node=999), cluster=bare) == []
    assert kinds(JOB, cluster=None) == []
    assert kinds(replace(JOB, partition=None)) == []


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"gres": "gres:gpu:v100:2", "nodes": "2-4"}, {"gpus": 2, "gpu_type": "v100", "nodes": 2}),
        ({"gres": "gpu"}, {"gpus": 1}),
        ({"gpus": "a100:8", "nodes": "4"}, {"gpus": 2, "gpu_type": "a100"}),
        ({"gpus-per-node": "3"}, {"gpus": 3}),
        ({"gpus-per-task": "1", "ntasks": "4"}, {"gpus": 4}),
        ({"time": "1-00:00:00"}, {"walltime_s": 86400.0}),
        ({"time": "UNLIMITED"}, {"walltime_s": math.inf}),
        ({"time": "whenever"}, {"walltime_s": None}),
        ({"ntasks": "8", "nodes": "2", "cpus-per-task": "3"}, {"cpus_per_node": 12}),
        ({"partition": "gpu,cpu"}, {"partition": "gpu"}),
        ({}, {"gpus": 0, "nodes": 1, "cpus_per_node": 1, "walltime_s": None, "partition": None}),
    ],
)
def test_the_fields_of_sbatch_are_read(fields: dict[str, str], expected: dict[str, object]) -> None:
    job = read_job(fields)
    assert {name: getattr(job, name) for name in expected} == expected


@given(st.dictionaries(st.sampled_from(["time", "gres", "gpus", "nodes", "ntasks", "job-name", "partition"]), st.text()))
def test_no_field_whatever_is_in_it_breaks_the_guard(fields: dict[str, str]) -> None:
    for advice in judge(read_job(fields, "pitzer"), CLUSTER, past()):
        assert answer.lines([advice], rewrite=True).count("\n") == 1 + len(advice.changes)


def test_lines_set_only_where_the_site_lets_them() -> None:
    advice = judge(JOB, CLUSTER, past())
    assert answer.lines(advice, rewrite=False).startswith("say ")
    first, second = answer.lines(advice, rewrite=True).splitlines()
    assert first == "set time 02:00:00"
    assert "ISCHED_GUARD=off keeps yours" in second


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": "isched.other/1", "job": {}}', '{"schema": "isched.guard/1"}', "x" * 9000])
def test_what_is_no_question_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(BadInput, match="no question of the guard"):
        answer.read_question(text)
