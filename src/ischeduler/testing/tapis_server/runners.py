"""Where a stand-in's jobs run: on a simulated clock, or as real processes on this machine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from ischeduler.batch.names import key_of
from ischeduler.core.jobs import JobRef, JobSpec, JobStatus, Resources
from ischeduler.core.sizes import MIB
from ischeduler.ports import BatchSystem

_AFTER = re.compile(r"\bafter=(\d+);")
_DEPENDS = re.compile(r"--dependency=afterany:(\S+)")


class Runner(Protocol):
    """Runs the scripts of Tapis jobs."""

    def start(self, request: Mapping[str, Any], uuid: str, script: str, folder: str) -> str:
        """Run it; the scheduler's id. SubmitRefused."""
        ...

    def look(self, request: Mapping[str, Any], remote: str) -> JobStatus | None:
        """Its status now."""
        ...

    def end(self, remote: str) -> None:
        """Cancel it."""
        ...

    def word(self, remote: str, name: str) -> None:
        """A signal's name was left beside its input."""
        ...


class _OnBatch:
    """Common to both: a batch system underneath, jobs found by key and id."""

    def __init__(self, batch: BatchSystem) -> None:
        self.batch = batch

    def look(self, request: Mapping[str, Any], remote: str) -> JobStatus | None:
        key = key_of(str(request["name"])) or str(request["name"])
        found = self.batch.observe([JobRef(key, remote)]).jobs.get(key, ())
        return next((s for s in found if s.job_id == remote), None)

    def end(self, remote: str) -> None:
        self.batch.cancel(remote)

    def spec(self, request: Mapping[str, Any], **more: Any) -> JobSpec:
        options = " ".join(o["arg"] for o in request.get("parameterSet", {}).get("schedulerOptions", []))
        depends = _DEPENDS.search(options)
        memory = request.get("memoryMB")
        resources = Resources(
            nodes=request.get("nodeCount", 1), cpus_per_node=request.get("coresPerNode", 1), walltime_s=request.get("maxMinutes", 10) * 60.0,
            memory_bytes=None if memory is None else memory * MIB,
        )  # fmt: skip
        name = str(request["name"])
        given: dict[str, Any] = {"command": ("true",), "directory": "/", "output": "/dev/null", "signal_lead_s": None, **more}
        return JobSpec(
            key_of(name) or name,
            name,
            request["execSystemLogicalQueue"],
            resources,
            after=depends[1] if depends else None,
            **given,
        )


class SimulatedRunner(_OnBatch):
    """On the fake batch system: nothing is executed, the job's behaviour is chosen by its key there. The script's own warning is read
    from its text."""

    def start(self, request: Mapping[str, Any], uuid: str, script: str, folder: str) -> str:
        """Queue it."""
        after = _AFTER.search(script)
        lead_s = request.get("maxMinutes", 10) * 60 - int(after[1]) if after else None
        output = re.search(r"^output=(\S+)$", script, re.MULTILINE)
        return self.batch.submit(self.spec(request, signal_lead_s=lead_s, output=output[1].strip("'") if output else "/dev/null"))

    def word(self, remote: str, name: str) -> None:
        """The script would send it to itself."""
        self.batch.cancel(remote, signal=name)


class LocalRunner(_OnBatch):
    """On the local batch system: the script really runs, in its input folder, with Tapis' variables."""

    def start(self, request: Mapping[str, Any], uuid: str, script: str, folder: str) -> str:
        """Queue it."""
        place = Path(folder)
        variables = {
            "_tapisJobUUID": uuid,
            "_tapisMaxMinutes": str(request.get("maxMinutes", 10)),
            "_tapisExecSystemInputDir": folder,
        }
        command = ("bash", str(place / "isched_job.sh"))
        return self.batch.submit(
            self.spec(request, command=command, directory=folder, output=str(place / "tapisjob.out"), variables=variables)
        )

    def word(self, remote: str, name: str) -> None:
        """The script finds the file itself."""
