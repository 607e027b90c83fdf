"""A pool without pilots on the real Slurm: the dry run changes nothing; then waiting jobs are steered in place and a running one moves."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from carried import Carried
from test_batch_slurm import AsUser

from ischeduler.batch.run_files import SharedRunFiles
from ischeduler.batch.slurm_cli import SlurmCli
from ischeduler.batch.spool_events import SpoolEvents
from ischeduler.core.errors import AmendRefused, BadInput
from ischeduler.core.estimate import Estimate
from ischeduler.core.jobs import JobChange, JobState
from ischeduler.core.pool import Member, Pool, PoolPlace, RateFigure
from ischeduler.core.run import Run, RunState
from ischeduler.plane.cadence import Cadence
from ischeduler.plane.loop import Plane
from ischeduler.plane.pools.loop import Pools
from ischeduler.plane.pools.steering import Steerer
from ischeduler.sandbox import Sandbox
from ischeduler.store.sql_store import SqlStore
from ischeduler.testing.memory_pools import MemoryPools

EPOCHS, STEPS = 4, 10


class SystemClock:
    """The machine's."""

    def now(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class Silent:
    """Tells nobody."""

    def notify(self, run: Run, subject: str, text: str) -> None:
        return None


class Scene:
    """Three members of alice's over two types; bob holds all of the fast nodes, so that whoever asks for them waits."""

    def __init__(self, slurm: Sandbox, folder: Path) -> None:
        self.sandbox = slurm
        self.batch = SlurmCli("testbed", AsUser(slurm, "alice"), slurm.system_user("alice"))
        self.store, self.pools_store, clock = SqlStore(f"sqlite:///{folder}/store.db"), MemoryPools(), SystemClock()
        batches = {"testbed": self.batch}
        self.plane = Plane(
            self.store, batches, SpoolEvents(), clock, Silent(), SharedRunFiles(), owner="alice", holder="test", cadence=Cadence(fast_s=0.5),
        )  # fmt: skip
        steerer = Steerer(self.store, self.plane, lambda: batches)
        self.pools = Pools(
            self.pools_store, self.store, self.plane, lambda name: None, clock, owner="alice", holder="test", python="python",  # type: ignore[arg-type, return-value]
            runs_dir=str(folder), steerer=steerer,
        )  # fmt: skip
        self.trainings: dict[str, Carried] = {}
        self.blocker = self._block()

    def _block(self) -> str:
        wrap = ["sbatch", "--parsable", "--partition=gpu", "--nodes=2", "--gres=gpu:v100:2", "--exclusive", "--time=2", "--wrap=sleep 110"]
        return self.sandbox.run([*wrap, "--output=/dev/null"], user="bob").stdout.strip()

    def member(self, name: str, partition: str, fast: float) -> Member:
        """Delegate a training that asks for a whole node of that partition, and make it a member."""
        training = Carried(self.sandbox, name, epochs=EPOCHS, steps=STEPS, step_s=0.5, partition=partition, caps=replace(Carried.caps, allow_move=False))
        self.trainings[name] = training
        run_dir = training.run_directory
        self.sandbox.run(["mkdir", "-p", *(str(run_dir / sub) for sub in ("events", "checkpoints", "logs", "attempts"))], user="alice")
        plan = training.plan()
        plan = replace(plan, resources=replace(plan.resources, gpus_per_node=2, gres="v100"), node_type=partition)
        now = time.time()
        self.plane.delegate(Run(name, "alice", plan, RunState.PLANNED, str(run_dir), now, caps=training.caps, state_since=now))
        rates = {"fast": fast, "slow": 1.0}
        return Member(name, joined_at=now, figures=tuple(RateFigure(t, Estimate.exact(x, "steps/s", "given")) for t, x in rates.items()))

    def create(self, *members: Member, types: int = 2, **changes: Any) -> None:
        places = (
            PoolPlace("fast", "testbed", "gpu", "gpu", gpus_per_node=2, gres="v100", walltime_s=60.0),
            PoolPlace("slow", "testbed", "gpudebug", "gpudebug", gpus_per_node=2, gres="v100", walltime_s=60.0),
        )[:types]
        given: dict[str, Any] = {"policy": "max_sum_throughput_perf", "mode": "steer", "round_s": 2700.0, "restart_s": 2.0, **changes}
        self.pools_store.create(Pool("lab", "alice", places=places, directory="/nowhere", created_at=time.time(), members=members, **given))

    def run(self, name: str) -> Run:
        return self.store.get_run(name)

    def until(self, wish: Any, limit_s: float = 60.0) -> None:
        end = time.monotonic() + limit_s
        while not wish():
            states = {n: (self.run(n).state.value, self.run(n).message, [(a.partition, a.state.value, a.reason) for a in self.run(n).attempts]) for n in self.trainings}
            assert time.monotonic() < end, states
            self.plane.tick()
            time.sleep(0.4)

    def job(self, name: str) -> str:
        """What ``scontrol`` shows of the member's newest job."""
        newest = self.run(name).attempt
        assert newest is not None
        assert newest.job_id is not None
        return self.sandbox.run(["scontrol", "show", "job", newest.job_id]).stdout

    def close(self) -> None:
        self.sandbox.run(["scancel", self.blocker], check=False)
        self.sandbox.run(["scancel", f"--user={self.sandbox.system_user('alice')}"], user="alice", check=False)


@pytest.fixture
def scene(slurm: Sandbox, tmp_path: Path) -> Iterator[Scene]:
    made = Scene(slurm, tmp_path)
    yield made
    made.close()


def shown(text: str, field: str) -> str:
    found = re.search(rf"\b{field}=(\S*)", text)
    assert found is not None, text
    return found[1]


def test_the_queue_is_steered_and_a_running_member_moves_without_losing_a_step(scene: Scene) -> None:
    quick, second, third = scene.member("st-a", "gpudebug", 10.0), scene.member("st-b", "gpu", 1.0), scene.member("st-c", "gpu", 1.0)
    scene.until(lambda: scene.run("st-a").progress.step >= 2 and all(scene.run(n).state is RunState.QUEUED for n in ("st-b", "st-c")))
    scene.create(quick, second, third)
    before = [scene.job(n) for n in ("st-b", "st-c")]

    told = scene.pools.steer("lab", dry_run=True, whole=True)
    kinds = {c.run_id: (c.kind, c.here, c.to) for c in told.changes}
    assert kinds["st-a"] == ("move", "slow", "fast")
    steered, waiting = ("st-b", "st-c") if kinds["st-b"][2] == "slow" else ("st-c", "st-b")
    assert kinds[steered] == ("amend", "fast", "slow")
    assert kinds[waiting] == ("amend", "fast", "fast")
    assert all(c.why for c in told.changes)
    assert [(shown(j, "Partition"), shown(j, "Nice")) for j in (scene.job(n) for n in ("st-b", "st-c"))] == [("gpu", "0"), ("gpu", "0")]
    assert [shown(j, "JobId") for j in before] == [shown(scene.job(n), "JobId") for n in ("st-b", "st-c")]
    assert scene.pools_store.get("alice", "lab").round == 0

    problems: list[str] = []
    scene.pools.steer("lab", whole=True, problems=problems)
    assert problems == []
    assert (shown(scene.job(steered), "Partition"), shown(scene.job(waiting), "Partition")) == ("gpudebug", "gpu")
    assert shown(scene.job(waiting), "Nice") == "1000"
    assert scene.run(steered).attempt is not None
    assert scene.run(steered).attempt.partition == "gpudebug"  # type: ignore[union-attr]
    again = scene.pools.steer("lab", dry_run=True, whole=False)
    assert [c for c in again.changes if c.kind == "amend"] == []  # what was given is not given again

    scene.until(lambda: len(scene.run("st-a").attempts) == 2)
    scene.until(lambda: scene.run(steered).attempt.state is JobState.RUNNING)  # type: ignore[union-attr]
    assert len(scene.run(steered).attempts) == 1  # the same job, with its age
    with pytest.raises(AmendRefused, match=r"."):
        scene.batch.amend(scene.run(steered).attempt.job_id, JobChange(partition="gpu"))  # type: ignore[union-attr, arg-type]
    scene.sandbox.run(["scancel", scene.blocker])
    scene.until(lambda: scene.run("st-a").state is RunState.COMPLETED, 90.0)
    moved = scene.run("st-a").attempts
    assert [a.partition for a in moved] == ["gpudebug", "gpu"]
    assert moved[1].start_step == moved[0].step > 0
    assert scene.trainings["st-a"].right()


def test_what_a_round_may_change_is_taken_by_slurm_and_shown(slurm: Sandbox) -> None:
    batch = SlurmCli("testbed", AsUser(slurm, "alice"), slurm.system_user("alice"))
    argv = ["sbatch", "--parsable", "--partition=gpu", "--gres=gpu:v100:2", "--time=2", "--begin=now+1hour", "--wrap=sleep 60", "--output=/dev/null"]
    job = slurm.run(argv, user="alice").stdout.strip()

    def told(change: JobChange) -> str:
        batch.amend(job, change)
        return slurm.run(["scontrol", "show", "job", job]).stdout

    try:
        assert shown(told(JobChange(features=("v100",))), "Features") == "v100"
        assert "gres/gpu=1" in shown(told(JobChange(gres=("v100", 1))), "TRES")
        assert shown(told(JobChange(nice=1000)), "Nice") == "1000"
        assert shown(told(JobChange(exclude_nodes=("g01",))), "ExcNodeList") == "g01"
        with pytest.raises(AmendRefused, match="time limit"):
            batch.amend(job, JobChange(partition="gpudebug"))  # its limit is one minute
        both = told(JobChange(partition="gpudebug", walltime_s=60.0, exclude_nodes=()))
        assert (shown(both, "Partition"), shown(both, "TimeLimit"), shown(both, "ExcNodeList")) == ("gpudebug", "00:01:00", "(null)")
        with pytest.raises(AmendRefused, match="feature"):
            batch.amend(job, JobChange(features=("nosuch",)))
        back = told(JobChange(partition="gpu", features=(), nice=0))
        assert (shown(back, "Partition"), shown(back, "Features"), shown(back, "Nice")) == ("gpu", "(null)", "0")
        # What is shown is one thing, what is allocated another.
        slurm.run(["scontrol", "update", f"JobId={job}", "StartTime=now"], user="alice")
        assert started(slurm, job) == "gpu:v100:1"
    finally:
        slurm.run(["scancel", job])


def started(slurm: Sandbox, job: str) -> str:
    """The GRES that a job was allocated on its node, once it runs."""
    end = time.monotonic() + 60.0
    while "JobState=RUNNING" not in (text := slurm.run(["scontrol", "-d", "show", "job", job]).stdout):
        assert time.monotonic() < end, text
        time.sleep(0.3)
    return re.sub(r"\(.*", "", shown(text, "GRES"))


def test_a_job_without_accelerators_may_get_some_and_one_that_waits_keeps_them(slurm: Sandbox) -> None:
    batch = SlurmCli("testbed", AsUser(slurm, "alice"), slurm.system_user("alice"))
    argv = ["sbatch", "--parsable", "--partition=cpu", "--time=2", "--begin=now+1hour", "--wrap=sleep 60", "--output=/dev/null"]
    job = slurm.run(argv, user="alice").stdout.strip()
    try:
        batch.amend(job, JobChange(partition="gpu", gres=("v100", 1)))
        with pytest.raises(BadInput, match="queued anew"):  # Slurm would take it, and let the job wait for ever (BadConstraints)
            batch.amend(job, JobChange(partition="cpu", gres=("", 0)))
        slurm.run(["scontrol", "update", f"JobId={job}", "StartTime=now"], user="alice")
        assert started(slurm, job) == "gpu:v100:1"
    finally:
        slurm.run(["scancel", job])


def site_factor(scene: Scene, name: str) -> int:
    """What Slurm adds to the priority of the member's waiting job."""
    newest = scene.run(name).attempt
    assert newest is not None
    return int(scene.sandbox.run(["sprio", "-h", "-o", "%S", "-j", str(newest.job_id)]).stdout)


def test_with_an_operators_rights_whose_turn_it_is_goes_first(scene: Scene) -> None:
    alice = scene.sandbox.system_user("alice")
    assert f"which {alice} has not" in scene.batch.favour_refused()
    turn, other = scene.member("sf-a", "gpu", 4.0), scene.member("sf-b", "gpu", 4.0)
    scene.until(lambda: all(scene.run(n).state is RunState.QUEUED for n in ("sf-a", "sf-b")))
    fair = {"policy": "max_min_fairness_perf", "types": 1, "site_factor": 5000}
    turn, other = (replace(m, figures=m.figures[:1]) for m in (turn, other))
    scene.create(replace(turn, owed_s={"fast": 5000.0}), replace(other, owed_s={"fast": -4000.0}), **fair)
    problems: list[str] = []
    scene.pools.steer("lab", whole=True, problems=problems)
    assert [p for p in problems if "sf-a" in p and "SiteFactor needs an operator's rights" in p] == problems != []
    assert (site_factor(scene, "sf-a"), shown(scene.job("sf-b"), "Nice")) == (0, "1000")
    scene.sandbox.sacctmgr(["modify", "user", alice, "set", "adminlevel=Operator"])
    try:
        assert scene.batch.favour_refused() == ""
        problems.clear()
        scene.pools.steer("lab", whole=True, problems=problems)  # what was refused is asked for again
        assert problems == []
        assert (site_factor(scene, "sf-a"), site_factor(scene, "sf-b")) == (5000, 0)
        scene.pools.change("lab", lambda p: replace(p, members=(replace(p.members[0], owed_s={"fast": -4000.0}), replace(p.members[1], owed_s={"fast": 5000.0}))))
        scene.pools.steer("lab", whole=True, problems=problems)
        assert problems == []
        assert (site_factor(scene, "sf-a"), site_factor(scene, "sf-b")) == (0, 5000)
        assert (shown(scene.job("sf-a"), "Nice"), shown(scene.job("sf-b"), "Nice")) == ("1000", "0")
    finally:
        scene.sandbox.sacctmgr(["modify", "user", alice, "set", "adminlevel=None"])
