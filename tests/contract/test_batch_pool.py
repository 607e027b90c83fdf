"""The batch contract on a pool with pilots: a real pilot of two accelerators, a stand-in for srun, and first come, first served for rounds."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from ischeduler.batch.clocks import SystemClock
from ischeduler.batch.pilots import PilotBatch, WithPools
from ischeduler.core.errors import BatchUnavailable
from ischeduler.core.jobs import JobSpec, JobState, Resources
from ischeduler.core.pilots import PilotOrders
from ischeduler.core.pool import Pool, PoolPlace
from ischeduler.ports import BatchSystem
from ischeduler.testing.batch_contract import BatchContract, Program, ended, one, running

PILOT = "p-lab-v100-1-1.0"
SRUN = """\
#!{python}
import os, signal, subprocess, sys
words = [w for w in sys.argv[1:] if w.startswith("--")]
with open({log!r}, "a") as log:
    log.write(" ".join(words) + "\\n")
child = subprocess.Popen(sys.argv[1 + len(words):], start_new_session=True)
for number in (signal.SIGUSR2, signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda n, f: os.killpg(child.pid, signal.SIGKILL if n == signal.SIGINT else n))
code = child.wait()
sys.exit(code if code >= 0 else 128 - code)
"""


class PoolRig:
    """Orders are what wait_until leaves: those that run stay, those that wait follow in their order while there is room."""

    walltime_s, lead_s = 3.0, 2

    def __init__(self, folder: Path) -> None:
        self.folder, self.root = folder, folder / "pools" / "lab"
        self._keys, self.token = itertools.count(1), 1
        place = PoolPlace("v100", "here", "gpu", gpus_per_node=2, cpus_per_node=4, memory_bytes=8 * 2**30, walltime_s=3600.0)
        PilotBatch.prepare(Pool("lab", "me", "fifo", (place,), str(self.root), 0.0))
        self.batch = PilotBatch(self.root, SystemClock())
        self.pilot = self.start_pilot()

    def start_pilot(self) -> subprocess.Popen[bytes]:
        tools = self.folder / "bin"
        tools.mkdir(exist_ok=True)
        srun = tools / "srun"
        srun.write_text(SRUN.format(python=sys.executable, log=str(self.folder / "srun.log")))
        srun.chmod(0o755)
        environment = {
            **os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "SLURM_JOB_ID": "77", "SLURMD_NODENAME": "n1", "ISCHED_RUN_ID": "p-lab-v100-1",
            "ISCHED_TOKEN": "1.0",
        }  # fmt: skip
        words = ["--pool", str(self.root), "--type", "v100", "--gpus", "2", "--memory-mb", "8192", "--gres", "gpu:v100"]
        return subprocess.Popen([sys.executable, "-m", "ischeduler.training.pilot", *words], env=environment)

    def connect(self) -> BatchSystem:
        return PilotBatch(self.root, SystemClock())

    def spec(self, key: str, program: Program, **changes: Any) -> JobSpec:
        resources = {f.name for f in fields(Resources)}
        out = str(self.folder / f"out 100% {key}.txt")
        job = JobSpec(key, "test", "v100", Resources(gpus_per_node=1, walltime_s=600.0), program.argv(), str(self.folder), out)
        job = replace(job, resources=replace(job.resources, **{k: v for k, v in changes.items() if k in resources}))
        return replace(job, **{k: v for k, v in changes.items() if k not in resources})

    def refused(self, key: str) -> JobSpec:
        return self.spec(key, Program(), gpus_per_node=8)

    def crowd(self, key: str) -> JobSpec:
        return self.spec(key, Program(run_s=300), gpus_per_node=2)

    def output_of(self, spec: JobSpec) -> str:
        path = Path(spec.output)
        return path.read_text() if path.exists() else ""

    def give_out(self) -> None:
        """One round of the simplest kind."""
        steps, free = dict[str, float](), 2
        for job in sorted(self.batch.jobs(time.time()), key=lambda j: (not j.running, int(j.job_id))):
            if (job.running or job.pending) and job.gpus <= free:
                steps[job.job_id] = job.limit_s
                free -= job.gpus
        if self.batch.signs():
            self.batch.order(PilotOrders(PILOT, self.token, steps, 0.05))

    def wait_until(self, condition: Callable[[], bool], timeout_s: float = 30.0) -> bool:
        until = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() >= until:
                return False
            self.give_out()
            time.sleep(0.05)
        return True

    def go_down(self) -> None:
        self.root.rename(self.root.with_name("away"))

    def come_back(self) -> None:
        self.root.with_name("away").rename(self.root)

    def new_key(self) -> str:
        return f"r-{next(self._keys)}.1"

    def close(self) -> None:
        """Nothing may outlive the test."""
        for job in self.batch.jobs(time.time()):
            self.batch.cancel(job.job_id)
        self.wait_until(lambda: not [j for j in self.batch.jobs(time.time()) if j.running], 15.0)
        self.pilot.send_signal(signal.SIGTERM)
        self.pilot.wait(10)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[PoolRig]:
    rig = PoolRig(tmp_path)
    yield rig
    rig.close()


class TestPool(BatchContract):
    pass


def test_steps_ask_for_their_own_share_of_the_node_and_no_shell_sees_them(rig: PoolRig):
    spec = rig.spec(rig.new_key(), Program(text="$(touch /tmp/never); 'x'"))
    rig.batch.submit(spec)
    ended(rig, rig.batch, spec.key)
    words = (rig.folder / "srun.log").read_text().split()
    assert {"--exact", "--nodelist=n1", "--gres=gpu:v100:1", "--mem=4096M", "--cpus-per-task=1"} <= set(words)
    assert "$(touch /tmp/never); 'x'\n" in rig.output_of(spec)


def test_what_orders_no_longer_name_is_asked_to_leave(rig: PoolRig):
    spec = rig.spec(rig.new_key(), Program(run_s=300, on_usr2=85))
    rig.batch.submit(spec)
    running(rig, rig.batch, spec)
    rig.batch.order(PilotOrders(PILOT, rig.token, {}, 0.05))
    until = time.monotonic() + 20
    while not one(rig.batch, spec.key).state.ended and time.monotonic() < until:
        time.sleep(0.05)
    status = one(rig.batch, spec.key)
    assert (status.state, status.exit_code, status.reason) == (JobState.FAILED, 85, "its round in the pool was over")


def test_orders_of_a_superseded_keeper_are_not_heard(rig: PoolRig):
    rig.token = 9
    spec = rig.spec(rig.new_key(), Program(run_s=300, on_usr2=85))
    job_id = rig.batch.submit(spec)
    running(rig, rig.batch, spec)
    PilotBatch(rig.root, SystemClock()).order(PilotOrders(PILOT, 8, {}, 0.05))
    time.sleep(0.5)
    assert one(rig.batch, spec.key).state is JobState.RUNNING
    rig.batch.cancel(job_id)


def test_what_a_closed_pilot_ran_is_lost_with_its_node(rig: PoolRig):
    spec = rig.spec(rig.new_key(), Program(run_s=300))
    rig.batch.submit(spec)
    running(rig, rig.batch, spec)
    rig.batch.close(PILOT)
    status = one(PilotBatch(rig.root, SystemClock()), spec.key)
    assert (status.state, status.nodes) == (JobState.NODE_FAIL, ("n1",))
    assert rig.batch.signs() == []
    rig.batch.cancel(status.job_id)


def test_pools_come_and_go_beside_the_real_batch_systems(tmp_path: Path):
    both = WithPools(lambda: {}, tmp_path / "pools", SystemClock())
    assert list(both) == []
    assert both.get("pool-lab") is None
    PilotBatch.prepare(Pool("lab", "me", "fifo", (PoolPlace("v100", "here", "gpu"),), str(tmp_path / "pools" / "lab"), 0.0))
    assert (list(both), both["pool-lab"].name) == (["pool-lab"], "pool-lab")


def test_a_directory_that_is_gone_is_no_answer(rig: PoolRig):
    rig.go_down()
    try:
        with pytest.raises(BatchUnavailable, match="the pool's directory"):
            rig.batch.jobs(0.0)
    finally:
        rig.come_back()


class Floor:
    """A pool's directory with segments whose ends are written by hand."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "pools" / "lab"
        self.folder = folder
        PilotBatch.prepare(Pool("lab", "me", "fifo", (PoolPlace("v100", "here", "gpu", walltime_s=3600.0),), str(self.root), 0.0))
        self.batch = PilotBatch(self.root, SystemClock())

    def segment(self, key: str, *, pilot: str = "", ended_at: float | None = None) -> str:
        spec = JobSpec(key, key, "v100", Resources(gpus_per_node=1, walltime_s=600.0), ("true",), str(self.folder), str(self.folder / "out"))
        job_id = self.batch.submit(spec)
        path = self.root / "jobs" / job_id
        if pilot:
            (path / "start.json").write_text(json.dumps({"pilot": pilot, "node": "n1", "type": "v100", "at": 10.0}))
            (self.root / "pilots" / pilot).mkdir(exist_ok=True)
        if ended_at is not None:
            (path / "end.json").write_text(json.dumps({"state": "completed", "exit_code": 0, "signal": None, "reason": "", "at": ended_at}))
        return job_id

    def left(self, what: str) -> set[str]:
        return {p.name for p in (self.root / what).iterdir()}


def test_only_segments_that_are_over_and_done_with_are_taken_away(tmp_path: Path):
    floor = Floor(tmp_path)
    old = floor.segment("r-a-1", pilot="p-1-1.0", ended_at=50.0)
    asked_for = floor.segment("r-b-1", pilot="p-1-1.0", ended_at=50.0)
    recent = floor.segment("r-a-2", pilot="p-1-1.0", ended_at=500.0)
    runs = floor.segment("r-a-3", pilot="p-1-1.0")
    waits = floor.segment("r-c-1")
    newest = floor.segment("r-a-4", pilot="p-1-1.0", ended_at=50.0)
    assert floor.batch.sweep(100.0, lambda key: key.startswith("r-a")) == 1
    assert floor.left("jobs") == {asked_for, recent, runs, waits, newest}
    assert old not in {j.job_id for j in floor.batch.jobs(0.0)}
    assert int(floor.segment("r-d-1")) == int(newest) + 1  # a number is given once
    assert floor.batch.sweep(100.0, lambda key: key.startswith("r-a")) == 1
    assert newest not in floor.left("jobs")


def test_a_closed_pilot_goes_with_the_last_segment_that_its_end_took_with_it(tmp_path: Path):
    floor = Floor(tmp_path)
    lost = floor.segment("r-a-1", pilot="p-1-1.0")
    floor.segment("r-a-2", pilot="p-2-1.0")
    floor.segment("r-a-3")
    for name in ("p-1-1.0", "p-3-1.0"):
        (floor.root / "pilots" / name).mkdir(exist_ok=True)
        (floor.root / "pilots" / name / "ended.json").write_text(json.dumps({"at": 50.0}))
    assert floor.batch.sweep(100.0, lambda key: False) == 0
    assert floor.left("pilots") == {"p-1-1.0", "p-2-1.0"}
    assert one(floor.batch, "r-a-1").state is JobState.NODE_FAIL
    assert floor.batch.sweep(100.0, lambda key: True) == 1
    assert lost not in floor.left("jobs")
    assert floor.left("pilots") == {"p-2-1.0"}


def test_a_member_that_begins_within_its_warning_time_is_warned_only_when_it_can_hear_it(rig: PoolRig):
    run_dir = rig.folder / "run"
    training = "import signal, sys, time; signal.signal(signal.SIGUSR2, lambda *_: sys.exit(85)); time.sleep(60)"
    spec = rig.spec(
        rig.new_key(), Program(), command=(sys.executable, "-m", "ischeduler.training.wrapper", "--", sys.executable, "-c", training),
        variables={"ISCHED_RUN_DIR": str(run_dir), "ISCHED_RUN_ID": "r-9", "ISCHED_ATTEMPT": "1"}, walltime_s=15.0, signal_lead_s=15,
    )  # fmt: skip
    rig.batch.submit(spec)
    ended(rig, rig.batch, spec.key)
    status = one(rig.batch, spec.key)
    assert (status.state, status.exit_code) == (JobState.FAILED, 85), status
