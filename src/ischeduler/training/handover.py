"""A successor that starts while its predecessor still trains asks it to save and to leave, and only then takes over.

So an early start costs one checkpoint and not the steps since the last one. Asked for by the plane (`ISCHED_HANDOVER_S`, the longest wait);
a predecessor that is gone, or says nothing any more, is not waited for. The fence follows in any case.

One that starts too early by far (before `ISCHED_KEEP_FROM`, epoch seconds by the batch system's clock, or told to `return` since) asks for
nothing and writes nothing: it gives its allocation back, and the predecessor goes on.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path

from ischeduler.training.context import number
from ischeduler.training.files import say
from ischeduler.training.rundir import RunDir
from ischeduler.training.token import Token

QUIET_S = 90.0
"""Three heartbeats."""
_LOOK_S = 0.5
_LEADER_S = 15.0
_TAIL_BYTES = 16384


def gives_back(run_dir: RunDir, token: Token, environ: Mapping[str, str], *, leads: bool) -> bool:
    """Whether the job started too early by far, beside a predecessor that trains: then it is to end at once. Writes nothing.

    The leading process decides. The others follow it: one that stays claims, or asks the predecessor to stop, within seconds.
    """
    keep_from = number(environ, "ISCHED_KEEP_FROM")
    if keep_from is None:
        return False
    try:
        told = run_dir.read_standby(token)
    except OSError:
        told = None
    if told == "stay" or (told is None and time.time() >= keep_from):
        return False
    try:
        older = _training_before(run_dir, token)
        if older is None or not (leads or _nobody_stays(run_dir, token, older)):
            return False
    except OSError as error:
        say(f"whether the predecessor still trains cannot be seen ({error.strerror}: {error.filename}): this job stays")
        return False
    say(f"attempt {token} started long before {older} ends, which still trains: it gives its allocation back")
    return True


def _training_before(run_dir: RunDir, token: Token) -> Token | None:
    """The newest incarnation, when it is of an earlier attempt, has not left and has written to its spool of late."""
    older = _newest_claimed(run_dir, token)
    if older is None or older.attempt == token.attempt or _has_left(run_dir.spool(older)):
        return None
    spool = run_dir.spool(older)
    return older if spool.exists() and abs(time.time() - spool.stat().st_mtime) <= QUIET_S else None


def _nobody_stays(run_dir: RunDir, token: Token, older: Token) -> bool:
    end_s = time.monotonic() + _LEADER_S
    while time.monotonic() < end_s:
        if (run_dir.attempt(token) / "claim").exists() or run_dir.read_control(older) == "stop":
            return False
        time.sleep(_LOOK_S)
    return True


def relieve(run_dir: RunDir, token: Token, environ: Mapping[str, str]) -> bool:
    """Ask the newest older incarnation to stop and wait until it has; False where there was none to wait for, or it did not stop."""
    longest_s = number(environ, "ISCHED_HANDOVER_S")
    if not longest_s or longest_s <= 0:
        return False
    try:
        older = _newest_claimed(run_dir, token)
        if older is None or _has_left(run_dir.spool(older)):
            return False
        run_dir.write_control(older, "stop")
    except OSError as error:
        say(f"the predecessor cannot be asked to hand over ({error.strerror}: {error.filename})")
        return False
    say(f"attempt {token} waits for {older} to save and leave")
    left = _await(run_dir.spool(older), longest_s)
    say(f"attempt {older} has {'handed over' if left else 'not left in time and is superseded'}")
    return left


def _newest_claimed(run_dir: RunDir, token: Token) -> Token | None:
    older = [t for t in run_dir.tokens() if t < token and (run_dir.attempt(t) / "claim").exists()]
    return max(older, default=None)


def _await(spool: Path, longest_s: float) -> bool:
    end_s = time.monotonic() + longest_s
    size, quiet_since_s = -1, time.monotonic()
    while time.monotonic() < end_s:
        if _has_left(spool):
            return True
        now_size = _size(spool)
        if now_size != size:
            size, quiet_since_s = now_size, time.monotonic()
        elif time.monotonic() - quiet_since_s > QUIET_S:
            return False
        time.sleep(_LOOK_S)
    return False


def _size(spool: Path) -> int:
    try:
        return spool.stat().st_size
    except OSError:
        return -1


def _has_left(spool: Path) -> bool:
    """Whether the spool's last word is its wrapper's `exit`. A spool that cannot be read says nothing."""
    try:
        with spool.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            lines = file.read().splitlines()
    except OSError:
        return False
    for line in reversed(lines):
        try:
            return json.loads(line).get("kind") == "exit"
        except (ValueError, AttributeError):
            continue  # torn
    return False
