"""Spools into the database, and `isched ingest` as a process: killed, it loses and doubles nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from ischeduler.core.errors import StoreUnavailable
from ischeduler.core.estimate import Estimate
from ischeduler.core.jobs import Resources
from ischeduler.core.plan import Needs, Plan, Segment
from ischeduler.core.run import Run, RunState
from ischeduler.core.workload import Workload
from ischeduler.service.ingest.spools import SpoolIngest
from ischeduler.store.engine import open_engine
from ischeduler.store.ingest import EventInbox
from ischeduler.store.ingest_read import EventArchive
from ischeduler.store.sql_store import SqlStore
from ischeduler.testing.broker import BrokerMissing, throwaway_broker
from ischeduler.training.spool import SpoolWriter
from ischeduler.training.token import Token


def sample(directory: Path) -> Run:
    some = Estimate.spread(60.0, 0.3, "s", "sample@1")
    plan = Plan(
        number=1, cluster="here", partition="main", node_type="cpu", resources=Resources(nodes=1, walltime_s=600.0),
        workload=Workload(model="file:train.py", samples=10, epochs=1, batch_size=1, command=("python", "train.py")),
        segments=(Segment(0, 600.0, 500.0, some),), needs=Needs(step_time=some), run=some, wait=some, finish=some, cost=some,
    )  # fmt: skip
    return Run("r-1", "alice", plan, RunState.RUNNING, str(directory), 1000.0)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = open_engine(tmp_path / "isched.db")
    yield engine
    engine.dispose()


@pytest.fixture
def run(engine: Engine, tmp_path: Path) -> Run:
    return SqlStore(engine).create_run(sample(tmp_path / "run"))


def writer(run: Run, attempt: int = 1) -> SpoolWriter:
    token = Token(attempt)
    return SpoolWriter(Path(run.directory) / "events" / f"{token}.jsonl", run.id, token)


def ingest(engine: Engine, run: Run, **more: object) -> SpoolIngest:
    return SpoolIngest(EventInbox(engine), lambda: [run], holder="test", **more)  # pyright: ignore[reportArgumentType]


def stored(engine: Engine, run: Run) -> list[tuple[str, int, str]]:
    news = EventArchive(engine).news({run.id: {}})
    return [(e.token, e.seq, e.kind) for e in news[run.id][0]] if news else []


def test_what_is_new_is_read_once(engine: Engine, run: Run):
    spool, woken = writer(run), set[str]()
    reader = ingest(engine, run, wake=woken.update)
    assert reader.step() == 0
    spool.emit("started")
    spool.emit("progress", step=1)
    assert (reader.step(), reader.step()) == (2, 0)
    writer(run, 2).emit("exit", code=0)
    assert ingest(engine, run).step() == 1  # another process goes on where the first was
    assert stored(engine, run) == [("1.0", 1, "started"), ("1.0", 2, "progress"), ("2.0", 1, "exit")]
    assert woken == {run.id}


def test_a_torn_line_waits_and_a_bad_one_goes_aside(engine: Engine, run: Run):
    writer(run).emit("started")
    path = Path(run.directory) / "events" / "1.0.jsonl"
    whole = path.read_bytes()
    with path.open("ab") as file:
        file.write(b"not json\n" + whole.replace(b'"run": "r-1"', b'"run": "r-2"') + whole.replace(b'"seq": 1', b'"seq": 2')[:-9])
    reader = ingest(engine, run)
    assert (reader.step(), reader.figures.refused) == (3, 2)
    with path.open("ab") as file:
        file.write(whole[-9:])
    assert reader.step() == 1
    assert [seq for _, seq, _ in stored(engine, run)] == [1, 2]


def test_a_long_spool_is_read_in_pieces(engine: Engine, run: Run):
    spool = writer(run)
    for step in range(300):
        spool.emit("progress", step=step)
    with (Path(run.directory) / "events" / "1.0.jsonl").open("ab") as file:
        file.write(b"x" * 200_000 + b"\n")
    spool.emit("exit", code=0)
    reader = ingest(engine, run, batch_events=50, chunk_bytes=80_000)
    reader.step()
    assert (reader.figures.new, [s for _, s, _ in stored(engine, run)]) == (301, list(range(1, 302)))


def test_a_link_is_not_followed(engine: Engine, run: Run, tmp_path: Path):
    secret = tmp_path / "secret"
    secret.write_text("somebody's secret\n")
    folder = Path(run.directory) / "events"
    folder.mkdir(parents=True)
    (folder / "1.0.jsonl").symlink_to(secret)
    os.mkfifo(folder / "2.0.jsonl")
    assert ingest(engine, run).step() == 0
    assert EventArchive(engine).dead_letters() == []


def test_an_outage_of_the_database_is_read_again(engine: Engine, run: Run, monkeypatch: pytest.MonkeyPatch):
    writer(run).emit("started")
    reader = ingest(engine, run)

    def away(*_: object) -> None:
        raise StoreUnavailable("the database is away.")

    with monkeypatch.context() as patch:
        patch.setattr(EventInbox, "write", away)
        with pytest.raises(StoreUnavailable):
            reader.step()
    assert (reader.step(), stored(engine, run)) == (1, [("1.0", 1, "started")])


def test_a_run_that_ended_is_read_once_more(engine: Engine, run: Run):
    live = [run]
    reader = SpoolIngest(EventInbox(engine), lambda: list(live), holder="test")
    spool = writer(run)
    spool.emit("started")
    reader.step()
    spool.emit("exit", code=0)
    live.clear()
    assert reader.step() == 1


@pytest.fixture
def isched(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    def call(*words: str, **settings: str) -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ, "ISCHED_PATHS_STATE": str(tmp_path / "state"), "ISCHED_PATHS_DATA": str(tmp_path / "data"),
            "ISCHED_SYSTEM_CONFIG": "/dev/null", "XDG_CONFIG_HOME": str(tmp_path / "config"), "ISCHED_DATABASE_URL": str(tmp_path / "isched.db"),
            **settings,
        }  # fmt: skip
        return subprocess.run([sys.executable, "-m", "ischeduler.cli.main", *words], capture_output=True, text=True, timeout=120, env=environment, cwd=tmp_path, check=False)

    return call


def test_the_command_reads_spools(engine: Engine, run: Run, isched: Callable[..., subprocess.CompletedProcess[str]]):
    writer(run).emit("started")
    done = isched("ingest", "--transport", "spool", "--until-idle", "0.5", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ingested"] == {"transport": "spool", "new": 1, "repeated": 0, "refused": 0, "held_s": 0.0}
    with (Path(run.directory) / "events" / "1.0.jsonl").open("a") as file:
        file.write("\x1b[31mno event\n")
    assert isched("ingest", "--refused", "5").stdout == "nothing was put aside\n"
    assert isched("ingest", "--transport", "spool", "--until-idle", "0.5").stdout == "0 event(s) stored, 0 were there already, 1 refused\n"
    shown = isched("ingest", "--refused", "5")
    assert shown.stdout.startswith("spool:r-1:1.0 r-1: Invalid JSON")
    assert "\x1b" not in shown.stdout
    (letter,) = json.loads(isched("ingest", "--refused", "5", "--json").stdout)["refused"]
    assert (letter["payload_bytes"], letter["beginning"]) == (13, "\x1b[31mno event")
    assert isched("ingest", "--transport", "pigeon").returncode == 2
    missing = isched("ingest")
    assert (missing.returncode, "kafka.servers is not set" in missing.stderr) == (2, True)


def test_the_command_reads_kafka_with_job_tokens_only(engine: Engine, run: Run, tmp_path: Path, isched: Callable[..., subprocess.CompletedProcess[str]]):
    from ischeduler.batch.clocks import SystemClock
    from ischeduler.core.incoming import Incoming
    from ischeduler.service.auth.secrets import Derived, make_key
    from ischeduler.service.auth.tokens import Tokens
    from ischeduler.service.ingest.kafka import KafkaSettings
    from ischeduler.service.ingest.sender import KafkaSender
    from ischeduler.store.credentials import Credentials

    try:
        with throwaway_broker() as broker:
            key = make_key(tmp_path / "state" / "server.key")
            secret, _ = Tokens(Credentials(engine), Derived(key), SystemClock()).make_for_job(run.owner, run.id, 3600.0)
            properties = tmp_path / "kafka.properties"
            properties.write_text("# how we read\nsession.timeout.ms=2000\nheartbeat.interval.ms=300\nlog_level=0\n")
            properties.chmod(0o600)
            set_up = {"ISCHED_KAFKA_SERVERS": broker.servers, "ISCHED_KAFKA_CONFIG_FILE": str(properties)}
            made = json.loads(isched("ingest", "--make-topics", "2", "--json", **set_up).stdout)["made"]
            assert sorted(made) == ["isched.performance", "isched.progress", "isched.state", "isched.utilisation"]
            assert isched("ingest", "--make-topics", "2", **set_up).stdout == "every topic is there already\n"
            events = [Incoming(run.id, "job", "1.0", seq, "exit", 1.0, "{}") for seq in (1, 2)]
            for shown, one in ((secret, events[0]), (None, events[1]), (secret[:-1] + "!", events[1])):
                with KafkaSender(KafkaSettings(broker.servers), secret=shown) as sender:
                    sender.send([one])
                    assert sender.flush(20.0) == 0
            done = isched("ingest", "--until-idle", "6", "--json", **set_up)
            assert done.returncode == 0, done.stderr
            assert {k: v for k, v in json.loads(done.stdout)["ingested"].items() if k in ("new", "refused")} == {"new": 1, "refused": 2}
            assert stored(engine, run) == [("1.0", 1, "exit")]
    except BrokerMissing as missing:
        if os.environ.get("CI"):
            pytest.fail(f"CI must run the event tests, but {missing}", pytrace=False)
        pytest.skip(str(missing))

