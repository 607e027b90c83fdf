"""Hugging Face: `Trainer(..., callbacks=[callback])`, then `callback.train(trainer)` instead of `trainer.train()`."""

from __future__ import annotations

import shutil
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ischeduler.training.files import errno_of, say
from ischeduler.training.incarnation import Action, Incarnation


class CheckpointCallback(TrainerCallback):
    """Checkpoints, progress and stopping in time for transformers' Trainer.

    Each checkpoint that the Trainer writes to its output_dir is also published, as one tar file, where the run's next
    attempt finds and verifies it. Checkpoints that only this callback asked for are removed from output_dir again.
    `directory` is where they go outside `isched exec`.
    """

    def __init__(
        self,
        *,
        keep: int = 3,
        every_s: float | None = 600.0,
        every_epochs: int = 1,
        directory: Path | str | None = None,
    ) -> None:
        self.job = Incarnation(directory=directory, keep=keep, every_s=every_s, suffix=".tar")
        self.every_epochs = every_epochs
        self._action = Action.GO
        self._ours = False
        self._epochs_done = 0
        self._last_s = self._epoch_start_s = 0.0
        self._loss: float | None = None

    def train(self, trainer: Trainer, **options: Any) -> Any:
        """`trainer.train(...)`, resumed from the newest sound checkpoint; a full disk does not end it."""
        self.job.open()
        error: BaseException | None = None
        try:
            found = self.job.resume()
            with tempfile.TemporaryDirectory(prefix="isched-resume-") as folder:
                if found.path is not None:
                    _unpack(found.path, Path(folder))
                    options["resume_from_checkpoint"] = folder
                self.job.resumed(found)
                _guard_saving(trainer, self)
                return trainer.train(**options)
        except BaseException as caught:
            error = caught
            raise
        finally:
            self.job.close(error)

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._last_s = self._epoch_start_s = time.monotonic()
        self._epochs_done = int(state.epoch or 0)

    def on_epoch_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._epoch_start_s = time.monotonic()

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self._loss = (logs or {}).get("loss", self._loss)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        now_s = time.monotonic()
        self.job.pace.note_step(now_s - self._last_s)
        self._last_s = now_s
        self._report(args, state)
        if float(state.epoch or 0).is_integer():
            return  # the end of the epoch decides for its last step
        steps_an_epoch = max(1, round(state.max_steps / state.num_train_epochs))
        action = self.job.boundary(epoch_tail=(state.global_step + 1) % steps_an_epoch == 0)
        if action is not Action.GO:
            self._want(args, state, control, action)

    def on_epoch_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._epochs_done += 1
        self._report(args, state, now=True, epoch_time_s=round(time.monotonic() - self._epoch_start_s, 4))
        action = self.job.boundary(force=True)
        wanted = self.every_epochs > 0 and self._epochs_done % self.every_epochs == 0
        if wanted or action is not Action.GO or state.global_step >= state.max_steps:
            self._want(args, state, control, action)

    def _want(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, action: Action) -> None:
        if action is Action.SUPERSEDED:
            self.job.leave(action)
        self._action = action
        # With a limit the Trainer has made room for ours by deleting one of the user's: then ours stays.
        self._ours = not control.should_save and args.save_total_limit is None and not _folder(args, state).exists()
        control.should_save = True

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """The Trainer has written its checkpoint folder: publish it, and leave if that was why."""
        folder = _folder(args, state)
        action, ours = self._action, self._ours
        self._action, self._ours = Action.GO, False
        if folder.is_dir() or self.job.rank != 0:
            final = state.global_step >= state.max_steps
            reason = "final" if final else action.reason or "periodic"
            self.job.save(reason, int(state.epoch or 0), state.global_step, lambda path: _pack(folder, path))
            if ours and self.job.rank == 0:
                shutil.rmtree(folder, ignore_errors=True)
        self._last_s = time.monotonic()
        if action.stops and state.global_step < state.max_steps:
            self.job.leave(action)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        metrics = {} if self._loss is None else {"loss": self._loss}
        self.job.emit("finished", epochs=self._epochs_done, steps=state.global_step, metrics=metrics)

    def saving_failed(self, error: Exception, folder: Path) -> None:
        """The Trainer could not write its own folder: say so, clean up, and go on (or stop, if it was time to)."""
        say(f"checkpoint failed ({error}); training goes on, the previous checkpoint stays")
        self.job.emit("checkpoint_failed", error=f"{type(error).__name__}: {error}"[:300], errno=errno_of(error))
        shutil.rmtree(folder, ignore_errors=True)

    def _report(
        self, args: TrainingArguments, state: TrainerState, *, now: bool = False, epoch_time_s: float | None = None
    ) -> None:
        self.job.progress(
            now=now,
            epoch=int(state.epoch or 0),
            epochs=state.num_train_epochs,
            step=state.global_step,
            steps=state.max_steps,
            loss=self._loss,
            step_time_s=self.job.pace.step_s,
            epoch_time_s=epoch_time_s,
        )


def _folder(args: TrainingArguments, state: TrainerState) -> Path:
    """Where the Trainer writes the checkpoint of this step."""
    return Path(args.output_dir or ".") / f"checkpoint-{state.global_step}"


def _guard_saving(trainer: Trainer, callback: CheckpointCallback) -> None:
    """A full disk raises out of Trainer._save_checkpoint and would end the training; no public hook catches that."""
    save = trainer._save_checkpoint

    def guarded(*args: Any, **kwargs: Any) -> None:
        try:
            save(*args, **kwargs)
        except (OSError, RuntimeError) as error:
            callback.saving_failed(error, _folder(trainer.args, trainer.state))

    trainer._save_checkpoint = guarded


def _pack(folder: Path, path: Path) -> None:
    with tarfile.open(path, "w") as archive:
        for item in sorted(folder.iterdir()):
            archive.add(item, arcname=item.name)


def _unpack(path: Path, folder: Path) -> None:
    with tarfile.open(path) as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(folder, filter="data")
        else:
            archive.extractall(folder)  # written by us and verified; older Pythons have no filters
