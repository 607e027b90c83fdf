"""Where a user's JSON web token for slurmrestd comes from: a file of mode 600, or a command that the administrator chose.

A token lets its bearer act as one Slurm user, so there is one for each user and never a shared one of root's. Tokens live in
memory only and travel in a header; they appear in no URL, command line, log or error.
"""

from __future__ import annotations

import base64
import json
import os
import re
import stat
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ischeduler.batch.commands import CommandMissing, CommandTimeout, LocalCommands, RunCommand
from ischeduler.core.errors import BadInput, BatchUnavailable, ConfigError
from ischeduler.ports import Clock

_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}\$?")
_JWT = re.compile(r"(?:^|SLURM_JWT=)([A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*)\s*$", re.MULTILINE)
_EARLY_SHARE, _EARLY_S = 0.2, 60.0
"""A token is renewed when a fifth of its life, or a minute, is left."""


class TokenSource(Protocol):
    """Gives a user's token. Never the same one again after :meth:`forget`, where there is a newer one."""

    def token(self, user: str) -> str:
        """A token that holds for a while yet. BatchUnavailable where none can be had now, ConfigError where none ever will."""
        ...

    def forget(self, user: str) -> None:
        """The server refused the last one."""
        ...


@dataclass(frozen=True, slots=True)
class Held:
    """A token in memory; its text is kept out of ``repr``."""

    text: str = field(repr=False)
    got_at: float
    expires_at: float | None

    def fresh(self, now: float) -> bool:
        """Whether it need not be renewed yet."""
        if self.expires_at is None:
            return True
        early_s = max(0.0, min(_EARLY_S, _EARLY_SHARE * (self.expires_at - self.got_at)))
        return now < self.expires_at - early_s


class FileTokens:
    """Tokens that somebody else keeps fresh (cron, a login helper), one file a user; ``{user}`` in the path is the user's name.

    The file is read again whenever it has changed. ConfigError when it is missing or others may read it.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._held: dict[str, tuple[int, str]] = {}

    def token(self, user: str) -> str:
        """The file's content."""
        path = Path(self._path.format(user=checked_user(user))).expanduser()
        try:
            status = path.stat()
            held = self._held.get(user)
            if held is None or held[0] != status.st_mtime_ns:
                held = self._held[user] = (status.st_mtime_ns, _read_closed(path))
        except OSError as error:
            raise ConfigError(
                f"the Slurm token of {user} cannot be read from {path} ({error.strerror}); write one there, mode 600."
            ) from None
        return held[1]

    def forget(self, user: str) -> None:
        """Read it again next time."""
        self._held.pop(user, None)


class CommandTokens:
    """Tokens made by a command, such as ``scontrol token username={user} lifespan={lifespan_s}``, which needs SlurmUser's rights.

    The command is an argument list and is run without a shell. A token is kept until shortly before it expires.
    """

    def __init__(
        self, argv: Sequence[str], clock: Clock, *, lifespan_s: int = 3600, run_command: RunCommand | None = None
    ) -> None:
        if not argv or not any("{user}" in word for word in argv):
            raise ConfigError("the command that makes Slurm tokens must name {user}, e.g. scontrol token username={user}.")
        self._argv, self._clock, self._lifespan_s = tuple(argv), clock, lifespan_s
        self._run = run_command or LocalCommands()
        self._held: dict[str, Held] = {}
        self._lock = threading.Lock()

    def token(self, user: str) -> str:
        """The token held, or a new one."""
        checked_user(user)
        with self._lock:
            held = self._held.get(user)
            if held is None or not held.fresh(self._clock.now()):
                held = self._held[user] = self._make(user)
            return held.text

    def forget(self, user: str) -> None:
        """Make another next time."""
        with self._lock:
            self._held.pop(user, None)

    def _make(self, user: str) -> Held:
        argv = [word.replace("{user}", user).replace("{lifespan_s}", str(self._lifespan_s)) for word in self._argv]
        try:
            answer = self._run(argv, timeout_s=20.0)
        except (CommandMissing, CommandTimeout) as problem:
            raise BatchUnavailable(f"no Slurm token for {user}: {problem}.") from None
        found = _JWT.search(answer.out) if answer.code == 0 else None
        if found is None:
            said = answer.complaint if answer.code else "it printed no token"
            raise BatchUnavailable(f"no Slurm token for {user}: {argv[0]} failed ({said}).")
        now = self._clock.now()
        expires_at = expiry(found[1])
        return Held(found[1], now, now + self._lifespan_s if expires_at is None else expires_at)


def expiry(token: str) -> float | None:
    """When a JSON web token expires (epoch seconds), by its own word; None where it does not say. Nothing is verified here."""
    try:
        body = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        return float(claims["exp"])
    except (IndexError, KeyError, TypeError, ValueError):
        return None


def checked_user(user: str) -> str:
    """The user's name; BadInput for what no user is called, which would reach a path, a command or a header."""
    if not _USER.fullmatch(user):
        raise BadInput(f"{user!r} is not the name of a user; expected letters, digits, '_', '.' and '-'.")
    return user


def _read_closed(path: Path) -> str:
    with open(os.open(path, os.O_RDONLY), encoding="utf-8") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & 0o077:
            raise ConfigError(f"{path} has mode {mode:o}, others can read the token in it; run: chmod 600 {path}")
        found = _JWT.search(file.read())
    if found is None:
        raise ConfigError(f"{path} holds no JSON web token; write one there: scontrol token > {path}")
    return found[1]
