"""A whole centre on one machine: PostgreSQL, a Kafka broker, a Slurm with slurmrestd and three users, the service, two plane
workers and the ingest, each a process of its own. What acts for users runs as an ordinary account, with one token a user.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ischeduler.sandbox.sandbox import Sandbox
from ischeduler.sandbox.spec import SandboxNode, SandboxPartition, SandboxSpec
from ischeduler.testing.broker import Broker, find_program, free_port
from ischeduler.testing.postgres import throwaway_postgres

CLUSTER, NAME, SERVICE_ACCOUNT = "demo", "centre", "isched"
PEOPLE = ("alice", "bob", "carol")
TRAIN = Path(__file__).resolve().parent / "train.py"
TOKEN_S = 12 * 3600


def demo_cluster() -> SandboxSpec:
    """Three nodes with two cards each and two without; limits of two minutes, so that a training is cut."""
    gpu = tuple(SandboxNode(f"g{i:02d}", cpus=4, memory_mb=8000, gres="gpu:v100:2", features=("v100",)) for i in (1, 2, 3))
    cpu = tuple(SandboxNode(f"c{i:02d}", cpus=4, memory_mb=8000) for i in (1, 2))
    return SandboxSpec(
        cluster_name=CLUSTER,
        nodes=(*gpu, *cpu),
        partitions=(
            SandboxPartition("gpu", tuple(n.name for n in gpu), max_time_min=2),
            SandboxPartition("cpu", tuple(n.name for n in cpu), max_time_min=2, default=True),
        ),
        users=(*PEOPLE, SERVICE_ACCOUNT),
    )


class Part:
    """One program of the centre, started as the service's account; its output in a file."""

    def __init__(self, name: str, argv: Sequence[str], stage: Centre, env: Mapping[str, str] | None = None) -> None:
        self.name, self._argv, self._stage, self._env = name, tuple(argv), stage, dict(env or {})
        self.log = stage.folder / "log" / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; does not wait until it answers."""
        box, account = self._stage.box, self._stage.account
        environment = {**box.user_env(SERVICE_ACCOUNT), **self._stage.settings, **self._env}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(box.python), *self._argv], cwd=self._stage.folder, env=environment, user=account, group=account, extra_groups=[],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        """Its process; 0 when it does not run."""
        return self._process.pid if self._process is not None and self._process.poll() is None else 0

    def kill(self, signum: int = signal.SIGKILL) -> int:
        """End it (at once, as power cuts do); the process it was."""
        pid = self.pid
        if pid:
            os.killpg(pid, signum)
        if self._process is not None:
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(pid, signal.SIGKILL)
                self._process.wait()
        return pid

    def last_words(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-1500:] if self.log.exists() else ""


class Centre:
    """Everything; ``up`` to ``down``. ``settings`` are the environment variables the service's processes are configured with."""

    def __init__(self, folder: Path, say: Callable[[str], None] = print, *, port: int = 0) -> None:
        self.folder, self._say, self._stack = folder, say, ExitStack()
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.box = Sandbox(demo_cluster(), NAME)
        self.settings: dict[str, str] = {}
        self.parts: dict[str, Part] = {}
        self.tokens: dict[str, str] = {}
        self.broker: Broker

    def up(self) -> None:
        """Start all parts in order, each once the one before answers."""
        shutil.rmtree(self.folder, ignore_errors=True)
        for name in ("", "log", "state", "secrets"):
            (self.folder / name).mkdir(mode=0o755)
        self._stack.callback(self.box.down)
        self._timed("Slurm: slurmctld, slurmrestd, five nodes, four accounts", self._start_slurm)
        self._timed("PostgreSQL", self._start_database)
        self._timed("Kafka-protocol broker", self._start_broker)
        self._timed("database tables, server key, people and their tokens", self._prepare)
        self._timed("service: API, event ingest, dashboard", self._start_service)
        self._timed("two plane workers and the consumer of the broker's topics", self._start_workers)

    def down(self) -> None:
        """End everything, in the opposite order; nothing stays but the folder with logs and report."""
        for part in reversed(self.parts.values()):
            part.kill(signal.SIGTERM)
        self._stack.close()

    @property
    def account(self) -> str:
        """The operating system's account of the service."""
        return self.box.system_user(SERVICE_ACCOUNT)

    def isched(self, *words: str) -> dict[str, Any]:
        """A command of ``isched`` as the service's account, and its JSON document."""
        argv = [str(self.box.python), "-m", "ischeduler.cli.main", *words, "--json"]
        done = self.box.run(argv, user=SERVICE_ACCOUNT, cwd=self.folder, env=self.settings, check=False, timeout_s=120)
        if done.returncode:
            raise RuntimeError(f"isched {' '.join(words)}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def ask(self, who: str, path: str, body: Any = None, *, method: str = "") -> Any:
        """The API as one of the people; the answer's document, or text where it is none."""
        headers = {"Authorization": f"Bearer {self.tokens[who]}"}
        data = None if body is None else json.dumps(body).encode()
        if data is not None:
            headers["Content-Type"] = "application/json"
        request = urllib.request.Request(self.url + path, data, headers, method=method or ("POST" if data is not None else "GET"))
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{who} {path}: {error.code} {error.read().decode(errors='replace')[:600]}") from None

    def as_user(self, person: str, argv: Sequence[str], said: str, name: str) -> subprocess.Popen[bytes]:
        """One of the example's programs as a person of the cluster; ``said`` goes to its stdin."""
        account, folder = self.box.system_user(person), Path(__file__).resolve().parent
        script = self.box.home(person) / argv[0]
        self.box.run(["tee", argv[0]], user=person, stdin=(folder / argv[0]).read_text())
        with (self.folder / "log" / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [str(self.box.python), str(script), *argv[1:]], cwd=self.box.home(person), env=self.box.user_env(person), user=account,
                group=account, extra_groups=[], stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        assert process.stdin is not None
        process.stdin.write(said.encode())
        process.stdin.close()
        self._stack.callback(process.kill)
        return process

    def start_broker_again(self) -> None:
        """Start the killed broker; it comes back without its topics."""
        self.broker.start()
        self.isched("ingest", "--make-topics", "4")

    def stored_events(self, run_id: str) -> list[tuple[str, int]]:
        """Token and number of everything that jobs of the run sent, as the database has it."""
        from sqlalchemy import text

        from ischeduler.store.engine import open_engine

        engine = open_engine(self.database.url)
        rows = []
        with engine.connect() as connection:
            for table in ("job_events", "telemetry"):
                found = connection.execute(
                    text(f"SELECT l.token, e.seq FROM {table} e JOIN event_lanes l ON l.lane = e.lane WHERE l.run_id = :run"), {"run": run_id}
                )
                rows += [(row.token, row.seq) for row in found]
        engine.dispose()
        return rows

    def restart(self, name: str) -> int:
        """Start a killed part anew; its process."""
        self.parts[name].start()
        return self.parts[name].pid

    def _timed(self, what: str, step: Callable[[], None]) -> None:
        started = time.monotonic()
        step()
        self._say(f"  up: {what} ({time.monotonic() - started:.0f} s)")

    def _start_slurm(self) -> None:
        self.box.down()  # what an interrupted demo may have left
        self.box.up()
        for name in ("state", "secrets", "log"):
            shutil.chown(self.folder / name, self.account, self.account)
        (self.folder / "secrets").chmod(0o700)
        for person in (*PEOPLE, SERVICE_ACCOUNT):
            account = self.box.system_user(person)
            said = self.box.run(["scontrol", "token", f"lifespan={TOKEN_S}", f"username={account}"]).stdout
            self._secret(f"{account}.jwt", said.strip().partition("=")[2])
        for person in PEOPLE:
            self.box.run(["tee", "train.py"], user=person, stdin=TRAIN.read_text())
            self.box.run(["tee", ".profile"], user=person, stdin=f"export PATH={self.box.python.parent}:$PATH\n")  # jobs are login shells

    def _secret(self, name: str, text: str) -> Path:
        path = self.folder / "secrets" / name
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text + "\n")
        shutil.chown(path, self.account, self.account)
        return path

    def _start_database(self) -> None:
        self.database = self._stack.enter_context(throwaway_postgres())
        os.chown(self.database.folder, -1, pwd.getpwnam(self.account).pw_gid)  # the socket is for the service's account alone
        self.database.folder.chmod(0o710)

    def _start_broker(self) -> None:
        self.broker = Broker(find_program(), free_port(), self.folder / "log" / "broker.log")
        self._stack.callback(self.broker.kill)

    def _prepare(self) -> None:
        homes = str(self.box.layout.home / f"{{user}}-{NAME}").replace("{user}", "isb-{user}")
        self.settings = {
            "ISCHED_DATABASE_URL": self.database.url,
            "ISCHED_PATHS_STATE": str(self.folder / "state"),
            "ISCHED_PATHS_DATA": str(self.folder / "state" / "data"),
            "ISCHED_BATCH_KIND": "slurmrest",
            "ISCHED_BATCH_CLUSTER": CLUSTER,
            "ISCHED_SLURMREST_URL": self.box.rest_url,
            "ISCHED_SLURMREST_TOKEN_FILE": str(self.folder / "secrets" / "{user}.jwt"),
            "ISCHED_SLURMREST_OBSERVER": self.account,
            "ISCHED_SERVE_ACCOUNTS": ",".join(f"{p}={self.box.system_user(p)}" for p in PEOPLE),
            "ISCHED_SERVE_DATA": f"{homes}/.isched",
            "ISCHED_SERVE_PORT": str(self.port),
            "ISCHED_SERVE_KEY_FILE": str(self.folder / "secrets" / "server.key"),
            "ISCHED_SERVE_RATE": "200",
            "ISCHED_SERVE_BURST": "400",
            "ISCHED_PLANE_INTERVAL": "1s",
            "ISCHED_WORKERS_LOOK_INTERVAL": "2s",
            "ISCHED_WORKERS_LEASE": "20s",
            "ISCHED_KAFKA_SERVERS": self.broker.servers,
        }
        self.isched("db", "upgrade")
        self.isched("admin", "key")
        with ThreadPoolExecutor(len(PEOPLE)) as pool:
            self.tokens = dict(zip(PEOPLE, pool.map(self._add_person, PEOPLE), strict=True))
        for person, token in self.tokens.items():
            self._secret(f"{person}.token", token)

    def _add_person(self, person: str) -> str:
        """Carol is the centre's administrator. A token is shown this one time."""
        admin = person == "carol"
        self.isched("admin", "user", "add", person, *(("--role", "centre_admin") if admin else ()))
        scopes = ("read", "write", "admin") if admin else ("read", "write")
        return self.isched("admin", "token", "create", person, *(word for s in scopes for word in ("--scope", s)))["secret"]

    def _start_service(self) -> None:
        self._part("service", ["-m", "ischeduler.cli.main", "serve"])
        self._await(self._ready, "service")

    def _start_workers(self) -> None:
        self.isched("ingest", "--make-topics", "4")
        self._part("ingest", ["-m", "ischeduler.cli.main", "ingest"])
        for name in ("worker-1", "worker-2"):
            self._part(name, ["-m", "ischeduler.cli.main", "plane", "worker"])
        time.sleep(1.0)
        for name in ("worker-1", "worker-2"):
            self._await(lambda name=name: self.parts[name].pid > 0, name)

    def _part(self, name: str, argv: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self.parts[name] = Part(name, argv, self, env)
        self.parts[name].start()

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def _await(self, condition: Callable[[], bool], name: str, *, timeout_s: float = 90.0) -> None:
        until = time.monotonic() + timeout_s
        while not condition():
            if not self.parts[name].pid or time.monotonic() > until:
                raise RuntimeError(f"{name} did not come up; its log ends:\n{self.parts[name].last_words()}")
            time.sleep(0.3)
