"""A private PostgreSQL in a temporary folder, reached by a unix socket only: for tests that need the real one."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

_FOLDERS = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/local/pgsql/bin")


class PostgresMissing(Exception):
    """No PostgreSQL server programs (or no ordinary account to run them as) are on this host."""


@dataclass(frozen=True, slots=True)
class ThrowawayPostgres:
    """A running cluster; :meth:`new_database` gives an empty database's URL."""

    folder: Path
    programs: Path
    options: str = ""

    def start(self) -> None:
        """Start it (again); what was committed is there."""
        _run(_account(), [*self._control, "-l", self.folder / "log", "-o", self.options, "start"])

    def stop(self) -> None:
        """Stop it as a crash would: every connection breaks, and the next start recovers from the log."""
        _run(_account(), [*self._control, "-m", "immediate", "stop"])

    @property
    def _control(self) -> list[str | Path]:
        return [self.programs / "pg_ctl", "-D", self.folder / "data", "-w", "-s"]

    @property
    def url(self) -> str:
        """The server's one database, ``postgres``."""
        return f"postgresql+psycopg://isched@/postgres?host={self.folder}"

    def new_database(self) -> str:
        """The URL of an empty place to put tables: a schema of its own, made in milliseconds, where a database copies 300 files."""
        import psycopg

        name = f"t{uuid4().hex[:12]}"
        with psycopg.connect(host=str(self.folder), user="isched", dbname="postgres", autocommit=True) as connection:
            connection.execute(f'CREATE SCHEMA "{name}"'.encode())
        return f"{self.url}&options=-csearch_path%3D{name}"


@contextmanager
def throwaway_postgres(*, durable: bool = False, options: str = "") -> Iterator[ThrowawayPostgres]:
    """Make, start and at the end stop and delete a cluster. As root it runs as the account ``postgres`` or ``nobody``.

    ``durable`` waits for the disk at each commit, as a centre's does; ``options`` are more of the server's, as ``-c name=value``.

    Raises PostgresMissing with a reason where the programs are not installed.
    """
    programs = find_programs()
    account = _account()
    folder = Path(tempfile.mkdtemp(prefix="isched-pg-", dir="/tmp"))  # a socket's path may have 107 bytes only
    try:
        if account is not None:
            os.chown(folder, account.pw_uid, account.pw_gid)
        data = folder / "data"
        _run(account, [programs / "initdb", "-D", data, "-U", "isched", "-A", "trust", "-E", "UTF8", "--no-sync", "--locale=C"])
        given = f"-c listen_addresses='' -c unix_socket_directories={folder} -c max_connections=40"
        options = f"{given} -c fsync={'on' if durable else 'off'} {options}"
        server = ThrowawayPostgres(folder, programs, options)
        server.start()
        try:
            yield server
        finally:
            if (data / "postmaster.pid").exists():
                server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def find_programs() -> Path:
    """The folder of the newest installed server's programs; PostgresMissing where there is none."""
    found = [p for pattern in _FOLDERS for p in Path("/").glob(f"{pattern[1:]}/initdb")]
    on_path = shutil.which("initdb")
    if on_path:
        found.append(Path(on_path))
    if not found:
        raise PostgresMissing(
            "PostgreSQL's server programs (initdb, pg_ctl) are not installed; on Debian: apt-get install postgresql"
        )
    return max(found, key=lambda p: [int(n) for n in str(p).split("/") if n.isdigit()]).parent


def _account() -> pwd.struct_passwd | None:
    """Who runs the server: ourselves, or as root (whom PostgreSQL refuses) an ordinary account."""
    if os.getuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise PostgresMissing("PostgreSQL does not run as root, and there is neither an account 'postgres' nor 'nobody'")


def _run(account: pwd.struct_passwd | None, command: Sequence[str | Path]) -> None:
    argv = [str(word) for word in command]
    if account is None:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=120, cwd="/", check=False)
    else:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=120, cwd="/", check=False,
            user=account.pw_uid, group=account.pw_gid, extra_groups=[],
        )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"{argv[0]} failed: {done.stderr.strip() or done.stdout.strip()}")
