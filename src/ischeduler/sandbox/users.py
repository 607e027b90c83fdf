"""Ordinary operating-system users that belong to one sandbox and go with it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from ischeduler.sandbox import host
from ischeduler.sandbox.errors import SandboxError

PREFIX = "isb-"
UID_MIN, UID_MAX = 61200, 62999
"""Between Debian's ordinary users (to 59999) and its reserved ids (64000 and up), outside systemd's ranges."""

_SHARED_DIRECTORIES = (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"))


def system_name(user: str, sandbox: str) -> str:
    """``isb-alice-demo``: what the operating system and Slurm call ``alice`` of the sandbox ``demo``."""
    return f"{PREFIX}{user}-{sandbox}"


def create(name: str, home: Path) -> None:
    """Makes the user with that home directory, or keeps the one that is there from before.

    Raises SandboxError when a user of that name belongs to something else.
    """
    known = find(name)
    if known is None:
        _useradd(name, home)
    elif Path(known.pw_dir) != home:
        raise SandboxError(f"the user {name} exists with the home {known.pw_dir}; it is not this sandbox's, remove or rename it.")
    entry = pwd.getpwnam(name)
    home.mkdir(mode=0o755, parents=True, exist_ok=True)
    os.chown(home, entry.pw_uid, entry.pw_gid)


def find(name: str) -> pwd.struct_passwd | None:
    """The user's passwd entry; None when there is none."""
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None


def belonging_to(home: Path) -> list[pwd.struct_passwd]:
    """Users of ours (by prefix and uid range) whose home lies directly below ``home``."""
    return [u for u in pwd.getpwall() if _is_ours(u) and Path(u.pw_dir).parent == home]


def remove(user: pwd.struct_passwd) -> None:
    """Deletes the user and what it left in /tmp, /var/tmp and /dev/shm; the uid may be given to another user later."""
    if not _is_ours(user):
        raise SandboxError(f"{user.pw_name} is not a sandbox user; it is left alone.")
    for directory in _SHARED_DIRECTORIES:
        _sweep(directory, user.pw_uid)
    with _account_files():
        _command("userdel", "--force", user.pw_name)


def _is_ours(user: pwd.struct_passwd) -> bool:
    return user.pw_name.startswith(PREFIX) and UID_MIN <= user.pw_uid <= UID_MAX


def _useradd(name: str, home: Path) -> None:
    ranges = [f"{kind}_{edge}={value}" for kind in ("UID", "GID") for edge, value in (("MIN", UID_MIN), ("MAX", UID_MAX))]
    keys = [word for setting in ranges for word in ("--key", setting)]
    with _account_files():
        _command("useradd", "--no-create-home", "--home-dir", str(home), "--shell", "/bin/bash", "--user-group",
                 "--comment", "iScheduler sandbox user", *keys, name)  # fmt: skip


def _command(program: str, *arguments: str) -> None:
    done = subprocess.run([host.program(program), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SandboxError(f"{program} failed ({done.stderr.strip() or done.returncode}); look at /etc/passwd and its lock.")


@contextlib.contextmanager
def _account_files() -> Iterator[None]:
    """useradd gives up when another one runs; sandboxes that start at once take turns instead.

    The lock is on the directory /etc itself, so that no lock file is left behind.
    """
    descriptor = os.open("/etc", os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _sweep(directory: Path, uid: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(directory):
            if entry.stat(follow_symlinks=False).st_uid != uid:
                continue
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                os.unlink(entry.path)
