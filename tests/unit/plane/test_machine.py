"""Random lives: no order of events, duplicates, outages and crashes submits twice, loses a run or ends it wrongly."""

from __future__ import annotations

import random
from dataclasses import replace

from harness import Foretold, Rig
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from test_crash import Fate, Killed
from world import T0, Training, World, make_plan, make_run

from ischeduler.core.event import Event
from ischeduler.core.jobs import JobState, JobStatus, Observation
from ischeduler.core.run import Attempt, Caps, Run, RunState
from ischeduler.plane import inputs as i
from ischeduler.plane.actions import Submit
from ischeduler.plane.decide import decide
from ischeduler.plane.policy import Policy
from ischeduler.plane.pursue import key_of
from ischeduler.plane.transitions import TRANSITIONS

SETTLED = settings(deadline=None, suppress_health_check=list(HealthCheck))


class Lives(RuleBasedStateMachine):
    """One run in a world that fails in every way the real ones do."""

    @initialize(
        accounting=st.booleans(), epochs=st.integers(2, 8), wait_s=st.sampled_from([5.0, 40.0, 400.0]), relay=st.booleans(),
        linger_s=st.sampled_from([0.0, 20.0]), ahead=st.sampled_from([0, 0, 1, 3]), keep_s=st.sampled_from([None, 20.0, 150.0]),
    )
    def begin(
        self, accounting: bool, epochs: int, wait_s: float, relay: bool, linger_s: float, ahead: int, keep_s: float | None
    ) -> None:
        world = World(accounting=accounting, wait_s=wait_s, nodes=6, linger_s=linger_s)
        options = {"foresight": Foretold(1.2 * wait_s if keep_s is None else wait_s + 100, keep_s=keep_s)} if ahead else {}
        self.rig = Rig(world, clusters=("one", "two"), policy=Policy(relay=relay, pending_max=max(1, ahead)), **options)
        self.ahead = ahead
        self.rig.world.trainings["r-1"] = Training(epochs=epochs)
        self.plan = make_plan(epochs=epochs)
        self.rig.plane().delegate(make_run(self.plan, caps=Caps(max_attempts=500, max_failures=500)))
        self.wished = False
        self.first_end: RunState | None = None
        self.may_overlap = False
        self.seen: list[tuple[Run, tuple[Event, ...]]] = []

    @rule(seconds=st.sampled_from([1, 5, 30, 120, 700]))
    def time_passes(self, seconds: float) -> None:
        self.rig.world.advance(seconds)

    @rule()
    def tick(self) -> None:
        self.rig.tick()

    @rule(at=st.integers(1, 25), when=st.sampled_from(["before", "after"]))
    def tick_and_die(self, at: int, when: str) -> None:
        from test_crash import Doomed

        fate, rig = Fate(at, when), self.rig
        store, files, batches = rig.store, rig.files, rig.batches
        rig.store, rig.files = Doomed(store, fate), Doomed(files, fate)  # type: ignore[assignment]
        rig.batches = {k: Doomed(b, fate) for k, b in batches.items()}  # type: ignore[assignment]
        doomed = rig.plane("doomed")
        rig.store, rig.files, rig.batches = store, files, batches
        try:
            doomed.tick()
        except Killed:
            pass

    @rule(fault=st.sampled_from(["site_limit", "lost", "accepted", "late"]))
    def next_submission(self, fault: str) -> None:
        self.rig.world.faults.append(fault)

    @rule(down=st.booleans())
    def controller(self, down: bool) -> None:
        for batch in self.rig.batches.values():
            batch.down = down

    @rule(how=st.sampled_from(["end", "zombie", "requeue"]))
    def node_fails(self, how: str) -> None:
        running = [j for j in self.rig.world.alive("r-1") if j.state is JobState.RUNNING]
        if running:
            self.rig.world.fail_node(running[0], requeue=how == "requeue", zombie=how == "zombie")
            self.rig.world.down.clear()

    @rule()
    def a_dead_job_comes_back(self) -> None:
        """Slurm requeues after the failure was seen: for a moment two jobs live, until the plane is told."""
        failed = [j for j in self.rig.world.all_jobs("r-1") if j.state is JobState.NODE_FAIL]
        if failed:
            self.rig.world.requeue(failed[-1])
            self.may_overlap = True

    @rule(to_two=st.booleans())
    def owner_moves(self, to_two: bool) -> None:
        epochs = self.plan.workload.epochs
        plan = make_plan(cluster="two", partition="cpu", node_type="cpu", epochs=epochs) if to_two else self.plan
        self.rig.plane().move("r-1", plan)

    @rule(sure=st.integers(0, 9))
    def owner_cancels(self, sure: int) -> None:
        if sure == 0:
            self.rig.plane().cancel("r-1")
            self.wished = True

    @rule(seed=st.integers(0, 10**6))
    def old_words_again(self, seed: int) -> None:
        """Events of the past, duplicated and in any order, pushed beside the spool."""
        run, words = self.rig.run(), list(self.rig.world.training("r-1").spool)
        dice = random.Random(seed)
        for event in dice.sample(words, min(len(words), 5)):
            run, _ = decide(run, i.JobEvent(event), self.rig.world.now())
            if run.state.ended:
                return
        if dice.random() < 0.3:
            newer = decide(self.rig.run(), i.Submitted("no-such-key", 1, "999"), self.rig.world.now())[0]
            assert len(newer.attempts) in (len(self.rig.run().attempts), len(self.rig.run().attempts) + 1)

    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "rig"):
            return
        run, world = self.rig.run(), self.rig.world
        alive = [j for j in world.alive("r-1") if not world.held(j)]
        if not self.may_overlap:
            assert len(alive) <= 1 + (self.ahead and self.ahead + 1), [(j.spec.key, j.state) for j in alive]
        jobs = world.all_jobs("r-1")
        assert len({j.spec.key for j in jobs}) == len(jobs)
        assert [a.number for a in run.attempts] == list(range(1, len(run.attempts) + 1))
        if run.state is RunState.COMPLETED:
            assert world.training("r-1").done_by
            assert run.progress.epochs_done >= self.plan.workload.epochs
        if run.state is RunState.CANCELLED:
            assert self.wished
        assert run.state is not RunState.FAILED, run.message
        if self.first_end is not None:
            assert run.state is self.first_end
        if run.state.ended:
            self.first_end = run.state

    def teardown(self) -> None:
        """Whatever happened: once the world is well again, the run ends, and no job of it is left."""
        if not hasattr(self, "rig"):
            return
        for batch in self.rig.batches.values():
            batch.down = False
        self.rig.world.faults.clear()
        self.rig.world.advance(61)
        run = self.rig.drive(hours=48, every_s=30)
        self.rig.tick()
        assert len(self.rig.world.alive("r-1")) <= int(self.may_overlap)
        self.holds()
        assert run.state is (RunState.CANCELLED if self.wished and not self.rig.world.training("r-1").done_by else run.state)


TestLives = Lives.TestCase
TestLives.settings = settings(SETTLED, max_examples=60, stateful_step_count=40)

KEYS = st.sampled_from([*(key_of("r-1", n) for n in (1, 2, 3)), key_of("other", 1)])
TOKENS = st.sampled_from(["1.0", "1.1", "2.0", "2.1", "3.0", "0.0", "", "x.y", "9.9"])
NUMBERS = st.one_of(st.integers(-5, 900), st.floats(), st.none(), st.text(max_size=3))
FIELDS = [
    "epoch", "epochs", "step", "steps", "code", "reason", "name", "checkpoint", "where", "text", "gpu", "rss_bytes", "save_s",
    "epoch_time_s", "step_time_s", "loss", "host", "port", "failures", "of", "since",
]
DATA = st.dictionaries(st.sampled_from(FIELDS), NUMBERS, max_size=6)
KINDS = st.sampled_from([
    "started", "resumed", "progress", "checkpointing", "checkpoint", "checkpoint_failed", "heartbeat", "signal", "oom",
    "finished", "exit", "nonsense", "ready", "unready", "leaving", "restarting",
])
EVENTS = st.builds(
    Event, run_id=st.sampled_from(["r-1", "r-1", "r-1", "r-2"]), kind=KINDS, at=st.floats(0, 2e6), source=st.just("job"),
    token=TOKENS, seq=st.integers(0, 30), data=DATA,
)
STATUSES = st.builds(
    JobStatus, job_id=st.sampled_from(["1", "2", "3", "17"]), key=st.just(""), state=st.sampled_from(JobState),
    raw_state=st.sampled_from(["", "BOOT_FAIL"]),
    reason=st.sampled_from(["", "Priority", "BadConstraints", "exceeded memory limit"]),
    exit_code=st.sampled_from([None, 0, 1, 85, 86, 87, 88, 137]), signal=st.sampled_from([None, 0, 9, 15]),
    nodes=st.sampled_from([(), ("n1",), ("n1", "n2")]), start_s=st.one_of(st.none(), st.floats(0, 2e6)),
    end_s=st.one_of(st.none(), st.floats(0, 2e6)), submit_s=st.one_of(st.none(), st.floats(0, 2e6)), restarts=st.integers(0, 2),
)
OBSERVATIONS = st.builds(
    Observation, taken_at=st.just(0.0), jobs=st.dictionaries(KEYS, st.lists(STATUSES, max_size=2).map(tuple), max_size=3),
    complete=st.booleans(),
)
PLANS = st.sampled_from([make_plan(), make_plan(cluster="two", partition="cpu", node_type="cpu"), make_plan(epoch_s=1, wait_s=0)])
INPUTS = st.one_of(
    st.just(i.Tick()), st.just(i.Delegated()), st.just(i.Recorded()), st.builds(i.MoveAsked, PLANS), st.just(i.CancelAsked()),
    st.builds(i.Submitted, KEYS, st.integers(1, 3), st.sampled_from(["1", "2", "3"])),
    st.builds(
        i.SubmitFailed, KEYS, st.integers(1, 3), st.sampled_from(["site_limit", "invalid", "not_sent"]), st.just("no"),
        st.booleans(),
    ),
    st.tuples(st.just("seen"), st.floats(-100, 0), OBSERVATIONS),
    st.builds(i.QueryFailed, st.sampled_from(["one", "two"]), st.just("no")), st.builds(i.JobEvent, EVENTS),
    st.builds(i.LogRead, KEYS, st.sampled_from(["", "CUDA out of memory", "exceeded memory limit"])),
    st.builds(i.Replanned, st.sampled_from(["reschedule", "gpu_memory", "host_memory"]), st.lists(PLANS, max_size=2).map(tuple)),
)
CAPS = st.builds(
    Caps, max_attempts=st.sampled_from([2, 50]), max_failures=st.sampled_from([1, 5]), allow_smaller_batch=st.booleans(),
    allow_move=st.booleans(), deadline=st.sampled_from([None, T0 + 500]), max_cost=st.sampled_from([None, 1.0]),
)


@settings(SETTLED, max_examples=400)
@given(relay=st.booleans(), caps=CAPS, told=st.lists(st.tuples(st.sampled_from([0.0, 1.0, 30.0, 400.0]), INPUTS), max_size=40))
def test_decide_is_total_and_idempotent(relay: bool, caps: Caps, told: list) -> None:
    policy = Policy(relay=relay)
    run, now = make_run(make_plan(cost=1.0), caps=caps), T0
    sent: set[tuple[str, int]] = set()
    reached: RunState | None = None
    for wait_s, given_input in told:
        now += wait_s
        if isinstance(given_input, tuple):
            given_input = i.Observed("one", now + given_input[1], given_input[2])
        before = run
        run, actions = decide(run, given_input, now, policy=policy)
        for action in actions:
            if isinstance(action, Submit):
                assert (action.key, action.tries) not in sent
                sent.add((action.key, action.tries))
                assert _may_send(before, action, given_input)
        again, more = decide(run, i.Tick(), now, policy=policy)
        assert not any(isinstance(a, Submit) for a in more)
        assert again.state is run.state
        assert before.state is run.state or (before.state, run.state) in TRANSITIONS or _through_between(before, run)
        assert [a.number for a in run.attempts] == list(range(1, len(run.attempts) + 1))
        assert len([a for a in run.attempts if a.ended_seen_at is None]) <= 1 + relay
        if reached is not None:
            assert run == before
        reached = run.state if run.state.ended else None


def _may_send(before: Run, action: Submit, told: object) -> bool:
    """A key is sent again only when its earlier answer was a refusal or a look did not find it."""
    old: Attempt | None = next((a for a in before.attempts if a.key == action.key), None)
    if old is None or old.last_try_at is None:
        return True
    return isinstance(told, (i.Observed, i.SubmitFailed))


def _through_between(before: Run, after: Run) -> bool:
    between = RunState.BETWEEN_SEGMENTS
    return (before.state, between) in TRANSITIONS and (between, after.state) in TRANSITIONS


@settings(SETTLED, max_examples=100)
@given(words=st.lists(EVENTS, max_size=30), seed=st.integers(0, 10**6))
def test_duplicates_change_nothing(words: list[Event], seed: int) -> None:
    """Feeding an event twice in a row is the same as feeding it once."""
    start, _ = decide(make_run(), i.Tick(), T0)
    start, _ = decide(start, i.Submitted(key_of("r-1", 1), 1, "1"), T0 + 1)
    once = twice = start
    for event in words:
        once, _ = decide(once, i.JobEvent(event), T0 + 2)
        twice, _ = decide(twice, i.JobEvent(event), T0 + 2)
        twice, _ = decide(twice, i.JobEvent(event), T0 + 2)
    assert replace(once, version=0) == replace(twice, version=0)
