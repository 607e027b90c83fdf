"""Solvers of the allocation policies against general ones: CPU seconds, exactness, and the certified distance to the optimum.

    python -m benchmarks.solvers [--jobs 128,512,2048,8192,32768] [--seed 0] [--json]

Max-min over three types with distinct random throughputs (no two jobs alike, so merging identical ones does not help): ours compiled and its
NumPy twin, against cvxpy with ECOS and HiGHS, highspy's interior point, scipy's default. Ours is the best of five runs after one to warm
up, a peer's one run; a peer is left out beyond the size from which it takes many seconds. Exactness is against HiGHS's interior point
with crossover; beyond 8,192 jobs, and everywhere besides, a dual certificate: no allocation can reach more. Then Sia's integer programme.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import solvers_peers as peers
from benchmarks.report import Bar, finish
from ischeduler.policies import program
from ischeduler.policies.choice import choose
from ischeduler.policies.problem import Floats
from ischeduler.policies.program import Shares, raise_level

KINDS = 3
BARS_S = {2048: 0.020, 8192: 0.060, 32768: 0.300}
EXACT_TO = 1e-6
REFERENCE_UP_TO = 8192
PEERS: dict[str, tuple[int, Callable[[peers.MaxMin], float]]] = {
    "cvxpy+ECOS": (8192, lambda p: peers.cvxpy(p, "ECOS")),
    "cvxpy+HiGHS": (512, lambda p: peers.cvxpy(p, "HIGHS")),
    "highspy simplex": (512, lambda p: peers.highs(p, "simplex", "on")),
    "highspy IPM": (8192, lambda p: peers.highs(p, "ipm", "off")),
    "scipy highs": (512, peers.scipy_highs),
}
"""Name -> (largest number of jobs it is asked for, the call)."""


def certified(p: peers.MaxMin, found: Shares) -> float:
    """How far (relative) the level may be below the optimum, from its own prices alone; every share is checked to fit."""
    used = (found.share * p.size[:, None]).sum(axis=0)
    level = float((p.speed * found.share).sum(axis=1).min())
    if (found.share < 0).any() or (found.share.sum(axis=1) > 1 + 1e-9).any() or (used > p.count * (1 + 1e-9)).any():
        return float("inf")
    worth = np.maximum(found.worth, 0.0)
    value: Floats = (worth[:, None] * p.speed - p.size[:, None] * found.price).max(axis=1)
    bound = (float(found.price @ p.count) + float(np.maximum(value, 0.0).sum())) / float(worth.sum())
    return bound / level - 1.0


def linear(jobs: int, seed: int, metrics: dict[str, Any]) -> list[Bar]:
    """One size: ours, the peers, exactness; adds metrics and returns its bars."""
    p = peers.max_min(jobs, KINDS, seed)
    answers: list[Shares] = []

    def ours() -> float:
        answers.append(raise_level(p.speed, p.size, p.count))
        return float((p.speed * answers[-1].share).sum(axis=1).min())

    ours()
    best, level = peers.timed(ours, 5)
    metrics[f"max_min_{jobs}_cpu_s"] = best
    metrics[f"max_min_{jobs}_numpy_cpu_s"] = peers.timed(lambda: raise_level(p.speed, p.size, p.count, twin=True).level, 2)[0]
    metrics[f"max_min_{jobs}_certified"] = max(0.0, certified(p, answers[0]))
    bars = [Bar(f"max_min_{jobs}_certified", EXACT_TO)]
    if jobs <= REFERENCE_UP_TO:
        reference = peers.highs(p, "ipm", "on")
        metrics[f"max_min_{jobs}_off_highs"] = abs(level - reference) / reference
        bars.append(Bar(f"max_min_{jobs}_off_highs", EXACT_TO))
    for name, (most, call) in PEERS.items():
        if jobs <= most:
            metrics[f"max_min_{jobs} {name} cpu_s"] = peers.timed(lambda call=call: call(p))[0]
    if jobs in BARS_S:
        bars.append(Bar(f"max_min_{jobs}_cpu_s", BARS_S[jobs]))
    return bars


def integer(jobs: int, seed: int, bar_s: float, metrics: dict[str, Any]) -> list[Bar]:
    """Sia's programme: ours to 1e-4 of the objective, the relaxation-and-repair path, HiGHS's whole programme."""
    e = peers.elastic(jobs, seed)
    loose = choose(e.gain, e.use, e.kind, e.count, exact=False)
    allowed = 1e-4 * (e.nobody - loose.bound)
    best, value = peers.timed(lambda: choose(e.gain, e.use, e.kind, e.count, gap=allowed).value, 3)
    repaired, _ = peers.timed(lambda: choose(e.gain, e.use, e.kind, e.count, exact=False).value, 2)
    name = f"sia_{jobs}x{len(e.use)}"
    metrics[f"{name}_cpu_s"], metrics[f"{name}_repair_cpu_s"] = best, repaired
    metrics[f"{name}_off_bound"] = (loose.bound - value) / (e.nobody - loose.bound)
    metrics[f"{name}_repair_off_bound"] = (loose.bound - loose.value) / (e.nobody - loose.bound)
    bars = [Bar(f"{name}_cpu_s", bar_s), Bar(f"{name}_off_bound", 0.005)]
    peer = (0.0, 0.0)

    def whole() -> float:
        nonlocal peer
        peer = peers.highs_choice(e, 0.0 if jobs <= 100 else 1e-4, 10.0)
        return peer[0]

    metrics[f"{name} scipy milp (HiGHS) cpu_s"], _ = peers.timed(whole)
    if jobs <= 100:
        metrics[f"{name}_off_exact"] = max(0.0, (peer[0] - value) / (e.nobody - peer[0]))
        bars.append(Bar(f"{name}_off_exact", 1e-4))
    return bars


def main(arguments: list[str]) -> int:
    import argparse

    parser = argparse.ArgumentParser(prog="python -m benchmarks.solvers", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--jobs", default="128,512,2048,8192,32768", help="sizes of the max-min programme, separated by commas")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="the last line only")
    options = parser.parse_args(arguments)
    try:
        sizes = [int(word) for word in options.jobs.split(",")]
        if not sizes or min(sizes) < 1 or options.seed < 0:
            raise ValueError
    except ValueError:
        print(f"--jobs {options.jobs} --seed {options.seed}: give numbers of jobs above zero, as in 128,2048, and a seed of zero or more.", file=sys.stderr)
        return 2
    metrics: dict[str, Any] = {"compiled": program.machine_code() is not None}
    bars: list[Bar] = []
    for _, call in PEERS.values():
        call(peers.max_min(8, KINDS, options.seed))  # imports are not solving
    for jobs in sizes:
        bars += linear(jobs, options.seed, metrics)
    bars += integer(100, options.seed, 0.050, metrics)
    bars += integer(2000, options.seed, 2.0, metrics)
    return finish("solvers", metrics, bars, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
