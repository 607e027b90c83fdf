"""Processes on this host, by pid AND start time: a pid alone may belong to somebody else by now. Linux /proc only."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_CHILDREN: dict[int, subprocess.Popen[bytes]] = {}
"""Daemons started by this very process, kept so that they are reaped when they end."""


@dataclass(frozen=True, slots=True)
class ProcessId:
    """One process for ever: ``start_ticks`` is field 22 of /proc/PID/stat, clock ticks since boot; ``boot_id`` the boot."""

    pid: int
    start_ticks: int
    boot_id: str


def launch(
    argv: Sequence[str], *, log: Path, env: Mapping[str, str], uid: int | None = None, gid: int | None = None
) -> ProcessId:
    """Starts a daemon in its own session, its output appended to ``log``, nothing inherited but the environment given."""
    with log.open("ab") as out:
        child = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=dict(env),
            cwd="/",
            user=uid,
            group=gid,
            extra_groups=None if uid is None else [],
            start_new_session=True,
        )
    _CHILDREN[child.pid] = child
    return ProcessId(child.pid, _start_ticks(child.pid) or 0, boot_id())


def is_alive(process: ProcessId) -> bool:
    """Whether exactly this process still runs; a zombie does not."""
    child = _CHILDREN.get(process.pid)
    if child is not None and child.poll() is not None:
        _CHILDREN.pop(process.pid, None)
    return process.boot_id == boot_id() and _start_ticks(process.pid) == process.start_ticks


def send_signal(process: ProcessId, signum: int) -> bool:
    """Signals exactly this process; False when it is gone already."""
    if not is_alive(process):
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signum)
        return True
    return False


def stop(processes: Iterable[ProcessId], *, grace_s: float) -> None:
    """SIGTERM to all, SIGKILL to those that still live after ``grace_s`` (at once when it is 0)."""
    pending = [p for p in processes if send_signal(p, signal.SIGTERM if grace_s else signal.SIGKILL)]
    if grace_s and not wait_until(lambda: not any(is_alive(p) for p in pending), timeout_s=grace_s):
        for process in pending:
            send_signal(process, signal.SIGKILL)
    wait_until(lambda: not any(is_alive(p) for p in pending), timeout_s=5.0)


def wait_until(condition: Callable[[], bool], *, timeout_s: float, poll_s: float = 0.05) -> bool:
    """Polls ``condition``; whether it came true in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(poll_s)
    return True


def save(path: Path, process: ProcessId) -> None:
    """Writes the identity atomically."""
    partial = path.with_suffix(".tmp")
    partial.write_text(json.dumps({"pid": process.pid, "start_ticks": process.start_ticks, "boot_id": process.boot_id}))
    partial.replace(path)


def load(path: Path) -> ProcessId | None:
    """The identity written by :func:`save`; None when there is no file or it was cut short by a crash."""
    try:
        data = json.loads(path.read_text())
        return ProcessId(int(data["pid"]), int(data["start_ticks"]), str(data["boot_id"]))
    except (FileNotFoundError, ValueError, KeyError):
        return None


def boot_id() -> str:
    """The kernel's name for this boot: start ticks of an earlier boot mean nothing."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def owned_by(uids: frozenset[int]) -> list[ProcessId]:
    """All living processes whose real uid is one of ``uids``, in our own root file system.

    Another root (a chroot, a container that shares the pid space) may have given the same uid to somebody else.
    """
    return [p for p in _all() if _uid(p.pid) in uids and _same_root(p.pid)]


def holding(directory: Path, commands: frozenset[str]) -> list[ProcessId]:
    """Processes named by one of ``commands`` that have a file of ``directory`` open.

    Finds what no record tells of: a slurmstepd outlives its slurmd and rewrites its own command line, and a daemon may
    have been started in the very moment its starter was killed.
    """
    return [p for p in _all() if _command(p.pid) in commands and _has_open(p.pid, f"{directory}/")]


def with_descendants(roots: Iterable[ProcessId]) -> list[ProcessId]:
    """These processes and all that they started, as far as the parents still live."""
    everything = _all()
    parents = {p.pid: _parent(p.pid) for p in everything}
    found = {p.pid for p in roots}
    while True:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        if not more:
            return [p for p in everything if p.pid in found]
        found |= more


def _all() -> list[ProcessId]:
    boot = boot_id()
    pids = (int(entry) for entry in os.listdir("/proc") if entry.isdigit())
    return [ProcessId(pid, ticks, boot) for pid in pids if (ticks := _start_ticks(pid)) is not None]


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat after the command's closing bracket; the first is the state. Empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _start_ticks(pid: int) -> int | None:
    fields = _stat(pid)
    return int(fields[19]) if fields and fields[0] not in "ZX" else None


def _parent(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def _uid(pid: int) -> int | None:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("Uid:")), None)


def _same_root(pid: int) -> bool:
    try:
        return os.path.samestat(os.stat(f"/proc/{pid}/root"), os.stat("/"))
    except (FileNotFoundError, PermissionError, ProcessLookupError):
        return False


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _has_open(pid: int, prefix: str) -> bool:
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except (FileNotFoundError, PermissionError, ProcessLookupError):
        return False
    for name in names:
        with contextlib.suppress(FileNotFoundError, PermissionError, ProcessLookupError):
            if os.readlink(f"/proc/{pid}/fd/{name}").startswith(prefix):
                return True
    return False
