"""Keras 3: `model.fit(..., callbacks=[CheckpointCallback()])`. Exact inside an epoch on the torch backend."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras

from ischeduler.training import state as states
from ischeduler.training.files import say
from ischeduler.training.incarnation import Action, Incarnation


class CheckpointCallback(keras.callbacks.Callback):
    """Checkpoints, progress and stopping in time for `model.fit`; resumes by itself when `fit` is called again.

    The model must be built before `fit` (as for keras.callbacks.BackupAndRestore). On the torch backend a run that was
    interrupted inside an epoch goes on with the next batch; on other backends that epoch's data starts again.
    `directory` is where checkpoints go outside `isched exec`.
    """

    def __init__(
        self,
        *,
        keep: int = 3,
        every_s: float | None = 600.0,
        every_epochs: int = 1,
        directory: Path | str | None = None,
    ) -> None:
        super().__init__()
        self.params: Any = {}
        self.job = Incarnation(directory=directory, keep=keep, every_s=every_s, suffix=".pkl")
        self.every_epochs = every_epochs
        self._epoch = self._batch = self._step = 0
        self._skip = 0
        self._start: Any = None
        self._pending: dict[str, Any] | None = None
        self._plain_function: Callable[..., Any] | None = None
        self._last_s = self._epoch_start_s = 0.0
        self._logs: dict[str, float] = {}

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self.job.open()
        found = self.job.resume()
        if found.path is not None:
            self._load(states.read_state(found.path))
        self.job.resumed(found)
        self._last_s = time.monotonic()

    def _load(self, state: dict[str, Any]) -> None:
        for variables, saved in ((self._model_variables(), state["model"]), (self._optimizer_variables(), state["optimizer"])):
            if len(variables) != len(saved):
                raise ValueError(
                    f"The checkpoint has {len(saved)} variables where the model has {len(variables)}: build the model before "
                    "fit, and give the same model as before."
                )
            for variable, value in zip(variables, saved, strict=True):
                variable.assign(value)
        self._epoch, self._step = state["epoch"], state["step"]
        self.job.pace.load_state(state["pace"])
        self._pending = state
        self._fitted._initial_epoch = self._epoch  # as keras.callbacks.BackupAndRestore does
        if state["batch"] and keras.backend.backend() == "torch":
            self._skip = state["batch"]
            self._plain_function = self._fitted.train_function
            self._fitted.train_function = self._skipping
        elif state["batch"]:
            say(f"epoch {self._epoch} was interrupted after {state['batch']} batches; its data starts again")

    @property
    def _fitted(self) -> Any:
        """The model being fitted, set by Keras before any hook is called."""
        return self.model

    def _skipping(self, data: Any) -> Any:
        assert self._plain_function is not None
        if self._batch < self._skip:
            return {}
        return self._plain_function(data)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._epoch, self._batch = epoch, 0
        self._epoch_start_s = self._last_s = time.monotonic()
        if self._pending is not None:
            states.set_rng_state(self._pending["start"] if self._skip else self._pending["now"])
        self._start = states.rng_state()

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        if self._pending is not None and self._batch >= self._skip:
            if self._skip:
                states.set_rng_state(self._pending["now"])
            self._pending = None

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        skipped = self._batch < self._skip
        self._batch = batch + 1
        if skipped:
            return
        self._skip = 0
        now_s = time.monotonic()
        self._step += 1
        self.job.pace.note_step(now_s - self._last_s)
        self._last_s = now_s
        self._logs = dict(logs or {})
        self._report()
        steps = self.params.get("steps")
        if steps is not None and self._batch >= steps:
            return  # the end of the epoch decides for its last step
        action = self.job.boundary(epoch_tail=steps is not None and self._batch + 1 >= steps)
        if action is not Action.GO:
            self._act(action)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        now_s = time.monotonic()
        self.job.pace.note_epoch_tail(now_s - self._last_s)
        self._epoch, self._batch, self._skip, self._pending = epoch + 1, 0, 0, None
        self._logs = dict(logs or {})
        self._report(now=True, epoch_time_s=round(now_s - self._epoch_start_s, 4))
        action = self.job.boundary(force=True)
        final = self._epoch >= self.params["epochs"] or self._fitted.stop_training
        if final and action is not Action.SUPERSEDED:
            self._save("final")
        elif action is not Action.GO:
            self._act(action)
        elif self.every_epochs > 0 and self._epoch % self.every_epochs == 0:
            self._save("periodic")

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        if self._plain_function is not None:
            self._fitted.train_function = self._plain_function
        metrics = {key: float(value) for key, value in (logs or self._logs).items()}
        self.job.emit("finished", epochs=self._epoch, steps=self._step, metrics=metrics)
        self.job.close()

    def _act(self, action: Action) -> None:
        if action is not Action.SUPERSEDED:
            self._save(action.reason)
        if action.stops:
            self.job.close()
            self.job.leave(action)

    def _save(self, reason: str) -> None:
        self.job.save(reason, self._epoch, self._step, lambda path: states.write_state(path, self._state()))
        self._last_s = time.monotonic()

    def _state(self) -> dict[str, Any]:
        return {
            "model": [keras.ops.convert_to_numpy(variable) for variable in self._model_variables()],
            "optimizer": [keras.ops.convert_to_numpy(variable) for variable in self._optimizer_variables()],
            "epoch": self._epoch,
            "batch": self._batch,
            "step": self._step,
            "start": self._start,
            "now": states.rng_state(),
            "pace": self.job.pace.to_state(),
        }

    def _model_variables(self) -> list[Any]:
        """Weights, batch statistics and the layers' seed generators; metrics start afresh."""
        metric_ids = {id(variable) for metric in self._fitted.metrics for variable in metric.variables}
        return [variable for variable in self._fitted.variables if id(variable) not in metric_ids]

    def _optimizer_variables(self) -> list[Any]:
        optimizer = self._fitted.optimizer
        if not optimizer.built:
            optimizer.build(self._fitted.trainable_variables)
        return list(optimizer.variables)

    def _report(self, *, now: bool = False, epoch_time_s: float | None = None) -> None:
        per_epoch, epochs = self.params.get("steps"), self.params["epochs"]
        self.job.progress(
            now=now,
            epoch=self._epoch,
            epochs=epochs,
            step=self._step,
            steps=per_epoch * epochs if per_epoch else None,
            loss=self._logs.get("loss"),
            step_time_s=self.job.pace.step_s,
            epoch_time_s=epoch_time_s,
        )
