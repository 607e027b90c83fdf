"""A short profile on the present node: a few real steps, measured, as evidence for later estimates."""

from __future__ import annotations

import getpass
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ischeduler
from ischeduler.core.errors import EstimatorFailed
from ischeduler.core.history import HistoryRecord
from ischeduler.core.sizes import GIB, human_size
from ischeduler.core.workload import Workload
from ischeduler.estimators.memory.interpreter import of_environment
from ischeduler.estimators.memory.limits import resident_bytes, run_limited
from ischeduler.estimators.memory.spec import TraceSpec
from ischeduler.estimators.memory.tracer import CHILD_BOOT

_SHUTDOWN_S = 10.0
_CHILD = "ischeduler.estimators.profile_child"


@dataclass(frozen=True, slots=True)
class Place:
    """Where the profile is taken, as history will know it."""

    cluster: str
    partition: str
    node_type: str
    accelerator: str | None = None


def measure_step_time(
    workload: Workload, place: Place, *, steps: int = 8, time_limit_s: float = 120.0, memory_limit_bytes: int | None = None,
    folder: Path | None = None, python: str | None = None, owner: str | None = None,
) -> HistoryRecord:
    """Profile the workload's own command; its model where the command tells of no steps. Runs the real training code on this node.

    ``folder`` is where checkpoints will go (its file system's speed is measured). EstimatorFailed with a sentence.
    """
    limit = memory_limit_bytes or workload.memory_bytes or 64 * GIB
    measured = _measured(workload, steps, time_limit_s, limit, folder, python or of_environment(workload.environment))
    base = HistoryRecord(
        f"profile-{uuid.uuid4().hex[:12]}", "profile", owner or getpass.getuser(), workload.family, place.cluster,
        place.partition, place.node_type, time.time(), accelerator=place.accelerator, batch_size=workload.batch,
        grad_accum=workload.grad_accum, precision=workload.precision, optimizer=workload.optimizer, cause="profiled",
    )
    return replace(base, **measured)


def _measured(
    workload: Workload, steps: int, time_limit_s: float, limit: int, folder: Path | None, python: str
) -> dict[str, Any]:
    """The command is the training itself, with its own threads, data loading and evaluation: it is asked first."""
    if not workload.command and not workload.model:
        raise EstimatorFailed("The workload names neither a model nor a command; there is nothing to profile.")
    started = time.monotonic()
    if workload.command:
        share = 0.6 if workload.model else 1.0
        try:
            return _command(workload, steps, share * time_limit_s, limit, folder)
        except EstimatorFailed:
            if not workload.model:
                raise
    return _model(workload, steps, time_limit_s - (time.monotonic() - started), limit, folder, python)


def _model(
    workload: Workload, steps: int, time_limit_s: float, memory_limit_bytes: int, folder: Path | None, python: str
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="isched-profile-", dir=folder) as scratch:
        spec, result, log = (Path(scratch) / n for n in ("spec.json", "result.json", "log"))
        started = time.time()
        request = {"spec": TraceSpec.of(workload).to_json(), "steps": steps, "started": started, "folder": scratch,
                   "grad_accum": workload.grad_accum, "deadline": started + 0.7 * time_limit_s}
        spec.write_text(json.dumps(request))
        command = [python, "-c", CHILD_BOOT, str(ischeduler.__file__), _CHILD, str(spec), str(result)]
        outcome = run_limited(
            command, time_limit_s=time_limit_s, memory_limit_bytes=memory_limit_bytes, directory=workload.directory or None,
            environment={**os.environ, "HF_HUB_OFFLINE": "1"}, log=log,
        )
        answer = json.loads(result.read_text()) if result.exists() else {}
    if "error" in answer:
        raise EstimatorFailed(str(answer["error"]))
    if "profile" not in answer:
        reasons = {"time": f"took longer than {time_limit_s:.0f} s", "memory": f"needed over {human_size(memory_limit_bytes)}"}
        why = reasons.get(outcome.stopped, f"ended with code {outcome.code}")
        raise EstimatorFailed(f"Profiling '{workload.model}' {why} and was stopped; use a smaller batch or raise the limit.")
    keep = ("step_time_s", "startup_s", "checkpoint_s", "host_memory_bytes", "gpu_memory_bytes", "cpus")
    profile = answer["profile"]
    return {**{k: profile[k] for k in keep}, "gpus": 1 if profile["device"] == "cuda" else 0}


def _command(
    workload: Workload, steps: int, time_limit_s: float, memory_limit_bytes: int, folder: Path | None
) -> dict[str, Any]:
    """Run the user's own command until its progress events show enough steps, then end it."""
    with tempfile.TemporaryDirectory(prefix="isched-profile-", dir=folder) as scratch:
        run_dir = Path(scratch)
        for name in ("events", "checkpoints", "logs", "attempts/1.0"):
            (run_dir / name).mkdir(parents=True)
        spool = run_dir / "events" / "1.0.jsonl"
        with (run_dir / "log").open("wb") as sink:
            process = subprocess.Popen(
                _filled(workload), stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, start_new_session=True,
                cwd=workload.directory or None, env={**os.environ, **_job_variables(run_dir, spool, time_limit_s, workload)},
            )
            started = time.time()
            peak = _until_steps(process, spool, steps, started + time_limit_s, memory_limit_bytes)
        output = (run_dir / "log").read_bytes()[-300:].decode(errors="replace")
        return _from_events(_events(spool), started, peak, process.returncode, output)


def _filled(workload: Workload) -> list[str]:
    command = list(workload.command_line())
    if command and command[0] in ("python", "python3"):
        command[0] = of_environment(workload.environment) if workload.environment.venv else sys.executable
    return command


def _job_variables(run_dir: Path, spool: Path, time_limit_s: float, workload: Workload) -> Mapping[str, str]:
    return {
        "ISCHED_RUN_ID": "profile", "ISCHED_RUN_DIR": str(run_dir), "ISCHED_ATTEMPT": "1", "ISCHED_TOKEN": "1.0",
        "ISCHED_SPOOL": str(spool), "ISCHED_DEADLINE": str(time.time() + time_limit_s), "ISCHED_GRACE_S": str(_SHUTDOWN_S),
        **workload.environment.variables,
    }


def _until_steps(process: subprocess.Popen[bytes], spool: Path, steps: int, deadline: float, memory_limit_bytes: int) -> int:
    peak = 0
    try:
        while process.poll() is None and time.time() < deadline:
            peak = max(peak, resident_bytes(process.pid))
            if peak > memory_limit_bytes:
                limit = human_size(memory_limit_bytes)
                raise EstimatorFailed(f"The command needed more than {limit} and was stopped; raise the limit.")
            progress = [e for e in _events(spool) if e.get("kind") == "progress"]
            if len(progress) > 1 and progress[-1]["data"].get("step", 0) >= steps:
                break
            time.sleep(0.1)
    finally:
        _end(process)
    return peak


def _end(process: subprocess.Popen[bytes]) -> None:
    for number, patience in ((signal.SIGTERM, _SHUTDOWN_S), (signal.SIGKILL, None)):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            pass  # it has ended by itself
        try:
            process.wait(patience)
            return
        except subprocess.TimeoutExpired:
            continue


def _events(spool: Path) -> list[dict[str, Any]]:
    if not spool.exists():
        return []
    whole = spool.read_text("utf-8", errors="replace").rpartition("\n")[0]
    return [json.loads(line) for line in whole.splitlines() if line.strip()]


def _from_events(events: list[dict[str, Any]], started: float, peak: int, code: int | None, output: str) -> dict[str, Any]:
    progress = [e for e in events if e.get("kind") == "progress" and "step" in e.get("data", {})]
    times = [e["data"]["step_time_s"] for e in progress if e["data"].get("step_time_s")]
    moved = len(progress) > 1 and progress[-1]["data"]["step"] > progress[0]["data"]["step"]
    if times:
        step = float(sorted(times)[len(times) // 2])
    elif moved:
        span = progress[-1]["t"] - progress[0]["t"]
        step = span / (progress[-1]["data"]["step"] - progress[0]["data"]["step"])
    else:
        said = output.strip()[-120:] or "no output"
        raise EstimatorFailed(
            f"The command told of no steps within the time (exit {code}; {said}); use ischeduler.training's callbacks in it, "
            "name its model, or give its times yourself."
        )
    saves = [e["data"]["save_s"] for e in events if e.get("kind") == "checkpoint" and e["data"].get("save_s")]
    first = progress[0]
    return {
        "step_time_s": step, "startup_s": max(0.0, first["t"] - started - step * first["data"]["step"]),
        "checkpoint_s": saves[-1] if saves else None, "host_memory_bytes": peak or None,
        "cpus": len(os.sched_getaffinity(0)),
    }
