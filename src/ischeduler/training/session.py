"""The API for training loops: `with checkpointing(model=..., optimizer=..., epochs=N) as run`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, TypeVar

from ischeduler.training import loader as loaders
from ischeduler.training import state as states
from ischeduler.training.context import Context
from ischeduler.training.files import say
from ischeduler.training.incarnation import Action, Incarnation, resolved

Batch = TypeVar("Batch")


class TrainingSession:
    """A training that can be interrupted at any step and goes on where it stopped, in this job or another.

    Attributes: `epoch` (finished epochs), `step` (steps done in all), `step_in_epoch`, `batch_in_epoch`.
    Inside `isched exec` it uses the run's directory; elsewhere `directory` (./checkpoints) and reports nothing.
    """

    def __init__(
        self,
        objects: dict[str, Any],
        *,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        keep: int = 3,
        every_s: float | None = 600.0,
        every_epochs: int = 1,
        save_rng: bool = True,
        fast_skip: bool = False,
        directory: Path | str | None = None,
        context: Context | None = None,
    ) -> None:
        self.objects = {name: states.get_set(name, item) for name, item in objects.items() if item is not None}
        self.job = Incarnation(directory=directory, keep=keep, every_s=every_s, suffix=states.suffix(), context=context)
        self.total_epochs, self.steps_per_epoch, self.every_epochs = epochs, steps_per_epoch, every_epochs
        self.save_rng, self.fast_skip = save_rng, fast_skip
        self.epoch = self.step_count = self.step_in_epoch = self.batch_in_epoch = 0
        self.metrics: dict[str, Any] = {}
        self._loader: Any = None
        self._batches: int | None = None
        self._batches_a_step, self._batch_at_step = 1, 0
        self._batch_size = self.job.context.batch_size
        self._samples_before = self._samples_to_skip = 0
        self._order_start: dict[str, Any] | None = None
        self._pending: dict[str, Any] | None = None
        self._saved_at: tuple[int, int] | None = None
        self._stop_action = Action.GO
        self._last_s = self._epoch_start_s = time.monotonic()

    def __enter__(self) -> TrainingSession:
        self.job.open()
        try:
            self.resume()
        except BaseException as error:
            self.job.close(error)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        try:
            if error is None:
                self._finish()
        finally:
            self.job.close(error)

    @property
    def position(self) -> tuple[int, int]:
        """(finished epochs, steps done in all)."""
        return self.epoch, self.step_count

    # Resuming and saving

    def resume(self) -> bool:
        """Load the newest sound checkpoint this incarnation may trust; False when there is none. Called on entering."""
        found = self.job.resume()
        if found.path is not None:
            self._load(states.read_state(found.path))
            self._saved_at = self.position
        self.job.resumed(found)
        self._last_s = self._epoch_start_s = time.monotonic()
        return found.path is not None

    def save(self, reason: str = "periodic") -> bool:
        """Publish a checkpoint of this very moment; False when that failed, and training may go on. Collective."""
        records = self.job.peers.gather(self._order_now()) if self.save_rng else []
        saved = self.job.save(reason, self.epoch, self.step_count, lambda path: states.write_state(path, self._state(records)))
        if saved:
            self._saved_at = self.position
        self._last_s = time.monotonic()
        return saved

    def should_stop(self) -> bool:
        """At a step boundary of a loop of one's own: True when it is time to call `stop()`. Saves when that is due.

        Collective: every rank calls it at the same boundaries.
        """
        action = self.job.boundary(epoch_tail=self._last_step_comes())
        if action in (Action.SAVE, Action.SAVE_CONTROL):
            self.save(action.reason)
        self._stop_action = action
        return action.stops

    def stop(self) -> NoReturn:
        """Save and end the process with exit code 85 (86 when a newer attempt has taken over, which saves nothing)."""
        action = self._stop_action if self._stop_action.stops else Action.STOP_SIGNAL
        if action is not Action.SUPERSEDED and self._saved_at != self.position:
            self.save(action.reason)
        self.job.leave(action)

    def _state(self, records: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "v": 1,
            "objects": states.collect(self.objects),
            "place": {
                "epoch": self.epoch,
                "step": self.step_count,
                "step_in_epoch": self.step_in_epoch,
                "batch_in_epoch": self.batch_in_epoch,
                "steps_per_epoch": self.steps_per_epoch,
                "samples_in_epoch": self._samples_before + self.batch_in_epoch * self._batch_size * self.job.peers.count,
            },
            "ranks": self.job.peers.count,
            "order": records,
            "pace": self.job.pace.to_state(),
        }

    def _load(self, state: dict[str, Any]) -> None:
        states.restore(self.objects, state["objects"])
        place, ranks = state["place"], self.job.peers.count
        self.epoch, self.step_count = place["epoch"], place["step"]
        self.step_in_epoch = place["step_in_epoch"]
        self.batch_in_epoch = place["batch_in_epoch"] * state["ranks"] // ranks
        samples = self._samples_to_skip = place.get("samples_in_epoch", 0)
        if samples and self._batch_size:
            self.batch_in_epoch = samples // (self._batch_size * ranks)
        self.steps_per_epoch = self.steps_per_epoch or place["steps_per_epoch"]
        self.job.pace.load_state(state["pace"])
        if state["order"] and len(state["order"]) == ranks:
            own = self._pending = state["order"][self.job.rank]
            states.set_rng_state(own["now"]["rng"])
        elif state["order"]:
            say(f"{ranks} ranks instead of {len(state['order'])}: random generators start afresh")

    def _order_now(self) -> dict[str, Any]:
        return {"start": self._order_start, "now": loaders.order_state(self._loader)}

    # The loop

    def epochs(self) -> Iterator[int]:
        """The epochs still to do, numbered from 0; the first may be one that was interrupted."""
        numbers = count(self.epoch) if self.total_epochs is None else range(self.epoch, self.total_epochs)
        for number in numbers:
            if self._pending is not None:
                states.set_rng_state(self._pending["now"]["rng"])
            self._epoch_start_s = self._last_s = time.monotonic()
            yield number
            if self.epoch == number:
                self.epoch_end()

    def steps(self, loader: Iterable[Batch]) -> Iterator[tuple[int, Batch]]:
        """(number in the epoch, batch) of what is left of this epoch; call once an epoch, with the training data."""
        loaders.set_epoch(loader, self.epoch)
        self._loader, self._batches = loader, loaders.length(loader)
        self._resume_sampler(loader)
        skip, pending, self._pending = self.batch_in_epoch, self._pending, None
        if pending is not None:
            loaders.set_order_state(loader, pending["start"] if skip and pending["start"] else pending["now"])
        self._order_start = loaders.order_state(loader) if self.save_rng else None
        self._batch_at_step = skip
        iterator = loaders.from_batch(loader, skip, fast=self.fast_skip)
        if pending is not None and skip:
            loaders.set_order_state(loader, pending["now"])
        self._last_s = time.monotonic()
        for number, batch in enumerate(iterator, start=skip):
            self.batch_in_epoch = number + 1
            yield number, batch

    def _resume_sampler(self, loader: Any) -> None:
        """A sampler that begins after any number of samples (`elastic.ElasticBatches`) does so: the batches may be others now."""
        samples, self._samples_to_skip = self._samples_to_skip, 0
        resume_at = getattr(getattr(loader, "batch_sampler", None), "resume_at", None)
        if samples and callable(resume_at):
            resume_at(samples)
            self._samples_before, self.batch_in_epoch = samples, 0
            self._batches = loaders.length(loader)

    def step(self, loss: Any = None) -> None:
        """End one optimizer step: count, report, and at this safe place save or stop if it is time.

        After an epoch's last step nothing is saved or stopped before `epoch_end`, so that a resumed epoch always has a
        batch left (unless the loader does not know its length).

        `loss` may be a tensor: it is turned into a number only when reported. Raises SystemExit(85) after saving
        when the run must stop here, SystemExit(86) when a newer attempt has taken over.
        """
        self.step_count += 1
        self.step_in_epoch += 1
        now_s = time.monotonic()
        self.job.pace.note_step(now_s - self._last_s)
        self._last_s = now_s
        self._report(loss=loss)
        self._batches_a_step = max(1, self.batch_in_epoch - self._batch_at_step)
        self._batch_at_step = self.batch_in_epoch
        if self._batches_left() == 0:
            return  # the end of the epoch decides: a resumed epoch must have a batch left, or `loss` would be unknown there
        if self.should_stop():
            self.stop()

    def epoch_end(self, metrics: dict[str, Any] | None = None) -> None:
        """End the epoch (after evaluation): report, save, and stop if it is time."""
        now_s = time.monotonic()
        if self.step_in_epoch:
            self.job.pace.note_epoch_tail(now_s - self._last_s)
            self.steps_per_epoch = self.step_in_epoch
        self.metrics = resolved(metrics or {})
        self.epoch += 1
        self.step_in_epoch = self.batch_in_epoch = self._batch_at_step = self._samples_before = 0
        self._order_start = None
        self._report(now=True, epoch_time_s=round(now_s - self._epoch_start_s, 4), loss=self.metrics.get("loss"))
        self._save_at_epoch_end()

    def _save_at_epoch_end(self) -> None:
        action = self._stop_action = self.job.boundary(epoch_tail=self._last_step_comes(), force=True)
        done = self.total_epochs is not None and self.epoch >= self.total_epochs
        if action is Action.SUPERSEDED:
            self.job.leave(action)
        wanted = self.every_epochs > 0 and self.epoch % self.every_epochs == 0
        if done or wanted or action is not Action.GO:
            self.save("final" if done else action.reason or "periodic")
        if action.stops and not done:
            self.stop()

    def _batches_left(self) -> int | None:
        return None if self._batches is None else max(0, self._batches - self.batch_in_epoch)

    def _last_step_comes(self) -> bool:
        left = self._batches_left()
        return left is not None and left <= self._batches_a_step

    def _report(self, *, now: bool = False, loss: Any = None, epoch_time_s: float | None = None) -> None:
        per_epoch = self.steps_per_epoch or self._batches
        steps = per_epoch * self.total_epochs if per_epoch and self.total_epochs else None
        self.job.progress(
            now=now,
            epoch=self.epoch,
            epochs=self.total_epochs,
            step=self.step_count,
            steps=steps,
            loss=loss,
            step_time_s=self.job.pace.step_s,
            epoch_time_s=epoch_time_s,
        )

    def _finish(self) -> None:
        if self._saved_at != self.position:
            self.save("final")
        self.job.emit("finished", epochs=self.epoch, steps=self.step_count, metrics=self.metrics)


def checkpointing(
    *,
    epochs: int | None = None,
    steps_per_epoch: int | None = None,
    keep: int = 3,
    every_s: float | None = 600.0,
    every_epochs: int = 1,
    save_rng: bool = True,
    fast_skip: bool = False,
    directory: Path | str | None = None,
    **objects: Any,
) -> TrainingSession:
    """Make a training loop resumable. Give every object with state by any name: `model=`, `optimizer=`, `scheduler=`, ...

    Each must have `state_dict()` and `load_state_dict()`, or be a pair of functions (get, set); None is left out.

    - `epochs`: how many in all; None when the loop decides itself.
    - `steps_per_epoch`: optimizer steps an epoch, for progress; counted by itself after the first epoch.
    - `keep`: checkpoints to keep. `every_s`: seconds between checkpoints inside an epoch (None: none).
      `every_epochs`: epochs between checkpoints at epoch ends (0: none but the last).
    - `save_rng`: keep random generators, so that an interrupted run equals an uninterrupted one.
    - `fast_skip`: when resuming inside an epoch, do not load the batches already seen (see `loader.from_batch`).
    - `directory`: where checkpoints go outside `isched exec` (./checkpoints).

    Inside the `with` block SIGUSR2 and SIGTERM only set a flag; see `TrainingSession.step` for what follows.
    """
    return TrainingSession(
        objects,
        epochs=epochs,
        steps_per_epoch=steps_per_epoch,
        keep=keep,
        every_s=every_s,
        every_epochs=every_epochs,
        save_rng=save_rng,
        fast_skip=fast_skip,
        directory=directory,
    )
