"""Stands beside one local job: starts it, warns it before its limit, ends it at its limit, and writes down how it ended.

``python -m ischeduler.batch.local_supervisor ROOT JOB CORES GPUS``: a process of its own session, so that it outlives whoever submitted the job.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from ischeduler.batch.commands import clean_environment
from ischeduler.batch.local_jobs import JobFolder, JobFolders, process_start
from ischeduler.batch.local_queue import advance
from ischeduler.core.jobs import JobSpec, JobState

KILL_WAIT_S = 10.0
LOOK_S = 0.1


def main(root: str, job_id: str, cores: int, gpus: str = "") -> int:
    """Carry one job from start to end, then let the next one start."""
    folders = JobFolders(Path(root))
    folder = folders.one(job_id)
    if folder is None or not folder.keep():
        return 1
    try:
        _carry(folder, folder.spec)
    finally:
        with folders.locked():
            advance(folders, cores, gpus.split(",") if gpus else ())
    return 0


def _carry(folder: JobFolder, spec: JobSpec) -> None:
    try:
        job = _launch(folder, spec)
    except OSError as error:
        reason = f"the job cannot be started: {error.filename or 'bash'} ({error.strerror})"
        folder.write("end.json", {"state": "failed", "exit_code": 1, "signal": None, "reason": reason, "at": time.time()})
        return
    began = time.monotonic()
    folder.write("running.json", {"pid": job.pid, "start": process_start(job.pid)})
    why, peak = _watch(folder, spec, job, began)
    folder.write("end.json", {**_ending(job.returncode, why), "at": time.time(), "peak_bytes": peak})


def _launch(folder: JobFolder, spec: JobSpec) -> subprocess.Popen[bytes]:
    cards = ",".join(folder.read("gpus.json").get("indices", []))  # a job that asked for none sees none
    environment = {**clean_environment(os.environ), "ISCHED_JOB_ID": folder.job_id, "CUDA_VISIBLE_DEVICES": cards}
    with open(spec.output, "ab") as output:
        return subprocess.Popen(
            ["bash", str(folder.path / "script")], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            start_new_session=True, env=environment, cwd=spec.directory if Path(spec.directory).is_dir() else "/",
        )  # fmt: skip


def _watch(folder: JobFolder, spec: JobSpec, job: subprocess.Popen[bytes], began: float) -> tuple[str, int]:
    """Until the job has ended; why it was ended ('' when by itself) and its memory peak in bytes."""
    limit_s, lead_s = spec.resources.walltime_s, spec.signal_lead_s
    warned, why, told_at, peak = lead_s is None, "", 0.0, 0
    next_memory_s = 0.0
    while job.poll() is None:
        run_s = time.monotonic() - began
        if not warned and run_s >= limit_s - (lead_s or 0):
            warned = True
            _signal(job.pid, signal.SIGUSR2)
        if run_s >= next_memory_s:
            next_memory_s = run_s + 1.0
            peak = max(peak, resident_bytes(job.pid))
        if not why:
            why = _reason_to_end(folder, spec, run_s, peak)
            if why:
                told_at = run_s
                _signal_all(job.pid, signal.SIGTERM)
        elif run_s - told_at >= KILL_WAIT_S:
            _signal_all(job.pid, signal.SIGKILL)
        time.sleep(LOOK_S)
    _signal_all(job.pid, signal.SIGKILL)  # what the script left behind
    return why, peak


def _reason_to_end(folder: JobFolder, spec: JobSpec, run_s: float, peak: int) -> str:
    if run_s >= spec.resources.walltime_s:
        return "timeout"
    if (folder.path / "cancel").exists():
        return "cancelled"
    asked = spec.resources.memory_bytes
    return "out_of_memory" if asked and peak > asked else ""


def _ending(code: int, why: str) -> dict[str, Any]:
    state = JobState(why) if why else JobState.COMPLETED if code == 0 else JobState.FAILED
    number = -code if code < 0 else None
    reason = {"timeout": "TimeLimit", "out_of_memory": "OutOfMemory", "cancelled": "cancelled"}.get(why, "NonZeroExitCode" if code else "")
    return {"state": state.value, "exit_code": 0 if code < 0 else code, "signal": number, "reason": reason}


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _signal_all(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, number)


def resident_bytes(session: int) -> int:
    """Resident memory of all processes of a session."""
    total, page = 0, os.sysconf("SC_PAGE_SIZE")
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                total += int(fields[21]) * page
    return total


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), *sys.argv[4:5]))
