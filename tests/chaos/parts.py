"""The real parts of an episode: PostgreSQL, controller, workers, their networks and disks. Each can be hurt and made well again."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ischeduler.testing.postgres import _account, find_programs
from ischeduler.testing.remote_controller import RemoteController

NETWORK = "10.213"
AS_ROOT = os.geteuid() == 0


def call(*argv: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=60, check=False)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(map(str, argv))}: {done.stderr.strip() or done.stdout.strip()}")
    return done


class Disk:
    """A small disk of its own (tmpfs) where that may be made, else a folder that cannot be filled."""

    def __init__(self, folder: Path, megabytes: int) -> None:
        self.folder, self.megabytes = folder, megabytes
        folder.mkdir(parents=True)
        self.real = AS_ROOT and call("mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=755", "none", folder, check=False).returncode == 0

    def fill(self) -> None:
        """Nothing more fits."""
        with (self.folder / "ballast").open("ab", buffering=0) as file, contextlib.suppress(OSError):
            for size in (1 << 20, 1 << 12, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(b"\0" * size)

    def free(self) -> None:
        """There is room again."""
        (self.folder / "ballast").unlink(missing_ok=True)

    def close(self) -> None:
        """Away with it."""
        if self.real:
            call("umount", "-l", self.folder, check=False)


class Postgres:
    """A server on TCP whose data are on a disk of their own."""

    def __init__(self, folder: Path) -> None:
        self.disk = Disk(folder / "pg", 512)
        self.programs, account = find_programs(), _account()
        self.user: dict[str, Any] = {} if account is None else {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        self.data, self.log, self.port = self.disk.folder / "data", folder / "pg.log", free_port()
        self.data.mkdir(mode=0o700)
        self.log.touch()
        if account is not None:
            for path in (self.data, self.log):
                os.chown(path, account.pw_uid, account.pw_gid)
        self._run(self.programs / "initdb", "-D", self.data, "-U", "isched", "-A", "trust", "-E", "UTF8", "--no-sync", "--locale=C")
        with (self.data / "pg_hba.conf").open("a") as file:
            file.write(f"host all all {NETWORK}.0.0/16 trust\n")
        with (self.data / "postgresql.conf").open("a") as file:
            file.write(
                f"listen_addresses='*'\nport={self.port}\nunix_socket_directories=''\nmax_connections=100\nfsync=on\n"
                "synchronous_commit=on\nmax_wal_size=64MB\nmin_wal_size=32MB\nwal_keep_size=0\nrestart_after_crash=on\n"
                "tcp_keepalives_idle=1\ntcp_keepalives_interval=1\ntcp_keepalives_count=2\ntcp_user_timeout=2000\n"
            )
        self.start()

    def url(self, host: str = "127.0.0.1") -> str:
        return f"postgresql+psycopg://isched@{host}:{self.port}/postgres?connect_timeout=2&tcp_user_timeout=1000"

    @property
    def alive(self) -> bool:
        return self._run(self.programs / "pg_ctl", "-D", self.data, "status", check=False).returncode == 0

    def start(self) -> None:
        """Up, and answering; waits out a crash recovery."""
        for _ in range(40):
            if self.alive and self._answers():
                return
            if not self.alive:
                self._run(self.programs / "pg_ctl", "-D", self.data, "-w", "-s", "-t", "20", "-l", self.log, "start", check=False)
            time.sleep(0.1)
        raise RuntimeError(f"PostgreSQL does not come back: {self.log.read_text()[-2000:]}")

    def stop(self, mode: str) -> None:
        """``fast``, ``immediate`` (no goodbye), or ``kill`` (the postmaster is killed)."""
        if mode != "kill":
            self._run(self.programs / "pg_ctl", "-D", self.data, "-m", mode, "-w", "stop", check=False)
            return
        pids = self._all_pids()
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    def _all_pids(self) -> list[int]:
        try:
            master = int((self.data / "postmaster.pid").read_text().split()[0])
        except (OSError, ValueError, IndexError):
            return []
        children = call("ps", "-o", "pid=", "--ppid", str(master), check=False).stdout.split()
        return [master, *map(int, children)]

    def _answers(self) -> bool:
        return self._run(self.programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port), check=False).returncode == 0

    def _run(self, *argv: str | Path, check: bool = True) -> subprocess.CompletedProcess[bytes]:
        # Not a pipe: the server would inherit it and never end it.
        done = subprocess.run([str(a) for a in argv], cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60, check=False, **self.user)
        if check and done.returncode:
            raise RuntimeError(f"{argv[0]} failed with {done.returncode}")
        return done

    def close(self) -> None:
        self.stop("immediate")
        self.disk.close()


class Network:
    """A worker's own network namespace, joined to the host by a cable that can be cut; without root the host's own network."""

    def __init__(self, number: int) -> None:
        self.number, self.name = number, f"ischaos{os.getpid()}w{number}"
        self.cable, self.host, self.real = f"isc{os.getpid() % 100000}n{number}", "127.0.0.1", False
        self._rules: list[list[str]] = []
        if AS_ROOT and call("ip", "netns", "add", self.name, check=False).returncode == 0:
            self._join()

    def _join(self) -> None:
        net, inside = _free_network(), f"p{self.cable}"
        self.host, self.real = f"{net}.1", True
        call("ip", "link", "add", self.cable, "type", "veth", "peer", "name", inside)
        call("ip", "link", "set", inside, "netns", self.name)
        call("ip", "addr", "add", f"{self.host}/30", "dev", self.cable)
        call("ip", "link", "set", self.cable, "up")
        for words in (f"addr add {net}.2/30 dev {inside}", f"link set {inside} up", "link set lo up"):
            call("ip", "netns", "exec", self.name, "ip", *words.split())

    @property
    def prefix(self) -> list[str]:
        """What goes before a command to run it inside."""
        return ["ip", "netns", "exec", self.name] if self.real else []

    def cut(self, ports: Sequence[int] = ()) -> None:
        """Swallow every packet, or those to some ports only. Nobody is told: connections just hang."""
        for port in ports or (0,):
            rule = ["INPUT", "-i", self.cable, *(["-p", "tcp", "--dport", str(port)] if port else []), "-j", "DROP"]
            call("iptables", "-w", "-I", *rule)
            self._rules.append(rule)

    def mend(self) -> None:
        for rule in self._rules:
            call("iptables", "-w", "-D", *rule, check=False)
        self._rules.clear()

    def close(self) -> None:
        self.mend()
        if self.real:
            call("ip", "link", "del", self.cable, check=False)
            call("ip", "netns", "del", self.name, check=False)


class Process:
    """A process that is started again as it was."""

    def __init__(self, argv: Sequence[str], log: Path) -> None:
        self._argv, self._log = list(argv), log
        self.process: subprocess.Popen[str] | None = None

    def start(self, *, answer: bool = False) -> str:
        """Run it where it does not run; with ``answer`` the first line it prints."""
        if self.alive:
            return ""
        with self._log.open("a") as log:
            self.process = subprocess.Popen(self._argv, stdout=subprocess.PIPE if answer else log, stderr=log, text=True)
        if not answer:
            return ""
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def send(self, number: int) -> None:
        if self.alive and self.process is not None:
            self.process.send_signal(number)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


class Controller(Process):
    """The simulated batch system."""

    def __init__(self, folder: Path, options: dict[str, Any]) -> None:
        super().__init__([sys.executable, "-m", "ischeduler.testing.batch_server", json.dumps({"host": "0.0.0.0", **options})], folder / "controller.log")
        told = json.loads(self.start(answer=True))
        self.origin, self.port = float(told["origin"]), int(told["address"][1])
        self.strings = RemoteController(("127.0.0.1", self.port), timeout_s=20.0)


class WorkerProcess(Process):
    """A plane worker in its own network, with its own wrong clock."""

    def __init__(self, name: str, network: Network, given: dict[str, Any], folder: Path) -> None:
        self.name, self.network, self.skew = name, network, folder / f"{name}.skew"
        self.skew.write_text("0")
        config = {**given, "name": name, "skew": str(self.skew), "log": str(folder / "workers.log")}
        super().__init__([*network.prefix, sys.executable, "-m", "tests.chaos.worker", json.dumps(config)], folder / "workers.err")
        self.start()


def _free_network() -> str:
    """Three numbers of an address that no other lane uses."""
    taken = call("ip", "-o", "-4", "addr").stdout
    nets = [f"{NETWORK}.{n}" for n in range(1, 255)]
    return random.choice([n for n in nets if f" {n}." not in taken])


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def remove(folder: Path) -> None:
    """Away with a folder, whatever is in it."""
    shutil.rmtree(folder, ignore_errors=True)


def eventually(what: Callable[[], bool], limit_s: float, pause_s: float = 0.05) -> bool:
    """Whether it came true in time."""
    until = time.monotonic() + limit_s
    while not what():
        if time.monotonic() > until:
            return False
        time.sleep(pause_s)
    return True
