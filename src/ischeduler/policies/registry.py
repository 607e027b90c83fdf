"""Policies by name, and the one entry to all of them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

from ischeduler.core.errors import BadInput
from ischeduler.policies.problem import Accelerators, Allocation, AllocationPolicy, Jobs, Objective, Throughputs
from ischeduler.policies.problem import allocation as empty

_MODULES = {
    "fifo": "fifo", "sjf": "shortest", "srpt": "shortest", "tiresias": "tiresias", "allox": "allox", "gandiva": "gandiva",
    "isolated": "isolated", "proportional": "isolated", "max_min_fairness": "max_min", "max_min_fairness_water_filling": "hierarchical",
    "hierarchical": "hierarchical", "finish_time_fairness": "finish_time", "min_total_duration": "makespan",
    "max_sum_throughput": "throughput_sum", "max_sum_throughput_normalized_by_cost": "throughput_sum",
    "max_sum_throughput_normalized_by_cost_SLOs": "throughput_sum", "min_cost": "throughput_sum", "min_cost_SLOs": "throughput_sum",
    "srpt_fair": "srpt", "srpt_bounded": "bounded", "composed": "composed", "sia": "sia",
}
ELASTIC = ("sia",)
"""Those that choose how many accelerators an elastic job gets."""
_BLIND = ("fifo", "max_min_fairness", "max_min_fairness_water_filling", "finish_time_fairness", "min_total_duration", "sjf", "srpt", "hierarchical")
"""What comes without knowledge of speeds under the bare name, and with it under NAME_perf."""
_SHARING = (
    "fifo", "max_min_fairness", "max_min_fairness_water_filling", "finish_time_fairness", "min_total_duration", "max_sum_throughput",
    "max_sum_throughput_normalized_by_cost", "max_sum_throughput_normalized_by_cost_SLOs",
)
_ALSO = {
    "las": Objective("max_min_fairness", aware=False), "las_perf": Objective("max_min_fairness"),
    "las_packed": Objective("max_min_fairness", sharing=True), "makespan": Objective("min_total_duration"),
    "max_sum_throughput": Objective("max_sum_throughput"), "gandiva": Objective("gandiva", sharing=True),
}


def _table() -> dict[str, Objective]:
    table: dict[str, Objective] = {}
    for name in _MODULES:
        if name in _BLIND:
            table[name] = Objective(name, aware=False)
            table[f"{name}_perf"] = Objective(name)
        else:
            table[name] = Objective(name)
            if name.startswith("max_sum_throughput"):
                head, slo = (name[:-5], "_SLOs") if name.endswith("_SLOs") else (name, "")
                table[f"{head}_perf{slo}"] = Objective(name)
        if name in _SHARING:
            head, slo = (name[:-5], "_SLOs") if name.endswith("_SLOs") else (name, "")
            table[f"{head}_packed{slo}"] = Objective(name, sharing=True)
    return {**table, **_ALSO}


OBJECTIVES: Mapping[str, Objective] = _table()
NAMES = tuple(sorted(OBJECTIVES))


def objective_of(name: str, *, options: Mapping[str, Any] | None = None, **changes: Any) -> Objective:
    """The objective of that name, with options. BadInput names the nearest policies."""
    found = OBJECTIVES.get(name)
    if found is None:
        near = difflib.get_close_matches(name, NAMES, 3)
        raise BadInput(f"There is no policy '{name}'; {'did you mean ' + ' or '.join(near) if near else 'choose one of ' + ', '.join(NAMES)}?")
    return replace(found, options={**found.options, **(options or {})}, **changes)


def function_of(objective: Objective) -> AllocationPolicy:
    """The ``allocate`` of the objective's module."""
    module = _MODULES.get(objective.name)
    if module is None:
        raise BadInput(f"There is no policy '{objective.name}'; choose one of {', '.join(NAMES)}.")
    return import_module(f"ischeduler.policies.{module}").allocate


def allocate(
    jobs: Jobs, throughputs: Throughputs, accelerators: Accelerators, objective: Objective | str, now: float, previous: Allocation | None = None,
) -> Allocation:
    """Shares of time by the named policy; an empty set of jobs has an empty allocation. Raises IschedError with one sentence."""
    chosen = objective_of(objective) if isinstance(objective, str) else objective
    if not len(jobs):
        return empty(jobs, accelerators, np.zeros((0, len(accelerators.types))), memory=None if previous is None else previous.memory)
    return function_of(chosen)(jobs, throughputs, accelerators, chosen, now, previous)
