"""Memory as a straight line in the batch size: enough to say which batch would fit instead."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MemoryModel:
    """``fixed_bytes`` (weights, gradients, optimizer state, context) plus ``per_sample_bytes`` (activations) a sample."""

    fixed_bytes: float
    per_sample_bytes: float

    @classmethod
    def through(cls, measured: Mapping[int, float]) -> MemoryModel | None:
        """The line through the smallest and the largest of several batch sizes' needs; None where they show no growth."""
        if len(measured) < 2:
            return None
        low, high = min(measured), max(measured)
        slope = (measured[high] - measured[low]) / (high - low)
        return cls(measured[low] - slope * low, slope) if slope > 0 else None

    def at(self, batch_size: int) -> float:
        """Bytes needed at a batch size."""
        return self.fixed_bytes + self.per_sample_bytes * batch_size

    def passing(self, batch_size: int, need_bytes: float) -> MemoryModel:
        """The same shape, scaled so that it needs ``need_bytes`` at ``batch_size`` (an estimate's p90, say)."""
        here = self.at(batch_size)
        factor = need_bytes / here if here > 0 else 1.0
        return MemoryModel(self.fixed_bytes * factor, self.per_sample_bytes * factor)

    def largest_batch(self, have_bytes: float) -> int:
        """The largest batch size that fits, 0 where none does. ValueError where memory does not grow with the batch."""
        if self.per_sample_bytes <= 0:
            raise ValueError("this model's memory does not grow with the batch size")
        guess = max(0, math.floor((have_bytes - self.fixed_bytes) / self.per_sample_bytes + 1e-9))
        return guess if guess == 0 or self.at(guess) <= have_bytes else guess - 1

    def accumulation_that_fits(self, batch_size: int, have_bytes: float) -> int | None:
        """The fewest equal parts of ``batch_size`` that fit one at a time, or None where not even one sample fits."""
        largest = self.largest_batch(have_bytes)
        if largest < 1:
            return None
        return next(k for k in range(1, batch_size + 1) if batch_size % k == 0 and batch_size // k <= largest)
