"""What waits are like at a site nobody has learned from: by whether the job fits what is free, how much is pending, how large it is. Pure.

Quantiles of four public traces, each counting the same: Lonestar6 A100 nodes 2022-23 (CC BY 4.0), KTH SP2, Theta 2022, MetaCentrum wagap 2013.
Print them with ``python -m benchmarks.wait --prior``. Foretold for each of these from the other three, their logarithms mixed with the
replayed queue's (:data:`SHARE`) lose less (mean pinball 1.00) than the replayed queue alone (1.46) or the prior alone (1.02).
"""

from __future__ import annotations

import math
from bisect import bisect_right

SHARE = 0.7
"""How much the prior counts against the replayed queue, where nothing was learned."""
LOADS = (0.25, 1.0, 4.0)
"""Pending units over the partition's: nothing pending, then up to each of these, then more."""
SIZES = (0.02, 0.1)
"""Units asked for over the partition's: up to each of these, then more."""
Waits = tuple[float, float, float]
FITS: tuple[tuple[Waits, ...], ...] = (
    ((1, 1, 60), (1, 1, 2100), (1, 60, 54000), (1, 610, 81000), (1, 4500, 190000)),
    ((1, 1, 300), (1, 1, 7600), (1, 290, 60000), (1, 1600, 78000), (60, 22000, 160000)),
    ((1, 1, 180), (1, 1, 2600), (1, 180, 45000), (1, 1500, 87000), (61, 48000, 330000)),
)  # fmt: skip
"""p10, p50, p90 in seconds where enough is free at that moment: a row a size, a column a load."""
FULL: tuple[tuple[Waits, ...], ...] = (
    ((33, 4900, 22000), (33, 4900, 22000), (33, 4900, 29000), (640, 27000, 150000), (7500, 76000, 390000)),
    ((23, 4900, 43000), (87, 4900, 43000), (93, 9600, 52000), (2000, 24000, 130000), (4000, 37000, 230000)),
    ((33, 4400, 22000), (60, 4400, 25000), (220, 14000, 55000), (2200, 35000, 170000), (14000, 110000, 480000)),
)  # fmt: skip
"""The same where it is not."""


def prior_wait(free: float, whole: float, need: float, pending: float) -> Waits:
    """p10, p50, p90 in seconds for ``need`` units of ``whole``, ``free`` of them idle, with jobs for ``pending`` units waiting."""
    load = 0 if pending <= 0 else 1 + bisect_right(LOADS, pending / max(1.0, whole))
    size = bisect_right(SIZES, need / max(1.0, whole))
    return (FITS if need <= free else FULL)[size][load]


def mixed(replayed: Waits, prior: Waits, share: float = SHARE) -> Waits:
    """Their geometric mean, quantile by quantile."""
    low, middle, high = (math.exp(share * math.log(max(1.0, p)) + (1 - share) * math.log(max(1.0, r))) for p, r in zip(prior, replayed, strict=True))
    return low, max(low, middle), max(low, middle, high)
