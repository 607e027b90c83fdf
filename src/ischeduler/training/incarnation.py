"""One incarnation of a run, as seen from inside the training process; frameworks' callbacks and TrainingSession share it.

It resumes, publishes checkpoints, reports, and says at each step boundary whether to go on. Only rank 0 writes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, NoReturn

from ischeduler.training.checkpoints import CheckpointStore, Manifest, Skipped, Superseded
from ischeduler.training.context import Context
from ischeduler.training.files import errno_of, say
from ischeduler.training.oom import is_out_of_memory
from ischeduler.training.pace import UNKNOWN_SAVE_S, Pace
from ischeduler.training.peers import Peers
from ischeduler.training.signals import StopFlag
from ischeduler.training.spool import SpoolWriter
from ischeduler.training.token import read_fence

EXIT_CHECKPOINTED = 85
EXIT_SUPERSEDED = 86
_CONTROL_EVERY_S = 2.0
_FENCE_EVERY_S = 10.0
_RETRY_SAVE_S = 60.0
_BASE_WAIT_S = 600.0


class Action(IntEnum):
    """What a step boundary asks for; ranks agree on the largest."""

    GO = 0
    SAVE = 1
    SAVE_CONTROL = 2
    STOP_CONTROL = 3
    STOP_DEADLINE = 4
    STOP_SIGNAL = 5
    SUPERSEDED = 6

    @property
    def stops(self) -> bool:
        return self >= Action.STOP_CONTROL

    @property
    def reason(self) -> str:
        """The word for the `checkpointing` event."""
        words = ("", "periodic", "control", "control", "deadline", "signal", "signal")
        return words[self]


@dataclass(frozen=True, slots=True)
class Resumed:
    """The checkpoint to load, on every rank; None: start from scratch."""

    path: Path | None
    manifest: Manifest | None
    skipped: tuple[Skipped, ...]


class Incarnation:
    """See the module. `directory` is where checkpoints go outside a job; inside, the run's own directory is used.

    `every_s`: seconds between periodic checkpoints at step boundaries (None: none); what the workload asked for goes before it;
    `progress_every_s`: least seconds between progress events.
    """

    def __init__(
        self,
        *,
        directory: Path | str | None = None,
        keep: int = 3,
        every_s: float | None = 600.0,
        suffix: str = ".pt",
        progress_every_s: float = 5.0,
        context: Context | None = None,
    ) -> None:
        self.context = context or Context.from_environ()
        run_dir = self.context.run_dir
        folder = Path(directory or "checkpoints") if run_dir is None else run_dir.checkpoints
        self.store = CheckpointStore(folder, token=self.context.token, keep=keep, suffix=suffix, run_dir=run_dir)
        grace_s = self.context.grace_s
        self.pace = Pace(unknown_save_s=UNKNOWN_SAVE_S if grace_s is None else grace_s / 2)
        self.peers, self.flag = Peers(), StopFlag()
        self.every_s, self._progress_every_s = self.context.checkpoint_every_s or every_s, progress_every_s
        self._spool: SpoolWriter | None = None
        self._control_seen: str | None = None
        self._answered_warning = False
        self._save_due_s = float("inf")
        self._next_control_s = self._next_fence_s = 0.0
        self._next_progress_s = 0.0

    @property
    def rank(self) -> int:
        return self.peers.rank(self.context.rank)

    def open(self) -> None:
        """Catch the stop signals and start the clock of periodic checkpoints.

        Raises SystemExit(85) where this incarnation has stopped already: a launcher that restarts failed workers
        (torchrun --max-restarts) takes code 85 for a failure.
        """
        self._refuse_restart()
        self.flag.install()
        if self.context.spool is not None and self.rank == 0:
            self._spool = SpoolWriter(self.context.spool, self.context.run_id, self.context.token)
        self._schedule_save(self.every_s)

    def _refuse_restart(self) -> None:
        run_dir = self.context.run_dir
        try:
            code = None if run_dir is None else run_dir.read_stopped(self.context.token)
        except OSError:
            return
        if code is not None:
            say(f"attempt {self.context.token} has stopped already; it is not started again")
            raise SystemExit(code)

    def close(self, error: BaseException | None = None) -> None:
        """Give signals back; report when `error` says that memory ran out."""
        where = None if error is None else is_out_of_memory(error)
        if where is not None:
            self.emit("oom", where=where, text=f"{type(error).__name__}: {error}"[:300])
        if self._spool is not None:
            self._spool.flush()
        self.flag.restore()

    def emit(self, kind: str, **data: Any) -> None:
        """Report an event (rank 0, inside a job); lost reports never disturb the training."""
        if self._spool is not None:
            self._spool.emit(kind, **data)

    # Resuming

    def resume(self) -> Resumed:
        """Choose and verify what to load and settle it as this incarnation's base; then load it and call `resumed`."""
        if self.peers.count > 1:
            return self.peers.share(self._choose() if self.rank == 0 else None)
        if self.rank != 0 and self.context.run_dir is not None:
            self._await_base()
            return self._look()
        return self._choose()

    def resumed(self, found: Resumed) -> None:
        """Say what was loaded and what was passed over."""
        name = None if found.manifest is None else found.manifest.name
        for item in found.skipped:
            say(f"checkpoint {item.name} is passed over: {item.why}")
        if name is not None and self.rank == 0:
            say(f"resumed from checkpoint {name}")
        place = {"epoch": 0, "step": 0} if name is None else {"epoch": name.epoch, "step": name.step}
        skipped = [asdict(item) for item in found.skipped]
        self.emit("resumed", checkpoint=None if name is None else str(name), **place, skipped=skipped)

    def _look(self) -> Resumed:
        manifest, skipped = self.store.newest_good()
        path = None if manifest is None else self.store.path(manifest)
        return Resumed(path, manifest, tuple(skipped))

    def _choose(self) -> Resumed:
        try:
            found = self._look()
        except OSError as error:
            say(f"the checkpoints cannot be listed ({error.strerror})")
            found = Resumed(None, None, ())
        try:
            self.store.settle_base(None if found.manifest is None else found.manifest.name)
        except OSError as error:
            say(f"base.json cannot be written yet ({error.strerror}); it is written before the first checkpoint")
        return found

    def _await_base(self) -> None:
        run_dir, end_s = self.context.run_dir, time.monotonic() + _BASE_WAIT_S
        assert run_dir is not None
        while self.context.token not in run_dir.bases():
            if time.monotonic() > end_s:
                raise TimeoutError(
                    f"Rank {self.rank} waited {_BASE_WAIT_S:.0f} s for rank 0 to choose a checkpoint; is rank 0 running?"
                )
            time.sleep(0.5)

    # At step boundaries

    def boundary(self, *, epoch_tail: bool = False, force: bool = False) -> Action:
        """What to do now. Collective: every rank calls it at the same boundaries.

        `epoch_tail`: the next step is the epoch's last, evaluation follows it without another boundary.
        """
        if not self.peers.due() and not force:
            return Action.GO
        return Action(self.peers.agree(int(self._wish(epoch_tail)), self.pace.step_s))

    def _wish(self, epoch_tail: bool) -> Action:
        now_s = time.monotonic()
        wishes = [self._from_control(now_s), self._from_fence(now_s)]
        if self.flag.is_set and wishes[0] != Action.STOP_CONTROL:
            wishes.append(self._from_signal(now_s))
        if not self.pace.fits(now_s, self.context.deadline_s, epoch_tail=epoch_tail):
            wishes.append(Action.STOP_DEADLINE)
        if now_s >= self._save_due_s and self.rank == 0:
            wishes.append(Action.SAVE)
        return max(wishes)

    def _from_signal(self, now_s: float) -> Action:
        """A warning may come up to a minute before its time (sbatch(1), --signal: Slurm looks at its limits every half minute).

        Where the job's end is known, an early warning is answered with a checkpoint, and training goes on while steps fit.
        """
        deadline_s, grace_s = self.context.deadline_s, self.context.grace_s
        if not self.flag.only_warned or deadline_s is None or grace_s is None or not self.pace.known:
            return Action.STOP_SIGNAL
        if deadline_s - now_s <= grace_s + self.pace.next_s(epoch_tail=True) + self.pace.save_s:
            return Action.STOP_SIGNAL
        first, self._answered_warning = not self._answered_warning, True
        return Action.SAVE_CONTROL if first else Action.GO

    def _from_control(self, now_s: float) -> Action:
        run_dir = self.context.run_dir
        urgent = self.flag.is_set and not self._answered_warning
        if run_dir is None or self.rank != 0 or (now_s < self._next_control_s and not urgent):
            return Action.GO
        self._next_control_s = now_s + _CONTROL_EVERY_S
        try:
            word = run_dir.read_control(self.context.token)
        except OSError:
            return Action.GO  # an unreachable file system asks for nothing
        fresh, self._control_seen = word != self._control_seen, word
        if word in ("stop", "move"):
            return Action.STOP_CONTROL
        return Action.SAVE_CONTROL if word == "checkpoint" and fresh else Action.GO

    def _from_fence(self, now_s: float) -> Action:
        run_dir = self.context.run_dir
        if run_dir is None or self.rank != 0 or now_s < self._next_fence_s:
            return Action.GO
        self._next_fence_s = now_s + _FENCE_EVERY_S
        try:
            fence = read_fence(run_dir.path)
        except OSError:
            return Action.GO
        return Action.SUPERSEDED if fence is not None and fence > self.context.token else Action.GO

    # Saving

    def save(self, reason: str, epoch: int, step: int, write: Callable[[Path], None]) -> bool:
        """Publish a checkpoint from rank 0; False when that failed (training goes on). Collective.

        Raises SystemExit(86) on every rank when a newer incarnation exists, and programming errors of `write`
        (TypeError, an object that cannot be pickled) as they are.
        """
        outcome = self._save_alone(reason, epoch, step, write) if self.rank == 0 else ""
        outcome = self.peers.share(outcome)
        if outcome == "superseded":
            self.leave(Action.SUPERSEDED)
        return outcome == "saved"

    def _save_alone(self, reason: str, epoch: int, step: int, write: Callable[[Path], None]) -> str:
        self.emit("checkpointing", reason=reason)
        start_s = time.monotonic()
        try:
            manifest = self.store.save(epoch, step, write)
        except Superseded as error:
            say(f"{error} Its checkpoint is not published.")
            return "superseded"
        except (OSError, RuntimeError, MemoryError) as error:  # RuntimeError: how torch reports a full disk
            self._schedule_save(None if self.every_s is None else min(self.every_s, _RETRY_SAVE_S))
            say(f"checkpoint failed ({error}); training goes on, the previous checkpoint stays")
            self.emit("checkpoint_failed", error=f"{type(error).__name__}: {error}"[:300], errno=errno_of(error))
            return "failed"
        save_s = time.monotonic() - start_s
        self.pace.note_save(save_s)
        self._schedule_save(self.every_s)
        self.emit("checkpoint", name=str(manifest.name), epoch=epoch, step=step, bytes=manifest.size, save_s=round(save_s, 4))
        return "saved"

    def _schedule_save(self, after_s: float | None) -> None:
        self._save_due_s = float("inf") if after_s is None else time.monotonic() + after_s

    def leave(self, action: Action) -> NoReturn:
        """End this process: SystemExit(86) when superseded, else SystemExit(85), more to do. Save first."""
        code = EXIT_SUPERSEDED if action is Action.SUPERSEDED else EXIT_CHECKPOINTED
        if self.rank == 0 and self.context.run_dir is not None:
            try:
                self.context.run_dir.mark_stopped(self.context.token, code)
            except OSError as error:
                say(f"the exit code cannot be noted in the run's directory ({error.strerror})")
        raise SystemExit(code)

    # Reporting

    def progress(self, *, now: bool = False, **data: Any) -> None:
        """Report progress, at most every few seconds unless `now`. Values may be callables: called only when reported."""
        if self._spool is None:
            return
        now_s = time.monotonic()
        if not now and now_s < self._next_progress_s:
            return
        self._next_progress_s = now_s + self._progress_every_s
        self.emit("progress", **{key: value for key, value in resolved(data).items() if value is not None})


def resolved(data: Mapping[str, Any]) -> dict[str, Any]:
    """Call what is callable and turn number-like values (tensors) into floats."""
    values = {key: value() if callable(value) else value for key, value in data.items()}
    return {key: _plain(value) for key, value in values.items()}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str, dict, list)):
        return value
    item = getattr(value, "item", None)
    plain: Any = item() if callable(item) else value
    return float(plain)
