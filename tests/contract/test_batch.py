"""The batch contract on the fake, on the embedded local batch system and on the simulated cluster; tests/integration: a real Slurm."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from ischeduler.batch.clocks import SystemClock
from ischeduler.batch.local import LocalBatch
from ischeduler.batch.simulated import Fixed, SimulatedBatch
from ischeduler.core.jobs import JobSpec, JobState, Resources
from ischeduler.simulator.engine.machine import whole_nodes
from ischeduler.testing.batch_contract import BatchContract, Program
from ischeduler.testing.fake_batch import Behaviour, FakeBatch
from ischeduler.testing.sim_clock import SimClock

RESOURCE_FIELDS = {f.name for f in fields(Resources)}


def changed(spec: JobSpec, changes: dict[str, Any]) -> JobSpec:
    """The job with fields of its own or of its resources replaced."""
    resources = replace(spec.resources, **{k: v for k, v in changes.items() if k in RESOURCE_FIELDS})
    return replace(spec, resources=resources, **{k: v for k, v in changes.items() if k not in RESOURCE_FIELDS})


class FakeRig:
    """Programs become behaviours; waiting moves simulated time."""

    walltime_s, lead_s = 60.0, 30

    def __init__(self) -> None:
        self.behaviours: dict[str, Behaviour] = {}
        self.fake = FakeBatch(slots=2, behave=lambda spec: self.behaviours[spec.key])
        self._keys = itertools.count(1)

    def connect(self) -> FakeBatch:
        return self.fake

    def spec(self, key: str, program: Program, **changes: Any) -> JobSpec:
        bad = program.killed or program.exit_code
        self.behaviours[key] = Behaviour(
            run_s=program.run_s,
            state=JobState.FAILED if bad else JobState.COMPLETED,
            exit_code=program.exit_code,
            signal=9 if program.killed else None,
            output=f"READY\n{program.text}\n",
            signal_exit={} if program.on_usr2 is None else {"USR2": program.on_usr2},
        )
        job = JobSpec(key, "test", "cpu", Resources(walltime_s=600.0), program.argv(), "/d", f"/d/{key}.out")
        return changed(job, changes)

    def refused(self, key: str) -> JobSpec:
        return self.spec(key, Program(), nodes=99)

    def crowd(self, key: str) -> JobSpec:
        return self.spec(key, Program(run_s=300), nodes=2)

    def output_of(self, spec: JobSpec) -> str:
        return self.fake.outputs.get(spec.output, "")

    def wait_until(self, condition: Callable[[], bool], timeout_s: float = 30.0) -> bool:
        until = self.fake.clock.now() + timeout_s
        while not condition():
            if self.fake.clock.now() >= until:
                return False
            self.fake.clock.advance(1.0)
        return True

    def go_down(self) -> None:
        self.fake.go_down()

    def come_back(self) -> None:
        self.fake.come_back()

    def new_key(self) -> str:
        return f"r-{next(self._keys)}.1"


class LocalRig:
    """Real processes on this machine, walltimes of seconds."""

    walltime_s, lead_s = 3.0, 2

    def __init__(self, folder: Path) -> None:
        self.folder, self.root = folder, folder / "local"
        self._keys = itertools.count(1)

    def connect(self) -> LocalBatch:
        return LocalBatch(self.root, SystemClock(), ({"name": "main", "max_walltime": "1h"},), cores=2)

    def spec(self, key: str, program: Program, **changes: Any) -> JobSpec:
        out = str(self.folder / f"out 100% {key}.txt")
        return changed(JobSpec(key, "test", "main", Resources(walltime_s=600.0), program.argv(), str(self.folder), out), changes)

    def refused(self, key: str) -> JobSpec:
        return self.spec(key, Program(), cpus_per_node=9999)

    def crowd(self, key: str) -> JobSpec:
        return self.spec(key, Program(run_s=300), cpus_per_node=2)

    def output_of(self, spec: JobSpec) -> str:
        path = Path(spec.output)
        return path.read_text() if path.exists() else ""

    def wait_until(self, condition: Callable[[], bool], timeout_s: float = 30.0) -> bool:
        until = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() >= until:
                return False
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
        batch = self.connect()
        for job in batch.snapshot().jobs:
            batch.cancel(job.job_id)
        self.wait_until(lambda: not batch.snapshot().jobs, 15.0)


class SimulatedRig:
    """Two nodes of the simulated cluster under Slurm's own schedulers; waiting moves simulated time."""

    walltime_s, lead_s = 60.0, 30

    def __init__(self) -> None:
        self.clock = SimClock()
        self.programs: dict[str, Program] = {}
        self.batch = SimulatedBatch(whole_nodes(2, partition="cpu", max_time_s=86400.0), self.clock, programs=self.program)
        self._keys = itertools.count(1)

    def program(self, spec: JobSpec) -> Fixed:
        p = self.programs[spec.key]
        caught = {} if p.on_usr2 is None else {"USR2": p.on_usr2}
        return Fixed(p.run_s, p.exit_code, killed_by=9 if p.killed else None, on_signal=caught, text=f"READY\n{p.text}\n")

    def connect(self) -> SimulatedBatch:
        return self.batch

    def spec(self, key: str, program: Program, **changes: Any) -> JobSpec:
        self.programs[key] = program
        return changed(JobSpec(key, "test", "cpu", Resources(walltime_s=600.0), program.argv(), "/d", f"/d/{key}.out"), changes)

    def refused(self, key: str) -> JobSpec:
        return self.spec(key, Program(), nodes=99)

    def crowd(self, key: str) -> JobSpec:
        return self.spec(key, Program(run_s=300), nodes=2)

    def output_of(self, spec: JobSpec) -> str:
        return self.batch.outputs.get(spec.output, "")

    def wait_until(self, condition: Callable[[], bool], timeout_s: float = 30.0) -> bool:
        until = self.clock.now() + timeout_s
        while not condition():
            if self.clock.now() >= until:
                return False
            self.clock.advance(1.0)
        return True

    def go_down(self) -> None:
        self.batch.down = True

    def come_back(self) -> None:
        self.batch.down = False

    def new_key(self) -> str:
        return f"r-{next(self._keys)}.1"


class TestFake(BatchContract):
    @pytest.fixture
    def rig(self) -> FakeRig:
        return FakeRig()


class TestLocal(BatchContract):
    @pytest.fixture
    def rig(self, tmp_path: Path) -> Iterator[LocalRig]:
        rig = LocalRig(tmp_path)
        yield rig
        rig.close()


class TestSimulated(BatchContract):
    @pytest.fixture
    def rig(self) -> SimulatedRig:
        return SimulatedRig()
