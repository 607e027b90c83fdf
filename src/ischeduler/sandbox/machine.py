"""One sandbox's processes and commands: start and stop single daemons, run Slurm clients as root or as a user."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from ischeduler.core.errors import BadInput, NotFound
from ischeduler.sandbox import daemons, host, interpreter, processes, users
from ischeduler.sandbox.errors import SandboxCommandFailed, SandboxError
from ischeduler.sandbox.layout import Layout, Ports
from ischeduler.sandbox.marker import Marker, read_marker
from ischeduler.sandbox.spec import SandboxSpec, check_sandbox_name

ANSWER_TIMEOUT_S = 30.0
RUNNING, DEAD, STOPPED = "running", "dead", "stopped"


class SandboxMachine:
    """A sandbox by name and directory. Holds no state of its own: everything is read from the disk and from /proc."""

    def __init__(self, spec: SandboxSpec, name: str = "default", *, base: Path | None = None) -> None:
        self.spec = spec
        self.name = check_sandbox_name(name)
        self.base = (base or host.default_base()).absolute()
        self.layout = Layout(self.base / self.name)

    @property
    def marker(self) -> Marker:
        """What was recorded when the sandbox was made; NotFound when it is not there."""
        found = read_marker(self.layout)
        if found is None:
            raise NotFound(f"there is no sandbox '{self.name}' in {self.base}; start it with: isched sandbox up")
        return found

    @property
    def ports(self) -> Ports:
        """The ports of the running sandbox."""
        return self.marker.ports

    @property
    def rest_url(self) -> str:
        """Where slurmrestd listens."""
        return f"http://{host.LOOPBACK}:{self.ports.slurmrestd}"

    def env(self) -> dict[str, str]:
        """What to add to root's environment to talk to this Slurm."""
        return {"SLURM_CONF": str(self.layout.slurm_conf)}

    def system_user(self, user: str) -> str:
        """The operating system's (and Slurm's) name of the sandbox user ``alice``; BadInput when there is none."""
        if user not in self.spec.users:
            raise BadInput(f"the sandbox has no user '{user}'; expected one of {', '.join(self.spec.users)}.")
        return users.system_name(user, self.name)

    def home(self, user: str) -> Path:
        """A user's home directory, shared by all nodes."""
        return self.layout.home / self.system_user(user)

    def user_env(self, user: str) -> dict[str, str]:
        """The whole environment of a sandbox user; nothing of the caller's but its language and time zone."""
        account, python = self.system_user(user), self.python
        kept = {k: os.environ[k] for k in ("LANG", "LC_ALL", "TZ") if k in os.environ}
        path = f"{python.parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin"
        return {
            "HOME": str(self.home(user)),
            "USER": account,
            "LOGNAME": account,
            "SHELL": "/bin/bash",
            "PATH": path,
            **kept,
            **self.env(),
        }

    @cached_property
    def python(self) -> Path:
        """An interpreter with this project's packages that every sandbox user can run."""
        return interpreter.ready(self.layout.python)

    def run(
        self,
        argv: Sequence[str],
        user: str | None = None,
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        check: bool = True,
        timeout_s: float = 60.0,
        stdin: str | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command against this Slurm, as root or as a sandbox user (in its home directory, its own environment).

        Raises SandboxCommandFailed on a non-zero exit when ``check``; subprocess.TimeoutExpired after ``timeout_s``.
        """
        uid: int | None = None
        gid: int | None = None
        if user is None:
            whole = {**os.environ, **self.env(), **(env or {})}
        else:
            entry = pwd.getpwnam(self.system_user(user))
            uid, gid = entry.pw_uid, entry.pw_gid
            whole = {**self.user_env(user), **(env or {})}
        done = subprocess.run(
            list(argv),
            env=whole,
            cwd=cwd or (self.home(user) if user else None),
            user=uid,
            group=gid,
            extra_groups=None if uid is None else [],
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if check and done.returncode:
            raise _failed(argv, done)
        return done

    def daemon_names(self) -> tuple[str, ...]:
        """All daemons of this sandbox, in the order in which they start."""
        return tuple(self._daemons())

    def daemon_state(self, name: str) -> str:
        """``running``, ``dead`` (ended without being asked to) or ``stopped``."""
        process = self.daemon_process(name)
        if process is None:
            return STOPPED
        return RUNNING if processes.is_alive(process) else DEAD

    def daemon_process(self, name: str) -> processes.ProcessId | None:
        """The process last started for this daemon; None when it was stopped or never started."""
        return processes.load(self._process_file(name))

    def start_daemon(self, name: str) -> None:
        """Starts a daemon unless it runs; does not wait until it answers."""
        if self.daemon_state(name) == RUNNING:
            return
        daemon = self._daemons()[name]
        uid, gid = daemons.ids(daemon.user)
        env = daemons.environment(self.layout, daemon)
        process = processes.launch(daemon.argv, log=daemon.log, env=env, uid=uid, gid=gid)
        processes.save(self._process_file(name), process)

    def stop_daemon(self, name: str, *, grace_s: float = 10.0) -> None:
        """SIGTERM, then SIGKILL after ``grace_s``; waits until it is gone."""
        process = self.daemon_process(name)
        if process is not None:
            processes.stop([process], grace_s=grace_s)
        self._process_file(name).unlink(missing_ok=True)

    def signal_daemon(self, name: str, signum: int) -> None:
        """Sends a signal (and waits for the end when it is SIGKILL): a daemon killed this way is reported as ``dead``."""
        process = self.daemon_process(name)
        if process is None or not processes.send_signal(process, signum):
            raise SandboxError(f"{name} of sandbox '{self.name}' does not run; start it first.")
        if signum == signal.SIGKILL:
            processes.wait_until(lambda: not processes.is_alive(process), timeout_s=5.0)

    def await_daemon(self, name: str, ready: Callable[[], bool], *, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        """Waits until ``ready``; raises SandboxError with the end of the daemon's log when it dies or takes too long."""
        if processes.wait_until(lambda: ready() or self.daemon_state(name) == DEAD, timeout_s=timeout_s) and ready():
            return
        problem = "ended" if self.daemon_state(name) == DEAD else f"did not answer within {timeout_s:.0f} s"
        raise SandboxError(f"{name} {problem}; its log ends: {self.log_tail(name)}")

    def log_tail(self, name: str, *, lines: int = 3) -> str:
        """The last lines of a daemon's log and of its output."""
        found: list[str] = []
        for path in (self.layout.log / f"{name}.log", self.layout.log / f"{name}.out"):
            if path.exists():
                found += path.read_text(errors="replace").splitlines()[-lines:]
        return " | ".join(found) or f"(empty, in {self.layout.log})"

    def _process_file(self, name: str) -> Path:
        return self.layout.processes / f"{name}.json"

    def _daemons(self) -> dict[str, daemons.Daemon]:
        return daemons.daemons(self.spec, self.layout, self.ports)


def _failed(argv: Sequence[str], done: subprocess.CompletedProcess[str]) -> SandboxCommandFailed:
    said = done.stderr.strip() or done.stdout.strip() or "it said nothing"
    message = f"'{' '.join(argv)}' ended with {done.returncode}: {said[-500:]}"
    return SandboxCommandFailed(message, returncode=done.returncode, stderr=done.stderr)
