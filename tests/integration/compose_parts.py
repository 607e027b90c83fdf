"""Images made of this host's own programs, for the parts of a compose file that cannot be pulled where no registry of images is reached.

Each obeys what the compose file tells the image that it stands for: PostgreSQL's password file, user and volume; Kafka's advertised
listener; Caddy's file and data folder.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ischeduler.testing.broker import find_program
from ischeduler.testing.postgres import find_programs

DATABASE = """#!/bin/sh
set -eu
data=/var/lib/postgresql/data
as() { setpriv --reuid 999 --regid 999 --clear-groups "$@"; }
if [ ! -s "$data/PG_VERSION" ]; then
    mkdir -p "$data"; chown 999:999 "$data"; chmod 700 "$data"
    cat "$POSTGRES_PASSWORD_FILE" >/tmp/password; chown 999 /tmp/password
    as initdb -D "$data" -U "$POSTGRES_USER" --pwfile=/tmp/password -A scram-sha-256 -E UTF8 --locale=C --no-sync
    rm /tmp/password
    echo "host all all all scram-sha-256" >>"$data/pg_hba.conf"
    echo "CREATE DATABASE $POSTGRES_DB" | as postgres --single -D "$data" postgres
fi
exec setpriv --reuid 999 --regid 999 --clear-groups postgres -D "$data" -c listen_addresses='*' -c unix_socket_directories=/tmp
"""
BROKER = """#!/bin/sh
case $KAFKA_ADVERTISED_LISTENERS in PLAINTEXT://*) ;; *) exit 2 ;; esac
exec tansu broker --listener-url tcp://0.0.0.0:9092 --advertised-listener-url "tcp://${KAFKA_ADVERTISED_LISTENERS#PLAINTEXT://}" --storage-engine memory://tansu/
"""
PROXY = """#!/bin/sh
export XDG_DATA_HOME=/data XDG_CONFIG_HOME=/config
exec caddy run --config /etc/caddy/Caddyfile --adapter caddyfile
"""


class PartMissing(Exception):
    """A program that an image is made of is not on this host."""


def make_images(prefix: str) -> dict[str, str]:
    """Make the three; their names by the variable of the compose file. PartMissing, PostgresMissing, BrokerMissing."""
    postgres = find_programs()
    shared = [p for p in (postgres.parent / "lib", Path("/usr/share/postgresql") / postgres.parent.name, Path("/usr/share/zoneinfo")) if p.exists()]
    database = ["sh", "cat", "chmod", "chown", "mkdir", "rm", "setpriv"]
    servers = {name: postgres / name for name in ("initdb", "postgres", "pg_isready")}
    images = {
        "POSTGRES_IMAGE": _image(f"{prefix}-database", DATABASE, database, servers, shared, postgres),
        "KAFKA_IMAGE": _image(f"{prefix}-broker", BROKER, ["sh"], {"tansu": find_program()}),
        "CADDY_IMAGE": _image(f"{prefix}-proxy", PROXY, ["sh", "cat", "caddy"], {}),
    }
    return images


def _image(
    name: str, entry: str, commands: Sequence[str], programs: Mapping[str, Path], folders: Iterable[Path] = (), home: Path | None = None
) -> str:
    """``commands`` of the PATH and ``programs`` in /bin (``home``'s stay where they are: PostgreSQL finds its files from there), with their libraries."""
    with tempfile.TemporaryDirectory(prefix="isched-image-", dir="/var/tmp") as folder:
        root = Path(folder)
        for made in ("bin", "tmp", "run", "data", "config", "etc", "var/lib/kafka/data"):
            (root / made).mkdir(parents=True)
        (root / "tmp").chmod(0o1777)
        (root / "etc" / "passwd").write_text("root:x:0:0::/:/bin/sh\npostgres:x:999:999::/:/bin/sh\n")
        copied = {**{c: _found(c) for c in commands}, **programs}
        for command, source in copied.items():
            place = root / str(source).lstrip("/") if home and source.is_relative_to(home) else root / "bin" / command
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source.resolve(), place)
        for source in folders:
            shutil.copytree(source, root / str(source).lstrip("/"), symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns("bitcode", "llvmjit*"))
        for library in _libraries([*copied.values(), *(home.parent.glob("lib/plpgsql.so") if home else ())]):
            place = root / str(library).lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(library.resolve(), place)
        (root / "entry").write_text(entry)
        (root / "entry").chmod(0o755)
        archive = root.with_suffix(".tar")
        try:
            subprocess.run(["tar", "-C", str(root), "-cf", str(archive), "."], check=True)
            path = f"{home}:/bin" if home else "/bin"
            changes = ("--change", 'ENTRYPOINT ["/entry"]', "--change", f"ENV PATH={path}")
            subprocess.run(["podman", "import", *changes, str(archive), name], capture_output=True, check=True)
        finally:
            archive.unlink(missing_ok=True)
    return name


def _found(command: str) -> Path:
    found = shutil.which(command)
    if not found:
        raise PartMissing(f"{command} is not installed: scripts/install-proxies")
    return Path(found)


def _libraries(programs: Iterable[Path]) -> set[Path]:
    """What the loader loads for them, the loader itself included."""
    found: set[Path] = set()
    for program in programs:
        said = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False).stdout
        found |= {Path(p) for p in re.findall(r"(?:=> |^\s)(/\S+) \(0x", said, re.MULTILINE)}
    return found
