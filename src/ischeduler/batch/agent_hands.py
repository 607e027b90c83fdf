"""What an agent can do for its user: each request is one call of the user's own Slurm commands, or of the run directory's files.

Nothing else can be asked. Files are touched below one folder alone, and no text of a request is ever given to a shell here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ischeduler.batch.agent_words import KINDS, failed, told
from ischeduler.core.codec import from_plain, to_plain
from ischeduler.core.errors import BadInput, IschedError
from ischeduler.core.jobs import JobRef, JobSpec
from ischeduler.core.mail import Mail
from ischeduler.core.run import Run
from ischeduler.ports import BatchSystem, RunFiles


@dataclass(frozen=True)
class Hands:
    """``runs_dir`` is the only folder whose run directories are touched. ``discover`` reads the cluster."""

    batch: BatchSystem
    files: RunFiles
    runs_dir: Path
    discover: Callable[[], Any] | None = None

    def do(self, mail: Mail) -> dict[str, Any]:
        """The answer to a request. Errors are answers, too."""
        try:
            if mail.kind not in KINDS:
                raise BadInput(f"this agent cannot do '{mail.kind[:40]}'; install the service's version of iScheduler.")
            return told(to_plain(getattr(self, f"_{mail.kind}")(mail.body)))
        except (IschedError, OSError) as error:
            return failed(error)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            return failed(BadInput(f"the request '{mail.kind[:40]}' makes no sense here ({type(error).__name__}: {error})."))

    def _submit(self, body: Mapping[str, Any]) -> str:
        job = from_plain(JobSpec, body["job"])
        if "ISCHED_RUN_DIR" in job.variables:
            self._folder(job.variables["ISCHED_RUN_DIR"])
        return self.batch.submit(job)

    def _observe(self, body: Mapping[str, Any]) -> Any:
        return self.batch.observe([from_plain(JobRef, ref) for ref in body["jobs"]])

    def _cancel(self, body: Mapping[str, Any]) -> None:
        signal = body.get("signal")
        if signal is not None and not (isinstance(signal, str) and signal.isalnum() and len(signal) < 12):
            raise BadInput("that is not the name of a signal; expected e.g. USR2.")
        self.batch.cancel(str(body["job_id"]), signal=signal)

    def _snapshot(self, body: Mapping[str, Any]) -> Any:
        return self.batch.snapshot()

    def _probe(self, body: Mapping[str, Any]) -> Any:
        return self.batch.probe(from_plain(JobSpec, body["job"]))

    def _discover(self, body: Mapping[str, Any]) -> Any:
        if self.discover is None:
            raise BadInput("this agent cannot read its cluster.")
        return self.discover()

    def _prepare(self, body: Mapping[str, Any]) -> None:
        self.files.prepare(self._run(body))

    def _fence(self, body: Mapping[str, Any]) -> None:
        self.files.raise_fence(self._run(body), str(body["token"]))

    def _control(self, body: Mapping[str, Any]) -> None:
        self.files.control(self._run(body), str(body["token"]), str(body["word"]))

    def _log(self, body: Mapping[str, Any]) -> str:
        return self.files.log_tail(self._run(body), int(body["attempt"]))

    def _run(self, body: Mapping[str, Any]) -> Run:
        run = from_plain(Run, body["run"])
        self._folder(run.directory)
        return run

    def _folder(self, directory: str) -> None:
        """BadInput for a run directory outside of the agent's folder, links followed."""
        folder, root = Path(directory).resolve(), self.runs_dir.resolve()
        if not folder.is_relative_to(root) or folder == root:
            raise BadInput(f"this agent touches run directories in {root} only, not {directory}; start it with --runs-dir.")
