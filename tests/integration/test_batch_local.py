"""The embedded batch system when things die: submitter killed, supervisor doubled, memory gone, output not writable."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ischeduler.batch.clocks import SystemClock
from ischeduler.batch.local import LocalBatch
from ischeduler.batch.local_jobs import process_start
from ischeduler.core.codec import to_plain
from ischeduler.core.jobs import JobRef, JobSpec, JobState, JobStatus, Resources

SUBMIT = """
import json, os, signal, sys
from pathlib import Path
from ischeduler.batch.clocks import SystemClock
from ischeduler.batch.local import LocalBatch
from ischeduler.core.codec import from_plain
from ischeduler.core.jobs import JobSpec
LocalBatch(Path(sys.argv[1]), SystemClock(), cores=1).submit(from_plain(JobSpec, json.loads(sys.argv[2])))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def batch(tmp_path: Path) -> Iterator[LocalBatch]:
    batch = LocalBatch(tmp_path / "local", SystemClock(), cores=1)
    yield batch
    for job in batch.snapshot().jobs:
        batch.cancel(job.job_id)
    wait_until(lambda: not batch.snapshot().jobs)


def spec(folder: Path, key: str, *command: str, **resources: object) -> JobSpec:
    asked = replace(Resources(walltime_s=300.0), **resources)  # type: ignore[arg-type]
    return JobSpec(key, "test", "main", asked, command, str(folder), str(folder / f"{key}.out"))


def wait_until(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    until = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.05)


def one(batch: LocalBatch, key: str) -> JobStatus:
    (status,) = batch.observe([JobRef(key)]).jobs[key]
    return status


def test_a_job_outlives_its_killed_submitter_and_the_queue_goes_on_alone(tmp_path: Path, batch: LocalBatch) -> None:
    first = spec(tmp_path, "a", "bash", "-c", "sleep 1; echo first >> order")
    second = spec(tmp_path, "b", "bash", "-c", "echo second >> order")
    for job in (first, second):
        done = subprocess.run([sys.executable, "-c", SUBMIT, str(tmp_path / "local"), json.dumps(to_plain(job))], timeout=30, check=False)
        assert done.returncode == -signal.SIGKILL
    order = tmp_path / "order"  # nobody asks the queue meanwhile: the first job's supervisor starts the second
    wait_until(lambda: order.exists() and order.read_text() == "first\nsecond\n")
    wait_until(lambda: one(batch, "b").state is JobState.COMPLETED)
    assert one(batch, "a").state is JobState.COMPLETED


def test_a_second_supervisor_leaves_the_job_alone(tmp_path: Path, batch: LocalBatch) -> None:
    """As after a crash between starting the supervisor and writing down that it was started."""
    job_id = batch.submit(spec(tmp_path, "a", "bash", "-c", "echo ran >> runs; sleep 2"))
    runs = tmp_path / "runs"
    wait_until(runs.exists)
    (tmp_path / "local" / "jobs" / job_id / "start.json").unlink()
    batch.observe([JobRef("a")])  # starts it again, as far as it knows
    assert one(batch, "a").state is JobState.RUNNING
    wait_until(lambda: one(batch, "a").state.ended)
    assert (one(batch, "a").state, runs.read_text()) == (JobState.COMPLETED, "ran\n")


def test_a_killed_supervisor_is_a_failed_node(tmp_path: Path, batch: LocalBatch) -> None:
    job_id = batch.submit(spec(tmp_path, "a", "sleep", "60"))
    folder = tmp_path / "local" / "jobs" / job_id
    wait_until((folder / "running.json").exists)
    os.kill(json.loads((folder / "keeper.json").read_text())["supervisor"], signal.SIGKILL)
    wait_until(lambda: one(batch, "a").state is JobState.NODE_FAIL)
    os.killpg(json.loads((folder / "running.json").read_text())["pid"], signal.SIGKILL)


def test_memory_beyond_the_request_ends_the_job(tmp_path: Path, batch: LocalBatch) -> None:
    eater = "import time; x = bytearray(300_000_000); time.sleep(60)"
    batch.submit(spec(tmp_path, "a", sys.executable, "-c", eater, memory_bytes=100 * 2**20))
    wait_until(lambda: one(batch, "a").state.ended)
    assert one(batch, "a").state is JobState.OUT_OF_MEMORY
    assert (one(batch, "a").max_rss_bytes or 0) > 100 * 2**20


def test_an_output_file_that_cannot_be_written_is_said(tmp_path: Path, batch: LocalBatch) -> None:
    job = replace(spec(tmp_path, "a", "true"), output=str(tmp_path / "missing" / "out"))
    batch.submit(job)
    wait_until(lambda: one(batch, "a").state.ended)
    assert one(batch, "a").state is JobState.FAILED
    assert "missing/out (No such file or directory)" in one(batch, "a").reason


def test_a_job_that_takes_no_notice_of_the_end_is_killed_with_all_it_started(tmp_path: Path, batch: LocalBatch) -> None:
    stubborn = "trap '' TERM USR2; sleep 1000 & echo $! > child; while :; do sleep 0.1; done"
    job_id = batch.submit(spec(tmp_path, "a", "bash", "-c", stubborn))
    wait_until((tmp_path / "child").exists)
    wait_until(lambda: (tmp_path / "child").read_text().strip() != "")
    batch.cancel(job_id)
    wait_until(lambda: one(batch, "a").state is JobState.CANCELLED, 30.0)
    child = int((tmp_path / "child").read_text())
    wait_until(lambda: process_start(child) == "")
