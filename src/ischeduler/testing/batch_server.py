"""The simulated cluster as a process of its own, on a clock that runs faster: a controller that several workers share over a socket.

``python -m ischeduler.testing.batch_server '{"port": 0, "speed": 30}'`` prints one JSON line with its address and serves until it
is ended. One line of JSON a question, one an answer. Jobs are trainings of :mod:`ischeduler.batch.simulated_training`; what they
say goes to real spool files in their run directories, and from there wherever the test likes.
"""

from __future__ import annotations

import json
import random
import socket
import socketserver
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ischeduler.batch.simulated import SimulatedBatch
from ischeduler.batch.simulated_training import SimulatedRuns, TrainingModel
from ischeduler.core.codec import dumps, from_plain, to_plain
from ischeduler.core.errors import BatchUnavailable, IschedError, SubmitRefused, SubmitUncertain
from ischeduler.core.event import Event
from ischeduler.core.jobs import JobRef, JobSpec, Observation, Probe
from ischeduler.core.run import Run
from ischeduler.core.snapshot import QueueSnapshot
from ischeduler.simulator.engine.machine import Machine, SimNode, SimPartition
from ischeduler.simulator.engine.options import SchedulerOptions
from ischeduler.training.spool import SpoolWriter
from ischeduler.training.token import Token

START_S = 1_800_000_000.0
PUMP_S = 0.02
Address = tuple[str, int]


class ScaledClock:
    """Epoch seconds that pass ``speed`` times as fast as ``source``'s, from :data:`START_S` at ``origin`` on."""

    def __init__(self, origin: float, speed: float, source: Callable[[], float] = time.time) -> None:
        self.origin, self.speed, self._source = origin, speed, source

    def now(self) -> float:
        """The fast time."""
        return START_S + (self._source() - self.origin) * self.speed

    def sleep(self, seconds: float) -> None:
        """Wait that much fast time."""
        time.sleep(max(0.0, seconds) / self.speed)


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """``latency_s``: shortest and longest time a call takes, in real seconds. ``spools`` False keeps what jobs say in memory."""

    host: str = "127.0.0.1"
    port: int = 0
    speed: float = 1.0
    origin: float = 0.0
    name: str = "sim"
    nodes: int = 64
    gpus: int = 4
    latency_s: tuple[float, float] = (0.0, 0.0)
    seed: int = 0
    spools: bool = True
    epoch_s: float = 12.0
    steps: int = 10
    startup_s: float = 2.0
    checkpoint_s: float = 1.0
    heartbeat_s: float = 10.0


class _Said(list[Event]):
    """A run's events, each told on at once."""

    def __init__(self, tell: Callable[[Event], None]) -> None:
        super().__init__()
        self._tell = tell

    def append(self, event: Event) -> None:
        super().append(event)
        self._tell(event)


class _Runs(SimulatedRuns):
    """Run directories in memory whose events are told on."""

    def __init__(self, model: TrainingModel, tell: Callable[[Event], None]) -> None:
        super().__init__(model)
        self._tell = tell

    def _directory(self, run_id: str) -> Any:
        if run_id not in self.directories:
            super()._directory(run_id).spool = _Said(self._tell)
        return self.directories[run_id]


class Controller:
    """The cluster and its run directories, one caller at a time. ``mode`` '' answers, 'down' hangs up on everybody."""

    def __init__(self, options: ServerOptions) -> None:
        self.options, self.clock = options, ScaledClock(options.origin or time.time(), options.speed)
        self.lock = threading.Lock()
        self.mode, self.lose_answers = "", 0
        self.calls: Counter[str] = Counter()
        self.folders: dict[str, str] = {}
        self._writers: dict[tuple[str, str], SpoolWriter] = {}
        self._waiting: deque[Event] = deque()
        model = TrainingModel(options.epoch_s, options.steps, options.startup_s, options.checkpoint_s, options.heartbeat_s)
        self.runs = _Runs(model, self._waiting.append)
        nodes = tuple(SimNode(f"g{i:03}", 64, 512_000, {"a100": options.gpus}) for i in range(options.nodes))
        machine = Machine(options.name, nodes, (SimPartition("gpu", tuple(n.name for n in nodes), 86400.0),))
        self.batch = SimulatedBatch(machine, self.clock, SchedulerOptions(), programs=self.runs.program)

    def handle(self, call: str, given: dict[str, Any]) -> Any:
        """Answer one question."""
        self.calls[call] += 1
        handler = getattr(self, f"_do_{call}")
        return handler(**given)

    def _do_submit(self, job: Any) -> str:
        spec = from_plain(JobSpec, job)
        self.folders[spec.variables["ISCHED_RUN_ID"]] = spec.variables["ISCHED_RUN_DIR"]
        return self.batch.submit(spec)

    def _do_observe(self, jobs: list[Any]) -> Any:
        return to_plain(self.batch.observe([JobRef(key, job_id) for key, job_id in jobs]))

    def _do_cancel(self, job_id: str, signal: str | None) -> None:
        self.batch.cancel(job_id, signal=signal)

    def _do_snapshot(self) -> Any:
        return to_plain(self.batch.snapshot())

    def _do_probe(self, job: Any) -> Any:
        return to_plain(self.batch.probe(from_plain(JobSpec, job)))

    def _do_prepare(self, run: str, epochs: int) -> None:
        self.runs._directory(run).epochs = epochs

    def _do_fence(self, run: str, token: str) -> None:
        self.runs.raise_fence(_Named(run), token)  # pyright: ignore[reportArgumentType]

    def _do_control(self, run: str, token: str, word: str) -> None:
        self.runs.control(_Named(run), token, word)  # pyright: ignore[reportArgumentType]

    def _do_log_tail(self, run: str, attempt: int) -> str:
        return self.runs.log_tail(_Named(run), attempt)  # pyright: ignore[reportArgumentType]

    def _do_set(self, mode: str | None = None, lose_answers: int | None = None) -> None:
        self.mode = self.mode if mode is None else mode
        self.lose_answers = self.lose_answers if lose_answers is None else lose_answers

    def _do_fail_node(self, name: str, up: bool) -> None:
        (self.batch.sim.node_up if up else self.batch.sim.node_down)(name)

    def _do_calls(self) -> Any:
        return dict(self.calls)

    def _do_truth(self, runs: list[str]) -> Any:
        """What really happened to these runs: jobs by key, who finished, what was said, and what could not be written yet."""
        wanted, found = set(runs), dict[str, Any]()
        for run_id in runs:
            folder = self.runs._directory(run_id)
            found[run_id] = {
                "jobs": [], "finished_by": [list(t) for t in folder.finished_by], "epochs": folder.epochs,
                "said": [[e.token, e.seq] for e in folder.spool],
                "unwritten": sum(w.waiting + w.dropped for (run, _), w in self._writers.items() if run == run_id)
                + sum(e.run_id == run_id for e in self._waiting),
            }
        for job_id, spec in self.batch._specs.items():
            run_id = spec.variables["ISCHED_RUN_ID"]
            if run_id in wanted:
                job = self.batch.sim.jobs[job_id]
                found[run_id]["jobs"].append({"key": spec.key, "id": job_id, "state": str(job.state), "exit": job.exit_code})
        return found

    def pump(self) -> None:
        """Let time pass, and write what jobs said; what cannot be written is kept by the spool's own writer and tried again."""
        with self.lock:
            self.batch.catch_up()
            for _ in range(len(self._waiting)):
                self._write(self._waiting.popleft())
            for writer in self._writers.values():
                writer.flush()

    def _write(self, event: Event) -> None:
        if not self.options.spools:
            return
        key = (event.run_id, event.token)
        if key not in self._writers:
            folder = Path(self.folders[event.run_id])
            self._writers[key] = SpoolWriter(
                folder / "events" / f"{event.token}.jsonl", event.run_id, Token.parse(event.token), clock=self.clock.now, backlog=10_000
            )
        self._writers[key].emit(event.kind, **event.data)

    def forget(self, runs: Collection[str]) -> None:
        """Let go of runs that are over, so that thousands of episodes fit into memory."""
        for key in [k for k in self._writers if k[0] in runs]:
            del self._writers[key]

    def _do_forget(self, runs: list[str]) -> None:
        self.forget(runs)


@dataclass(frozen=True, slots=True)
class _Named:
    """As much of a run as its directory in memory needs."""

    id: str


class _Handler(socketserver.StreamRequestHandler):
    """One caller's connection."""

    def handle(self) -> None:
        controller: Controller = self.server.controller  # type: ignore[attr-defined]
        dice = random.Random(time.monotonic_ns() ^ controller.options.seed)
        for line in self.rfile:
            asked = json.loads(line)
            call, given = asked["call"], asked["given"]
            private = call in ("set", "truth", "calls", "forget", "fail_node")
            if not private:
                if controller.mode == "down":
                    return
                time.sleep(dice.uniform(*controller.options.latency_s))
            if self._answer(controller, call, given, private) is None:
                return

    def _answer(self, controller: Controller, call: str, given: dict[str, Any], private: bool) -> bool | None:
        try:
            with controller.lock:
                answer: dict[str, Any] = {"ok": controller.handle(call, given)}
                lost = call == "submit" and controller.lose_answers > 0
                controller.lose_answers -= lost
        except SubmitRefused as error:
            answer, lost = {"refused": str(error), "kind": error.kind}, False
        except IschedError as error:
            answer, lost = {"away": str(error)}, False
        if lost or (controller.mode == "down" and not private):
            return None  # it was done, and the caller will not know
        self.wfile.write(dumps(answer).encode() + b"\n")
        return True


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64


def serve(options: ServerOptions, ready: Callable[[Address], None]) -> None:
    """Serve until the process ends."""
    controller = Controller(options)
    with _Server((options.host, options.port), _Handler) as server:
        server.controller = controller  # type: ignore[attr-defined]

        def pump() -> None:
            while True:
                time.sleep(PUMP_S)
                controller.pump()

        threading.Thread(target=pump, daemon=True).start()
        ready(server.server_address[:2])  # type: ignore[arg-type]
        server.serve_forever(poll_interval=0.2)


class RemoteController:
    """A caller's end: the BatchSystem, and the RunFiles of the directories in memory. One connection a thread-safe object."""

    def __init__(self, address: Address, name: str = "sim", *, timeout_s: float = 5.0) -> None:
        self._address, self._name, self._timeout_s = (str(address[0]), int(address[1])), name, timeout_s
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._answers: Any = None
        self.calls: Counter[str] = Counter()

    @property
    def name(self) -> str:
        """The cluster's name."""
        return self._name

    def ask(self, call: str, **given: Any) -> Any:
        """One question. BatchUnavailable where there is no answer; SubmitUncertain where a job may have been accepted."""
        with self._lock:
            self.calls[call] += 1
            sent = False
            try:
                connection = self._connect()
                connection.sendall(dumps({"call": call, "given": given}).encode() + b"\n")
                sent = True
                line = self._answers.readline()
                if not line.endswith(b"\n"):
                    raise ConnectionError("the controller hung up")
            except OSError as error:
                self.close()
                kind = SubmitUncertain if call == "submit" and sent else BatchUnavailable
                raise kind(f"{self._name} does not answer ({error}).") from None
        answer = json.loads(line)
        if "refused" in answer:
            raise SubmitRefused(answer["refused"], kind=answer["kind"])
        if "away" in answer:
            raise BatchUnavailable(answer["away"])
        return answer["ok"]

    def _connect(self) -> socket.socket:
        if self._socket is None:
            self._socket = socket.create_connection(self._address, timeout=self._timeout_s)
            self._answers = self._socket.makefile("rb")
        return self._socket

    def close(self) -> None:
        """Hang up; the next question connects anew."""
        if self._socket is not None:
            self._socket.close()
            self._socket = self._answers = None

    def submit(self, job: JobSpec) -> str:
        """Queue a job."""
        return str(self.ask("submit", job=to_plain(job)))

    def observe(self, jobs: Collection[JobRef]) -> Observation:
        """All jobs of these keys."""
        return from_plain(Observation, self.ask("observe", jobs=[[r.key, r.job_id] for r in jobs]))

    def cancel(self, job_id: str, *, signal: str | None = None) -> None:
        """End the job, or send it a signal."""
        self.ask("cancel", job_id=job_id, signal=signal)

    def snapshot(self) -> QueueSnapshot:
        """The queue."""
        return from_plain(QueueSnapshot, self.ask("snapshot"))

    def probe(self, job: JobSpec) -> Probe:
        """Whether it would be taken."""
        return from_plain(Probe, self.ask("probe", job=to_plain(job)))

    def prepare(self, run: Run) -> None:
        """Note the epochs; the folder for the spool is made as on a shared file system."""
        (Path(run.directory) / "events").mkdir(parents=True, exist_ok=True, mode=0o700)
        self._tell("prepare", run=run.id, epochs=run.plan.workload.epochs)

    def raise_fence(self, run: Run, token: str) -> None:
        """Older incarnations stop themselves."""
        self._tell("fence", run=run.id, token=token)

    def control(self, run: Run, token: str, word: str) -> None:
        """Leave a word."""
        self._tell("control", run=run.id, token=token, word=word)

    def log_tail(self, run: Run, attempt: int) -> str:
        """What the attempt printed last."""
        return str(self._tell("log_tail", run=run.id, attempt=attempt))

    def _tell(self, call: str, **given: Any) -> Any:
        try:
            return self.ask(call, **given)
        except BatchUnavailable as error:
            raise OSError(5, str(error)) from None  # what a shared file system says that is away


def options_of(given: Mapping[str, Any]) -> ServerOptions:
    """Options from plain values."""
    made = ServerOptions(**{k: tuple(v) if k == "latency_s" else v for k, v in given.items()})
    return made if made.origin else replace(made, origin=time.time())


def main() -> None:
    """Serve with the options of the first argument."""
    options = options_of(json.loads(sys.argv[1]) if len(sys.argv) > 1 else {})

    def ready(address: Address) -> None:
        print(json.dumps({"address": list(address), "origin": options.origin}), flush=True)

    serve(options, ready)


if __name__ == "__main__":
    main()
