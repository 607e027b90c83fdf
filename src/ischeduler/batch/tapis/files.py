"""Run directories on a Tapis system: the job makes its own; words and logs travel by the Files API."""

from __future__ import annotations

from collections.abc import Callable

from ischeduler.batch.tapis.batch import TapisBatch
from ischeduler.batch.tapis.client import Missing
from ischeduler.core.errors import IschedError
from ischeduler.core.run import Run
from ischeduler.training.rundir import CONTROL_WORDS, STANDBY_WORDS

LOG_TAIL_BYTES = 64 * 1024


class TapisRunFiles:
    """The plane's hands. Fences are lifted by the attempts themselves, as everywhere a job makes its own directory."""

    def __init__(self, of: Callable[[str], TapisBatch]) -> None:
        self._of = of

    def prepare(self, run: Run) -> None:
        """The job does it."""

    def raise_fence(self, run: Run, token: str) -> None:
        """The next attempt does it."""

    def control(self, run: Run, token: str, word: str) -> None:
        """A control word in the run's directory. OSError where it cannot be left now."""
        if word not in (*CONTROL_WORDS, *STANDBY_WORDS) or not token.replace(".", "", 1).isdigit():
            raise OSError(f"'{word}' is no control word for attempt '{token}'.")
        try:
            self._of(run.owner).write(f"{run.directory}/attempts/{token}/control", f"{word}\n".encode())
        except IschedError as error:
            raise OSError(str(error)) from None

    def log_tail(self, run: Run, attempt: int) -> str:
        """The end of an attempt's output; '' while there is none."""
        try:
            found = self._of(run.owner).read(f"{run.directory}/logs/{attempt}.out")
        except Missing:
            return ""
        except IschedError as error:
            raise OSError(str(error)) from None
        return found[-LOG_TAIL_BYTES:].decode("utf-8", "replace")
