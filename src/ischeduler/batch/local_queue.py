"""The local queue: first come, first served, by cores and GPUs of this machine. Advanced by whoever looks.

Which cards a job has stands in its ``gpus.json``, written before it is started, so that a start that is repeated hands out the same.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence

from ischeduler.batch.commands import clean_environment
from ischeduler.batch.local_jobs import JobFolder, JobFolders, process_start
from ischeduler.core.jobs import JobState


def machine_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0))


def advance(folders: JobFolders, cores: int | None = None, gpus: Sequence[str] = ()) -> None:
    """Start waiting jobs while there is room; call under the lock. A job that does not fit holds those behind it: no starving."""
    jobs = folders.submitted()
    open_jobs = [(f, s) for f in jobs if not (f.path / "end.json").exists() for s in [f.status()]]
    running = [f for f, s in open_jobs if s.state is JobState.RUNNING]
    free = (cores or machine_cores()) - sum(f.spec.resources.cpus_per_node for f in running)
    taken = {index for f in running for index in _cards_of(f)}
    cards = [index for index in gpus if index not in taken]
    for folder, status in open_jobs:
        if status.state is not JobState.PENDING:
            continue
        if (folder.path / "cancel").exists():
            folder.write("end.json", {"state": "cancelled", "at": time.time(), "exit_code": 0, "signal": None, "reason": "cancelled"})
            continue
        if not _free_to_start(folders, folder.spec.after):
            continue
        need, wanted = folder.spec.resources.cpus_per_node, folder.spec.resources.gpus_per_node
        if need > free or wanted > len(cards):
            return
        free -= need
        own, cards = cards[:wanted], cards[wanted:]
        _start(folders, folder, cores or machine_cores(), gpus, own)


def _cards_of(folder: JobFolder) -> list[str]:
    return folder.read("gpus.json").get("indices", [])


def _free_to_start(folders: JobFolders, after: str | None) -> bool:
    """A job that follows another waits for its end without holding those behind it."""
    before = folders.one(after) if after else None
    return before is None or before.status().state.ended


def _start(folders: JobFolders, folder: JobFolder, cores: int, gpus: Sequence[str], own: Sequence[str]) -> None:
    """A crash between the two steps leads to a second supervisor, which finds the first one's mark and leaves the job alone."""
    if not (folder.path / "gpus.json").exists():
        folder.write("gpus.json", {"indices": list(own)})
    argv = [sys.executable, "-m", "ischeduler.batch.local_supervisor", str(folders.root), folder.job_id, str(cores), ",".join(gpus)]
    with (folder.path / "supervisor.log").open("ab") as log:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env=clean_environment(os.environ), cwd="/"
        )
    folder.write("start.json", {"at": time.time(), "supervisor": process.pid, "supervisor_start": process_start(process.pid)})
