"""The training's processes as /proc shows them: who descends from whom, who handles which signal, what they use."""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Stat:
    """One line of /proc/PID/stat: parent, process group, state letter, CPU seconds used, resident bytes."""

    pid: int
    parent: int
    group: int
    state: str
    cpu_s: float
    rss_bytes: int


def stat_of(pid: int) -> Stat | None:
    """None when the process is gone."""
    try:
        text = (_PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    fields = text[text.rfind(b")") + 2 :].split()  # the command before it may hold spaces and parentheses
    cpu_s = (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
    return Stat(pid, int(fields[1]), int(fields[2]), fields[0].decode(), cpu_s, int(fields[21]) * _PAGE_BYTES)


def family(root: int) -> dict[int, Stat]:
    """The process `root`, its descendants, and what else is in its process group (orphans); zombies left out."""
    stats = [stat for stat in map(stat_of, _pids()) if stat is not None]
    children: dict[int, list[Stat]] = defaultdict(list)
    for stat in stats:
        children[stat.parent].append(stat)
    found = {stat.pid: stat for stat in stats if stat.pid == root or stat.group == root}
    queue = list(found)
    while queue:
        for child in children[queue.pop()]:
            if child.pid not in found:
                found[child.pid] = child
                queue.append(child.pid)
    return {pid: stat for pid, stat in found.items() if stat.state != "Z"}


def handlers_of(root: int, number: int) -> list[int]:
    """The processes that should get signal `number`: from `root` downwards, the first on each branch that handles it.

    Below such a process nobody is told: it is its business (a data loader must not die before the training has saved).
    """
    members = family(root)
    children: dict[int, list[int]] = defaultdict(list)
    for stat in members.values():
        children[stat.parent].append(stat.pid)
    tops = [pid for pid, stat in members.items() if pid == root or stat.parent not in members]
    found, queue = [], tops
    while queue:
        pid = queue.pop()
        if handles(pid, number):
            found.append(pid)
        else:
            queue += children[pid]
    return found


def handles(pid: int, number: int) -> bool:
    """True when a process survives the signal on purpose: a handler (SigCgt), or blocked in its main thread for sigwait.

    srun and other launchers take signals by sigwait in a thread of their own; while that thread waits, the kernel shows the signal as
    unblocked there, so the main thread's mask is what tells.
    """
    status = _PROC / str(pid) / "status"
    return _has(status, "SigCgt", number) or _has(status, "SigBlk", number)


def _has(path: Path, field: str, number: int) -> bool:
    try:
        text = path.read_text("ascii", errors="replace")
    except OSError:
        return False
    for line in text.splitlines():
        if line.startswith(field + ":"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def _pids() -> list[int]:
    return [int(name) for name in os.listdir(_PROC) if name.isdigit()]


def send(pid: int, number: int) -> bool:
    """Signal one process; False when it is gone or not ours."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def send_group(group: int, number: int) -> bool:
    """Signal a process group; False when it is gone or not ours."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
