"""Trainings inside the simulator: programs that follow ``docs/in-job-protocol.md``, and the run directories they write to, in memory.

A training resumes from the newest checkpoint of an older incarnation, saves at the end of each epoch and when it is warned, and
gives way to newer incarnations. The plane sees the events, fences and control words that it would see on a shared file system.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ischeduler.batch.simulated import Life, SimulatedBatch
from ischeduler.core.event import Event
from ischeduler.core.jobs import JobSpec
from ischeduler.core.run import Run
from ischeduler.training.handover import QUIET_S

Token = tuple[int, int]
"""(attempt, restart)."""


@dataclass(frozen=True, slots=True)
class TrainingModel:
    """How a training behaves; times in seconds. ``slowdown`` is the factor on its epoch for a job: its nodes, batch, partition."""

    epoch_s: float = 60.0
    steps: int = 100
    startup_s: float = 10.0
    checkpoint_s: float = 2.0
    heartbeat_s: float = 60.0
    needs_memory_bytes: int = 0
    slowdown: Callable[[JobSpec], float] = lambda spec: 1.0


@dataclass(slots=True)
class _Directory:
    """One run's directory."""

    epochs: int = 1
    fence: Token = (0, 0)
    claims: dict[Token, str] = field(default_factory=dict[Token, str])
    saved: list[tuple[int, Token]] = field(default_factory=list[tuple[int, Token]])
    spool: list[Event] = field(default_factory=list[Event])
    words: dict[Token, str] = field(default_factory=dict[Token, str])
    logs: dict[int, str] = field(default_factory=dict[int, str])
    finished_by: list[Token] = field(default_factory=list[Token])


class SimulatedRuns:
    """Run directories of the simulator: the plane's EventSource and RunFiles, and the factory of its jobs' programs.

    ``model`` says how a run's training behaves, by the run's id. ``batches`` are brought up to the clock before anything is read.
    """

    def __init__(self, model: Callable[[str], TrainingModel] | TrainingModel = TrainingModel()) -> None:
        self._model = model
        self.directories: dict[str, _Directory] = {}
        self.batches: list[SimulatedBatch] = []

    def program(self, spec: JobSpec) -> Training:
        """The program of a plane's job."""
        run_id = spec.variables["ISCHED_RUN_ID"]
        model = self._model if isinstance(self._model, TrainingModel) else self._model(run_id)
        return Training(run_id, self._directory(run_id), model)

    def _directory(self, run_id: str) -> _Directory:
        return self.directories.setdefault(run_id, _Directory())

    def read(self, run: Run) -> tuple[Sequence[Event], Mapping[str, int]]:
        """New events of the run's jobs."""
        for batch in self.batches:
            batch.catch_up()
        spool = self._directory(run.id).spool
        return spool[run.spool_offsets.get("all", 0) :], {"all": len(spool)}

    def prepare(self, run: Run) -> None:
        """Note how many epochs the training has."""
        self._directory(run.id).epochs = run.plan.workload.epochs

    def raise_fence(self, run: Run, token: str) -> None:
        """Older incarnations stop themselves when they look."""
        directory = self._directory(run.id)
        directory.fence = max(directory.fence, _token(token))

    def control(self, run: Run, token: str, word: str) -> None:
        """Leave a word; it is read at the next heartbeat."""
        self._directory(run.id).words[_token(token)] = word

    def log_tail(self, run: Run, attempt: int) -> str:
        """What the attempt printed last."""
        return self._directory(run.id).logs.get(attempt, "")

    def steps_done(self, run_id: str) -> int:
        """The newest checkpoint's step."""
        return max((step for step, _ in self._directory(run_id).saved), default=0)


class Training:
    """One incarnation: start, resume, epochs with checkpoints, and an end at its limit, by a word, or when all is done."""

    def __init__(self, run_id: str, directory: _Directory, model: TrainingModel) -> None:
        self._run_id, self._dir, self._model = run_id, directory, model
        self._token: Token = (0, 0)
        self._seq = 0
        self._step, self._since_s, self._step_s = 0, 0.0, 1.0
        self._steps, self._steps_all = model.steps, model.steps
        self._training = self._leaving = False
        self._life: Life

    def start(self, life: Life) -> None:
        """Claim, fence, and load what there is."""
        self._life, model = life, self._model
        self._token = (int(life.spec.variables["ISCHED_ATTEMPT"]), life.restarts)
        self._steps_all = self._dir.epochs * self._steps
        self._step_s = model.epoch_s * model.slowdown(life.spec) / self._steps
        if self._token < self._dir.fence:
            self._leave(86, "superseded")
            return
        if self._too_early():
            life.end(88)
            return
        if self._dir.claims.setdefault(self._token, life.job_id) != life.job_id:
            life.end(87)
            return
        self._dir.fence = self._token
        self._say("started", job_id=life.job_id, host=life.nodes[0], restart=life.restarts, deadline=life.limit_at_s)
        life.after(model.startup_s, self._resume)
        life.after(model.heartbeat_s, self._beat)

    def _too_early(self) -> bool:
        """Whether an older attempt trains, and may do so for a while yet."""
        older = max((t for t in self._dir.claims if t < self._token), default=self._token)
        keep_from, told = self._life.spec.variables.get("ISCHED_KEEP_FROM"), self._dir.words.get(self._token, "")
        if older[0] == self._token[0] or keep_from is None or told == "stay" or (told != "return" and self._life.now_s >= float(keep_from)):
            return False
        last = next((e for e in reversed(self._dir.spool) if e.token == f"{older[0]}.{older[1]}"), None)
        return last is not None and last.kind != "exit" and self._life.now_s - last.at <= QUIET_S

    def signal(self, name: str) -> bool:
        """Save at the next step's end and leave with 85; before the training has begun there is nothing to save."""
        self._say("signal", name=f"SIG{name}")
        if self._leaving:
            return True
        if not self._training:
            return name != "TERM"
        self._leaving = True
        self._save("signal", lambda: self._leave(85, "checkpointed"))
        return True

    # -- training -----------------------------------------------------------------------------------------------------

    def _resume(self) -> None:
        if self._superseded():
            return
        memory = self._life.spec.resources.memory_bytes
        if memory is not None and memory < self._model.needs_memory_bytes:
            self._dir.logs[self._token[0]] = "slurmstepd: error: Step 1.0 exceeded memory limit, being killed"
            self._life.end(0, signal=9)
            return
        self._step = max((step for step, who in self._dir.saved if who < self._token), default=0)
        name = self._name() if self._step else None
        self._say("resumed", checkpoint=name, epoch=self._step // self._steps, step=self._step, skipped=[])
        self._training = True
        self._next_epoch()

    def _next_epoch(self) -> None:
        if self._leaving:
            return
        if self._step >= self._steps_all:
            self._finish()
            return
        self._since_s = self._life.now_s
        self._life.after((self._steps - self._step % self._steps) * self._step_s, self._end_epoch)

    def _end_epoch(self) -> None:
        """Progress, a checkpoint, and on."""
        if self._leaving or self._superseded():
            return
        self._step = (self._step // self._steps + 1) * self._steps
        self._since_s = self._life.now_s
        self._say(
            "progress", epoch=self._step // self._steps, epochs=self._dir.epochs, step=self._step, steps=self._steps_all,
            loss=1.0 / (1 + self._step), step_time_s=self._step_s, epoch_time_s=self._step_s * self._steps,
        )  # fmt: skip
        self._training = False
        self._save("periodic", self._go_on)

    def _go_on(self) -> None:
        self._training = True
        self._next_epoch()

    def _finish(self) -> None:
        self._say("finished", epochs=self._step // self._steps, steps=self._step)
        self._dir.finished_by.append(self._token)
        self._leave(0, "completed")

    def _save(self, reason: str, then: Callable[[], None]) -> None:
        """Write a checkpoint; it counts from ``checkpoint_s`` later, unless a newer incarnation has come meanwhile."""
        if self._training:
            self._step = min(self._step + int((self._life.now_s - self._since_s) / self._step_s), self._steps_all)
            self._since_s = self._life.now_s
        self._say("checkpointing", reason=reason)
        self._life.after(self._model.checkpoint_s, lambda: self._publish(then))

    def _publish(self, then: Callable[[], None]) -> None:
        if self._superseded():
            return
        self._dir.saved.append((self._step, self._token))
        self._say(
            "checkpoint", name=self._name(), epoch=self._step // self._steps, step=self._step, bytes=1, save_s=self._model.checkpoint_s
        )
        then()

    def _beat(self) -> None:
        """The heartbeat: the fence and the control word are read."""
        if self._superseded():
            return
        self._say("heartbeat", rss_bytes=self._model.needs_memory_bytes, cpu_percent=90.0, gpu=[])
        self._life.after(self._model.heartbeat_s, self._beat)
        word = self._dir.words.pop(self._token, "") if self._training and not self._leaving else ""
        if word in ("stop", "move", "checkpoint"):
            self._leaving = True
            self._save("control", lambda: self._leave(85, "checkpointed") if word != "checkpoint" else self._stay())

    def _stay(self) -> None:
        self._leaving = False
        self._next_epoch()

    # -- words --------------------------------------------------------------------------------------------------------

    def _superseded(self) -> bool:
        if self._dir.fence > self._token:
            self._leave(86, "superseded")
            return True
        return False

    def _leave(self, code: int, reason: str) -> None:
        self._leaving = True
        self._say("exit", code=code, reason=reason)
        self._life.end(code)

    def _name(self) -> str:
        return f"e{self._step // self._steps:05d}-s{self._step:09d}-t{self._token[0]}.{self._token[1]}"

    def _say(self, kind: str, **data: Any) -> None:
        self._seq += 1
        token = f"{self._token[0]}.{self._token[1]}"
        self._dir.spool.append(Event(self._run_id, kind, self._life.now_s, source="job", token=token, seq=self._seq, data=data))


def _token(text: str) -> Token:
    attempt, _, restart = text.partition(".")
    return int(attempt), int(restart or 0)

