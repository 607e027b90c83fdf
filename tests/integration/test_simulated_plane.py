"""The unchanged plane on the simulated cluster: a run carried through walltime limits, a node failure and a preemption, in no time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ischeduler.batch.simulated import SimulatedBatch
from ischeduler.batch.simulated_training import SimulatedRuns, TrainingModel
from ischeduler.core.estimate import Estimate
from ischeduler.core.jobs import Cause, JobState, Resources
from ischeduler.core.plan import Needs, Plan, Segment
from ischeduler.core.run import Run, RunState
from ischeduler.core.workload import Workload
from ischeduler.plane.attempts import alive_attempts
from ischeduler.plane.loop import Plane
from ischeduler.plane.provisioners import Forecast, Informed, Newsvendor
from ischeduler.simulator.engine.jobs import JobRequest
from ischeduler.simulator.engine.machine import Machine, SimNode, SimPartition, SimQos
from ischeduler.simulator.engine.options import PriorityOptions, SchedulerOptions
from ischeduler.testing.memory_store import MemoryStore
from ischeduler.testing.sim_clock import SimClock

EPOCHS, EPOCH_S, LIMIT_S = 12, 600.0, 3600.0
NODES = tuple(SimNode(f"g{i}", 32, 256_000, {"a100": 4}) for i in range(4))
MACHINE = Machine(
    "sim", NODES, (SimPartition("gpu", tuple(n.name for n in NODES), LIMIT_S),),
    (SimQos("low", 1, preempt_mode="REQUEUE"), SimQos("high", 10, ("low",))),
)  # fmt: skip
OPTIONS = SchedulerOptions(priority=PriorityOptions(age=1000, qos=10_000), preempt="qos", estimates=True)


class Silent:
    def notify(self, run: Run, subject: str, text: str) -> None:
        return None


class Scene:
    """A plane, a simulated cluster, and one delegated training that needs two hours on one-hour limits."""

    def __init__(self, *, requeue: bool = False, model: TrainingModel | None = None) -> None:
        self.clock = SimClock(1_800_000_000.0)
        self.runs = SimulatedRuns(model or TrainingModel(EPOCH_S, startup_s=30.0, checkpoint_s=10.0))
        self.batch = SimulatedBatch(MACHINE, self.clock, OPTIONS, programs=self.runs.program, requeue=requeue)
        self.runs.batches.append(self.batch)
        self.store = MemoryStore()
        self.plane = self.new_plane()
        self.plane.delegate(self.run())

    def new_plane(self, **more: Any) -> Plane:
        return Plane(self.store, {"sim": self.batch}, self.runs, self.clock, Silent(), self.runs, owner="me", holder="test", **more)

    def run(self) -> Run:
        span = Estimate.spread(EPOCHS * EPOCH_S, 0.1, "s", "test@1")
        wait = Estimate.spread(60.0, 0.1, "s", "test@1")
        workload = Workload(name="toy", model="toy", samples=3200, epochs=EPOCHS, batch_size=32, command=("python", "train.py"))
        resources = Resources(cpus_per_node=8, memory_bytes=64 * 2**30, gpus_per_node=4, gres="a100", walltime_s=LIMIT_S)
        plan = Plan(
            1, "sim", "gpu", "a100", workload, resources, (Segment(0, LIMIT_S, LIMIT_S - 120, wait),),
            Needs(startup=Estimate.spread(30.0, 0.1, "s", "test@1"), checkpoint=Estimate.spread(10.0, 0.1, "s", "test@1"), wait=wait),
            span, wait, span, Estimate.exact(0.0, "usd", "test@1"), signal_lead_s=60, node_memory_bytes=256 * 2**30, qos="low",
        )  # fmt: skip
        return Run("r-1", "me", plan, RunState.PLANNED, "/runs/r-1", self.clock.now(), state_since=self.clock.now())

    def drive(self, until: Callable[[Run], bool] | None = None, hours: float = 24.0) -> Run:
        end_s = self.clock.now() + hours * 3600
        while self.clock.now() < end_s:
            report = self.plane.tick()
            assert report.held
            run = self.store.get_run("r-1")
            if (until or (lambda r: r.state.ended))(run):
                return run
            self.clock.advance(max(1.0, report.next_tick_s))
        run = self.store.get_run("r-1")
        raise AssertionError(f"{run.state} {run.message} {[(a.state, a.cause, a.reason) for a in run.attempts]}")

    def others(self, count: int, qos: str, run_s: float, at: float = 0.0) -> None:
        now = self.clock.now()
        self.batch.background(
            JobRequest(f"b{qos}{now:.0f}.{i}", now + at, run_s + 60, run_s, 1, 32, gpus=4, partition="gpu", qos=qos, user="other") for i in range(count)
        )


def epochs_beyond(run: Run, epochs: int) -> bool:
    return run.state is RunState.RUNNING and run.progress.epochs_done >= epochs


def test_walltime_limits_are_crossed() -> None:
    scene = Scene()
    run = scene.drive()
    assert run.state is RunState.COMPLETED, run.message
    assert [a.cause for a in run.attempts] == [Cause.WALLTIME, Cause.WALLTIME, Cause.FINISHED]
    assert run.progress.epochs_done == EPOCHS
    assert scene.runs.steps_done("r-1") == EPOCHS * 100
    assert all(a.started_at is not None and a.ended_at is not None and a.ended_at - a.started_at <= LIMIT_S for a in run.attempts)


def test_a_busy_cluster_a_node_failure_and_a_preemption() -> None:
    scene = Scene()
    scene.others(6, "", 1500.0)
    run = scene.drive(lambda r: epochs_beyond(r, 2))
    scene.batch.sim.node_down(run.attempts[-1].nodes[0])
    run = scene.drive(lambda r: len(r.attempts) == 2 and epochs_beyond(r, 4))
    assert run.attempts[0].cause is Cause.NODE_FAILURE
    assert run.attempts[0].nodes != run.attempts[1].nodes
    victim = next(j for j in scene.batch.sim.running.values() if j.job_id == run.attempts[-1].job_id)
    scene.batch.sim.preempt(victim, "CANCEL")
    run = scene.drive()
    assert run.state is RunState.COMPLETED, run.message
    causes = [a.cause for a in run.attempts]
    assert causes[:2] == [Cause.NODE_FAILURE, Cause.PREEMPTED]
    assert causes[-1] is Cause.FINISHED
    assert scene.runs.directories["r-1"].finished_by == [(len(causes), 0)]


def test_a_better_qos_pushes_the_run_out_and_it_comes_back_by_itself() -> None:
    scene = Scene(requeue=True)
    scene.drive(lambda r: epochs_beyond(r, 2))
    scene.others(4, "high", 900.0)
    run = scene.drive(lambda r: r.attempts[-1].restarts == 1 and r.state is RunState.RUNNING)
    assert len(run.attempts) == 1
    run = scene.drive()
    assert run.state is RunState.COMPLETED, run.message
    assert (1, 1) in {token for _, token in scene.runs.directories["r-1"].saved}


def test_where_nothing_is_requeued_the_plane_submits_again() -> None:
    scene = Scene()
    scene.drive(lambda r: epochs_beyond(r, 2))
    scene.others(4, "high", 900.0)
    run = scene.drive()
    assert run.state is RunState.COMPLETED, run.message
    assert run.attempts[0].cause is Cause.PREEMPTED


class TooSure:
    """Says that a successor will wait for half an hour, and after one came back too early that it will not; ``keep_s`` as told."""

    def provisioner(self, run: Run, now: float) -> tuple[Informed, str]:
        living = alive_attempts(run)
        wrong = not any(a.cause is Cause.RETURNED and a.number > living[0].number for a in run.attempts) if living else True
        return Keeping(Newsvendor(), Forecast(now, (0.5,), (1800.0 if wrong else 60.0,))), ""


class Keeping(Informed):
    __slots__ = ()

    @property
    def keep_s(self) -> float:
        return 300.0


class Ahead(Scene):
    def new_plane(self, **more: Any) -> Plane:
        return super().new_plane(foresight=TooSure(), **more)


def test_a_successor_on_an_empty_cluster_gives_its_allocation_back() -> None:
    """Its predecessor's segment is as long as it would have been alone, no step is done twice, and another comes in time."""
    scene = Ahead()
    run = scene.drive(lambda r: any(a.cause is Cause.RETURNED for a in r.attempts))
    assert run.state is RunState.RUNNING
    assert run.attempts[0].state is JobState.RUNNING
    assert list(scene.runs.directories["r-1"].claims) == [(1, 0)]
    run = scene.drive()
    assert run.state is RunState.COMPLETED, run.message
    stayed = [a for a in run.attempts if a.cause is not Cause.RETURNED]
    assert len(run.attempts) == len(stayed) + 2
    for back in (a for a in run.attempts if a.cause is Cause.RETURNED):
        assert (back.exit_code, back.spool_started) == (88, False)
        assert back.started_at is not None
        assert back.keep_from is not None
        assert back.started_at < back.keep_from
    assert [a.cause for a in stayed] == [Cause.WALLTIME, Cause.WALLTIME, Cause.FINISHED]
    assert all((a.ended_at or 0.0) - (a.started_at or 0.0) > LIMIT_S - 300 for a in stayed[:-1])
    saved = [step for step, _ in scene.runs.directories["r-1"].saved]
    assert saved == sorted(saved)
    assert scene.runs.directories["r-1"].finished_by == [(run.attempts[-1].number, 0)]


def test_the_same_scene_twice_is_the_same_story() -> None:
    stories = []
    for _ in range(2):
        scene = Scene()
        scene.others(9, "", 1500.0)
        run = scene.drive()
        stories.append([(a.number, a.cause, a.started_at, a.ended_at, a.nodes) for a in run.attempts])
    assert stories[0] == stories[1]


def test_the_controller_may_be_away() -> None:
    scene = Scene()
    scene.drive(lambda r: epochs_beyond(r, 1))
    scene.batch.down = True
    run = scene.drive(lambda r: r.state is RunState.UNKNOWN)
    assert run.attempts[-1].cause is None
    scene.batch.down = False
    run = scene.drive()
    assert run.state is RunState.COMPLETED
    assert run.attempts[-1].state is JobState.COMPLETED


def test_memory_grows_until_it_suffices() -> None:
    scene = Scene(model=TrainingModel(EPOCH_S, startup_s=30.0, checkpoint_s=10.0, needs_memory_bytes=80 * 2**30))
    run = scene.drive()
    assert run.state is RunState.COMPLETED, run.message
    assert run.attempts[0].cause is Cause.OUT_OF_MEMORY
