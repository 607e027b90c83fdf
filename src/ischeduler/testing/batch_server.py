"""The simulated cluster as a process of its own, on a clock that runs faster: a controller that several workers share over a socket.

``python -m ischeduler.testing.batch_server '{"port": 0, "speed": 30}'`` prints one JSON line with its address and serves until it
is ended. One line of JSON a question, one an answer. Jobs are trainings of :mod:`ischeduler.batch.simulated_training`; what they
say goes to real spool files in their run directories, and from there wherever the test likes.
"""

from __future__ import annotations

import json
import random
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
from ischeduler.core.errors import IschedError, SubmitRefused
from ischeduler.core.event import Event
from ischeduler.core.jobs import JobRef, JobSpec
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
    """``latency_s``: shortest and longest time a call takes, in real seconds. What jobs say goes to their spools, to Kafka where
    ``kafka`` names its servers, or nowhere (``spools`` False)."""

    host: str = "127.0.0.1"
    port: int = 0
    speed: float = 1.0
    origin: float = 0.0
    name: str = "sim"
    partition: str = "gpu"
    nodes: int = 64
    gpus: int = 4
    latency_s: tuple[float, float] = (0.0, 0.0)
    seed: int = 0
    spools: bool = True
    kafka: str = ""
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
        self._sender: Any = _sender_to(options.kafka) if options.kafka else None
        model = TrainingModel(options.epoch_s, options.steps, options.startup_s, options.checkpoint_s, options.heartbeat_s)
        self.runs = _Runs(model, self._waiting.append)
        nodes = tuple(SimNode(f"g{i:03}", 64, 512_000, {"a100": options.gpus}) for i in range(options.nodes))
        machine = Machine(options.name, nodes, (SimPartition(options.partition, tuple(n.name for n in nodes), 86400.0),))
        self.batch = SimulatedBatch(machine, self.clock, SchedulerOptions(), programs=self.runs.program)

    def handle(self, call: str, given: dict[str, Any]) -> Any:
        """Answer one question."""
        self.calls[call] += 1
        answer = getattr(self, f"_do_{call}")(**given)
        self._drain()  # a job's last words are on the disk before anybody can see that it ended, as on a real node
        return answer

    def _do_submit(self, job: Any) -> str:
        spec = from_plain(JobSpec, job)
        run_id = spec.variables["ISCHED_RUN_ID"]
        self.folders[run_id] = spec.variables["ISCHED_RUN_DIR"]
        if spec.command[-1].isdigit():  # the training's own argument: its epochs, whatever became of the directory
            self.runs._directory(run_id).epochs = int(spec.command[-1])
        return self.batch.submit(spec)

    def _do_observe(self, jobs: list[Any]) -> Any:
        return to_plain(self.batch.observe([JobRef(key, job_id) for key, job_id in jobs]))

    def _do_cancel(self, job_id: str, signal: str | None) -> None:
        self.batch.cancel(job_id, signal=signal)

    def _do_snapshot(self) -> Any:
        return to_plain(self.batch.snapshot())

    def _do_probe(self, job: Any) -> Any:
        return to_plain(self.batch.probe(from_plain(JobSpec, job)))

    def _do_prepare(self, run: str) -> None:
        self.runs._directory(run)

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

    def _do_resend(self, runs: list[str]) -> None:
        """As a gateway does whose broker has lost its log: everything from the beginning."""
        for run_id in runs:
            self._sender.send([_incoming(e) for e in self.runs._directory(run_id).spool])

    def pump(self) -> None:
        """Let time pass, and write what jobs said; what cannot be written is kept by the spool's own writer and tried again."""
        with self.lock:
            self.batch.catch_up()
            self._drain()
            for writer in self._writers.values():
                writer.flush()
            if self._sender is not None:
                self._sender.flush(0.0)

    def _drain(self) -> None:
        for _ in range(len(self._waiting)):
            self._write(self._waiting.popleft())

    def _write(self, event: Event) -> None:
        if self._sender is not None:
            self._sender.send([_incoming(event)])
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


def _sender_to(servers: str) -> Any:
    from ischeduler.service.ingest.kafka import KafkaSettings
    from ischeduler.service.ingest.sender import KafkaSender

    return KafkaSender(KafkaSettings(servers))


def _incoming(event: Event) -> Any:
    from ischeduler.core.incoming import Incoming

    return Incoming(event.run_id, event.source, event.token, event.seq, event.kind, event.at, dumps(event.data))


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
            private = call in ("set", "truth", "calls", "forget", "fail_node", "resend")
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


def options_of(given: Mapping[str, Any]) -> ServerOptions:
    """Options from plain values."""
    made = from_plain(ServerOptions, given)
    return made if made.origin else replace(made, origin=time.time())


def main() -> None:
    """Serve with the options of the first argument."""
    options = options_of(json.loads(sys.argv[1]) if len(sys.argv) > 1 else {})

    def ready(address: Address) -> None:
        print(json.dumps({"address": list(address), "origin": options.origin}), flush=True)

    serve(options, ready)


if __name__ == "__main__":
    main()
