"""A made-up trace of any length: seeded, so that the same numbers give the same jobs.

The shapes follow what production logs have in common (Lublin and Feitelson, JPDC 63(11), 2003; Tsafrir, Etsion and Feitelson,
JSSPP 2005): sizes that favour powers of two and single units, lognormal run times that grow with size, arrivals with a daily cycle,
and users who ask for a round walltime well above what they use.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ischeduler.core.errors import BadInput
from ischeduler.simulator.trace import Trace, make_trace

ROUND_LIMITS_S = np.array([600, 1800, 3600, 7200, 14400, 28800, 43200, 86400, 172800, 259200])
DAY_S = 86400.0


def synthetic_trace(jobs: int, nodes: int, *, seed: int = 0, load: float = 0.85, users: int = 200) -> Trace:
    """``jobs`` jobs that together ask for ``load`` of a machine of ``nodes`` units from the first to the last submission."""
    if jobs < 1 or nodes < 1 or users < 1 or load <= 0:
        raise BadInput(f"A trace of {jobs} jobs by {users} users on {nodes} nodes at load {load:g} cannot be made; all must be positive.")
    rng = np.random.default_rng(seed)
    units = _sizes(rng, jobs, nodes)
    run = np.clip(rng.lognormal(7.0, 1.7, jobs) * units**0.15, 10, ROUND_LIMITS_S[-1]).astype(np.int64)
    asked = run / rng.beta(1.2, 1.0, jobs).clip(0.05)
    limit = ROUND_LIMITS_S[np.searchsorted(ROUND_LIMITS_S, asked.clip(max=ROUND_LIMITS_S[-1]))]
    span = float((units * np.minimum(run, limit)).sum()) / (nodes * load)
    columns = {
        "job_id": np.arange(1, jobs + 1), "submit_s": _arrivals(rng, jobs, span), "units": units, "run_s": run, "limit_s": limit,
        "user": (np.minimum(rng.zipf(1.3, jobs), users).astype(np.int32) - 1, [f"user{i}" for i in range(users)]),
    }  # fmt: skip
    return make_trace(f"synthetic, {jobs:,} jobs, seed {seed}", columns, capacity=nodes)


def _sizes(rng: np.random.Generator, jobs: int, nodes: int) -> Any:
    """A third single units, most of the rest powers of two, none wider than a quarter of the machine."""
    widest = max(1.0, np.log2(max(1, nodes // 4)))
    exponent = rng.uniform(0, widest, jobs) * rng.beta(1.5, 2.5, jobs)
    size = np.where(rng.random(jobs) < 0.7, 2 ** np.round(exponent), np.round(2**exponent))
    return np.clip(np.where(rng.random(jobs) < 0.33, 1, size), 1, max(1, nodes)).astype(np.int64)


def _arrivals(rng: np.random.Generator, jobs: int, span_s: float) -> Any:
    """Sorted submissions over the span: Poisson, twice as dense at 14:00 as in the small hours."""
    even = np.sort(rng.uniform(0, span_s, jobs))
    bent = even + 0.3 * DAY_S / (2 * np.pi) * np.sin(2 * np.pi * (even / DAY_S - 14 / 24))
    return np.sort(np.maximum(bent, 0)).astype(np.int64)
