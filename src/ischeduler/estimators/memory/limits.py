"""Runs a subprocess under limits on time and memory and ends its whole process group when it exceeds one."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_ADDRESS_HEADROOM = 24 * 2**30  # torch maps far more than it touches
_POLL_S = 0.05


@dataclass(frozen=True)
class Outcome:
    """How it ended: ``stopped`` is 'time', 'memory' or ''; ``output`` the tail of what it printed; peak in bytes."""

    code: int
    stopped: str
    output: str
    seconds: float
    peak_bytes: int


def run_limited(
    command: Sequence[str], *, time_limit_s: float, memory_limit_bytes: int, directory: str | None,
    environment: Mapping[str, str], log: Path,
) -> Outcome:
    """Run to the end or to a limit. OSError when it cannot be started."""
    started = time.monotonic()
    ceiling = memory_limit_bytes + _ADDRESS_HEADROOM
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, cwd=directory or None,
            env=dict(environment), start_new_session=True,
        )
        try:
            with contextlib.suppress(ProcessLookupError):  # it has ended already
                resource.prlimit(process.pid, resource.RLIMIT_AS, (ceiling, ceiling))
                resource.prlimit(process.pid, resource.RLIMIT_CORE, (0, 0))
            stopped, peak = _watch(process, started + time_limit_s, memory_limit_bytes)
        finally:
            _end_group(process)
    return Outcome(process.returncode, stopped, _tail(log), time.monotonic() - started, peak)


def _watch(process: subprocess.Popen[bytes], deadline: float, memory_limit_bytes: int) -> tuple[str, int]:
    peak = 0
    while True:
        try:
            process.wait(_POLL_S)
            return "", peak
        except subprocess.TimeoutExpired:
            peak = max(peak, resident_bytes(process.pid))
        if peak > memory_limit_bytes:
            return "memory", peak
        if time.monotonic() > deadline:
            return "time", peak


def resident_bytes(pid: int) -> int:
    """A process's resident memory (Linux), 0 when it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0


def _end_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _tail(log: Path, size: int = 2000) -> str:
    data = log.read_bytes()[-size:]
    return data.decode(errors="replace").strip()
