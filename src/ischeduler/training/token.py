"""Tokens and the fence: which incarnation of a run may still publish (see docs/in-job-protocol.md)."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ischeduler.training.files import write_atomic

_TOKEN = re.compile(r"(\d{1,9})\.(\d{1,9})")


@dataclass(frozen=True, order=True, slots=True)
class Token:
    """`ATTEMPT.RESTART`; compares as a pair of integers, so a newer incarnation is always greater."""

    attempt: int
    restart: int = 0

    def __str__(self) -> str:
        return f"{self.attempt}.{self.restart}"

    @classmethod
    def parse(cls, text: str) -> Token:
        """Read `3.0`. Raises ValueError on anything else."""
        match = _TOKEN.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"'{text.strip()[:40]}' is not a token such as 3.0 (ATTEMPT.RESTART).")
        return cls(int(match[1]), int(match[2]))

    @classmethod
    def try_parse(cls, text: str) -> Token | None:
        """Like `parse`, but None where the text is no token (a foreign file in the run's directory)."""
        try:
            return cls.parse(text)
        except ValueError:
            return None


def restart_count(environ: Mapping[str, str]) -> int:
    """How often Slurm itself requeued this job; 0 where unset or not a number."""
    text = environ.get("SLURM_RESTART_COUNT", "0")
    return int(text) if text.isdigit() else 0


def read_fence(run_dir: Path) -> Token | None:
    """The newest token seen: the larger of the `fence` file and of all claims.

    Claims are created once and never removed, so the answer can only go up, even when two
    incarnations rewrote the fence file in the same instant. Raises OSError when the directory
    cannot be read; a missing or torn fence file counts as none.
    """
    tokens = _claimed(run_dir)
    written = written_fence(run_dir)
    if written is not None:
        tokens.append(written)
    return max(tokens, default=None)


def raise_fence(run_dir: Path, token: Token) -> Token:
    """Lift the fence to `token` unless it is already higher; returns the fence that now holds. Raises OSError."""
    written = written_fence(run_dir)
    if written is None or written < token:
        write_atomic(run_dir / "fence", f"{token}\n".encode())
    return max(token, read_fence(run_dir) or token)


def written_fence(run_dir: Path) -> Token | None:
    """The `fence` file's token alone, claims left out: what a service yields to. None where missing or torn; raises OSError."""
    try:
        return Token.try_parse((run_dir / "fence").read_text("ascii", errors="replace"))
    except FileNotFoundError:
        return None


def _claimed(run_dir: Path) -> list[Token]:
    attempts = run_dir / "attempts"
    try:
        names = os.listdir(attempts)
    except FileNotFoundError:
        return []
    tokens = [token for token in map(Token.try_parse, names) if token is not None]
    return [token for token in tokens if (attempts / str(token) / "claim").exists()]
