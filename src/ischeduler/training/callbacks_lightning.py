"""Lightning: `Trainer(callbacks=[CheckpointCallback()])`, `trainer.fit(model, ckpt_path=callback.ckpt_path)`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import lightning.pytorch as pl
else:
    try:
        import lightning.pytorch as pl
    except ImportError:
        import pytorch_lightning as pl

from ischeduler.training.callbacks_torch import ResumableLoader
from ischeduler.training.incarnation import Action, Incarnation, Resumed
from ischeduler.training.state import rng_state, set_rng_state

_KEY = "ischeduler"


class CheckpointCallback(pl.Callback):
    """Checkpoints, progress and stopping in time for Lightning's Trainer.

    Wrap the training loader with `callback.loader(...)` to make resuming inside an epoch exact; give
    `ckpt_path=callback.ckpt_path` to `fit`. `directory` is where checkpoints go outside `isched exec`.
    """

    def __init__(
        self,
        *,
        keep: int = 3,
        every_s: float | None = 600.0,
        every_epochs: int = 1,
        directory: Path | str | None = None,
    ) -> None:
        self.job = Incarnation(directory=directory, keep=keep, every_s=every_s, suffix=".ckpt")
        self.every_epochs = every_epochs
        self._loaders: list[ResumableLoader] = []
        self._found: Resumed | None = None
        self._rng: Any = None
        self._epoch_rng: Any = None
        self._last_s = self._epoch_start_s = 0.0
        self._open = False

    def loader(self, loader: Any, *, fast_skip: bool = False) -> ResumableLoader:
        """The training loader, made resumable."""
        wrapped = ResumableLoader(loader, fast_skip=fast_skip)
        self._loaders.append(wrapped)
        return wrapped

    @property
    def ckpt_path(self) -> str | None:
        """The checkpoint to resume from, None to start from scratch."""
        if self._found is None:
            self._ensure_open()
            self._found = self.job.resume()
            self.job.resumed(self._found)
        return None if self._found.path is None else str(self._found.path)

    def _ensure_open(self) -> None:
        if not self._open:
            self._open = True
            self.job.open()

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        if stage == "fit":
            self._ensure_open()

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self._found is None:
            raise RuntimeError("Give the checkpoint to Lightning: trainer.fit(model, ckpt_path=callback.ckpt_path).")

    def on_save_checkpoint(self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]) -> None:
        loaders = [loader.state_dict() for loader in self._loaders]
        checkpoint[_KEY] = {"rng": rng_state(), "loaders": loaders, "pace": self.job.pace.to_state()}

    def on_load_checkpoint(self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]) -> None:
        state = checkpoint.get(_KEY)
        if state is None:
            return
        self.job.pace.load_state(state["pace"])
        self._rng = state["rng"]
        for loader, saved in zip(self._loaders, state["loaders"], strict=False):
            loader.load_state_dict(saved)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._last_s = self._epoch_start_s = time.monotonic()

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._epoch_start_s = self._last_s = time.monotonic()
        self._restore_rng()

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int) -> None:
        self._restore_rng()

    def _restore_rng(self) -> None:
        if self._rng is not None:
            set_rng_state(self._rng)
            self._rng = None

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        now_s = time.monotonic()
        self.job.pace.note_step(now_s - self._last_s)
        self._last_s = now_s
        self._report(trainer, loss=outputs.get("loss") if isinstance(outputs, dict) else outputs)
        mid_accumulation = (batch_idx + 1) % trainer.accumulate_grad_batches != 0
        left = trainer.num_training_batches - batch_idx - 1
        if mid_accumulation or left <= 0:
            return  # gradients under way are not part of a checkpoint; the end of an epoch decides for its last step
        action = self.job.boundary(epoch_tail=left <= trainer.accumulate_grad_batches)
        if action is not Action.GO:
            self._act(trainer, action, trainer.current_epoch)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        now_s, done = time.monotonic(), trainer.current_epoch + 1
        self.job.pace.note_epoch_tail(now_s - self._last_s)
        self._report(trainer, now=True, epoch=done, epoch_time_s=round(now_s - self._epoch_start_s, 4))
        action = self.job.boundary(force=True)
        final = trainer.should_stop or (trainer.max_epochs not in (None, -1) and done >= trainer.max_epochs)
        if final and action is not Action.SUPERSEDED:
            self._save(trainer, "final", done)
        elif action is not Action.GO:
            self._act(trainer, action, done)
        elif self.every_epochs > 0 and done % self.every_epochs == 0:
            self._save(trainer, "periodic", done)

    def _act(self, trainer: pl.Trainer, action: Action, epoch: int) -> None:
        if action is not Action.SUPERSEDED:
            self._save(trainer, action.reason, epoch)
        if action.stops:
            self.job.leave(action)

    def _save(self, trainer: pl.Trainer, reason: str, epoch: int) -> None:
        # Every rank takes part in collecting (sharded strategies communicate); only rank 0 writes.
        state = trainer._checkpoint_connector.dump_checkpoint(weights_only=False)
        self.job.save(reason, epoch, trainer.global_step, lambda path: _write(path, state))
        self._last_s = time.monotonic()

    def _report(self, trainer: pl.Trainer, *, now: bool = False, epoch: int | None = None, **data: Any) -> None:
        epochs = trainer.max_epochs if trainer.max_epochs not in (None, -1) else None
        total = trainer.estimated_stepping_batches if epochs is not None or trainer.max_steps > 0 else None
        self.job.progress(
            now=now,
            epoch=trainer.current_epoch if epoch is None else epoch,
            epochs=epochs,
            step=trainer.global_step,
            steps=None if total is None or total == float("inf") else int(total),
            step_time_s=self.job.pace.step_s,
            **data,
        )

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        metrics = {key: float(value) for key, value in trainer.callback_metrics.items()}
        self.job.emit("finished", epochs=trainer.current_epoch, steps=trainer.global_step, metrics=metrics)

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        self.job.close(exception)

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        self.job.close()
        self._open = False


def _write(path: Path, state: dict[str, Any]) -> None:
    import torch

    with open(path, "wb") as file:
        torch.save(state, file)
