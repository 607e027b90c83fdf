"""Will the next step still fit before the job ends? Pure arithmetic on what was measured."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

_RECENT_STEPS = 128
_RECENT_SAVES = 5
_SAVE_SLACK = 1.5
_STEP_SLACK = 1.1
MARGIN_S = 2.0
UNKNOWN_SAVE_S = 10.0


def upper_s(recent: Sequence[float]) -> float:
    """A duration that 95 of 100 recent ones stayed below, plus 10 %. A single outlier among many does not count."""
    ordered = sorted(recent)
    return ordered[min(len(ordered) - 1, math.ceil(0.95 * len(ordered)) - 1)] * _STEP_SLACK


@dataclass(slots=True)
class Pace:
    """Recent durations in seconds: of steps, of what comes after an epoch's last step (evaluation), and of saves.

    `unknown_save_s` stands for a save that was never measured, e.g. half of the job's grace period.
    """

    unknown_save_s: float = UNKNOWN_SAVE_S
    _steps: deque[float] = field(default_factory=lambda: deque[float](maxlen=_RECENT_STEPS))
    _tails: deque[float] = field(default_factory=lambda: deque[float](maxlen=_RECENT_SAVES))
    _saves: deque[float] = field(default_factory=lambda: deque[float](maxlen=_RECENT_SAVES))

    def note_step(self, duration_s: float) -> None:
        self._steps.append(duration_s)

    def note_epoch_tail(self, duration_s: float) -> None:
        """From the end of an epoch's last step to the end of the epoch: evaluation and whatever else is done there."""
        self._tails.append(duration_s)

    def note_save(self, duration_s: float) -> None:
        self._saves.append(duration_s)

    @property
    def step_s(self) -> float | None:
        """The median of recent steps, None before the first."""
        return median(self._steps) if self._steps else None

    @property
    def save_s(self) -> float:
        """What to reserve for one save: the slowest recent one with half as much again."""
        return max(self._saves) * _SAVE_SLACK if self._saves else self.unknown_save_s

    @property
    def known(self) -> bool:
        """Whether steps and saves were both measured."""
        return bool(self._steps and self._saves)

    def next_s(self, *, epoch_tail: bool) -> float:
        """What the next stretch may take: one step, and the epoch's tail after it. 0 for what was never measured: try it."""
        step_s = upper_s(self._steps) if self._steps else 0.0
        return step_s + upper_s(self._tails) if epoch_tail and self._tails else step_s

    def fits(self, now_s: float, deadline_s: float | None, *, epoch_tail: bool = False) -> bool:
        """True when the next stretch and a save end `MARGIN_S` before the deadline (same clock as `now_s`)."""
        if deadline_s is None:
            return True
        return now_s + self.next_s(epoch_tail=epoch_tail) + self.save_s + MARGIN_S <= deadline_s

    def to_state(self) -> dict[str, Any]:
        """Plain numbers to travel in a checkpoint, so that the next incarnation need not learn from nothing."""
        return {"steps": list(self._steps)[-16:], "tails": list(self._tails), "saves": list(self._saves)}

    def load_state(self, state: dict[str, Any]) -> None:
        """Take over what an earlier incarnation measured (perhaps on another node type: own figures soon outnumber it)."""
        for recent, key in ((self._steps, "steps"), (self._tails, "tails"), (self._saves, "saves")):
            recent.extend(float(value) for value in state.get(key, ()))
