"""A pilot's side of a pool's directory: its orders and its report, and the folders of the segments it runs."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ischeduler.training.files import remove_quietly, write_atomic


@dataclass(frozen=True, slots=True)
class Orders:
    """Job id -> seconds it may run at most; ``token`` is that of whoever keeps the pool."""

    token: int
    steps: Mapping[str, float]
    look_s: float


class StepFolder:
    """One segment's folder. All methods may raise OSError."""

    def __init__(self, path: Path) -> None:
        self.path, self.job_id = path, path.name
        spec: dict[str, Any] = json.loads((path / "spec.json").read_bytes())
        resources: dict[str, Any] = spec["resources"]
        self.key, self.directory, self.output = str(spec["key"]), str(spec["directory"]), str(spec["output"])
        self.gpus, self.cpus = max(1, int(resources["gpus_per_node"])), int(resources["cpus_per_node"])
        self.memory_bytes: int | None = resources["memory_bytes"]
        self.lead_s: int | None = spec["signal_lead_s"]
        self.variables: Mapping[str, str] = spec["variables"]

    @property
    def script(self) -> Path:
        """What bash runs."""
        return self.path / "script"

    def take(self, pilot: str, node: str, kind: str, now: float) -> bool:
        """Become the one that runs it: the link of `start.json` is made once. False when it runs or ended, here or elsewhere."""
        scratch = self.path / f".start-{os.uname().nodename}-{os.getpid()}"
        scratch.write_text(json.dumps({"pilot": pilot, "node": node, "type": kind, "at": now}), encoding="utf-8")
        try:
            os.link(scratch, self.path / "start.json")
        except FileExistsError:
            return False
        finally:
            remove_quietly(scratch)
        return True

    def end(self, state: str, code: int, reason: str, now: float) -> None:
        """Write down how it ended."""
        ending = {"state": state, "exit_code": code, "signal": None, "reason": reason, "at": now}
        write_atomic(self.path / "end.json", json.dumps(ending).encode())

    def cancelled(self) -> bool:
        """Whether its owner or the plane wants it to end."""
        return (self.path / "cancel").exists()

    def signals(self) -> list[str]:
        """Names of signals asked for since the last look."""
        found = [p.name.removeprefix("signal-") for p in self.path.glob("signal-*")]
        for name in found:
            (self.path / f"signal-{name}").unlink(missing_ok=True)
        return found


class PilotFolder:
    """One pilot's folder in a pool's directory."""

    def __init__(self, pool: Path, name: str) -> None:
        self.name, self._pool, self._path = name, pool, pool / "pilots" / name
        self._unfit: set[str] = set()

    def orders(self) -> Orders | None:
        """What the pool wants; None before it has said anything, and where the file is torn or foreign."""
        try:
            found: dict[str, Any] = json.loads((self._path / "orders.json").read_bytes())
            steps: dict[str, Any] = found["steps"]
            return Orders(int(found["token"]), {j: float(s["limit_s"]) for j, s in steps.items()}, float(found["look_s"]))
        except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def step(self, job_id: str) -> StepFolder | None:
        """A segment's folder; None where there is no such segment, or it has been taken already."""
        path = self._pool / "jobs" / job_id
        if not job_id.isdigit() or job_id in self._unfit or (path / "start.json").exists():
            return None
        try:
            return StepFolder(path)
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            self._unfit.add(job_id)
            return None

    def say(self, report: Mapping[str, Any]) -> None:
        """Replace the report."""
        self._path.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomic(self._path / "state.json", json.dumps(dict(report), sort_keys=True).encode())
