"""Reading a user's file for that user, from a process that may read more than they may."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Sequence
from pathlib import Path

from ischeduler.batch.run_files import open_beneath
from ischeduler.core.errors import NotFound

TAIL_BYTES = 256 * 1024


def read_tail(folder: Path, parts: Sequence[str], user: str, lines: int) -> str:
    """The last lines of ``folder/parts``, '' while there is no such file.

    Below ``folder`` no symbolic link is followed, and the file must be an ordinary one; where ``user`` is an account of this
    machine, and not the service's own, it must be that account's: a link planted in a run's directory leads nowhere. NotFound
    for all of these.
    """
    try:
        handle = open_beneath(folder, parts)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise NotFound(f"the output cannot be read: {error.strerror}.") from None
    info = os.fstat(handle)
    if not stat.S_ISREG(info.st_mode) or not _belongs(info.st_uid, user):
        os.close(handle)
        raise NotFound("the output cannot be read: it is no ordinary file of the run's owner.")
    with open(handle, "rb") as file:
        file.seek(max(0, info.st_size - TAIL_BYTES))
        text = file.read(TAIL_BYTES).decode("utf-8", "replace")
    return "\n".join(text.split("\n")[-lines - 1 :]) if text.endswith("\n") else "\n".join(text.split("\n")[-lines:])


def _belongs(uid: int, user: str) -> bool:
    try:
        account = pwd.getpwnam(user)
    except KeyError:
        return uid == os.getuid()
    return uid == account.pw_uid or (uid == os.getuid() and uid != 0)
