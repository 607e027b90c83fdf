"""PostgreSQL's own pg_dump and pg_restore, as argument lists, the password in a file of mode 600 that lives as long as the program."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.engine import URL

from ischeduler.core.errors import BadInput, ConfigError, StoreUnavailable

_COPY = re.compile(rb"COPY (?:\"?([^\".\s]+)\"?\.)?\"?([^\"\s(]+)\"? \(.*\) FROM stdin;\n")
_SECRET = ("password", "passfile", "sslpassword", "sslkey")
TIMEOUT_S = 6 * 3600.0


def dump(url: URL, target: Path, snapshot: str) -> None:
    """Writes the database as it is in ``snapshot``, compressed, without owners and rights."""
    options = ["--format=custom", "--no-owner", "--no-privileges", f"--snapshot={snapshot}", f"--file={target}"]
    with _access(url) as (address, environment):
        _run([_program("pg_dump"), "--no-password", *options, *_schema(url), f"--dbname={address}"], environment)


def fill(url: URL, source: Path) -> None:
    """Restores all or nothing."""
    options = ["--single-transaction", "--exit-on-error", "--no-owner", "--no-privileges"]
    with _access(url) as (address, environment):
        _run([_program("pg_restore"), "--no-password", *options, f"--dbname={address}", str(source)], environment)


def rows_in(source: Path) -> dict[str, int]:
    """Rows of each table, by reading all of a copy. StoreUnavailable when it is damaged."""
    found: dict[str, int] = {}
    name = None
    for line in _lines([_program("pg_restore"), "--data-only", "--file=-", str(source)], source):
        if name is None:
            match = _COPY.fullmatch(line)
            if match:
                name = match[2].decode()
                found[name] = 0
        elif line == b"\\.\n":
            name = None
        else:
            found[name] += 1
    return dict(sorted(found.items()))


def version_in(source: Path) -> str:
    """The copy's migration; '' when it is none of ours."""
    inside = False
    for line in _lines([_program("pg_restore"), "--data-only", "--table=alembic_version", "--file=-", str(source)], source):
        if inside:
            return line.decode().strip()
        inside = bool(_COPY.fullmatch(line))
    return ""


def _lines(argv: Sequence[str], source: Path) -> Iterator[bytes]:
    with tempfile.TemporaryFile() as said, subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=said, stdin=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        yield from process.stdout
        if process.wait() != 0:
            said.seek(0)
            raise StoreUnavailable(f"{source} is damaged ({_last(said.read())}); use another copy.")


def _run(argv: Sequence[str], environment: Mapping[str, str]) -> None:
    done = subprocess.run(argv, env=dict(environment), capture_output=True, stdin=subprocess.DEVNULL, timeout=TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise StoreUnavailable(f"{Path(argv[0]).name} failed: {_last(done.stderr)}.")


def _last(said: bytes) -> str:
    lines = said.decode("utf-8", "replace").strip().splitlines()
    return lines[-1].rstrip(".") if lines else "it said nothing"


@contextmanager
def _access(url: URL) -> Iterator[tuple[str, dict[str, str]]]:
    """Where to connect, without a secret, and the environment that has the password's file. BadInput for a secret in the URL's query."""
    secret = [key for key in url.query if key in _SECRET]
    if secret:
        raise BadInput(f"the database's URL has {secret[0]} in its query; put it in the user part (user:password@) or in ~/.pgpass.")
    words = {"host": url.host, "port": url.port, "user": url.username, "dbname": url.database}
    words |= {key: value if isinstance(value, str) else ",".join(value) for key, value in url.query.items()}
    address = " ".join(f"{key}='{_quoted(str(value))}'" for key, value in words.items() if value not in (None, ""))
    environment = {k: v for k, v in os.environ.items() if k != "PGPASSWORD"}
    with tempfile.TemporaryDirectory(prefix="isched-pg-") as folder:
        if url.password:
            path = Path(folder) / "pgpass"
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
                password = str(url.password).replace("\\", "\\\\").replace(":", "\\:")
                file.write(f"*:*:*:*:{password}\n")
            environment["PGPASSFILE"] = str(path)
        yield address, environment


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")


def _schema(url: URL) -> list[str]:
    """Only the schema that the URL's search path names, where it names one."""
    options = url.query.get("options", "")
    match = re.search(r"search_path=([A-Za-z0-9_]+)", options if isinstance(options, str) else " ".join(options))
    return [f"--schema={match[1]}"] if match else []


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise ConfigError(f"{name} is not installed here; on Debian: apt-get install postgresql-client (not older than the server).")
    return found
