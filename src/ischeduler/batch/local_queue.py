"""The local queue: first come, first served, by cores and GPUs of this machine. Advanced by whoever looks."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from ischeduler.batch.commands import clean_environment
from ischeduler.batch.local_jobs import JobFolder, JobFolders, process_start
from ischeduler.core.jobs import JobState


def machine_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0))


def advance(folders: JobFolders, cores: int | None = None) -> None:
    """Start waiting jobs while there is room; call under the lock. A job that does not fit holds those behind it: no starving."""
    jobs = folders.submitted()
    open_jobs = [(f, s) for f in jobs if not (f.path / "end.json").exists() for s in [f.status()]]
    free = (cores or machine_cores()) - sum(f.spec.resources.cpus_per_node for f, s in open_jobs if s.state is JobState.RUNNING)
    for folder, status in open_jobs:
        if status.state is not JobState.PENDING:
            continue
        if (folder.path / "cancel").exists():
            folder.write("end.json", {"state": "cancelled", "at": time.time(), "exit_code": 0, "signal": None, "reason": "cancelled"})
            continue
        if not _free_to_start(folders, folder.spec.after):
            continue
        need = folder.spec.resources.cpus_per_node
        if need > free:
            return
        free -= need
        _start(folders, folder, cores or machine_cores())


def _free_to_start(folders: JobFolders, after: str | None) -> bool:
    """A job that follows another waits for its end without holding those behind it."""
    before = folders.one(after) if after else None
    return before is None or before.status().state.ended


def _start(folders: JobFolders, folder: JobFolder, cores: int) -> None:
    """A crash between the two steps leads to a second supervisor, which finds the first one's mark and leaves the job alone."""
    argv = [sys.executable, "-m", "ischeduler.batch.local_supervisor", str(folders.root), folder.job_id, str(cores)]
    with (folder.path / "supervisor.log").open("ab") as log:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env=clean_environment(os.environ), cwd="/"
        )
    folder.write("start.json", {"at": time.time(), "supervisor": process.pid, "supervisor_start": process_start(process.pid)})
