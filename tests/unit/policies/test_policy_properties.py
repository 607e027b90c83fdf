"""What every policy promises, on random worlds: it fits, and where stated it is efficient, fair, and blind to order and units."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_worlds import best_level, most_sum, most_sum_in_pairs, used, worlds

from ischeduler.policies.max_min import normalised
from ischeduler.policies.problem import Accelerators, isolated_shares, paces, rates
from ischeduler.policies.registry import NAMES, allocate, objective_of

NOW = 60000.0
PAIRED = tuple(n for n in NAMES if objective_of(n).sharing)
ALLOX = tuple(n for n in NAMES if objective_of(n).name == "allox")
ALONE = tuple(n for n in NAMES if n not in PAIRED and n not in ALLOX)
few = settings(max_examples=15, deadline=None)
some = settings(max_examples=25, deadline=None)


def _fits(found, jobs, cluster):
    load, time = used(found, jobs)
    assert (found.share >= 0).all()
    assert (found.pair_share >= 0).all()
    assert (load <= cluster.count * (1 + 1e-7) + 1e-9).all()
    assert (time <= 1 + 1e-7).all()


@pytest.mark.parametrize("name", ALONE)
@few
@given(worlds(entities=2))
def test_shares_fit_and_never_where_a_job_cannot_run(name, problem):
    jobs, table, cluster = problem
    found = allocate(jobs, table, cluster, name, NOW)
    _fits(found, jobs, cluster)
    assert not found.share[rates(jobs, table, cluster, objective_of(name)) <= 0].any()
    again = allocate(jobs, table, cluster, name, NOW + 360, found)
    _fits(again, jobs, cluster)


@pytest.mark.parametrize("name", PAIRED)
@settings(max_examples=6, deadline=None)
@given(st.data())
def test_pairs_fit(name, data):
    jobs, table, cluster = data.draw(worlds(most_jobs=8, shared=True, entities=2, sizes=(1,) if name in ALLOX else (1, 1, 2)))
    found = allocate(jobs, table, cluster, name, NOW)
    _fits(found, jobs, cluster)
    for (a, b), row in zip(found.pairs, found.pair_share, strict=True):
        assert a != b
        assert jobs.accelerators[a] == jobs.accelerators[b]
        assert row.max() <= 1 + 1e-9


@few
@given(worlds(most_jobs=8, shared=True))
def test_pairs_never_lower_the_level(problem):
    jobs, table, cluster = problem
    alone, packed = (allocate(jobs, table, cluster, n, NOW).value for n in ("max_min_fairness_perf", "max_min_fairness_packed"))
    assert packed >= alone * (1 - 1e-6)


@pytest.mark.parametrize("name", ["hierarchical", "max_min_fairness_water_filling", "min_cost", "max_sum_throughput", "srpt_fair"])
@few
@given(worlds(most_jobs=8, shared=True, entities=2, weights=(1.0,)))
def test_pairs_never_lower_what_is_maximised(name, problem):
    jobs, table, cluster = problem
    plain = name if name in NAMES and objective_of(name).aware else f"{name}_perf"
    options = {"guard": 0.0} if name == "srpt_fair" else {"levels": 1}
    alone, packed = (allocate(jobs, table, cluster, objective_of(n, options=options), NOW) for n in (plain, f"{name}_packed"))
    assert packed.value >= alone.value * (1 - 1e-6)


@pytest.mark.parametrize("name", [f"{n}_packed{a}" for n in ("fifo", "sjf", "srpt", "tiresias", "allox") for a in ("", "_agnostic")])
@few
@given(worlds(most_jobs=14, shared=True, sizes=(1,)), st.floats(1.0, 1.6))
def test_who_joins_a_running_job_pays(name, problem, threshold):
    jobs, table, cluster = problem
    objective = objective_of(name, options={"packing_threshold": threshold})
    alone = allocate(jobs, table, cluster, replace(objective, sharing=False), NOW)
    packed = allocate(jobs, table, cluster, objective, NOW)
    # In units of what each would make alone on that type.
    runs = (rates(jobs, table, cluster, objective) > 0).astype(float)
    before, after = (paces(f, jobs, table, runs, aware=objective.aware).sum() for f in (alone, packed))
    assert after >= before + (threshold - 1.0) * len(packed.pairs) - 1e-9
    assert (packed.share[packed.pairs.ravel()] == 0).all()
    for a, b in packed.pairs:  # one of the two stood there anyway
        assert alone.share[[a, b]].sum() == 1.0


@pytest.mark.parametrize("name", [n for n in NAMES if not objective_of(n).aware])
@few
@given(st.data())
def test_an_agnostic_policy_does_not_see_which_type_is_fast(name, data):
    jobs, table, cluster = data.draw(worlds(most_jobs=8, shared=True, entities=2, holes=False, sizes=(1,) if name in ALLOX else (1, 1, 2)))
    turn = np.roll(np.arange(len(cluster.types)), 1)
    assert table.shared is not None
    # What a pair keeps on each type is one figure to it: the mean.
    other = replace(table, rate=table.rate[:, turn], spread=table.spread[:, turn], shared=table.shared[..., turn])
    one, two = (allocate(jobs, t, cluster, name, NOW) for t in (table, other))
    if np.isfinite(one.value):  # a programme: its optimum is one, its solutions may be many
        assert one.value == pytest.approx(two.value, rel=1e-6, abs=1e-9)
    else:
        np.testing.assert_allclose(one.share, two.share, atol=1e-6)
        assert one.pairs.tolist() == two.pairs.tolist()


@few
@given(worlds(most_jobs=5, shared=True))
def test_least_cost_in_pairs_is_highs(problem):
    jobs, table, cluster = problem
    found = allocate(jobs, table, cluster, "min_cost_packed", NOW)
    rate = rates(jobs, table, cluster, objective_of("min_cost_packed"))
    cost = jobs.accelerators[:, None] * cluster.price_per_h[None, :]
    with np.errstate(divide="ignore"):
        least = np.where(rate > 0, cost / 3600.0 / rate, np.inf).min(axis=1, keepdims=True)
    income = 1.5 * least * 3600.0 * rate
    assert found.value == pytest.approx(most_sum_in_pairs(income, cost, jobs, table, cluster), rel=1e-5, abs=1e-7)


@few
@given(worlds(most_jobs=14, shared=True, entities=2, holes=False), st.booleans())
def test_trading_slices_harms_nobody(problem, sharing):
    jobs, table, cluster = problem
    before, after = (allocate(jobs, table, cluster, replace(objective_of("gandiva"), aware=a, sharing=sharing), NOW) for a in (False, True))
    assert before.pairs.tolist() == after.pairs.tolist()
    rate = rates(jobs, table, cluster, objective_of("gandiva_perf"))
    norm = rate / rate.max(axis=1, keepdims=True)
    one, two = (paces(f, jobs, table, norm) for f in (before, after))
    paired = set(before.pairs.ravel().tolist())
    for j in set(range(len(jobs))) - paired:
        assert two[j] >= one[j] * (1 - 1e-5)
    for a, b in before.pairs:
        assert two[a] + two[b] >= (one[a] + one[b]) * (1 - 1e-5)
    assert two.sum() >= one.sum() * (1 - 1e-5)


@few
@given(worlds(most_jobs=10, shared=True, entities=2))
def test_a_composition_keeps_its_pairs_within_an_entity(problem):
    jobs, table, cluster = problem
    found = allocate(jobs, table, cluster, objective_of("composed", options={"within": "max_min_fairness_packed"}), NOW)
    _fits(found, jobs, cluster)
    assert (jobs.entity[found.pairs[:, 0]] == jobs.entity[found.pairs[:, 1]]).all()


@few
@given(worlds(sizes=(1,)))
def test_allox_fits_and_keeps_what_runs(problem):
    jobs, table, cluster = problem
    first = allocate(jobs, table, cluster, "allox", NOW)
    _fits(first, jobs, cluster)
    second = allocate(jobs, table, cluster, "allox", NOW + 360, first)
    assert (second.share >= first.share).all()


@some
@given(worlds(entities=3))
def test_max_min_is_highs_level(problem):
    jobs, table, cluster = problem
    speed = normalised(jobs, rates(jobs, table, cluster, objective_of("max_min_fairness_perf")), cluster)
    found = allocate(jobs, table, cluster, "max_min_fairness_perf", NOW)
    assert found.value == pytest.approx(best_level(speed, jobs.accelerators, cluster.count), rel=1e-6)
    assert found.score.min() == pytest.approx(found.value, rel=1e-9)


@some
@given(worlds())
def test_makespan_is_highs_and_meets_every_job(problem):
    jobs, table, cluster = problem
    rate = rates(jobs, table, cluster, objective_of("min_total_duration_perf"))
    found = allocate(jobs, table, cluster, "min_total_duration_perf", NOW)
    level = best_level(rate / jobs.steps_left[:, None] * 1e4, jobs.accelerators, cluster.count) / 1e4
    assert found.value == pytest.approx(1 / level, rel=1e-6)
    assert (jobs.steps_left / (rate * found.share).sum(axis=1)).max() == pytest.approx(found.value, rel=1e-6)


@some
@given(worlds())
def test_finish_time_ratio_is_the_smallest(problem):
    jobs, table, cluster = problem
    rate = rates(jobs, table, cluster, objective_of("finish_time_fairness_perf"))
    found = allocate(jobs, table, cluster, "finish_time_fairness_perf", NOW)
    elapsed = np.maximum(NOW - jobs.arrived_s, 0)
    fair = jobs.steps_left / (rate * isolated_shares(jobs, cluster)).sum(axis=1)
    rho = (elapsed + jobs.steps_left / (rate * found.share).sum(axis=1)) / fair
    assert rho.max() == pytest.approx(found.value, rel=1e-5)
    # A ratio that is 1e-4 better cannot be reached: the rates it asks for do not fit.
    room = found.value * (1 - 1e-4) * fair - elapsed
    assert (room <= 0).any() or best_level(rate * (room / jobs.steps_left)[:, None], jobs.accelerators, cluster.count) < 1.0


@pytest.mark.parametrize("name", ["max_min_fairness_water_filling_perf", "hierarchical_perf"])
@few
@given(worlds(entities=2))
def test_water_filling_is_pareto_efficient(name, problem):
    jobs, table, cluster = problem
    rate = rates(jobs, table, cluster, objective_of(name))
    norm = rate / rate.max(axis=1, keepdims=True)
    found = allocate(jobs, table, cluster, name, NOW)
    now = (norm * found.share).sum(axis=1)
    # A part of 1e-6 of one job's progress can be worth .01 of another's: the floors must be nearly exact.
    best = most_sum(norm, jobs.accelerators, cluster.count, now * (1 - 1e-8), norm)
    assert now.sum() >= best - 1e-4 * len(jobs)


@some
@given(worlds(full=True, weights=(1.0,)))
def test_nobody_is_worse_off_than_on_their_own_slice(problem):
    jobs, table, cluster = problem
    for name in ("max_min_fairness_perf", "max_min_fairness_water_filling_perf"):
        rate = rates(jobs, table, cluster, objective_of(name))
        speed = normalised(jobs, rate, cluster)
        alone = (speed * isolated_shares(jobs, cluster)).sum(axis=1)
        found = allocate(jobs, table, cluster, name, NOW)
        assert ((speed * found.share).sum(axis=1) >= alone * (1 - 1e-5)).all()


@some
@given(worlds(sizes=(1,), weights=(1.0,), holes=False))
def test_nobody_envies_an_equal_slice(problem):
    jobs, table, cluster = problem
    rate = rates(jobs, table, cluster, objective_of("isolated"))
    found = allocate(jobs, table, cluster, "isolated", NOW)
    mine = (rate * found.share).sum(axis=1)
    assert (rate @ found.share.T <= mine[:, None] * (1 + 1e-9)).all()
    blind = allocate(jobs, table, cluster, "max_min_fairness_water_filling", NOW)
    assert np.ptp(blind.share.sum(axis=1)) < 1e-4


@pytest.mark.parametrize("name", ["max_min_fairness_perf", "min_total_duration_perf", "finish_time_fairness_perf", "max_sum_throughput", "srpt_fair", "srpt_bounded", "sia"])
@few
@given(worlds(entities=2), st.randoms(use_true_random=False))
def test_the_order_of_jobs_does_not_matter(name, problem, shuffler):
    jobs, table, cluster = problem
    rows = list(range(len(jobs)))
    shuffler.shuffle(rows)
    one, other = (allocate(j, table, cluster, name, NOW) for j in (jobs, jobs.take(np.array(rows))))
    assert one.value == pytest.approx(other.value, rel=1e-4 if name == "sia" else 1e-6)
    if name not in ("sia", "max_sum_throughput"):
        assert one.score[rows] == pytest.approx(other.score, rel=1e-3, abs=1e-3 * np.abs(one.score).max())


@pytest.mark.parametrize("name", ["max_min_fairness_perf", "max_min_fairness_water_filling_perf", "min_total_duration_perf", "finish_time_fairness_perf", "srpt_fair", "srpt_bounded", "min_cost"])
@few
@given(worlds(entities=2), st.floats(1e-3, 1e3))
def test_the_unit_of_a_jobs_work_does_not_matter(name, problem, unit):
    jobs, table, cluster = problem
    factor = np.where(np.arange(len(table.classes)) % 2 == 0, unit, 1.0)
    other_table = replace(table, rate=table.rate * factor[:, None], spread=table.spread * factor[:, None])
    per_job = factor[jobs.job_class]
    other_jobs = replace(jobs, steps_left=jobs.steps_left * per_job, total_steps=jobs.total_steps * per_job)
    one, other = allocate(jobs, table, cluster, name, NOW), allocate(other_jobs, other_table, cluster, name, NOW)
    assert one.value == pytest.approx(other.value, rel=1e-6)


@some
@given(worlds(), st.integers(0, 2), st.floats(1.0, 3.0))
def test_more_accelerators_never_hurt(problem, at, factor):
    jobs, table, cluster = problem
    more = Accelerators(cluster.types, cluster.count * np.where(np.arange(len(cluster.count)) == at, factor, 1.0), cluster.per_node, cluster.price_per_h)
    assert allocate(jobs, table, more, "min_total_duration_perf", NOW).value <= allocate(jobs, table, cluster, "min_total_duration_perf", NOW).value * (1 + 1e-6)
    assert allocate(jobs, table, more, "max_sum_throughput", NOW).value >= allocate(jobs, table, cluster, "max_sum_throughput", NOW).value * (1 - 1e-6)


@some
@given(worlds(most_jobs=10))
def test_one_job_less_never_hurts_the_others(problem):
    jobs, table, cluster = problem
    if len(jobs) > 1:
        fewer = jobs.take(np.arange(len(jobs) - 1))
        assert allocate(fewer, table, cluster, "max_min_fairness_perf", NOW).value >= allocate(jobs, table, cluster, "max_min_fairness_perf", NOW).value * (1 - 1e-6)


@some
@given(worlds(), st.floats(0.0, 1.0))
def test_the_guard_of_srpt_holds(problem, guard):
    jobs, table, cluster = problem
    fair = allocate(jobs, table, cluster, "max_min_fairness_perf", NOW).value
    found = allocate(jobs, table, cluster, objective_of("srpt_fair", options={"guard": guard}), NOW)
    assert found.score.min() >= guard * fair * (1 - 1e-5)


@some
@given(worlds(), st.floats(0.5, 3.0))
def test_the_pressing_get_the_bound_or_the_least_that_all_can_keep(problem, bound):
    jobs, table, cluster = problem
    found = allocate(jobs, table, cluster, objective_of("srpt_bounded", options={"bound": bound}), NOW)
    speed = rates(jobs, table, cluster, objective_of("srpt_bounded"))
    speed = speed / speed.max(axis=1, keepdims=True)
    need, pace = np.asarray(found.priority), (speed * found.share).sum(axis=1)
    pressing = need > 0.3
    if pressing.any() and best_level(speed[pressing] / need[pressing, None], jobs.accelerators[pressing], cluster.count) >= 1.001:
        assert (pace[pressing] >= need[pressing] * (1 - 1e-4)).all()


@few
@given(worlds(weights=(1.0,)))
def test_a_doubled_weight_never_lowers_a_jobs_rate_at_the_level(problem):
    jobs, table, cluster = problem
    if len(jobs) > 1:
        heavier = replace(jobs, weight=np.where(np.arange(len(jobs)) == 0, 2.0, 1.0))
        one, two = (allocate(j, table, cluster, "max_min_fairness_perf", NOW) for j in (jobs, heavier))
        # The others' level falls or stays; the heavier job is promised twice that level, at least what it was promised before or its all.
        assert two.value <= one.value * (1 + 1e-6)
        assert 2 * two.value >= one.value * (1 - 1e-6)
