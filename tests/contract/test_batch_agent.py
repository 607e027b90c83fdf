"""The batch contract on agents: mailbox in a real database, wire format and all, over the fake batch system; and killing agents."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from test_batch import FakeRig

from ischeduler.batch.agent import AgentAway, AgentBatch, AgentRunFiles
from ischeduler.batch.agent_hands import Hands
from ischeduler.batch.agent_words import failed, told, value_of
from ischeduler.batch.fan_out import ByOwner
from ischeduler.batch.run_files import SharedRunFiles
from ischeduler.core.errors import BadInput, BatchUnavailable, SubmitRefused, SubmitUncertain
from ischeduler.core.jobs import JobRef, JobState
from ischeduler.core.mail import Mail
from ischeduler.helper.agent import Agent, AnotherAgent, ServiceAway
from ischeduler.store.engine import open_engine
from ischeduler.store.mailbox import Mailbox
from ischeduler.store.migrate import migrate
from ischeduler.testing.batch_contract import BatchContract, Program
from ischeduler.testing.sim_clock import SimClock


class Killed(BaseException):
    """The agent's process is gone."""


class Service:
    """The service's end of the line, without HTTP: JSON in, JSON out. ``fault`` is called before and after each poll is worked on."""

    def __init__(self, mailbox: Mailbox, owner: str = "alice", cluster: str = "fake") -> None:
        self.mailbox, self.owner, self.cluster = mailbox, owner, cluster
        self.fault: Callable[[str], None] = lambda where: None

    def poll(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        self.fault("before poll")
        said = json.loads(json.dumps(body))
        for done in said["answers"]:
            self.mailbox.settle(self.owner, self.cluster, done["id"], done["answer"])
        at_work = self.mailbox.arrive(self.owner, self.cluster, said["agent"], said["next_s"], said["instead_of"])
        found = self.mailbox.take(self.owner, self.cluster, said["agent"]) if at_work == said["agent"] else ()
        requests = [{"id": m.id, "kind": m.kind, "body": m.body, "ttl_s": m.ttl_s} for m in found]
        self.fault("after poll")
        return json.loads(json.dumps({"at_work": at_work, "settled": [d["id"] for d in said["answers"]], "requests": requests}))

    def leave(self, name: str) -> None:
        self.mailbox.leave(self.owner, self.cluster, name)


class WaitingClock(SimClock):
    """Time passes while somebody waits, and then the agent works: one thread plays both sides."""

    def __init__(self, clock: SimClock) -> None:
        super().__init__(clock.now())
        self.inner = clock
        self.works: Callable[[], Any] = lambda: None

    def now(self) -> float:
        return self.inner.now()

    def sleep(self, seconds: float) -> None:
        self.inner.sleep(seconds)
        self.works()


class AgentRig(FakeRig):
    """The fake batch system behind an agent."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        engine = open_engine(folder / "service.db")
        self.folder, self.clock = folder, WaitingClock(self.fake.clock)
        self.mailbox = Mailbox(engine, self.clock.now)
        self.service = Service(self.mailbox)
        self.batch: Any = self.fake
        self.starts = 0
        self.agent = self.start_agent()

    def start_agent(self) -> Agent:
        """A new process of an agent."""
        self.starts += 1
        hands = Hands(self.batch, SharedRunFiles(), self.folder / "runs")
        self.agent = Agent(self.service, hands, self.clock.inner, name=f"host:{self.starts}:x", monotonic=self.clock.now)
        self.clock.works = lambda: self.agent.round(0.0)
        self.agent.round(0.0)
        return self.agent

    def connect(self) -> AgentBatch:  # type: ignore[override]
        return AgentBatch(self.mailbox, "alice", "fake", self.clock)


@pytest.fixture(autouse=True)
def seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulated time costs a transaction a look: a second apart is enough."""
    monkeypatch.setattr("ischeduler.batch.agent.LOOK_S", 1.0)


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database that was brought up to date once."""
    path = tmp_path_factory.mktemp("mailbox") / "service.db"
    engine = open_engine(path)
    migrate(engine)
    engine.dispose()
    return path


@pytest.fixture
def rig(tmp_path: Path, empty_database: Path) -> AgentRig:
    shutil.copy(empty_database, tmp_path / "service.db")
    return AgentRig(tmp_path)


class TestAgent(BatchContract):
    """The contract itself."""


def test_without_an_agent_nothing_is_left_in_the_mailbox(rig: AgentRig) -> None:
    batch = rig.connect()
    rig.agent.leave()
    rig.clock.works = lambda: None
    for ask in (
        batch.snapshot,
        lambda: batch.submit(rig.spec(rig.new_key(), Program())),
        lambda: batch.observe([JobRef("r-1.1")]),
    ):
        with pytest.raises(AgentAway, match="start one there: isched agent"):
            ask()
    rig.start_agent()
    assert rig.agent.round(0.0).done == 0


def test_a_submission_that_no_agent_fetched_never_happens(rig: AgentRig) -> None:
    batch, spec = rig.connect(), rig.spec(rig.new_key(), Program())
    rig.clock.works = lambda: None
    with pytest.raises(BatchUnavailable, match="nothing was done") as away:
        batch.submit(spec)
    assert not isinstance(away.value, SubmitUncertain)
    rig.agent.leave()
    rig.start_agent()
    assert rig.connect().observe([JobRef(spec.key)]).jobs == {}


def test_a_submission_that_was_begun_too_late_is_not_begun(rig: AgentRig) -> None:
    number = rig.mailbox.post("alice", "fake", "submit", {}, 10.0)
    late = Mail(number, "submit", {}, 5.0)
    answer = rig.agent._do(late, rig.clock.now() - 6.0)
    with pytest.raises(BatchUnavailable, match="not begun"):
        value_of(answer)


def test_answers_are_told_again_until_the_service_has_them(rig: AgentRig) -> None:
    batch, spec = rig.connect(), rig.spec(rig.new_key(), Program(run_s=300))
    lost = [0]

    def lose(where: str) -> None:
        if where == "before poll" and lost[0] < 3 and rig.agent._answers:
            lost[0] += 1
            raise ServiceAway("cut")

    rig.service.fault = lose
    job_id = batch.submit(spec)
    assert lost[0] == 3
    assert [s.job_id for s in batch.observe([JobRef(spec.key)]).jobs[spec.key]] == [job_id]


def test_an_answer_that_got_lost_on_its_way_back_changes_nothing(rig: AgentRig) -> None:
    batch, spec = rig.connect(), rig.spec(rig.new_key(), Program(run_s=300))
    cut = [3]

    def after(where: str) -> None:
        if where == "after poll" and cut[0]:
            cut[0] -= 1
            raise ServiceAway("cut")

    rig.service.fault = after
    with pytest.raises(BatchUnavailable):
        batch.submit(spec)  # the request was handed out into nothing: uncertain, and never begun
    cut[0] = 0
    assert rig.connect().observe([JobRef(spec.key)]).jobs == {}


def test_a_second_agent_does_not_act_while_the_first_is_there(rig: AgentRig) -> None:
    first = rig.agent
    second = Agent(
        rig.service, Hands(rig.fake, SharedRunFiles(), rig.folder), rig.clock.inner, name="other:1:y", monotonic=rig.clock.now
    )
    with pytest.raises(AnotherAgent, match="another agent of yours"):
        second.round(0.0)
    first.leave()
    assert second.round(0.0).trouble == ""
    with pytest.raises(AnotherAgent):
        first.round(0.0)


class KilledAt:
    """A batch system at whose k-th call, before or after it, the agent's process dies."""

    def __init__(self, inner: Any, at: int) -> None:
        self._inner, self.at, self.count = inner, at, 0

    def _step(self) -> None:
        self.count += 1
        if self.count == self.at:
            raise Killed

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self._step()
            result = value(*args, **kwargs)
            self._step()
            return result

        return call


@pytest.mark.parametrize("at", range(1, 16))
def test_killing_the_agent_at_any_call_doubles_nothing(rig: AgentRig, tmp_path: Path, at: int) -> None:
    """A plane carries a run; the agent dies once, anywhere, and another one starts a minute later."""
    from ischeduler.core.run import Run, RunState
    from ischeduler.plane.cadence import Cadence
    from ischeduler.plane.loop import Plane
    from ischeduler.testing.fake_batch import Behaviour
    from ischeduler.testing.memory_store import MemoryStore

    rig.fake.behave = lambda spec: Behaviour(run_s=30.0)
    killer = rig.batch = KilledAt(rig.fake, at)
    rig.agent.leave()
    rig.start_agent()
    died = [False]

    def works() -> None:
        try:
            rig.agent.round(0.0)
        except Killed:
            died[0] = True
            rig.clock.works = lambda: None

    rig.clock.works = works
    store, quiet, batch = MemoryStore(), Quiet(), rig.connect()
    run = Run("r-k", "alice", a_plan(tmp_path), RunState.PLANNED, str(tmp_path / "runs" / "r-k"), 0.0)
    files = AgentRunFiles(rig.mailbox, rig.clock)
    plane = Plane(store, {"fake": batch}, quiet, rig.clock, quiet, files, owner="alice", holder="t", cadence=Cadence(fast_s=1.0))
    plane.delegate(run)
    for _ in range(400):
        plane.tick()
        rig.clock.inner.advance(2.0)
        if not died[0]:
            works()
        elif not rig.mailbox.alive("alice", "fake"):
            killer.at, died[0] = 0, False
            rig.start_agent()
            rig.clock.works = works
        if store.get_run("r-k").state.ended:
            break
    after = store.get_run("r-k")
    assert after.state is RunState.COMPLETED, (after.message, after.attempts)
    assert len(after.attempts) == 1
    assert [j.spec.key for j in rig.fake.jobs.values()] == [after.attempts[0].key], "one job, whatever happened"
    assert killer.count >= at, "the kill came"


class Quiet:
    """No events, and nobody to tell."""

    def read(self, run: Any) -> tuple[list[Any], dict[str, int]]:
        return [], {}

    def notify(self, run: Any, subject: str, text: str) -> None:
        """Nobody listens."""


def a_plan(folder: Path) -> Any:
    from ischeduler.core.estimate import Estimate
    from ischeduler.core.jobs import Resources
    from ischeduler.core.plan import Needs, Plan, Segment
    from ischeduler.core.workload import Workload

    some = Estimate(10.0, 10.0, 20.0, "s", "test")
    workload = Workload(name="w", epochs=1, samples=1, batch_size=1, command=("python", "train.py"), directory=str(folder))
    resources = Resources(walltime_s=600.0)
    return Plan(
        needs=Needs(), number=1, cluster="fake", partition="cpu", node_type="cpu", workload=workload, resources=resources, run=some, wait=some, finish=some,
        segments=(Segment(0, 600.0, 500.0, some),), cost=Estimate.exact(0.0, "usd", "test"),
    )  # fmt: skip


def test_files_are_touched_below_the_agent_s_folder_alone(rig: AgentRig, tmp_path: Path) -> None:
    from ischeduler.core.run import Run, RunState

    files = AgentRunFiles(rig.mailbox, rig.clock)
    good = Run("r-1", "alice", a_plan(tmp_path), RunState.PLANNED, str(tmp_path / "runs" / "r-1"), 0.0)
    files.prepare(good)
    files.raise_fence(good, "2.0")
    assert (tmp_path / "runs" / "r-1" / "fence").read_text() == "2.0\n"
    (tmp_path / "runs" / "r-1" / "logs" / "1.out").write_text("hello")
    assert files.log_tail(good, 1) == "hello"
    (tmp_path / "runs" / "link").symlink_to(tmp_path / "secret")
    from dataclasses import replace

    for bad in ("/etc", str(tmp_path / "runs" / ".." / "other"), str(tmp_path / "runs"), str(tmp_path / "runs" / "link" / "x")):
        with pytest.raises(BadInput, match="only"):
            files.prepare(replace(good, directory=bad))
    assert not (tmp_path / "other").exists()
    rig.clock.works = lambda: None
    rig.agent.leave()
    with pytest.raises(OSError, match="no agent of alice"):
        files.prepare(good)


@pytest.mark.parametrize("kind", ["run", "folder", "_do", "__init__", "", "exec", "submit;id"])
def test_nothing_else_can_be_asked_of_an_agent(rig: AgentRig, kind: str) -> None:
    with pytest.raises(BadInput, match="cannot do"):
        value_of(rig.agent._do(Mail(1, kind, {"job": {}}, 10.0), rig.clock.now()))


@pytest.mark.parametrize("body", [{}, {"job": None}, {"job": {"key": 1}}, {"jobs": 3}, {"run": []}])
def test_a_request_that_makes_no_sense_is_an_answer_in_words(rig: AgentRig, body: dict[str, Any]) -> None:
    for kind in ("submit", "observe", "prepare", "probe", "log"):
        with pytest.raises(BadInput, match="makes no sense here"):
            value_of(rig.agent._do(Mail(1, kind, body, 10.0), rig.clock.now()))


def test_errors_keep_their_kind_on_the_way() -> None:
    for error in (
        SubmitRefused("no", kind="site_limit"),
        SubmitUncertain("perhaps"),
        BatchUnavailable("away"),
        BadInput("what"),
        OSError("disk"),
    ):
        with pytest.raises(type(error), match=str(error)) as raised:
            value_of(json.loads(json.dumps(failed(error))))
        assert getattr(raised.value, "kind", None) == getattr(error, "kind", None)


def test_long_answers_are_packed_and_bombs_are_not_unpacked() -> None:
    import base64
    import zlib

    long = ["x" * 100] * 5000
    packed = told(long)
    assert set(packed) == {"packed"}
    assert len(packed["packed"]) < 5000
    assert value_of(packed) == long
    bomb = base64.b64encode(zlib.compress(b"0" * (70 * 2**20))).decode()
    for answer in ({"packed": bomb}, {"packed": "!!"}, {"packed": "AAAA"}, {}):
        with pytest.raises(BatchUnavailable):
            value_of(answer)


def test_one_owner_who_cannot_be_asked_leaves_only_that_owner_s_jobs_unknown(rig: AgentRig) -> None:
    batch, spec = rig.connect(), rig.spec(rig.new_key(), Program(run_s=300))
    batch.submit(spec)
    owners = {spec.key: "alice", "r-b-1": "bob"}
    boxes = {"alice": batch, "bob": AgentBatch(rig.mailbox, "bob", "fake", rig.clock)}
    observer = ByOwner("fake", lambda keys: {k: owners[k] for k in keys if k in owners}, lambda o: boxes[o], rig.clock)
    seen = observer.observe([JobRef(spec.key), JobRef("r-b-1"), JobRef("stray-1")])
    assert [s.state for s in seen.jobs[spec.key]] == [JobState.RUNNING]
    assert seen.unknown == {"r-b-1", "stray-1"}
    assert observer.snapshot().cluster == "fake"
    with pytest.raises(BatchUnavailable, match="no agent of bob"):
        observer.observe([JobRef("r-b-1")])
