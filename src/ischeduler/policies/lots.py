"""Lots from a seed: the same stream as ``random.Random(seed)``, held as a position, so that a policy that draws stays a pure function."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray


@lru_cache(maxsize=32)
def _words(seed: int, size: int) -> NDArray[np.uint32]:
    """The first ``size`` 32-bit words of the Mersenne twister that CPython seeds with ``seed`` (0 <= seed < 2**32)."""
    return np.random.RandomState([seed]).randint(0, 1 << 32, size, dtype=np.uint32)


@dataclass(frozen=True, slots=True)
class Lots:
    """``position`` words of the stream are spent. Every draw gives what was drawn and the lots that are left."""

    seed: int
    position: int = 0

    def below(self, n: int) -> tuple[int, Lots]:
        """A whole number in [0, n), n >= 1, as ``random.Random.randrange(n)`` draws it."""
        bits, at = n.bit_length(), self.position
        while True:
            drawn = int(_words(self.seed, 1 << max(10, (at + 1).bit_length()))[at]) >> (32 - bits)
            at += 1
            if drawn < n:
                return drawn, Lots(self.seed, at)

    def two(self, n: int) -> tuple[int, int, Lots]:
        """Two different places in [0, n), n >= 2, as ``random.Random.sample(range(n), 2)`` draws them."""
        first, lots = self.below(n)
        if n <= 21:
            second, lots = lots.below(n - 1)
            return first, n - 1 if second == first else second, lots
        second = first
        while second == first:
            second, lots = lots.below(n)
        return first, second, lots
