"""Where a sandbox keeps its files and on which ports it listens. Paths only; nothing here touches the disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Ports:
    """TCP ports on 127.0.0.1; ``slurmd`` maps a node's name to its own."""

    slurmctld: int
    slurmdbd: int
    slurmrestd: int
    slurmd: Mapping[str, int] = field(default_factory=dict[str, int])

    def all(self) -> tuple[int, ...]:
        """Every port in use."""
        return (self.slurmctld, self.slurmdbd, self.slurmrestd, *self.slurmd.values())


@dataclass(frozen=True, slots=True)
class Layout:
    """The directory tree of one sandbox. Jobs of ordinary users pass through it, so only secrets are closed to them."""

    root: Path

    @property
    def marker(self) -> Path:
        """Says that this directory is a sandbox of ours; without it nothing here is touched."""
        return self.root / "sandbox.json"

    @property
    def etc(self) -> Path:
        return self.root / "etc"

    @property
    def slurm_conf(self) -> Path:
        return self.etc / "slurm.conf"

    @property
    def slurmdbd_conf(self) -> Path:
        return self.etc / "slurmdbd.conf"

    @property
    def jwt_key(self) -> Path:
        return self.etc / "jwt.key"

    @property
    def gres(self) -> Path:
        """Links to /dev/null that stand for GPU devices."""
        return self.root / "gres"

    @property
    def log(self) -> Path:
        return self.root / "log"

    @property
    def pids(self) -> Path:
        """Pid files the Slurm daemons write for themselves."""
        return self.root / "pid"

    @property
    def processes(self) -> Path:
        """One JSON file a daemon we started: pid and start time, so that a foreign process is never taken for ours."""
        return self.root / "run"

    @property
    def state(self) -> Path:
        return self.root / "state"

    @property
    def spool(self) -> Path:
        return self.root / "spool"

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def munge(self) -> Path:
        return self.root / "munge"

    @property
    def munge_socket(self) -> Path:
        return self.munge / "socket"

    @property
    def munge_key(self) -> Path:
        return self.munge / "key"

    @property
    def database(self) -> Path:
        return self.root / "db"

    @property
    def database_socket(self) -> Path:
        return self.database / "socket"

    @property
    def python(self) -> Path:
        """An interpreter that ordinary users can run, where the host's own is closed to them."""
        return self.root / "python"

    def gpu_prefix(self, node: str) -> Path:
        """Path of a node's GPU files without their index."""
        return self.gres / f"{node}-gpu"
