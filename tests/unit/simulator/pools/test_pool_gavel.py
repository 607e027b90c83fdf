"""Gavel's mode: the kernel against its plain twin, and Gavel's own figures where the reference data is at hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from pool_worlds import cluster, jobs, table

from ischeduler.core.errors import BadInput
from ischeduler.policies.problem import Accelerators
from ischeduler.simulator.pools.gavel.kernel import sort_entries
from ischeduler.simulator.pools.gavel.policies import POLICIES, prepared
from ischeduler.simulator.pools.gavel.programmes import bisected
from ischeduler.simulator.pools.gavel.reference import Plain
from ischeduler.simulator.pools.gavel.simulate import Options, simulate
from ischeduler.simulator.pools.generated import generate
from ischeduler.simulator.pools.readers import read_jobs, read_throughputs

DATA = Path(__file__).resolve().parents[5] / "shared" / "data"
needs_data = pytest.mark.skipif(not (DATA / "gavel_reference").is_dir(), reason="the shared reference data is not here")


def twins(policy: str, *, several: bool = False, seed: int = 0, gap_s: float = 900.0, window: tuple[int, int] | None = None) -> tuple[object, Plain]:
    workload, accelerators = jobs(14, seed, several=several, gap_s=gap_s), cluster()
    at = table().on(accelerators)
    allocator, options = prepared(policy, accelerators, Options(seed=3, window=window))
    fast = simulate(workload, at, accelerators, allocator, options)
    plain = Plain(workload, at, accelerators, prepared(policy, accelerators, options)[0], options)
    plain.run()
    return fast, plain


@pytest.mark.parametrize("policy", sorted(set(POLICIES) - {"allox"}))
def test_the_kernel_is_its_plain_twin_to_the_last_digit(policy: str) -> None:
    for seed in range(2):
        fast, plain = twins(policy, several=True, seed=seed)
        np.testing.assert_array_equal(fast.jct_s, plain.jct)
        assert (fast.rounds, fast.allocations, fast.makespan_s) == (plain.rounds, plain.allocations, plain.now)


@pytest.mark.parametrize("gap_s", [0.0, 200.0, 9000.0])
def test_allox_and_gandiva_agree_with_their_twins_when_crowded_and_when_idle(gap_s: float) -> None:
    for policy in ("allox", "gandiva"):
        fast, plain = twins(policy, gap_s=gap_s)
        np.testing.assert_array_equal(fast.jct_s, plain.jct)


def test_only_the_window_is_judged() -> None:
    fast, plain = twins("fifo_perf", window=(3, 6))
    assert np.isfinite(fast.jct_s[3:6]).all()
    assert fast.wanted.sum() == 3
    np.testing.assert_array_equal(fast.jct_s, plain.jct)


def test_entries_are_sorted_by_priority_deficit_share_and_then_age() -> None:
    lot = np.random.default_rng(1)
    key = lot.integers(0, 3, (500, 3)).astype(np.float64)
    order, room = np.arange(500), np.zeros(500, np.int64)
    lot.shuffle(order)
    sort_entries(key, order, 500, room)
    assert order.tolist() == sorted(range(500), key=lambda i: (-key[i, 0], -key[i, 1], -key[i, 2], i))


def test_the_bisection_ends_within_its_five_percent() -> None:
    for least in (120.0, 4_321.0, 999_999.0, 3e6):
        assert least <= bisected(least) <= 1.05 * least


def test_allox_refuses_jobs_on_several_accelerators() -> None:
    with pytest.raises(BadInput, match="one accelerator only"):
        twins("allox", several=True)


def test_an_unknown_policy_is_told_its_nearest() -> None:
    with pytest.raises(BadInput, match="did you mean 'max_min_fairness_perf'"):
        prepared("max_min_fairnes_perf", cluster(), Options())


@needs_data
@pytest.mark.parametrize("stem", ["s1_fifo_perf_seed0", "s1_allox_seed0", "s3_static100m_fifo_seed0", "s3_static100m_gandiva_seed0"])
def test_gavels_own_runs_come_out_to_the_last_digit(stem: str) -> None:
    says = json.loads((DATA / "gavel_reference" / "runs" / f"{stem}.json").read_text())
    at = read_throughputs(DATA / "gavel" / "simulation_throughputs.json")
    workload = read_jobs(next((DATA / "gavel_reference" / "jobs").glob(f"{stem.split('_')[0]}_*.jsonl")), at)
    accelerators = Accelerators.of({"v100": 8, "p100": 8, "k80": 8})
    done = simulate(workload, at.on(accelerators), accelerators, *prepared(says["policy"], accelerators, Options(window=tuple(says["window"]))))
    assert done.mean_jct_s == pytest.approx(says["average_jct_s"], abs=1e-6)
    assert (done.rounds, done.allocations) == (says["rounds"], says["n_policy_calls"])


@needs_data
@pytest.mark.parametrize(("stem", "gap_s", "several"), [("s1_single_lam3600_seed0", 3600.0, False), ("s3_static100_multi_seed0", 0.0, True)])
def test_the_generator_draws_gavels_jobs(stem: str, gap_s: float, several: bool) -> None:
    at = read_throughputs(DATA / "gavel" / "simulation_throughputs.json")
    there = read_jobs(DATA / "gavel_reference" / "jobs" / f"{stem}.jsonl", at)
    drawn = generate(at, len(there), gap_s, several=several)
    np.testing.assert_array_equal(drawn.arrival_s, there.arrival_s)
    np.testing.assert_array_equal(drawn.total_steps, there.total_steps)
