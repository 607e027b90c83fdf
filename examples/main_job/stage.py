"""Where the demo plays: a Slurm sandbox with an ordinary user, or this machine alone. The story is the same."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from ischeduler.sandbox.sandbox import Sandbox
from ischeduler.sandbox.spec import SandboxNode, SandboxPartition, SandboxSpec

EXAMPLE = Path(__file__).resolve().parent.parent / "digits" / "train.py"


class Stage(Protocol):
    """What the story needs of the place it plays in."""

    engine: str
    work: Path
    python: Path

    def up(self) -> None: ...
    def down(self) -> None: ...
    def command(self, argv: Sequence[str], *, timeout_s: float = 120.0) -> subprocess.CompletedProcess[str]: ...
    def start(self, argv: Sequence[str], log: Path) -> subprocess.Popen[bytes]: ...
    def occupy(self, seconds: int) -> str: ...
    def take_node_down(self) -> str: ...
    def kill_plane(self) -> int | None: ...
    def hints(self, *, kept: bool) -> None: ...


def demo_cluster() -> SandboxSpec:
    """``gpudebug`` (one node) and ``gpu`` (two nodes), one-minute limits; ``cpu`` for jobs that need no GPU."""
    debug = SandboxNode("d01", cpus=4, memory_mb=8000, gres="gpu:v100:2", features=("v100",))
    gpu = tuple(SandboxNode(f"g{i:02d}", cpus=4, memory_mb=8000, gres="gpu:v100:2", features=("v100",)) for i in (1, 2))
    return SandboxSpec(
        cluster_name="demo",
        nodes=(debug, *gpu),
        partitions=(
            SandboxPartition("gpudebug", ("d01",), max_time_min=1, max_nodes=1, default=True),
            SandboxPartition("gpu", ("g01", "g02"), max_time_min=1),
        ),
    )


class SlurmStage:
    """A real Slurm and its user alice; bob keeps the ``gpu`` partition busy for a while, as others do."""

    engine = "slurm"

    def __init__(self) -> None:
        self.sandbox = Sandbox(demo_cluster(), "demo")

    def up(self) -> None:
        self.sandbox.down()  # what an interrupted demo may have left
        self.sandbox.up()
        self.work = self.sandbox.home("alice") / "digits"
        self.python = self.sandbox.python
        self.sandbox.run(["mkdir", "-p", str(self.work)], user="alice")
        self.sandbox.run(["tee", str(self.work / "train.py")], user="alice", stdin=EXAMPLE.read_text())

    def down(self) -> None:
        self.sandbox.down()

    def command(self, argv: Sequence[str], *, timeout_s: float = 120.0) -> subprocess.CompletedProcess[str]:
        return self.sandbox.run(self._real(argv), user="alice", cwd=self.work, check=False, timeout_s=timeout_s)

    def start(self, argv: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
        account = self.sandbox.system_user("alice")
        with log.open("wb") as out:
            return subprocess.Popen(
                self._real(argv), cwd=self.work, env=self.sandbox.user_env("alice"), user=account, group=account, extra_groups=[],
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def occupy(self, seconds: int) -> str:
        """Bob's jobs take every GPU of ``gpu`` for that long."""
        for _ in range(2):
            self.sandbox.run(
                ["sbatch", "-p", "gpu", "--gres=gpu:2", "-c", "4", "--mem=7000", "-t", "1", "-o", "/dev/null", f"--wrap=sleep {seconds}"],
                user="bob",
            )
        for _ in range(60):
            if len(self.sandbox.run(["squeue", "--me", "-h", "-t", "R", "-o", "%i"], user="bob").stdout.split()) == 2:
                break
            time.sleep(0.5)
        return f"bob's two jobs hold both gpu nodes for {seconds} s"

    def take_node_down(self) -> str:
        self.sandbox.node_down("d01", reason="demo")
        return "scontrol update NodeName=d01 State=DOWN Reason=demo"

    def kill_plane(self) -> int | None:
        return _kill_plane(self.sandbox.system_user("alice"))

    def hints(self, *, kept: bool) -> None:
        print("\nNext:")
        print("  a Slurm of your own to try things on   sudo .venv/bin/isched sandbox up")
        print("  on your cluster                        isched init && isched plan train.py --epochs 50 --batch-size 32")
        print("  from Python                            import ischeduler as isc; isc.plan(...)[\"soonest\"].submit()")
        if kept:
            print("  this demo's Slurm is still up          sudo .venv/bin/isched sandbox down demo")

    def _real(self, argv: Sequence[str]) -> list[str]:
        return _with_isched(argv, self.python)


class LocalStage:
    """This machine alone: the embedded ``local`` batch system. A node cannot be taken down here; the job is killed instead."""

    engine = "local"

    def up(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="isched-demo-"))
        self.work = self.root / "digits"
        self.work.mkdir()
        shutil.copy(EXAMPLE, self.work / "train.py")
        self.python = Path(sys.executable)
        (self.work / "ischeduler.toml").write_text(
            f'[batch]\nkind = "local"\n\n[paths]\nstate = "{self.root}/state"\ndata = "{self.root}/data"\n\n'
            '[local]\npartitions = [{ name = "debug", max_walltime = "60s" }, { name = "main", max_walltime = "60s" }]\n'
        )

    def down(self) -> None:
        _kill_plane(None, below=str(self.root))
        shutil.rmtree(self.root, ignore_errors=True)

    def command(self, argv: Sequence[str], *, timeout_s: float = 120.0) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            _with_isched(argv, self.python), cwd=self.work, env=os.environ | {"HOME": str(self.root)}, capture_output=True, text=True,
            timeout=timeout_s, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def start(self, argv: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
        with log.open("wb") as out:
            return subprocess.Popen(
                _with_isched(argv, self.python), cwd=self.work, env=os.environ | {"HOME": str(self.root)}, stdin=subprocess.DEVNULL,
                stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def occupy(self, seconds: int) -> str:
        return ""

    def take_node_down(self) -> str:
        """The nearest thing one machine has to a lost node: the job's whole process tree ends without a word."""
        mine = f"ISCHED_RUN_DIR={self.root}".encode()
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and mine in (entry / "environ").read_bytes():
                    os.kill(int(entry.name), signal.SIGKILL)
        return "kill -9 of the running job (one machine has no node to lose)"

    def kill_plane(self) -> int | None:
        return _kill_plane(None, below=str(self.root))

    def hints(self, *, kept: bool) -> None:
        print("\nNext:")
        print("  on a machine with root and apt, the same on a real Slurm   ./scripts/demo")
        print("  on your cluster                                            isched init && isched plan train.py --epochs 50")


def _with_isched(argv: Sequence[str], python: Path) -> list[str]:
    return [str(python), "-m", "ischeduler.cli.main", *argv[1:]] if argv[0] == "isched" else list(argv)


def _kill_plane(user: str | None, below: str | None = None) -> int | None:
    """kill -9 of the plane's daemon; its pid, or None when there was none."""
    who = ["-u", user] if user else []
    found = subprocess.run(["pgrep", *who, "-f", "ischeduler.cli.main plane run"], capture_output=True, text=True, check=False)
    killed = None
    for pid in found.stdout.split():
        if below and below not in _home_of(pid):
            continue
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
            killed = int(pid)
    return killed


def _home_of(pid: str) -> str:
    with contextlib.suppress(OSError):
        for item in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if item.startswith(b"HOME="):
                return item[5:].decode()
    return ""
