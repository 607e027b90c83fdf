"""Writing files so that a crash at any instant leaves the old content or the new, never a mixture."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

TEMP_PREFIX = ".tmp-"


def write_atomic(path: Path, data: bytes) -> None:
    """Replace `path` by `data`: temporary file, fsync, rename, fsync of the directory. Raises OSError, leaving no litter."""
    temp = path.with_name(f"{TEMP_PREFIX}{path.name}-{os.getpid()}")
    try:
        with open(temp, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temp, path)
    except BaseException:
        remove_quietly(temp)
        raise
    fsync_dir(path.parent)


def fsync_file(path: Path) -> None:
    """Force a finished file to stable storage. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_dir(path: Path) -> None:
    """Make a rename durable. File systems that cannot sync a directory (EINVAL) are taken as they are."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def remove_quietly(path: Path) -> bool:
    """Remove a file whose absence is just as good; True when it is gone. Never raises: it cleans up after real errors."""
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return False
    return True


def errno_of(error: BaseException | None) -> int | None:
    """The errno behind an error, looked for along its causes (frameworks wrap a full disk in a RuntimeError)."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, OSError) and error.errno is not None:
            return error.errno
        error = error.__cause__ or error.__context__
    return None


def say(message: str) -> None:
    """One line to stderr (the job's log). A closed or full log is no reason to stop training, so errors are dropped."""
    try:
        sys.stderr.write(f"ischeduler: {message}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        pass
