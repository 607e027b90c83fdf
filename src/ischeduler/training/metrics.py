"""What the training uses: resident memory and CPU of its processes, GPU memory and utilisation, host OOM kills."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ischeduler.training.processes import family

_MIB = 1 << 20
_GPU_QUERY = ("--query-gpu=index,memory.used,utilization.gpu", "--format=csv,noheader,nounits")
_GPU_TIMEOUT_S = 10.0
_GPU_MOST_FAILURES = 3


class UsageMeter:
    """Samples the process family of `root`. The resident sum counts pages shared by forked workers once per process."""

    def __init__(self, root: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._root, self._clock = root, clock
        self._cpu_s: dict[int, float] = {}
        self._spent_s = 0.0
        self._since_s = clock()
        self.peak_bytes = 0
        self.rss_bytes = 0

    def sample(self) -> None:
        """Look once; between two `take` calls the highest sum is remembered."""
        members = family(self._root)
        self.rss_bytes = sum(stat.rss_bytes for stat in members.values())
        self.peak_bytes = max(self.peak_bytes, self.rss_bytes)
        for pid, stat in members.items():
            self._spent_s += max(0.0, stat.cpu_s - self._cpu_s.get(pid, 0.0))
        self._cpu_s = {pid: stat.cpu_s for pid, stat in members.items()}

    def take(self) -> dict[str, Any]:
        """Figures since the last call: `rss_bytes` now, `rss_peak_bytes`, `cpu_percent` (100 is one core busy)."""
        self.sample()
        now_s = self._clock()
        elapsed_s = max(now_s - self._since_s, 1e-3)
        figures = {
            "rss_bytes": self.rss_bytes,
            "rss_peak_bytes": self.peak_bytes,
            "cpu_percent": round(100 * self._spent_s / elapsed_s, 1),
        }
        self._spent_s, self._since_s, self.peak_bytes = 0.0, now_s, self.rss_bytes
        return figures


def parse_gpus(text: str) -> list[dict[str, Any]]:
    """`index, memory.used [MiB], utilization.gpu [%]` lines to events' form; unsupported values ([N/A]) become None."""
    gpus: list[dict[str, Any]] = []
    for line in text.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) != 3 or not parts[0].isdigit():
            continue
        memory, busy = (int(part) if part.isdigit() else None for part in parts[1:])
        gpus.append(
            {
                "index": int(parts[0]),
                "memory_bytes": None if memory is None else memory * _MIB,
                "utilisation": None if busy is None else busy / 100,
            }
        )
    return gpus


def nvidia_smi(environ: Mapping[str, str]) -> list[str]:
    """The command that shows this job's GPUs; empty where there is none or CUDA_VISIBLE_DEVICES hides them all."""
    program, visible = shutil.which("nvidia-smi"), environ.get("CUDA_VISIBLE_DEVICES")
    if program is None or visible in ("", "-1", "NoDevFiles"):
        return []
    return [program] if visible is None else [program, "-i", visible]


class GpuMeter:
    """Asks nvidia-smi in a thread of its own, for a hanging driver must not hold up the heartbeat.

    `latest` is the newest answer, an empty list where there is no nvidia-smi; after three failures it asks no more.
    """

    def __init__(self, every_s: float, command: Sequence[str] | None = None) -> None:
        self._command = list(command) if command is not None else nvidia_smi(os.environ)
        self._every_s = every_s
        self._stop = threading.Event()
        self.latest: list[dict[str, Any]] = []
        self.failures = 0

    def start(self) -> None:
        if self._command:
            threading.Thread(target=self._loop, name="isched-gpu", daemon=True).start()

    def stop(self) -> None:
        self._stop.set()

    def ask(self) -> None:
        """One query; a failure is counted and clears `latest`."""
        try:
            answer = subprocess.run(
                [*self._command, *_GPU_QUERY],
                capture_output=True,
                text=True,
                timeout=_GPU_TIMEOUT_S,
                check=True,
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.SubprocessError):
            self.failures += 1
            self.latest = []
            return
        self.failures = 0
        self.latest = parse_gpus(answer.stdout)

    def _loop(self) -> None:
        while not self._stop.is_set() and self.failures < _GPU_MOST_FAILURES:
            self.ask()
            self._stop.wait(self._every_s)


def oom_kills(cgroup: str | None = None, root: Path = Path("/sys/fs/cgroup")) -> int:
    """How often the kernel has killed for memory in this process's cgroup (v1 or v2); 0 where that is not known."""
    try:
        text = Path("/proc/self/cgroup").read_text() if cgroup is None else cgroup
    except OSError:
        return 0
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            file = root / path.lstrip("/") / "memory.events"
        elif "memory" in controllers.split(","):
            file = root / "memory" / path.lstrip("/") / "memory.oom_control"
        else:
            continue
        kills = _counter(file, "oom_kill")
        if kills is not None:
            return kills
    return 0


def _counter(file: Path, name: str) -> int | None:
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        key, _, value = line.partition(" ")
        if key == name and value.strip().isdigit():
            return int(value)
    return None
