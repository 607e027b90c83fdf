"""One pool under several policies: in Gavel's mode or in this project's own, with the equal slices that fairness is measured against."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ischeduler.core.errors import BadInput
from ischeduler.policies.problem import Accelerators, Allocation, Jobs, Objective, Throughputs
from ischeduler.policies.rounds import Rules
from ischeduler.simulator.pools.results import PoolRun
from ischeduler.simulator.pools.workload import Workload, check_feasible

MODES = ("own", "gavel")


@dataclass(frozen=True, slots=True)
class Setting:
    """A pool to simulate: mode, rounds, restarts (own mode), seed (Gavel's lots), the judged jobs (first, last + 1) or all."""

    mode: str = "own"
    round_s: float = 360.0
    restart_s: float = 30.0
    seed: int = 0
    window: tuple[int, int] | None = None
    reset_s: float = 1920.0

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise BadInput(f"There is no mode '{self.mode}'; choose {' or '.join(MODES)}.")
        if not self.round_s > 0:
            raise BadInput(f"A round of {self.round_s:g} s is none; give seconds above zero.")


@dataclass(eq=False)
class Asked:
    """A policy that is asked again and again, with its last answer as its memory."""

    objective: Objective
    last: Allocation | None = None

    def __call__(self, jobs: Jobs, throughputs: Throughputs, accelerators: Accelerators, now: float) -> Allocation:
        from ischeduler.policies.registry import allocate

        self.last = allocate(jobs, throughputs, accelerators, self.objective, now, self.last)
        return self.last


def simulate_pool(
    policy: str, workload: Workload, throughputs: Throughputs, accelerators: Accelerators, setting: Setting,
    shares: Callable[[Jobs, Throughputs, Accelerators, float], Allocation] | None = None,
) -> PoolRun:  # fmt: skip
    """Run one policy; ``shares`` overrides the registry's policy in the own mode. BadInput when the pool cannot be simulated."""
    check_feasible(workload, throughputs, accelerators)
    began = time.process_time()
    if setting.mode == "gavel":
        return _gavel(policy, workload, throughputs, accelerators, setting, began)
    return _own(policy, workload, throughputs, accelerators, setting, began, shares)


def _gavel(policy: str, workload: Workload, throughputs: Throughputs, accelerators: Accelerators, setting: Setting, began: float) -> PoolRun:
    from ischeduler.simulator.pools.gavel.policies import prepared
    from ischeduler.simulator.pools.gavel.simulate import Options, simulate

    options = Options(setting.round_s, setting.reset_s, setting.seed, setting.window)
    table = throughputs.on(accelerators)
    out = simulate(workload, table, accelerators, *prepared(policy, accelerators, options))
    return PoolRun(
        policy, "gavel", out.jct_s, out.wanted, out.makespan_s, out.utilisation, out.timeline, time.process_time() - began, out.allocations,
    )  # fmt: skip


def _own(
    policy: str, workload: Workload, throughputs: Throughputs, accelerators: Accelerators, setting: Setting, began: float,
    shares: Callable[[Jobs, Throughputs, Accelerators, float], Allocation] | None,
) -> PoolRun:  # fmt: skip
    from ischeduler.policies.registry import objective_of
    from ischeduler.simulator.pools.engine import Pool

    judged = np.zeros(len(workload), np.bool_)
    first, last = setting.window or (0, len(workload))
    judged[first:last] = True
    if not judged.any() or last > len(workload):
        raise BadInput(f"The window {first} to {last} is not among the {len(workload)} jobs; give numbers of jobs that are there.")
    asked = shares or Asked(objective_of(policy, seed=setting.seed))
    # The end of all is what counts there: who waits for it does not matter, and room made for a large job costs it (s3: 1.18 against 1.07).
    patient = float("inf") if policy.startswith(("min_total_duration", "makespan")) else 1.0
    pool = Pool(workload, throughputs, accelerators, asked, Rules(setting.round_s, setting.restart_s, reserve_rounds=patient), judged)
    pool.run()
    total = float(accelerators.count.sum()) * pool.now
    return PoolRun(
        policy, "own", pool.jct, judged, pool.now, pool.used_s / total if total else 0.0, np.array(pool.timeline), time.process_time() - began,
        pool.decisions, pool.account.promised_s, pool.account.received_s, pool.account.restarts, pool.account.started_s,
    )  # fmt: skip


def isolated_jct_s(workload: Workload, throughputs: Throughputs, accelerators: Accelerators, setting: Setting) -> Any:
    """Completion times (n,) with an equal slice of every type at every moment, in Gavel's mode: what fairness is measured against."""
    plain = Setting("gavel", setting.round_s, seed=setting.seed, window=setting.window)
    return _gavel("isolated", workload, throughputs, accelerators, plain, time.process_time()).jct_s
