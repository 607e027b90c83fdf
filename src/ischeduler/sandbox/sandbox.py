"""A real multi-node Slurm on one host, with accounting and a REST daemon, that comes and goes without a trace."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ischeduler.core.errors import NotFound
from ischeduler.sandbox import accounting, daemons, files, host, processes, users
from ischeduler.sandbox.controls import FaultControls
from ischeduler.sandbox.errors import SandboxError
from ischeduler.sandbox.layout import Layout, Ports
from ischeduler.sandbox.machine import RUNNING
from ischeduler.sandbox.marker import Marker, claim_refusal, read_marker, sandboxes_in, write_marker
from ischeduler.sandbox.spec import SandboxSpec, check_sandbox_name, validate


@dataclass(frozen=True, slots=True)
class DaemonStatus:
    """``state`` is running, dead (ended unasked) or stopped; ``pid`` None when it never started."""

    name: str
    state: str
    pid: int | None


@dataclass(frozen=True, slots=True)
class SandboxStatus:
    """How a sandbox is. ``up`` means every daemon runs; ``nodes`` is empty while the controller does not answer."""

    name: str
    cluster: str
    root: str
    slurm_conf: str
    rest_url: str
    up: bool
    daemons: tuple[DaemonStatus, ...]
    nodes: dict[str, str]
    users: dict[str, str]


class Sandbox(FaultControls):
    """Start with ``up()``, stop with ``down()``; both may be called at any time and again.

    >>> sandbox = Sandbox(demo_spec())
    >>> sandbox.up()
    >>> sandbox.run(["sbatch", "--wrap", "hostname"], user="alice")
    >>> sandbox.down()
    """

    @classmethod
    def open(cls, name: str = "default", *, base: Path | None = None) -> Sandbox:
        """The sandbox of that name with the shape it was started with; NotFound when there is none."""
        where = (base or host.default_base()).absolute()
        marker = read_marker(Layout(where / check_sandbox_name(name)))
        if marker is None:
            raise NotFound(f"there is no sandbox '{name}' in {where}; start it with: isched sandbox up")
        return cls(marker.spec, name, base=where)

    def up(self) -> SandboxStatus:
        """Starts whatever does not run yet and waits until all nodes answer.

        Raises SandboxUnavailable (no root, not installed) or SandboxError; a sandbox that was new is then gone again.
        """
        host.require(accounting=self.spec.accounting, rest=self.spec.rest)
        validate(self.spec)
        host.require_reachable(self.base)
        with _locked(self.base):
            fresh = not self.layout.marker.exists()
            try:
                self._claim()
                self._start()
            except BaseException:
                if fresh and self.layout.marker.exists():
                    self._destroy()
                raise
        return self.status()

    def down(self) -> None:
        """Ends all processes and jobs of the sandbox and removes its users and its directory. Nothing there: no error."""
        if not self.layout.root.exists():
            return
        if refusal := claim_refusal(self.layout):
            raise SandboxError(f"{refusal}.")
        if os.geteuid() != 0:
            raise SandboxError(f"sandbox '{self.name}' was started by root; stop it as root.")
        with _locked(self.base):
            self._destroy()

    def status(self) -> SandboxStatus:
        """What runs and what does not; NotFound when the sandbox is not there."""
        marker = self.marker
        found = tuple(self._daemon_status(name) for name in self.daemon_names())
        return SandboxStatus(
            name=self.name,
            cluster=marker.spec.cluster_name,
            root=str(self.layout.root),
            slurm_conf=str(self.layout.slurm_conf),
            rest_url=self.rest_url if self.spec.rest else "",
            up=all(d.state == RUNNING for d in found),
            daemons=found,
            nodes=self._nodes_or_nothing(),
            users={u: self.system_user(u) for u in self.spec.users},
        )

    def _daemon_status(self, name: str) -> DaemonStatus:
        process = self.daemon_process(name)
        return DaemonStatus(name, self.daemon_state(name), None if process is None else process.pid)

    def _nodes_or_nothing(self) -> dict[str, str]:
        if self.daemon_state(daemons.SLURMCTLD) != RUNNING or not self.controller_answers():
            return {}
        return self.node_states()

    def _claim(self) -> None:
        """Makes the directory ours, or checks that it already is, with this shape."""
        if refusal := claim_refusal(self.layout):
            raise SandboxError(f"{refusal}.")
        marker = read_marker(self.layout)
        if marker is not None and marker.spec != self.spec:
            raise SandboxError(f"sandbox '{self.name}' exists with another shape; stop it first: isched sandbox down")
        if marker is None:
            write_marker(self.layout, Marker(self.name, self.spec, self._free_ports(), time.time()))
        elif not self._anything_runs() and any(host.listens(p) for p in marker.ports.all()):
            write_marker(self.layout, dataclasses.replace(marker, ports=self._free_ports()))

    def _free_ports(self) -> Ports:
        others = [m for m in sandboxes_in(self.base) if m.name != self.name]
        taken = frozenset(p for m in others for p in m.ports.all())
        return host.choose_ports((n.name for n in self.spec.nodes), taken=taken, seed=str(self.layout.root))

    def _anything_runs(self) -> bool:
        return any(self.daemon_state(name) == RUNNING for name in self.daemon_names())

    def _start(self) -> None:
        files.make_tree(self.spec, self.layout)
        self._kill_strays()
        if not self._anything_runs():
            files.write_configuration(self.spec, self.layout, self.ports)
        with ThreadPoolExecutor(3) as pool:
            steps = [pool.submit(self._start_munge), pool.submit(self._make_users)]
            if self.spec.accounting:
                steps.append(pool.submit(self._start_database))
            for step in steps:
                step.result()
        if self.spec.accounting:
            self._start_accounting()
        self._start_slurm()

    def _kill_strays(self) -> None:
        """Daemons of ours that no record tells of: their starter was killed before it wrote one, or their parent was."""
        recorded = [p for name in self.daemon_names() if (p := self.daemon_process(name)) is not None]
        known = set(processes.with_descendants(p for p in recorded if processes.is_alive(p)))
        strays = [p for p in processes.holding(self.layout.root, daemons.COMMANDS) if p not in known]
        processes.stop(strays, grace_s=0)

    def _start_munge(self) -> None:
        if self.daemon_state(daemons.MUNGED) != RUNNING:
            self.layout.munge_socket.unlink(missing_ok=True)
            self.start_daemon(daemons.MUNGED)
        self.await_daemon(daemons.MUNGED, self.layout.munge_socket.is_socket)

    def _make_users(self) -> None:
        for user in self.spec.users:
            users.create(self.system_user(user), self.home(user))
        _ = self.python

    def _start_database(self) -> None:
        files.make_database(self.layout)
        if self.daemon_state(daemons.MARIADB) != RUNNING:
            self.layout.database_socket.unlink(missing_ok=True)
            self.start_daemon(daemons.MARIADB)
        self.await_daemon(daemons.MARIADB, self.layout.database_socket.is_socket)

    def _start_accounting(self) -> None:
        """slurmdbd before slurmctld: the controller does not start without it the first time."""
        self.start_slurmdbd()
        marker = self.marker
        if marker.accounts_ready:
            return
        for command in accounting.setup_commands(self.spec, self.name):
            self.sacctmgr(command)
        write_marker(self.layout, dataclasses.replace(marker, accounts_ready=True))

    def _start_slurm(self) -> None:
        for node in self.spec.nodes:
            self.start_daemon(daemons.slurmd_name(node.name))
        if self.spec.rest:
            self.start_daemon(daemons.SLURMRESTD)
        self.start_slurmctld()
        for node in self.spec.nodes:
            self.await_daemon(daemons.slurmd_name(node.name), partial(self.node_responds, node.name))
        if self.spec.rest:
            self.await_daemon(daemons.SLURMRESTD, lambda: host.listens(self.ports.slurmrestd))

    def _destroy(self) -> None:
        """SIGKILL throughout: what the daemons would save is thrown away in the next moment."""
        started = [processes.load(path) for path in self.layout.processes.glob("*.json")]
        processes.stop([p for p in started if p is not None], grace_s=0)
        own_users = users.belonging_to(self.layout.home)
        uids = frozenset(u.pw_uid for u in own_users)
        if not processes.wait_until(lambda: self._kill_jobs(uids), timeout_s=10.0):
            raise SandboxError(f"some processes of sandbox '{self.name}' cannot be killed; {self.layout.root} is kept.")
        for user in own_users:
            users.remove(user)
        shutil.rmtree(self.layout.root)
        for directory in (self.base, self.base.parent) if self.base == host.default_base() else ():
            with contextlib.suppress(OSError):  # kept while it holds anything else
                directory.rmdir()

    def _kill_jobs(self, uids: frozenset[int]) -> bool:
        """Kills job steps, daemons without a record and whatever the sandbox's users run; true once there are none."""
        left = processes.with_descendants(processes.holding(self.layout.root, daemons.COMMANDS | daemons.STEP_COMMANDS))
        left += processes.owned_by(uids) if uids else []
        processes.stop(left, grace_s=0)
        return not left


@contextlib.contextmanager
def _locked(base: Path) -> Iterator[None]:
    """One up or down at a time in a directory; the lock is on the directory itself, so that no lock file stays."""
    while True:
        base.mkdir(mode=0o755, parents=True, exist_ok=True)
        descriptor = os.open(base, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _same_directory(base, descriptor):
                yield
                return
        finally:
            os.close(descriptor)


def _same_directory(path: Path, descriptor: int) -> bool:
    """Whether the path still names the directory that was opened: another ``down`` may have removed it meanwhile."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def list_sandboxes(*, base: Path | None = None) -> list[str]:
    """Names of all sandboxes in the directory (default: the usual one)."""
    return [m.name for m in sandboxes_in((base or host.default_base()).absolute())]


def up(spec: SandboxSpec, name: str = "default", *, base: Path | None = None) -> SandboxStatus:
    """Starts a sandbox of that shape; see :meth:`Sandbox.up`."""
    return Sandbox(spec, name, base=base).up()


def down(name: str = "default", *, base: Path | None = None) -> None:
    """Stops a sandbox and removes every trace of it; NotFound when there is none."""
    Sandbox.open(name, base=base).down()


def status(name: str = "default", *, base: Path | None = None) -> SandboxStatus:
    """How a sandbox is; NotFound when there is none."""
    return Sandbox.open(name, base=base).status()
