"""The batch contract on Tapis: tapipy and our adapter against the stand-in tenant, which runs jobs on the fake batch system."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_batch import FakeRig

from ischeduler.core.errors import BatchUnavailable, SubmitRefused, SubmitUncertain
from ischeduler.core.jobs import JobRef, JobSpec, JobState
from ischeduler.core.run import Run, RunState
from ischeduler.testing.batch_contract import BatchContract, BatchRig, Program, ended
from ischeduler.testing.fake_batch import FakeBatch
from ischeduler.testing.sim_clock import SimClock

pytest.importorskip("tapipy", reason="tapipy is not installed")

from ischeduler.batch.tapis.batch import TapisBatch
from ischeduler.batch.tapis.client import Login, TapisClient
from ischeduler.batch.tapis.files import TapisRunFiles
from ischeduler.batch.tapis.job import Site
from ischeduler.batch.tapis.resources import estimator_app, system_definition, training_app
from ischeduler.testing.tapis_server import InProcess, SimulatedRunner, TapisServer

START = 4_000_000_000.0
"""Tokens must not have expired by this machine's clock, which tapipy asks."""
QUEUE = {"name": "cpu", "hpcQueueName": "cpu", "maxNodeCount": 2, "maxCoresPerNode": 8, "maxMinutes": 600, "maxMemoryMB": 16000}
SYSTEM = {"id": "sys", "batchLogicalQueues": [QUEUE]}


class TapisRig(FakeRig):
    """A tenant whose one system is the fake batch system, on simulated time."""

    def __init__(self, folder: Path, **server: Any) -> None:
        super().__init__()
        self.fake = FakeBatch(clock=SimClock(START), slots=2, behave=lambda spec: self.behaviours[spec.key])
        self.clock = self.fake.clock
        self.server = TapisServer(
            self.clock,
            SimulatedRunner(self.fake),
            folder / "root",
            users={"alice": "secret", "bob": "other"},
            systems={"sys": SYSTEM},
            **server,
        )
        app = training_app("isched-train", "1", "tapis://sys/isched/app.zip", "sys")
        self.server.apps[("isched-train", "1")] = app

    def client(self, user: str = "alice", **login: Any) -> TapisClient:
        given = {"password": self.server.users[user], **login}
        return TapisClient("https://dev.example.org", "dev", Login(user, **given), self.clock, dress=InProcess(self.server).dress)

    def connect(self, user: str = "alice", **options: Any) -> TapisBatch:  # type: ignore[override]
        return TapisBatch("fake", self.client(user), Site("sys"), self.clock, **options)

    def spec(self, key: str, program: Program, **changes: Any) -> JobSpec:
        made = super().spec(key, program, **changes)
        launcher = "srun" if made.resources.nodes > 1 else "direct"
        return replace(made, signal_lead_s=changes.get("signal_lead_s"), launcher=launcher)

    def refused(self, key: str) -> JobSpec:
        return self.spec(key, Program(), nodes=99)

    def go_down(self) -> None:
        self.server.faults.down = True

    def come_back(self) -> None:
        self.server.faults.down = False


@pytest.fixture
def rig(tmp_path: Path) -> TapisRig:
    return TapisRig(tmp_path)


class TestTapis(BatchContract):
    """The contract; Tapis tells no node names and nobody else's jobs."""

    def test_a_job_is_submitted_observed_and_finishes(self, rig: BatchRig, batch: Any) -> None:
        spec = rig.spec(rig.new_key(), Program())
        job_id = batch.submit(spec)
        status = ended(rig, batch, spec.key)
        assert (status.job_id, status.key, status.state) == (job_id, spec.key, JobState.COMPLETED)
        assert (status.exit_code, status.signal, status.partition) == (0, None, spec.partition)
        assert (status.submit_s or 0) <= (status.start_s or 0) <= (status.end_s or 0)
        assert (status.nodes, status.limit_s) == ((), spec.resources.walltime_s)


def test_a_broken_answer_after_the_job_was_taken_is_uncertain_and_the_job_is_found(rig: TapisRig) -> None:
    batch, spec = rig.connect(), rig.spec(rig.new_key(), Program(run_s=300))
    _break_the_submission(rig)
    with pytest.raises(SubmitUncertain):
        batch.submit(spec)
    assert len(rig.connect().observe([JobRef(spec.key)]).jobs[spec.key]) == 1


def _break_the_submission(rig: TapisRig) -> None:
    """The next submission is carried out and then answered with 500."""
    plain = rig.server.jobs_submitJob

    def submit(*args: Any) -> Any:
        rig.server.faults.fail_after = 1
        rig.server.jobs_submitJob = plain  # type: ignore[method-assign]
        return plain(*args)

    rig.server.jobs_submitJob = submit  # type: ignore[method-assign]


def test_an_expired_token_is_replaced_before_anybody_notices(rig: TapisRig) -> None:
    rig.server.token_s = 600.0
    client = rig.client()
    batch = TapisBatch("fake", client, Site("sys"), rig.clock)
    spec = rig.spec(rig.new_key(), Program(run_s=3000), walltime_s=6000.0)
    job_id = batch.submit(spec)
    assert client.calls["token"] == 1
    rig.clock.advance(2000.0)
    assert [s.job_id for s in batch.observe([JobRef(spec.key)]).jobs[spec.key]] == [job_id]
    assert client.calls["token"] == 2


def test_a_token_that_was_refused_is_replaced_once_and_nothing_is_doubled(rig: TapisRig) -> None:
    client = rig.client()
    batch = TapisBatch("fake", client, Site("sys"), rig.clock)
    batch.snapshot()
    rig.server.faults.refuse_tokens = 1
    spec = rig.spec(rig.new_key(), Program(run_s=300))
    batch.submit(spec)
    assert len(rig.fake.jobs) == 1
    rig.server.faults.refuse_tokens = 10
    with pytest.raises(BatchUnavailable, match="sign in again"):
        batch.snapshot()


def test_a_refresh_token_is_used_where_there_is_a_client_for_it(rig: TapisRig) -> None:
    client = rig.client(client_id="c", client_key="k")
    client.call("systems.getSystem", systemId="sys")
    rig.server.users["alice"] = "changed meanwhile"
    rig.clock.advance(3600.0)
    assert client.call("systems.getSystem", systemId="sys")["id"] == "sys"


def test_a_wrong_password_is_told_without_it(rig: TapisRig) -> None:
    with pytest.raises(BatchUnavailable, match="does not sign alice in") as raised:
        rig.client(password="s3cr3t-wrong").call("systems.getSystem", systemId="sys")
    assert "s3cr3t" not in str(raised.value)
    assert "s3cr3t" not in repr(rig.client(password="s3cr3t-wrong").login)


def test_users_see_only_their_own_jobs(rig: TapisRig) -> None:
    spec = rig.spec(rig.new_key(), Program(run_s=300))
    job_id = rig.connect().submit(spec)
    bob = rig.connect("bob")
    assert bob.observe([JobRef(spec.key)]).jobs == {}
    bob.cancel(job_id)
    assert rig.connect().observe([JobRef(spec.key)]).jobs[spec.key][0].state is JobState.RUNNING


def test_many_jobs_cost_one_search(rig: TapisRig) -> None:
    client = rig.client()
    batch = TapisBatch("fake", client, Site("sys"), rig.clock)
    specs = [rig.spec(rig.new_key(), Program(run_s=300)) for _ in range(5)]
    for spec in specs:
        batch.submit(spec)
    before = client.calls["jobs.getJobSearchList"]
    assert len(batch.observe([JobRef(s.key) for s in specs]).jobs) == 5
    assert client.calls["jobs.getJobSearchList"] == before + 1


def test_the_stand_in_refuses_what_the_services_would(rig: TapisRig) -> None:
    client = rig.client()
    for arguments in (
        {"name": "x", "appId": "isched-train", "appVersion": "1", "maxMinutes": "ten"},
        {"name": "x", "appId": "isched-train", "appVersion": "1", "parameterSet": {"gpus": 1}},
    ):
        with pytest.raises(SubmitRefused):
            client.call("jobs.submitJob", **arguments)
    with pytest.raises(SubmitRefused):
        client.call("systems.createSystem", id="x", host="h", systemType="LINUX", defaultAuthnMethod="MAGIC", canExec=True)
    assert rig.server.jobs == {}


def test_generated_systems_and_apps_are_taken(rig: TapisRig) -> None:
    client = rig.client()
    cluster = next(c for c in _catalog() if c.name == "vista")
    client.call(
        "systems.createSystem",
        **system_definition(cluster, "vista-isched", host="vista.example.org", work_dir="/scratch/isched", profile="tacc"),
    )
    client.call(
        "apps.createAppVersion", **training_app("isched-train", "2", "tapis://vista-isched/isched/app.zip", "vista-isched")
    )
    client.call(
        "apps.createAppVersion", **estimator_app("isched-memory", "1.2.0", "docker://example.org/memory:1.2.0", "vista-isched")
    )
    queues = {q["name"] for q in rig.server.systems["vista-isched"]["batchLogicalQueues"]}
    assert queues == {p.name for p in cluster.partitions}


@pytest.mark.parametrize("name", ["vista", "stampede3", "pitzer", "frontera", "expanse", "delta"])
def test_every_cluster_of_the_catalog_makes_a_system(rig: TapisRig, name: str) -> None:
    cluster = next(c for c in _catalog() if c.name == name)
    made = system_definition(cluster, f"{name}-x", host="h.example.org", work_dir="/w")
    rig.client().call("systems.createSystem", **made)


def _catalog() -> Any:
    from ischeduler.cidb.catalog import load_catalog

    return load_catalog()


def test_words_and_logs_travel_as_files(rig: TapisRig, tmp_path: Path) -> None:
    batch = rig.connect()
    files = TapisRunFiles(lambda owner: batch)
    run = Run("r-1", "alice", None, RunState.RUNNING, "/scratch/alice/r-1", 0.0)  # type: ignore[arg-type]
    files.prepare(run)
    files.raise_fence(run, "1.0")
    files.control(run, "1.0", "stop")
    assert (tmp_path / "root" / "scratch/alice/r-1/attempts/1.0/control").read_text() == "stop\n"
    assert files.log_tail(run, 1) == ""
    batch.write("/scratch/alice/r-1/logs/1.out", b"x" * 100_000 + b"end")
    assert files.log_tail(run, 1).endswith("end")
    assert len(files.log_tail(run, 1)) == 64 * 1024
    for token, word in (("1.0", "explode"), ("../x", "stop")):
        with pytest.raises(OSError, match="no control word"):
            files.control(run, token, word)
    rig.server.faults.down = True
    with pytest.raises(OSError, match="cannot be reached"):
        files.control(run, "1.0", "stop")


def test_an_estimator_runs_as_an_app(rig: TapisRig) -> None:
    from ischeduler.batch.tapis.estimator_jobs import EstimatorJobs
    from ischeduler.estimators.runtimes.tapis import TapisRuntime

    queues = [{**QUEUE, "name": "default"}]
    rig.server.systems["sys"]["batchLogicalQueues"] = [QUEUE, *queues]
    rig.server.apps[("isched-memory", "1")] = estimator_app("isched-memory", "1", "image", "sys")
    jobs = EstimatorJobs(rig.client(), "sys")
    runtime = TapisRuntime("isched-memory", "1", lambda: jobs, rig.clock)
    request = {**runtime.job(jobs.put("request.json", b"{}")), "execSystemLogicalQueue": "cpu"}
    rig.behaviours["isched-isched-memory"] = rig.behaviours["memory"] = rig.behaviours[rig.spec("memory", Program()).key]
    rig.behaviours["isched-memory"] = rig.behaviours["memory"]
    number = jobs.submit(request)
    rig.wait_until(lambda: jobs.status(number) == "FINISHED")
    (tmp := Path(rig.server.jobs[number].fields["execSystemInputDir"]) / "answer.json").write_bytes(b'{"p50": 1}')
    assert jobs.output(number, "answer.json", 100) == b'{"p50": 1}'
    assert jobs.output(number, "answer.json", 2) == b'{"p'
    assert tmp.exists()
    with pytest.raises(BatchUnavailable, match="left no"):
        jobs.output(number, "nothing.json", 100)


def test_a_question_to_an_estimator_s_app_is_answered_through_the_tenant(rig: TapisRig) -> None:
    """The whole exchange: upload, job, queue, answer; the app's program is played by the test."""
    from ischeduler.batch.tapis.estimator_jobs import EstimatorJobs
    from ischeduler.estimators.runtimes.limits import Limits, RuntimeFailed
    from ischeduler.estimators.runtimes.tapis import TapisRuntime

    rig.server.systems["sys"]["batchLogicalQueues"] = [QUEUE, {**QUEUE, "name": "default"}]
    rig.server.apps[("isched-memory", "1")] = estimator_app("isched-memory", "1", "image", "sys")
    asked: list[str] = []

    class App(EstimatorJobs):
        def submit(self, job: Any) -> str:
            number = super().submit({**job, "execSystemLogicalQueue": "cpu"})
            asked.append(number)
            (Path(rig.server.jobs[number].fields["execSystemInputDir"]) / "answer.json").write_bytes(b'{"p50": 1}')
            return number

    runtime = TapisRuntime("isched-memory", "1", lambda: App(rig.client(), "sys"), rig.clock)
    rig.behaviours["isched-memory"] = rig.behaviours["isched-isched-memory"] = rig.behaviours[rig.spec("memory", Program(run_s=60)).key]
    assert runtime.exchange(b"{}") == b'{"p50": 1}'
    rig.fake.auto_start = False  # the queue is long
    with pytest.raises(RuntimeFailed, match="did not answer within 120 s; cancelled"):
        replace(runtime, limits=Limits(seconds=120.0)).exchange(b"{}")
    assert App(rig.client(), "sys").status(asked[-1]) == "CANCELLED"


def test_a_subscription_is_renewed_before_it_ends_and_not_at_every_look(rig: TapisRig) -> None:
    told: list[str] = []
    rig.server.deliver = lambda url, body: told.append(url)
    batch = rig.connect(webhook="https://isched.example.org/hook")
    crowd = rig.crowd(rig.new_key())
    rig.fake.submit(replace(crowd, resources=replace(crowd.resources, walltime_s=80_000.0)))
    rig.fake.auto_start = False
    spec = rig.spec(rig.new_key(), Program(run_s=300))
    job_id = batch.submit(spec)
    assert told, "the first came with the submission"
    for day in range(6):
        batch.observe([JobRef(spec.key)])
        assert len(rig.server.jobs[job_id].subscriptions) == (1 if day < 4 else 2)
        rig.clock.advance(86400.0)
    rig.server.faults.down = True
    with pytest.raises(BatchUnavailable):
        batch.observe([JobRef(spec.key)])


def test_one_call_registers_system_app_and_its_archive(rig: TapisRig, tmp_path: Path) -> None:
    import io
    import zipfile

    from ischeduler.batch.tapis.setup import register

    cluster = next(c for c in _catalog() if c.name == "vista")
    options: dict[str, Any] = {"host": "vista.example.org", "work_dir": "/scratch/isched", "profile": "tacc"}
    assert register(rig.client(), cluster, "vista-isched", **options) == ["system vista-isched made", "app isched-train 1 made"]
    archive = zipfile.ZipFile(io.BytesIO((tmp_path / "root" / "isched" / "isched-train-1.zip").read_bytes()))
    assert b"isched_job.sh" in archive.read("tapisjob_app.sh")
    again = register(rig.client(), cluster, "vista-isched", **options)
    assert again[0].startswith("system vista-isched kept")
