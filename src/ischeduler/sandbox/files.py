"""Makes a sandbox's directory tree and configuration files, with owners and modes."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from pathlib import Path

from ischeduler.sandbox import daemons, host, render
from ischeduler.sandbox.errors import SandboxError
from ischeduler.sandbox.layout import Layout, Ports
from ischeduler.sandbox.spec import SandboxSpec

_LONGEST_SOCKET_PATH = 107
"""sun_path of unix(7) has 108 bytes with its final zero."""


def make_tree(spec: SandboxSpec, layout: Layout) -> None:
    """Creates what is missing; an existing tree is kept."""
    if len(str(layout.munge_socket)) > _LONGEST_SOCKET_PATH:
        raise SandboxError(f"{layout.root} is too long a path for Unix sockets; choose a directory with a shorter name.")
    for path in (layout.root, layout.etc, layout.gres, layout.processes, layout.spool, layout.home):
        _directory(path)
    for path in (layout.log, layout.pids):
        _directory(path, owner="slurm")
    _directory(layout.state, owner="slurm", mode=0o700)
    _directory(layout.munge, owner="munge")
    _secret(layout.munge_key, owner="munge", size_bytes=128)
    if spec.rest:
        _secret(layout.jwt_key, owner="slurm", size_bytes=32)
    for node in spec.nodes:
        _directory(layout.spool / node.name)
        for index in range(node.gpus):
            _pretended_device(Path(f"{layout.gpu_prefix(node.name)}{index}"))


def write_configuration(spec: SandboxSpec, layout: Layout, ports: Ports) -> None:
    """Renders slurm.conf, gres.conf and slurmdbd.conf into the tree."""
    text = render.slurm_conf(spec, layout, ports, hostname=host.hostname())
    layout.slurm_conf.write_text(text)
    (layout.etc / "gres.conf").write_text(render.gres_conf(spec, layout))
    (layout.etc / "plugstack.conf").write_text("# no plug-ins\n")
    (layout.etc / "cgroup.conf").write_text(render.cgroup_conf(host.slurm_version()))
    if spec.cli_filter:
        (layout.etc / "cli_filter.lua").write_text(spec.cli_filter)
    if spec.accounting:
        _closed_file(layout.slurmdbd_conf, render.slurmdbd_conf(spec, layout, ports).encode(), owner="slurm")


def make_database(layout: Layout) -> None:
    """An empty MariaDB with one user, ``slurm``, who logs in by its uid over the socket and so needs no password.

    It is made beside its place and moved there when complete: the installer of a killed start may still be writing its own.
    """
    data = layout.database / "data"
    _directory(layout.database, owner="mysql")
    _directory(layout.database / "tmp", owner="mysql", mode=0o700)
    grant = "CREATE USER IF NOT EXISTS 'slurm'@'localhost' IDENTIFIED VIA unix_socket;\n"
    grant += "GRANT ALL ON slurm_acct_db.* TO 'slurm'@'localhost';\n"
    _closed_file(layout.database / "init.sql", f"CREATE DATABASE IF NOT EXISTS slurm_acct_db;\n{grant}".encode(), owner="mysql")
    if (data / "complete").exists():
        return
    made = layout.database / f"data.{os.getpid()}"
    for leftover in (data, made):
        shutil.rmtree(leftover, ignore_errors=True)
    _directory(made, owner="mysql", mode=0o700)
    options = [*daemons.database_options(layout), f"--datadir={made}"]  # the later one counts
    argv = [host.program("mariadb-install-db"), *options, "--user=mysql", "--skip-test-db"]
    done = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise SandboxError(f"mariadb-install-db failed: {(done.stderr or done.stdout).strip()[-300:]}")
    (made / "complete").touch()
    made.replace(data)


def _directory(path: Path, *, owner: str = "", mode: int = 0o755) -> None:
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(mode)
    _own(path, owner)


def _pretended_device(path: Path) -> None:
    if not path.is_symlink():
        path.symlink_to("/dev/null")


def _secret(path: Path, *, owner: str, size_bytes: int) -> None:
    if not path.exists():
        _closed_file(path, secrets.token_bytes(size_bytes), owner=owner)


def _closed_file(path: Path, content: bytes, *, owner: str) -> None:
    """Mode 600 before the first byte is in it."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    _own(path, owner)


def _own(path: Path, owner: str) -> None:
    uid, gid = daemons.ids(owner)
    if uid is not None and gid is not None:
        os.chown(path, uid, gid)
