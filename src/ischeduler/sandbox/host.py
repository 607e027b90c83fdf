"""What the host offers: programs, service users, a place ordinary users can reach, free ports."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import socket
import subprocess
import sys
import zlib
from collections.abc import Iterable
from pathlib import Path

from ischeduler.sandbox.errors import SandboxError, SandboxUnavailable
from ischeduler.sandbox.layout import Ports

INSTALL_HINT = "install them with scripts/install-slurm"
LOOPBACK = "127.0.0.1"
SYSTEM_STATE = Path("/var/lib/ischeduler")
"""For root's own sandboxes when the home directory is closed to others (mode 700), as it mostly is."""

_SBIN = "/usr/sbin:/sbin:/usr/local/sbin"
_BASE_PROGRAMS = ("munged", "slurmctld", "slurmd", "scontrol", "sbatch", "sinfo", "squeue", "useradd", "userdel")
_ACCOUNTING_PROGRAMS = ("slurmdbd", "sacctmgr", "sacct", "mariadbd", "mariadb-install-db")
_FIRST_PORT, _LAST_PORT = 20000, 32000
"""Below Linux's ephemeral range (32768 and up), so that no outgoing connection takes a port while its daemon is down."""


def missing(*, accounting: bool = True, rest: bool = True) -> str:
    """Why this host cannot run a sandbox, as one clause; empty when it can."""
    if not sys.platform.startswith("linux"):
        return f"the Slurm sandbox runs on Linux, and this is {sys.platform}"
    if os.geteuid() != 0:
        return "the Slurm sandbox needs root (its daemons start jobs as several users); run it as root or in a container"
    wanted = _BASE_PROGRAMS + (_ACCOUNTING_PROGRAMS if accounting else ()) + (("slurmrestd",) if rest else ())
    absent = [p for p in wanted if find_program(p) is None]
    if absent:
        return f"the Slurm sandbox misses {', '.join(absent)}; {INSTALL_HINT}"
    users = ("munge", "slurm", *(("mysql",) if accounting else ()))
    unknown = [u for u in users if service_ids(u) is None]
    return f"the Slurm sandbox misses the system users {', '.join(unknown)}; {INSTALL_HINT}" if unknown else ""


def require(*, accounting: bool, rest: bool) -> None:
    """Raises SandboxUnavailable with :func:`missing`'s clause."""
    if problem := missing(accounting=accounting, rest=rest):
        raise SandboxUnavailable(f"{problem}.")


def find_program(name: str) -> str | None:
    """Absolute path of a program, sbin directories included."""
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:{_SBIN}")


def program(name: str) -> str:
    """Like :func:`find_program`; SandboxUnavailable when it is not installed."""
    path = find_program(name)
    if path is None:
        raise SandboxUnavailable(f"the Slurm sandbox misses {name}; {INSTALL_HINT}.")
    return path


def slurm_version() -> tuple[int, int]:
    """``(22, 5)`` of "slurm-wlm 22.05.8"."""
    said = subprocess.run([program("slurmd"), "-V"], capture_output=True, text=True, check=False).stdout
    match = re.search(r"(\d+)\.(\d+)", said)
    if match is None:
        raise SandboxUnavailable(f"slurmd -V says '{said.strip()}', which names no version; {INSTALL_HINT}.")
    return int(match[1]), int(match[2])


def rest_plugins() -> list[str]:
    """slurmrestd's OpenAPI plug-ins, e.g. ``openapi/v0.0.38``, by their files (``-s list`` wants a configured Slurm)."""
    files = sorted(f for d in ("slurm-wlm", "slurm") for f in Path("/usr/lib").glob(f"*/{d}/openapi_*.so"))
    return [f"openapi/{f.stem.removeprefix('openapi_').replace('_', '.')}" for f in files]


def service_ids(user: str) -> tuple[int, int] | None:
    """uid and gid of a system user; None when there is none."""
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        return None
    return entry.pw_uid, entry.pw_gid


def default_base() -> Path:
    """Where sandboxes live: the user's state directory, or /var/lib/ischeduler where that is closed to other users."""
    state = os.environ.get("XDG_STATE_HOME")
    home = (Path(state) if state else Path.home() / ".local" / "state") / "ischeduler" / "sandbox"
    return home if closed_ancestor(home) is None else SYSTEM_STATE / "sandbox"


def closed_ancestor(path: Path) -> Path | None:
    """The first existing directory on the way to ``path`` (or ``path`` itself) that other users may not enter or read."""
    resolved = path.resolve()
    for part in (*reversed(resolved.parents), resolved):
        try:
            mode = part.stat().st_mode
        except FileNotFoundError:
            return None
        wanted = 0o005 if part == resolved else 0o001
        if mode & wanted != wanted:
            return part
    return None


def require_reachable(base: Path) -> None:
    """Raises SandboxError when jobs of ordinary users could not reach ``base``."""
    if (closed := closed_ancestor(base)) is not None:
        raise SandboxError(f"ordinary users cannot enter {closed}, so their jobs cannot reach {base}; choose another directory.")


def choose_ports(nodes: Iterable[str], *, taken: frozenset[int], seed: str) -> Ports:
    """Free ports for a sandbox; ``seed`` (its directory) spreads neighbours so that they rarely ask for the same."""
    span = _LAST_PORT - _FIRST_PORT
    start = zlib.crc32(seed.encode()) % span
    free = (p for i in range(span) if (p := _FIRST_PORT + (start + i) % span) not in taken and _bindable(p))
    try:
        return Ports(next(free), next(free), next(free), {n: next(free) for n in nodes})
    except StopIteration:
        raise SandboxError(f"no free TCP ports between {_FIRST_PORT} and {_LAST_PORT}; stop what uses them.") from None


def _bindable(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True


def listens(port: int) -> bool:
    """Whether something answers on 127.0.0.1:port."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((LOOPBACK, port)) == 0


def hostname() -> str:
    """The host's short name, as slurmctld compares it."""
    return socket.gethostname().partition(".")[0]
