"""A delegated run, as its owner holds it: look, ask why, wait, stop, move, report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ischeduler.core.errors import BadInput, NotFound, RunFailed
from ischeduler.core.event import Event
from ischeduler.core.run import Run, RunState
from ischeduler.helper.report import Report

if TYPE_CHECKING:
    from ischeduler.helper.session import Session

POLL_S = 2.0


class RunHandle:
    """Like a future: ``run.status()``, ``run.wait()``, ``run.result()``. Holds no connection; any process can make one."""

    def __init__(self, run_id: str, session: Session) -> None:
        self.id = run_id
        self._session = session

    def __repr__(self) -> str:
        return f"<RunHandle {self.id}>"

    def status(self, *, look: bool = True) -> Run:
        """The run now. With ``look`` the plane takes a look at the batch system first where nobody else is doing so."""
        if look:
            self._session.tick_if_free()
        return self._session.owned_run(self.id)

    def why(self) -> str:
        """In words: why the run is where it is, and what to do about it."""
        return self._session.explain(self.status())

    def wait(self, timeout: float | None = None) -> Run:
        """Block until the run has ended. TimeoutError after ``timeout`` seconds; the run goes on then."""
        clock = self._session.clock
        deadline = None if timeout is None else clock.now() + timeout
        while True:
            run = self.status()
            if run.state.ended:
                return run
            if deadline is not None and clock.now() >= deadline:
                raise TimeoutError(f"run {self.id} has not ended within {timeout:.0f} s; it is {run.state.value} and goes on.")
            clock.sleep(POLL_S)

    def result(self, timeout: float | None = None) -> Run:
        """The completed run. RunFailed, with the reason, when it ended otherwise."""
        run = self.wait(timeout)
        if run.state is not RunState.COMPLETED:
            raise RunFailed(
                f"run {self.id} {run.state.value}: {run.message or 'no reason was recorded'}; see isched why {self.id}."
            )
        return run

    def cancel(self) -> Run:
        """End the run; its jobs are cancelled at the plane's next look, which is taken now where possible."""
        run = self._session.owned_run(self.id)
        if run.state.ended:
            raise BadInput(f"run {self.id} has {run.state.value} already; there is nothing to cancel.")
        self._session.cancel_run(self.id)
        return self.status()

    def move(self, where: str) -> Run:
        """Let the run go on at ``CLUSTER/PARTITION``: the running job saves first. NoFeasiblePlan when it does not fit there."""
        run = self._session.owned_run(self.id)
        if run.state.ended:
            raise BadInput(f"run {self.id} has {run.state.value} already; submit a new one.")
        self._session.move_run(run, where)
        return self.status()

    def resize(self, world_size: int) -> Run:
        """Let the run go on with another number of accelerators: the running job saves first. BadInput where its owner did not allow that."""
        run = self._session.owned_run(self.id)
        if run.state.ended:
            raise BadInput(f"run {self.id} has {run.state.value} already; submit a new one.")
        self._session.resize_run(run, world_size)
        return self.status()

    def events(self) -> Sequence[Event]:
        """Everything that happened, in order of arrival."""
        return self._session.events_of(self.id)

    def logs(self, *, attempt: int | None = None) -> str:
        """What the newest (or that) attempt printed so far."""
        path = self.log_path(attempt)
        return self._session.read_log(self.id, path, 0)[0]

    def log_path(self, attempt: int | None = None) -> Path:
        """Where an attempt's output is. NotFound when the run has no such attempt."""
        run = self._session.owned_run(self.id)
        numbers = [a.number for a in run.attempts]
        wanted = attempt if attempt is not None else (run.attempt.number if run.attempt else None)
        if wanted not in numbers:
            said = f"attempt {attempt}" if attempt is not None else "any attempt yet"
            raise NotFound(f"run {self.id} does not have {said}; isched status {self.id} lists them.")
        return Path(run.directory) / "logs" / f"{wanted}.out"

    def follow(self, attempt: int | None = None) -> Iterator[str]:
        """The output as it grows, through all attempts, until the run has ended."""
        current, offset = None, 0
        while True:
            run = self.status()
            newest = attempt or (run.attempt.number if run.attempt else None)
            if newest != current:
                current, offset = newest, 0
            if current is not None:
                text, offset = self._session.read_log(self.id, Path(run.directory) / "logs" / f"{current}.out", offset)
                if text:
                    yield text
            if run.state.ended:
                return
            self._session.clock.sleep(POLL_S)

    def report(self) -> Report:
        """Predicted against actual."""
        return self._session.report_of(self.status())
