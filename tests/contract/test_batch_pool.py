"""The batch contract on a pool with pilots: a real pilot of two accelerators, a stand-in for srun, and first come, first served for rounds."""

from __future__ import annotations

import itertools
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
