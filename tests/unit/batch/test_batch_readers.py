"""Readers of what Slurm prints: recorded from 22.05.8, and the shapes of later data parsers."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ischeduler.batch.slurm_json import exit_of, number, read_squeue_json
from ischeduler.batch.slurm_nodes import count_nodes, read_nodes, state_column
from ischeduler.batch.slurm_states import exit_of_pair, exit_of_wait_status, job_state
from ischeduler.batch.slurm_text import (
    OWN_FIELDS,
    QUEUE_FIELDS,
    SACCT_FIELDS,
    SEPARATOR,
    read_finished,
    read_queue,
    read_sacct,
    read_squeue,
    size_bytes,
)
from ischeduler.core.errors import BatchUnavailable
from ischeduler.core.jobs import JobState, JobStatus
from ischeduler.core.snapshot import FinishedJob

RECORDED = Path(__file__).with_name("recorded")
SQUEUE = """\
1|isched-k1|FAILED|21760|0|NonZeroExitCode|c01|1795236096|1795236096|1795236095|10:00|cpu|isched:k1 some 'text'|
2|isched-k2|FAILED|9|0|JobLaunchFailure|c01|1795236096|1795236101|1795236095|10:00|cpu|(null)|
6|isched-k6|PENDING|0|0|JobHeldUser||N/A|N/A|1795236096|2:00|cpu|(null)|
5|isched-k4|PENDING|0|1|Resources||1795236216|1795236336|1795236096|2:00|gpu|(null)|
3|isched-k3|COMPLETING|0|0|None|g[01-02]|1795236096|1795236216|1795236095|1-00:00:00|gpu|(null)|
9|other|RUNNING|0|0|None|g01|1795236096|1795236216|1795236095|UNLIMITED|gpu|(null)|
8|renamed|RUNNING|0|0|None|g01|1795236096|1795236216|1795236095|UNLIMITED|gpu|isched:k8 text|
"""
SACCT = """\
1|isched-k1|FAILED|85:0|None|c01|cpu|1795236095|1795236096|1795236096|10||isched:k1 some 'text'
1.batch|batch|FAILED|85:0||c01||1795236095|1795236096|1795236096|||
4|isched-k5|FAILED|0:9|None|c01|cpu|1795236096|1795236096|1795236097|2||
4.batch|batch|CANCELLED by 0|0:9||c01||1795236096|1795236096|1795236097||309809152|
4.0|python|COMPLETED|0:0||c01||1795236096|1795236096|1795236097||9809152|
6|isched-k6|CANCELLED by 61200|0:0|None|None assigned|cpu|1795236096|None|1795236775|2||
7|isched-k7|PREEMPTED|0:0|None|g01|gpu|1795236096|1795236100|1795236200|UNLIMITED||
7|isched-k7|RUNNING|0:0|None|g02|gpu|1795236096|1795236400|Unknown|UNLIMITED||
"""
NODES = (RECORDED / "nodes.txt").read_text()


def fields(text: str) -> str:
    return text.replace("|", SEPARATOR)


def by_id(statuses: list[JobStatus]) -> dict[str, JobStatus]:
    return {s.job_id: s for s in statuses}


def test_squeue_says_state_exit_times_and_nodes() -> None:
    jobs = by_id(read_squeue(fields(SQUEUE)))
    assert set(jobs) == {"1", "2", "3", "5", "6", "8"}
    assert (jobs["1"].state, jobs["1"].exit_code, jobs["1"].signal, jobs["1"].end_s) == (JobState.FAILED, 85, None, 1795236096.0)
    assert (jobs["2"].exit_code, jobs["2"].signal, jobs["2"].reason) == (None, 9, "JobLaunchFailure")
    assert (jobs["3"].state, jobs["3"].raw_state, jobs["3"].nodes, jobs["3"].end_s) == (JobState.RUNNING, "COMPLETING", ("g01", "g02"), None)
    assert (jobs["3"].limit_s, jobs["8"].limit_s, jobs["8"].key) == (86400.0, math.inf, "k8")
    assert (jobs["5"].start_s, jobs["5"].expected_start_s, jobs["5"].restarts) == (None, 1795236216.0, 1)
    assert (jobs["6"].state, jobs["6"].reason, jobs["6"].expected_start_s) == (JobState.PENDING, "JobHeldUser", None)


def test_sacct_says_the_end_the_memory_and_the_restarts() -> None:
    jobs = by_id(read_sacct(fields(SACCT)))
    assert (jobs["1"].state, jobs["1"].exit_code, jobs["1"].limit_s, jobs["1"].max_rss_bytes) == (JobState.FAILED, 85, 600.0, None)
    assert (jobs["4"].exit_code, jobs["4"].signal, jobs["4"].max_rss_bytes) == (None, 9, 309809152)
    assert (jobs["6"].state, jobs["6"].nodes, jobs["6"].start_s) == (JobState.CANCELLED, (), None)
    assert (jobs["7"].state, jobs["7"].restarts, jobs["7"].nodes, jobs["7"].limit_s) == (JobState.RUNNING, 1, ("g02",), math.inf)


def test_a_separator_or_line_break_in_a_comment_loses_no_job() -> None:
    row = dict.fromkeys(OWN_FIELDS, "0") | {"JobID": "1", "Name": "isched-k", "State": "RUNNING", "Comment": f"a{SEPARATOR}b\nc"}
    text = "".join(row[f] + SEPARATOR for f in OWN_FIELDS) + "\n"
    assert [s.key for s in read_squeue(text)] == ["k"]
    past = dict.fromkeys(SACCT_FIELDS, "0") | {"JobID": "1", "JobName": "isched-k", "State": "FAILED", "Comment": "a\nb"}
    assert [s.key for s in read_sacct(SEPARATOR.join(past[f] for f in SACCT_FIELDS) + "\n")] == ["k"]


@given(st.text(max_size=200))
def test_text_that_is_no_table_gives_no_jobs(text: str) -> None:
    assert read_squeue(text.replace(SEPARATOR, "")) == []
    assert read_sacct(text.replace(SEPARATOR, "")) == []


def test_the_queue_counts_gpus_and_splits_partitions() -> None:
    text = (
        "12|gpu,debug|PENDING|2|cpu=2,node=2,billing=2|gres:gpu:v100:2|1795238214|N/A|1:00|1000|alice|Priority|train|\n"
        "11_3|gpu|RUNNING|1|cpu=1,gres/gpu=1|gres/gpu:v100:1|1795238214|1795238300|NOT_SET|N/A|bob|None|a b|\n"
    )
    jobs = read_queue(fields(text), "alice")
    assert [(j.job_id, j.partition, j.state, j.gpus, j.mine, j.limit_s) for j in jobs] == [
        ("12", "gpu", "PENDING", 4, True, 60.0),
        ("12", "debug", "PENDING", 4, True, 60.0),
        ("11_3", "gpu", "RUNNING", 1, False, None),
    ]
    assert (jobs[0].reason, jobs[2].priority, jobs[2].start_s) == ("Priority", None, 1795238300.0)
    assert [(j.user, j.name) for j in jobs] == [("alice", "train"), ("alice", "train"), ("bob", "a b")]
    assert len(QUEUE_FIELDS) == 13


def test_finished_jobs_are_those_that_ran_with_a_limit() -> None:
    text = (
        "bob|gpu|100|200|260|60|2|cpu=2,gres/gpu=4|train\n"
        "bob|gpu|100|Unknown|260|60|2|cpu=2|never started\n"
        "eve|cpu|100|200|300|UNLIMITED|1|cpu=2|endless\n"
    )
    jobs = read_finished(fields(text))
    assert jobs == [FinishedJob("bob", "train", "gpu", 100.0, 200.0, 260.0, 3600.0, 2, 4)]
    assert jobs[0].share == pytest.approx(1 / 60)


def test_nodes_are_counted_by_partition_and_type_with_gpus_from_allocation() -> None:
    counts = {(c.partition, c.node_type): c for c in count_nodes(read_nodes(NODES))}
    gpu = counts["gpu", "v100x2-48c-364g"]
    assert (gpu.idle, gpu.mixed, gpu.drained, gpu.down, gpu.idle_gpus, gpu.total_gpus) == (1, 2, 1, 0, 3, 8)
    assert counts["debug", "v100x2-48c-364g"].idle_gpus == 1
    assert counts["cpu", "cpu-48c-188g"].down == 1
    assert set(counts) == {("gpu", "v100x2-48c-364g"), ("debug", "v100x2-48c-364g"), ("cpu", "cpu-48c-188g")}


@pytest.mark.parametrize(
    ("state", "column"),
    [
        ("IDLE", "idle"), ("MIXED", "mixed"), ("ALLOCATED", "allocated"), ("IDLE*", "down"), ("IDLE+NOT_RESPONDING", "down"),
        ("MIXED+DRAIN", "drained"), ("DOWN+DRAIN", "down"), ("IDLE+CLOUD+POWERED_DOWN", "idle"), ("IDLE+PLANNED", "idle"),
        ("ALLOCATED+COMPLETING", "allocated"), ("IDLE+MAINTENANCE+RESERVED", "drained"), ("UNKNOWN", "down"), ("FUTURE", "down"), ("", "down"),
    ],
)  # fmt: skip
def test_node_states(state: str, column: str) -> None:
    assert state_column(state) == column


@pytest.mark.parametrize(
    ("raw", "state"),
    [
        ("PENDING", JobState.PENDING), ("CONFIGURING", JobState.RUNNING), ("COMPLETING", JobState.RUNNING),
        ("SUSPENDED", JobState.RUNNING), ("CANCELLED by 61200", JobState.CANCELLED), ("CANCELLED+", JobState.CANCELLED),
        ("TIMEOUT", JobState.TIMEOUT), ("DEADLINE", JobState.TIMEOUT), ("NODE_FAIL", JobState.NODE_FAIL),
        ("BOOT_FAIL", JobState.NODE_FAIL), ("PREEMPTED", JobState.PREEMPTED), ("OUT_OF_MEMORY", JobState.OUT_OF_MEMORY),
        ("REQUEUED", JobState.PENDING), (["PENDING", "REQUEUED"], JobState.PENDING), (["COMPLETED", "COMPLETING"], JobState.RUNNING),
        (["NODE_FAIL"], JobState.NODE_FAIL), (["PREEMPTED", "REQUEUED"], JobState.PENDING), ("NEW_WORD", JobState.UNKNOWN), ([], JobState.UNKNOWN),
    ],
)  # fmt: skip
def test_job_states(raw: str | list[str], state: JobState) -> None:
    assert job_state(raw) is state


@given(st.integers(0, 255))
def test_an_exit_code_is_the_same_in_every_spelling(code: int) -> None:
    spelled = {"set": True, "infinite": False, "number": code}
    assert exit_of_wait_status(code << 8) == exit_of_pair(f"{code}:0") == exit_of({"return_code": spelled}) == (code, None)
    assert exit_of({"status": "ERROR", "return_code": code}) == exit_of(code << 8) == (code, None)


@given(st.integers(1, 64))
def test_a_signal_is_the_same_in_every_spelling(signum: int) -> None:
    number_of = {"set": True, "infinite": False, "number": signum}
    zero = {"set": True, "infinite": False, "number": 0}
    assert exit_of_wait_status(signum) == exit_of_pair(f"0:{signum}") == (None, signum)
    assert exit_of({"return_code": zero, "signal": {"id": number_of, "name": "X"}}) == (None, signum)
    assert exit_of({"return_code": 0, "signal": {"signal_id": signum, "name": "X"}}) == (None, signum)


def test_json_of_2205_as_recorded() -> None:
    jobs = by_id(read_squeue_json((RECORDED / "squeue-0.0.38.json").read_text()))
    assert {i: (s.key, s.state, s.exit_code, s.signal) for i, s in jobs.items()} == {
        "1": ("k1", JobState.FAILED, 85, None),
        "2": ("k2", JobState.FAILED, None, 9),
        "3": ("k3", JobState.RUNNING, None, None),
        "5": ("k4", JobState.PENDING, None, None),
        "6": ("k6", JobState.PENDING, None, None),
    }
    assert (jobs["3"].nodes, jobs["3"].limit_s, jobs["3"].reason, jobs["3"].end_s) == (("g01",), 120.0, "", None)
    assert (jobs["5"].expected_start_s, jobs["5"].reason, jobs["6"].expected_start_s) == (1795236216.0, "Resources", None)


def test_json_of_later_parsers() -> None:
    def told(value: int, is_set: bool = True, infinite: bool = False) -> dict[str, object]:
        return {"set": is_set, "infinite": infinite, "number": value}

    job = {
        "job_id": 7, "name": "isched-k", "job_state": ["COMPLETED"], "partition": "gpu", "nodes": "g[01-02]", "restart_cnt": 2,
        "exit_code": {"status": ["SUCCESS"], "return_code": told(0), "signal": {"id": told(0, False), "name": ""}},
        "start_time": told(100), "end_time": told(200), "submit_time": told(50), "time_limit": told(0, True, True),
        "state_reason": "None", "comment": "", "a_field_from_the_future": [1],
    }  # fmt: skip
    (status,) = read_squeue_json(json.dumps({"jobs": [job, {"job_id": 8, "name": "other"}], "errors": [], "warnings": []}))
    assert status == JobStatus(
        "7", "k", JobState.COMPLETED, "COMPLETED", "", "gpu", 0, None, ("g01", "g02"), 50.0, 100.0, 200.0, None, math.inf, 2
    )


def test_no_json_is_no_answer() -> None:
    with pytest.raises(BatchUnavailable, match="no list of jobs in JSON"):
        read_squeue_json("slurm_load_jobs error")


@pytest.mark.parametrize(
    ("value", "result"), [(None, None), (4294967294, None), (4294967295, math.inf), ("UNLIMITED", math.inf), ("x", None), (True, None), (3, 3.0)]
)
def test_numbers(value: object, result: float | None) -> None:
    assert number(value) == result


@pytest.mark.parametrize(("text", "size"), [("", 0), ("3104K", 3104 * 1024), ("1.50G", round(1.5 * 2**30)), ("309809152", 309809152), ("?", 0)])
def test_sizes(text: str, size: int) -> None:
    assert size_bytes(text) == size
