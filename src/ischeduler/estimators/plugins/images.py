"""Images of plug-ins: import, build, export, push through podman or docker."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ischeduler.core.errors import IschedError, NotFound
from ischeduler.estimators.runtimes.engines import NOBODY, PATH_INSIDE
from ischeduler.estimators.runtimes.words import clean, last_line

SYSTEM_ROOTFS = Path("/var/lib/ischeduler/estimators")
"""Where root unpacks: nobody must be able to read it, and root's own folders are closed."""
_SECONDS = 600.0


def run_engine(argv: Sequence[str], *, input_path: Path | None = None, seconds: float = _SECONDS) -> str:
    """What it printed. IschedError with its own last words when it fails."""
    with open(input_path or os.devnull, "rb") as source:
        try:
            done = subprocess.run(argv, stdin=source, capture_output=True, timeout=seconds, check=False)
        except (OSError, subprocess.SubprocessError) as error:
            raise IschedError(f"{argv[0]} {argv[1]} failed: {clean(error)}.") from None
    if done.returncode != 0:
        raise IschedError(f"{argv[0]} {argv[1]} failed: {last_line(done.stderr.decode(errors='replace')) or 'no reason given'}.")
    return done.stdout.decode(errors="replace").strip()


def import_archive(program: str, archive: Path, digest: str, command: Sequence[str], environment: Mapping[str, str]) -> str:
    """The id of an image made of a root file system; one made of the same archive for the same command is taken again."""
    tag = digest_tag(digest, command, environment)
    with contextlib.suppress(NotFound):
        return image_id(program, tag)
    changes = [f"ENV PATH={PATH_INSIDE}", *(f"ENV {k}={v}" for k, v in environment.items()), f"USER {NOBODY}:{NOBODY}",
               "WORKDIR /", f"ENTRYPOINT {json.dumps(list(command))}"]
    flags = [word for change in changes for word in ("--change", change)]
    run_engine([program, "import", *flags, "-", tag], input_path=archive)
    return image_id(program, tag)


def digest_tag(digest: str, command: Sequence[str], environment: Mapping[str, str]) -> str:
    """The local name of the image made of an archive and started by that command."""
    started = hashlib.sha256(json.dumps([list(command), sorted(environment.items())]).encode()).hexdigest()
    return f"localhost/isched-estimator/{digest.removeprefix('sha256:')[:24]}:{started[:12]}"


def image_id(program: str, reference: str) -> str:
    """``sha256:HEX`` of an image that is here. NotFound with a sentence otherwise."""
    return _inspect(program, reference)["id"]


def image_config(program: str, reference: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """An image's own command (entry point and arguments) and its variables."""
    config = _inspect(program, reference)["config"]
    command = (*(config.get("Entrypoint") or ()), *(config.get("Cmd") or ()))
    variables: dict[str, str] = {}
    for entry in config.get("Env") or ():
        key, _, value = str(entry).partition("=")
        variables[key] = value
    return tuple(str(word) for word in command), variables


def _inspect(program: str, reference: str) -> dict[str, Any]:
    try:
        found = json.loads(run_engine([program, "image", "inspect", reference], seconds=60))[0]
    except (IschedError, ValueError, IndexError):
        raise NotFound(
            f"{program} has no image '{clean(reference, 120)}'; pull or build it first ({program} pull, isched estimator build)."
        ) from None
    digest = str(found["Id"])
    return {"id": digest if ":" in digest else f"sha256:{digest}", "config": found.get("Config") or {}}


def export_image(program: str, reference: str, target: Path) -> None:
    """Write an image's root file system as a tar archive."""
    container = run_engine([program, "create", "--pull", "never", "--network", "none", reference]).splitlines()[-1]
    scratch = target.with_suffix(".tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        run_engine([program, "export", "--output", str(scratch), container])
        scratch.replace(target)
    finally:
        run_engine([program, "rm", "--force", container])


def remove_image(program: str, reference: str) -> None:
    """Take an image away; one that is gone, or in use elsewhere, is no error."""
    with contextlib.suppress(IschedError):
        run_engine([program, "rmi", reference], seconds=60)


def rootfs_folder(own: Path) -> Path:
    """Where root file systems are unpacked: the user's plug-in folder; for root a system folder."""
    return SYSTEM_ROOTFS if os.geteuid() == 0 else own / "rootfs"
