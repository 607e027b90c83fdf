"""Gavel's policies by the names of its own command line: the allocator of each, and how its simulator treats it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from ischeduler.core.errors import BadInput
from ischeduler.policies.problem import Accelerators
from ischeduler.simulator.pools.gavel.allocators import Allocator, Allox, Fifo, Gandiva, Isolated
from ischeduler.simulator.pools.gavel.programmes import FinishTime, Makespan, MaxMin, MostThroughput
from ischeduler.simulator.pools.gavel.simulate import Options


class Policy(NamedTuple):
    """Makes an allocator from a cluster and a seed; whether the types' order is drawn each round, whether pairs share, whether it is FIFO."""

    allocator: Callable[[Accelerators, int], Allocator]
    types_by_lot: bool = False
    sharing: bool = False
    fifo: bool = False


POLICIES: dict[str, Policy] = {
    "fifo": Policy(Fifo, types_by_lot=True, fifo=True),
    "fifo_perf": Policy(lambda a, seed: Fifo(a, aware=True), fifo=True),
    "max_min_fairness": Policy(lambda a, seed: MaxMin(a, aware=False, seed=seed), types_by_lot=True),
    "max_min_fairness_perf": Policy(lambda a, seed: MaxMin(a)),
    "max_min_fairness_water_filling_perf": Policy(lambda a, seed: MaxMin(a)),
    "finish_time_fairness": Policy(lambda a, seed: FinishTime(a, aware=False), types_by_lot=True),
    "finish_time_fairness_perf": Policy(lambda a, seed: FinishTime(a)),
    "min_total_duration": Policy(lambda a, seed: Makespan(a, aware=False), types_by_lot=True),
    "min_total_duration_perf": Policy(lambda a, seed: Makespan(a)),
    "max_sum_throughput_perf": Policy(lambda a, seed: MostThroughput(a)),
    "allox": Policy(lambda a, seed: Allox(a)),
    "gandiva": Policy(Gandiva, sharing=True),
    "isolated": Policy(lambda a, seed: Isolated(a), types_by_lot=True),
}


def prepared(name: str, accelerators: Accelerators, options: Options) -> tuple[Allocator, Options]:
    """A policy's allocator, and the options as its simulator has them. BadInput names the policies there are."""
    if name not in POLICIES:
        import difflib

        near = difflib.get_close_matches(name, POLICIES, 1)
        hint = f"did you mean '{near[0]}'? " if near else ""
        raise BadInput(f"Gavel has no policy '{name}'; {hint}it has {', '.join(POLICIES)}.")
    policy = POLICIES[name]
    return policy.allocator(accelerators, options.seed), replace(
        options, types_by_lot=policy.types_by_lot, sharing=policy.sharing, fifo=policy.fifo,
    )  # fmt: skip
