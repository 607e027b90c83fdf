"""How each daemon of a sandbox is called, as whom, and how one sees that it answers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ischeduler.sandbox import host
from ischeduler.sandbox.errors import SandboxUnavailable
from ischeduler.sandbox.layout import Layout, Ports
from ischeduler.sandbox.spec import SandboxSpec

MUNGED, MARIADB, SLURMDBD, SLURMCTLD, SLURMRESTD = "munged", "mariadbd", "slurmdbd", "slurmctld", "slurmrestd"
COMMANDS = frozenset({MUNGED, MARIADB, SLURMDBD, SLURMCTLD, SLURMRESTD, "slurmscriptd", "slurmd"})
"""Names under which the kernel knows the daemons; slurmscriptd is slurmctld's own helper."""
STEP_COMMANDS = frozenset({"slurmstepd"})
REST_USER = "nobody"
"""slurmrestd refuses to run as root or as SlurmUser."""


@dataclass(frozen=True, slots=True)
class Daemon:
    """One program in the foreground: its arguments, the user it starts as (empty: root), extra environment."""

    name: str
    argv: tuple[str, ...]
    log: Path
    user: str = ""
    env: Mapping[str, str] = field(default_factory=dict[str, str])


def slurmd_name(node: str) -> str:
    """The daemon name of a node's slurmd."""
    return f"slurmd-{node}"


def daemons(spec: SandboxSpec, layout: Layout, ports: Ports) -> dict[str, Daemon]:
    """All daemons of the spec by name, in the order in which they start."""
    found = [_munged(layout)]
    if spec.accounting:
        found += [_mariadb(layout), _slurmdbd(layout)]
    found.append(Daemon(SLURMCTLD, (host.program("slurmctld"), "-D", "-f", str(layout.slurm_conf)), _out(layout, SLURMCTLD)))
    found += [_slurmd(layout, node.name) for node in spec.nodes]
    if spec.rest:
        found.append(_slurmrestd(spec, layout, ports))
    return {d.name: d for d in found}


def environment(layout: Layout, daemon: Daemon) -> dict[str, str]:
    """A daemon's whole environment: nothing of the caller's leaks into jobs but PATH and the language."""
    kept = {k: os.environ[k] for k in ("LANG", "LC_ALL", "TZ") if k in os.environ}
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return {"PATH": path, "SLURM_CONF": str(layout.slurm_conf), **kept, **daemon.env}


def ids(user: str) -> tuple[int, int] | tuple[None, None]:
    """uid and gid to start as; (None, None) for root."""
    if not user:
        return None, None
    known = host.service_ids(user)
    if known is None:
        raise SandboxUnavailable(f"the Slurm sandbox misses the system user {user}; {host.INSTALL_HINT}.")
    return known


def _out(layout: Layout, name: str) -> Path:
    return layout.log / f"{name}.out"


def _munged(layout: Layout) -> Daemon:
    own = layout.munge
    argv = (
        host.program("munged"),
        "--foreground",
        f"--socket={layout.munge_socket}",
        f"--key-file={layout.munge_key}",
        f"--pid-file={own}/munged.pid",
        f"--log-file={own}/munged.log",
        f"--seed-file={own}/seed",
        "--num-threads=2",
    )
    return Daemon(MUNGED, argv, _out(layout, MUNGED), user="munge")


def database_options(layout: Layout) -> tuple[str, ...]:
    """MariaDB of our own: no network, no configuration of the host's, and no fsync, as its data are thrown away."""
    return (
        "--no-defaults",
        f"--datadir={layout.database}/data",
        f"--tmpdir={layout.database}/tmp",
        "--innodb-buffer-pool-size=64M",
        "--innodb-log-file-size=16M",
        "--innodb-flush-log-at-trx-commit=2",
        "--innodb-flush-method=nosync",
        "--innodb-doublewrite=0",
        "--innodb-lock-wait-timeout=900",
    )


def _mariadb(layout: Layout) -> Daemon:
    argv = (
        host.program("mariadbd"),
        *database_options(layout),
        "--skip-networking",
        "--skip-log-bin",
        f"--socket={layout.database_socket}",
        f"--pid-file={layout.database}/mariadbd.pid",
        f"--init-file={layout.database}/init.sql",
    )
    return Daemon(MARIADB, argv, _out(layout, MARIADB), user="mysql")


def _slurmdbd(layout: Layout) -> Daemon:
    """MYSQL_UNIX_PORT is how libmariadb is told of a socket; slurmdbd.conf has no word for it."""
    env = {"MYSQL_UNIX_PORT": str(layout.database_socket)}
    return Daemon(SLURMDBD, (host.program("slurmdbd"), "-D"), _out(layout, SLURMDBD), env=env)


def _slurmd(layout: Layout, node: str) -> Daemon:
    argv = (host.program("slurmd"), "-D", "-N", node, "-f", str(layout.slurm_conf))
    return Daemon(slurmd_name(node), argv, _out(layout, slurmd_name(node)))


def _slurmrestd(spec: SandboxSpec, layout: Layout, ports: Ports) -> Daemon:
    """Its plug-ins for slurmdbd end it where there is none, so only the others are loaded then."""
    usable = [] if spec.accounting else [p for p in host.rest_plugins() if "db" not in p]
    plugins = ("-s", ",".join(usable)) if usable else ()
    argv = (host.program("slurmrestd"), "-a", "rest_auth/jwt", *plugins, f"{host.LOOPBACK}:{ports.slurmrestd}")
    return Daemon(SLURMRESTD, argv, _out(layout, SLURMRESTD), user=REST_USER, env={"SLURM_JWT": "daemon"})
