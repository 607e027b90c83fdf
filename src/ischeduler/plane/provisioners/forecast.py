"""What is known of the wait of a job that would be queued now: data, made elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Forecast:
    """Quantiles of the wait in seconds: ``waits_s[i]`` at ``levels[i]``, both growing; ``mean_s`` the mean of recent waits.

    ``as_of`` is when it was made (epoch seconds), ``source`` by whom.
    """

    as_of: float
    levels: tuple[float, ...] = ()
    waits_s: tuple[float, ...] = ()
    mean_s: float | None = None
    source: str = ""

    def __post_init__(self) -> None:
        if len(self.levels) != len(self.waits_s):
            raise ValueError(f"{len(self.levels)} levels for {len(self.waits_s)} waits from {self.source}")
        for row in (self.levels, self.waits_s):
            if any(b < a for a, b in pairwise(row)):
                raise ValueError(f"levels or waits out of order from {self.source}: {row}")

    def wait_s(self, level: float) -> float | None:
        """The wait at a level, straight between the given ones and flat beyond them; None without any."""
        if not self.levels:
            return None
        if level <= self.levels[0]:
            return self.waits_s[0]
        for i in range(1, len(self.levels)):
            if level <= self.levels[i]:
                low, high = self.levels[i - 1], self.levels[i]
                share = (level - low) / (high - low) if high > low else 1.0
                return self.waits_s[i - 1] + (share * (self.waits_s[i] - self.waits_s[i - 1]) if share else 0.0)
        return self.waits_s[-1]


def smoothed(forecasts: Sequence[Forecast]) -> Forecast:
    """The newest forecast with its waits averaged over several looks of the same levels.

    A noisy forecast asked again every few minutes crosses any threshold too early; the mean over the last looks does not.
    """
    if not forecasts:
        raise ValueError("nothing to average")
    newest = forecasts[-1]
    alike = [f for f in forecasts if f.levels == newest.levels]
    waits = tuple(sum(w) / len(alike) for w in zip(*(f.waits_s for f in alike), strict=True))
    return replace(newest, waits_s=waits)
