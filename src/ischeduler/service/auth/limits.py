"""How often one may ask: a token bucket for each principal (or address), in this process's memory."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from dataclasses import dataclass

from ischeduler.core.errors import IschedError


class TooMany(IschedError):
    """Asked too often. ``retry_s`` is when the next request would be answered."""

    def __init__(self, retry_s: float) -> None:
        super().__init__(f"you ask too often; try again in {math.ceil(retry_s)} s.")
        self.retry_s = retry_s


@dataclass(slots=True)
class _Bucket:
    level: float
    at: float


class Buckets:
    """``rate`` tokens a second drip into each bucket of ``burst``. Beyond ``most`` buckets the least used are forgotten."""

    def __init__(self, rate: float, burst: float, *, most: int = 20_000) -> None:
        self._rate, self._burst, self._most = rate, burst, most
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, who: str, now: float, cost: float = 1.0) -> float:
        """Take ``cost`` tokens and return how many are left. TooMany when there are not that many."""
        if self._rate <= 0:
            return math.inf
        with self._lock:
            bucket = self._buckets.pop(who, None) or _Bucket(self._burst, now)
            level = min(self._burst, bucket.level + max(0.0, now - bucket.at) * self._rate)
            enough = level >= cost
            bucket.level, bucket.at = (level - cost if enough else level), now
            self._buckets[who] = bucket
            if len(self._buckets) > self._most:
                self._buckets.popitem(last=False)
        if not enough:
            raise TooMany((cost - level) / self._rate)
        return bucket.level
