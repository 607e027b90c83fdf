"""Small pools for tests: throughputs of a few job types on three accelerator types, and seeded jobs."""

from __future__ import annotations

import random

from ischeduler.policies.problem import Accelerators, Throughputs
from ischeduler.simulator.pools.readers import throughputs_of
from ischeduler.simulator.pools.workload import JobRow, Workload

SPEEDS = {"quick": (1.0, 3.0, 9.0), "even": (4.0, 4.5, 5.0), "picky": (0.0, 2.0, 7.0), "slow": (0.5, 0.7, 1.1)}
TYPES = ("k80", "p100", "v100")


def table() -> Throughputs:
    """Alone on 1 and 2 accelerators, scattered, and in pairs."""
    raw: dict[str, dict[str, dict[str, object]]] = {}
    for k, kind in enumerate(TYPES):
        raw[kind], raw[f"{kind}_unconsolidated"] = {}, {}
        for name, speed in SPEEDS.items():
            for size in (1, 2):
                rate = speed[k] * (1 if size == 1 else 1.8)
                cell: dict[str, object] = {"null": rate}
                for other in SPEEDS:
                    cell[f"('{other}', {size})"] = [0.6 * rate, 0.6 * SPEEDS[other][k] * (1 if size == 1 else 1.8)]
                raw[kind][f"('{name}', {size})"] = cell
                raw[f"{kind}_unconsolidated"][f"('{name}', {size})"] = {"null": 0.7 * rate}
    return throughputs_of(raw, "a test")


def cluster(per_node: int = 2) -> Accelerators:
    """Two of each type."""
    return Accelerators.of({"v100": 2, "p100": 2, "k80": 2}, per_node=per_node)


def jobs(count: int, seed: int = 0, *, several: bool = False, gap_s: float = 900.0) -> Workload:
    """Seeded jobs of some hours each."""
    lot = random.Random(seed)
    rows, at = [], 0.0
    for number in range(count):
        name = lot.choice(list(SPEEDS))
        rows.append(JobRow(f"j{number}", name, lot.choice((1, 1, 2)) if several else 1, at, lot.uniform(400, 30_000) * SPEEDS[name][2] / 5))
        at += lot.expovariate(1 / gap_s) if gap_s else 0.0
    return Workload.of(rows, table())
