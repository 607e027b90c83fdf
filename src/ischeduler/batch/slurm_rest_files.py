"""Run directories that nobody but the job itself may write: what the plane would do there is done elsewhere, or not needed.

In a centre the service is not the user, and the user's file system is often not mounted where it runs.

- *prepare*: the batch script makes the directory (mode 700), its folders and ``run.json`` before its first line of output
  (:mod:`ischeduler.batch.slurm_rest_job`).
- *fence*: each attempt lifts the fence to its own token when it starts, and older ones look at it with every heartbeat: two
  attempts that can both run see the same directory.
- *control words*: the plane sends SIGUSR2 with every word, which reaches the wrapper through the batch system; what is lost is the
  difference between ``stop`` and ``move``, which the training does not need to save and leave.
- *log*: what the plane looks for in an attempt's output (an out-of-memory message) the wrapper reports as an event; where the
  directory can be read nevertheless, it is.
"""

from __future__ import annotations

from ischeduler.batch.run_files import SharedRunFiles
from ischeduler.core.run import Run


class JobSideRunFiles:
    """The plane's hands where run directories are the job's own. Never raises."""

    def __init__(self) -> None:
        self._shared = SharedRunFiles()

    def prepare(self, run: Run) -> None:
        """The job does it."""

    def raise_fence(self, run: Run, token: str) -> None:
        """The next attempt does it."""

    def control(self, run: Run, token: str, word: str) -> None:
        """The signal that comes with it is enough."""

    def log_tail(self, run: Run, attempt: int) -> str:
        """The end of the attempt's output where it can be read, else ''."""
        try:
            return self._shared.log_tail(run, attempt)
        except OSError:
            return ""
