"""The plane's hands: carry an action out and bring back what came of it, as inputs. They judge nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ischeduler.core.errors import BatchUnavailable, IschedError, SubmitRefused
from ischeduler.core.run import Run
from ischeduler.plane.actions import (
    Action,
    CancelJob,
    Control,
    Note,
    Notify,
    Prepare,
    RaiseFence,
    ReadLog,
    RecordHistory,
    Replan,
    SignalJob,
    Submit,
)
from ischeduler.plane.inputs import Input, LogRead, Recorded, Replanned, SubmitFailed, Submitted
from ischeduler.ports import BatchSystem, Clock, Notifier, Replanner, RunFiles, Store


class Hands:
    """Executes actions on the adapters. Faults are told as sentences; nothing is retried here, the next tick asks again."""

    def __init__(
        self, store: Store, batches: Mapping[str, BatchSystem], clock: Clock, notifier: Notifier, files: RunFiles,
        replanner: Replanner | None, variables: Callable[[Run], Mapping[str, str]],
    ) -> None:
        self._store, self._batches, self._clock = store, batches, clock
        self._notifier, self._files, self._replanner, self._variables = notifier, files, replanner, variables

    def do(self, run: Run, action: Action, faults: list[str]) -> list[Input]:
        """Carry one action out; what came of it, as inputs for the next round."""
        match action:
            case Submit():
                return [self._submit(run, action)]
            case CancelJob() | SignalJob():
                return self._end(run, action, faults)
            case Prepare() | RaiseFence() | Control():
                return self._write(run, action, faults)
            case ReadLog():
                return [self._read_log(run, action, faults)]
            case Replan():
                return [self._replan(run, action, faults)]
            case RecordHistory():
                for record in action.records:
                    self._store.record(record)
                return [Recorded()]
            case Notify():
                self._notifier.notify(run, action.subject, action.text)
                return []
            case Note():
                return []

    def _submit(self, run: Run, wanted: Submit) -> Input:
        """Anything but a clear answer leaves the submission open: it is looked up by its key before it is sent again."""
        batch = self._batches.get(wanted.cluster)
        if batch is None:
            return _failed(wanted, "not_sent", f"cluster '{wanted.cluster}' is not configured here")
        try:
            job = replace(wanted.job, variables={**self._variables(run), **wanted.job.variables})
            return Submitted(wanted.key, wanted.tries, batch.submit(job))
        except SubmitRefused as error:
            return _failed(wanted, error.kind, str(error))
        except (BatchUnavailable, OSError) as error:
            return SubmitFailed(wanted.key, wanted.tries, "uncertain", str(error), uncertain=True)

    def _end(self, run: Run, action: CancelJob | SignalJob, faults: list[str]) -> list[Input]:
        batch = self._batches.get(action.cluster)
        if batch is None:
            faults.append(f"{run.id}: cluster '{action.cluster}' is not configured here")
            return []
        try:
            batch.cancel(action.job_id, signal=action.signal if isinstance(action, SignalJob) else None)
        except (IschedError, OSError) as error:
            faults.append(f"{run.id}: job {action.job_id} could not be reached ({error})")
        return []

    def _write(self, run: Run, action: Prepare | RaiseFence | Control, faults: list[str]) -> list[Input]:
        """A run's directory that cannot be written (full disk) must not stop the plane: jobs fence themselves as well."""
        try:
            if isinstance(action, Prepare):
                self._files.prepare(run)
            elif isinstance(action, RaiseFence):
                self._files.raise_fence(run, action.token)
            else:
                self._files.control(run, action.token, action.word)
        except OSError as error:
            faults.append(f"{run.id}: {run.directory} could not be written ({error})")
        return []

    def _read_log(self, run: Run, action: ReadLog, faults: list[str]) -> Input:
        try:
            return LogRead(action.key, self._files.log_tail(run, action.number))
        except OSError as error:
            faults.append(f"{run.id}: the output of attempt {action.number} could not be read ({error})")
            return LogRead(action.key, "")

    def _replan(self, run: Run, action: Replan, faults: list[str]) -> Input:
        if self._replanner is None:
            return Replanned(action.reason)
        try:
            return Replanned(action.reason, tuple(self._replanner.replan(run, action.reason, self._clock.now())))
        except (IschedError, OSError) as error:
            faults.append(f"{run.id}: the planner could not answer ({error})")
            return Replanned(action.reason)


def _failed(wanted: Submit, kind: str, message: str) -> SubmitFailed:
    return SubmitFailed(wanted.key, wanted.tries, kind, message)
