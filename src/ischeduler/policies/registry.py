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
_BLIND = (
    "fifo", "sjf", "srpt", "tiresias", "max_min_fairness", "max_min_fairness_water_filling", "hierarchical", "finish_time_fairness", "min_total_duration",
)
"""What comes without knowledge of speeds under the bare name, and with it under NAME_perf."""
_ONE_FORM = ("isolated", "proportional", "composed", "sia", "gandiva")
"""Slices are alone and know no speeds; a composition has its inner policies' forms; Sia's jobs share nothing; Gandiva: see below."""
_ALSO = {
    "las": Objective("max_min_fairness", aware=False), "las_perf": Objective("max_min_fairness"),
    "las_packed": Objective("max_min_fairness", sharing=True), "makespan": Objective("min_total_duration"),
    "gandiva": Objective("gandiva", aware=False, sharing=True), "gandiva_perf": Objective("gandiva", sharing=True),
    "gandiva_alone": Objective("gandiva", aware=False), "gandiva_alone_perf": Objective("gandiva"),
}


def _table() -> dict[str, Objective]:
    """Four forms of each: knowing that types differ or not (NAME_perf, or NAME_agnostic where the bare name knows), in pairs (_packed) or not."""
    table: dict[str, Objective] = {}
    for name in _MODULES:
        table[name] = Objective(name, aware=name not in _BLIND)
        if name in _ONE_FORM:
            continue
        head, slo = (name[:-5], "_SLOs") if name.endswith("_SLOs") else (name, "")
        blind = name in _BLIND
        table[f"{head}_{'perf' if blind else 'agnostic'}{slo}"] = Objective(name, aware=blind)
        table[f"{head}_packed{slo}"] = Objective(name, sharing=True)
        table[f"{head}_packed_agnostic{slo}"] = Objective(name, aware=False, sharing=True)
        if name.startswith("max_sum_throughput"):
            table[f"{head}_perf{slo}"] = Objective(name)
    return {**table, **_ALSO}


OBJECTIVES: Mapping[str, Objective] = _table()
NAMES = tuple(sorted(OBJECTIVES))


def objective_of(name: str, *, options: Mapping[str, Any] | None = None, **changes: Any) -> Objective:
    """The objective of that name, with options. BadInput names the nearest policies."""
    found = OBJECTIVES.get(name)
    if found is None:
        near = difflib.get_close_matches(name, NAMES, 3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"choose one of {', '.join(_MODULES)}, or a form of it (as max_min_fairness_packed)."
        raise BadInput(f"There is no policy '{name}'; {hint}")
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
