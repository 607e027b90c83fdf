"""Which checkpoints may be resumed. Pure: names and bases in, names in order of trust out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ischeduler.training.token import Token

_NAME = re.compile(r"e(\d{5,9})-s(\d{9,15})-t(\d{1,9})\.(\d{1,9})")


@dataclass(frozen=True, slots=True)
class CheckpointName:
    """`e{epoch:05d}-s{step:09d}-t{token}`: finished epochs, steps done in all, and who wrote it."""

    epoch: int
    step: int
    token: Token

    def __str__(self) -> str:
        return f"e{self.epoch:05d}-s{self.step:09d}-t{self.token}"

    @property
    def position(self) -> tuple[int, int]:
        """How far training was: steps first; finished epochs decide between the last step of an epoch and its end."""
        return self.step, self.epoch

    @classmethod
    def parse(cls, text: str) -> CheckpointName:
        """Raises ValueError when the text is not a checkpoint's name."""
        match = _NAME.fullmatch(text)
        if match is None:
            raise ValueError(f"'{text[:60]}' is not a checkpoint name such as e00003-s000000120-t1.0.")
        epoch, step, attempt, restart = map(int, match.groups())
        return cls(epoch, step, Token(attempt, restart))

    @classmethod
    def try_parse(cls, text: str) -> CheckpointName | None:
        """Like `parse`, but None for a foreign name."""
        try:
            return cls.parse(text)
        except ValueError:
            return None

    @classmethod
    def of_file(cls, entry: str) -> CheckpointName | None:
        """The checkpoint that a file in the folder belongs to (`NAME.pt`, `NAME.json`); None for a foreign file."""
        match = _NAME.match(entry)
        return cls.parse(match[0]) if match is not None and entry[match.end() :].startswith(".") else None


def lineage(names: Iterable[CheckpointName], bases: Mapping[Token, CheckpointName | None], me: Token) -> list[CheckpointName]:
    """Checkpoints that incarnation `me` may resume, best first.

    `bases` maps each incarnation that has written base.json to what it resumed from (None: from scratch).
    Start at `me` when it has a base already (its processes were restarted in place), else at the newest older
    incarnation with a base: all of its checkpoints count. Then follow bases; of each ancestor only what is not
    beyond its descendant's base counts. So a late checkpoint of a superseded incarnation is never taken.
    """
    by_token: dict[Token, list[CheckpointName]] = {}
    for name in names:
        by_token.setdefault(name.token, []).append(name)
    token = me if me in bases else max((t for t in bases if t < me), default=None)
    cut: tuple[int, int] | None = None
    found: list[CheckpointName] = []
    while token is not None:
        mine = [name for name in by_token.get(token, []) if cut is None or name.position <= cut]
        found += sorted(mine, key=lambda name: name.position, reverse=True)
        base = bases.get(token)
        if base is None or base.token >= token:  # the second cannot be written by us; it would loop
            break
        token, cut = base.token, base.position
    return found
