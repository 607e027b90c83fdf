"""Our own rounds: accounts, placement, the engine, explanations, bad input."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from pool_worlds import cluster, jobs, table

from ischeduler.core.errors import BadInput
from ischeduler.policies.placement import Spot, consolidated, nodes_of, place
from ischeduler.policies.problem import Accelerators, Allocation, Jobs, Throughputs, allocation
from ischeduler.policies.registry import objective_of
from ischeduler.policies.rounds import Rules, Standing, choose, due, settle
from ischeduler.simulator.pools.compare import Asked, Setting, isolated_jct_s, simulate_pool
from ischeduler.simulator.pools.engine import Pool
from ischeduler.simulator.pools.plots import write_pool_plot
from ischeduler.simulator.pools.readers import read_jobs, read_throughputs
from ischeduler.simulator.pools.results import lower_bound_makespan_s, summarise
from ischeduler.simulator.pools.why import why
from ischeduler.simulator.pools.workload import JobRow, Workload, check_feasible


def standing(share: object, on: object, **changes: object) -> Standing:
    shares = np.array(share, np.float64)
    n = len(shares)
    fields = {
        "share": shares, "owed_s": np.zeros(shares.shape), "rate": np.ones(shares.shape), "size": np.ones(n, np.int64),
        "on": np.array(on, np.int64), "pinned": np.zeros(n, np.bool_), "rank": np.arange(n, dtype=np.float64),
    }  # fmt: skip
    return Standing(**{**fields, **changes})  # type: ignore[arg-type]


def test_received_shares_come_to_the_promised_ones() -> None:
    share = np.array([[0.7], [0.2], [0.1]])
    owed, on, got = np.zeros((3, 1)), np.full(3, -1), np.zeros(3)
    rules = Rules(restart_s=10)
    for _ in range(40):
        on = choose(standing(share, on, owed_s=owed), np.array([1]), rules)
        got += on == 0
        owed = settle(owed, share, on, rules.round_s, rules)
    np.testing.assert_allclose(got / 40, share[:, 0], atol=0.06)


def test_a_lease_is_kept_among_equals_and_pinned_jobs_always_stay() -> None:
    share = [[0.5], [0.5]]
    assert choose(standing(share, [-1, 0]), np.array([1]), Rules()).tolist() == [-1, 0]
    pinned = np.array([False, True])
    assert choose(standing([[1.0], [0.0]], [-1, 0], pinned=pinned), np.array([1]), Rules()).tolist() == [-1, 0]


def test_nothing_idles_while_somebody_can_use_it_and_faster_types_are_taken_when_free() -> None:
    rate = np.array([[1.0, 5.0], [1.0, 5.0]])
    assert choose(standing([[0.0, 1.0], [0.0, 0.0]], [-1, -1], rate=rate), np.array([1, 1]), Rules()).tolist() == [1, 0]
    assert choose(standing([[1.0, 0.0]], [0], rate=rate[:1]), np.array([1, 1]), Rules()).tolist() == [1]
    nearly = np.array([[1.0, 1.05]])
    assert choose(standing([[1.0, 0.0]], [0], rate=nearly), np.array([1, 1]), Rules(restart_s=30)).tolist() == [0]


def test_placement_keeps_what_stays_and_takes_the_smallest_gap() -> None:
    capacity = {0: nodes_of(8, 4)}
    before = {1: Spot(0, ((0, 2),)), 2: Spot(0, ((1, 1),))}
    spots = place({1: (0, 2), 2: (0, 1), 3: (0, 2), 4: (0, 3)}, before, capacity)
    assert spots[1] == before[1]
    assert spots[2] == before[2]
    assert spots[3] == Spot(0, ((0, 2),))
    assert spots[4] == Spot(0, ((1, 3),))


def test_a_job_that_fits_no_gap_is_scattered_over_the_fewest_nodes_and_gathered_later() -> None:
    capacity = {0: nodes_of(6, 3)}
    before = {1: Spot(0, ((0, 1),)), 2: Spot(0, ((1, 1),))}
    spots = place({1: (0, 1), 2: (0, 1), 3: (0, 3)}, before, capacity)
    assert len(spots[3].nodes) == 2
    assert not consolidated(spots[3], 3)
    assert place({2: (0, 1), 3: (0, 3)}, spots, capacity)[3].nodes == ((0, 3),)


def test_all_jobs_end_and_no_accelerator_is_given_twice() -> None:
    workload, accelerators = jobs(30, several=True, gap_s=600), cluster()
    for policy in ("max_min_fairness_perf", "srpt_fair", "srpt_bounded", "fifo", "min_total_duration_perf"):
        run = simulate_pool(policy, workload, table(), accelerators, Setting())
        assert np.isfinite(run.jct_s).all()
        assert (run.timeline[:, 2:] <= accelerators.count).all()
        best = workload.total_steps / table().on(accelerators).rate[workload.job_class].max(axis=1)
        assert (run.jct_s >= best - 1e-6).all()


def test_a_lone_job_takes_its_time_and_one_restart() -> None:
    workload = Workload.of([JobRow("one", "quick", 1, 50.0, 9000.0)], table())
    run = simulate_pool("max_min_fairness_perf", workload, table(), cluster(), Setting(restart_s=40.0))
    assert run.jct_s[0] == pytest.approx(1000.0 + 40.0)
    assert run.restarts[0] == 1
    assert run.utilisation > 0


def test_a_scattered_job_runs_at_its_scattered_throughput() -> None:
    workload = Workload.of([JobRow("wide", "quick", 2, 0.0, 9000.0)], table())
    near = simulate_pool("fifo_perf", workload, table(), cluster(2), Setting(restart_s=0.0)).jct_s[0]
    assert near == pytest.approx(9000 / 16.2)

    def wholly_on_the_first(jobs: Jobs, throughputs: Throughputs, accelerators: Accelerators, now: float) -> Allocation:
        return allocation(jobs, accelerators, np.array([[1.0, 0.0, 0.0]]))

    pool = Pool(workload, table(), cluster(1), wholly_on_the_first, Rules(restart_s=0.0), np.array([True]))
    pool.run()
    assert pool.jct[0] == pytest.approx(near)  # with one accelerator a node, two nodes are as few as can be


def test_the_makespan_stays_above_its_lower_bound() -> None:
    workload, accelerators = jobs(20, several=True, gap_s=0.0), cluster()
    run = simulate_pool("min_total_duration_perf", workload, table(), accelerators, Setting(restart_s=0.0))
    bound = lower_bound_makespan_s(workload, table(), accelerators)
    assert bound <= run.makespan_s <= 1.5 * bound


def test_figures_pictures_and_explanations(tmp_path: Path) -> None:
    workload, accelerators = jobs(12), Accelerators.of({"v100": 1, "k80": 1}, price_per_h={"v100": 2.0, "k80": 0.5})
    setting = Setting()
    isolated = isolated_jct_s(workload, table(), accelerators, setting)
    runs = [simulate_pool(p, workload, table(), accelerators, setting) for p in ("max_min_fairness_perf", "srpt_fair")]
    figures = [summarise(r, accelerators, isolated) for r in runs]
    assert all(f.cost > 0 and f.fairness_worst and f.done == 12 for f in figures)
    for name in ("p.png", "p.html"):
        write_pool_plot(tmp_path / name, runs, figures, accelerators, isolated)
    assert (tmp_path / "p.png").read_bytes()[:4] == b"\x89PNG"
    assert "srpt_fair" in (tmp_path / "p.html").read_text()
    rate = table().on(accelerators).rate[workload.job_class]
    answer = why("j3", runs[1], workload, rate, accelerators)
    assert "least work left" in answer.words
    assert "promised" in answer.words
    assert answer.jct_s
    assert answer.jct_s >= answer.alone_s
    late = list(answer.overtaken_by)
    assert all(workload.arrival_s[workload.names.index(n)] > answer.arrived_s for n in late)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (JobRow("a", "quik", 1, 0, 10), "did you mean 'quick'"),
        (JobRow("a", "quick", 3, 0, 10), "it was measured with 1, 2"),
        (JobRow("a", "quick", 1, 0, 10, weight=0.0), "weight 0; it must be above zero"),
        (JobRow("a", "quick", 1, 0, -1), "number of steps -1"),
        (JobRow("a", "quick", 0, 0, 1), "ask for at least one"),
    ],
)
def test_a_job_that_cannot_be_is_told_in_one_sentence(row: JobRow, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        Workload.of([row], table())


def test_jobs_that_run_nowhere_or_too_late_are_told() -> None:
    accelerators = Accelerators.of({"k80": 2})
    with pytest.raises(BadInput, match="makes no progress on any type"):
        check_feasible(Workload.of([JobRow("p", "picky", 1, 0, 10)], table()), table(), accelerators)
    with pytest.raises(BadInput, match="has a deadline"):
        check_feasible(Workload.of([JobRow("q", "quick", 1, 0, 1000, deadline_s=10.0)], table()), table(), accelerators)


def test_files_are_known_by_their_columns(tmp_path: Path) -> None:
    throughputs = tmp_path / "t.json"
    throughputs.write_text(json.dumps({"v100": {"('a', 1)": {"null": 2.0}, "('a', 2)": {"null": 3.0}}}))
    at = read_throughputs(throughputs)
    lines, table_, trace = tmp_path / "j.jsonl", tmp_path / "j.csv", tmp_path / "j.trace"
    lines.write_text('{"id": 7, "arrival_s": 5, "job_type": "a", "scale_factor": 2, "total_steps": 30}\n')
    table_.write_text("job_id,arrival_time,model,num_gpus,steps\n7,5,a,2,30\n")
    trace.write_text("a\tpython x\td\t-n\t1\t30\t2\t1\t-1.0\t5\n")
    for path in (lines, table_, trace):
        found = read_jobs(path, at)
        assert (found.accelerators[0], found.arrival_s[0], found.total_steps[0]) == (2, 5.0, 30.0)
    lines.write_text('{"id": 7, "job_type": "a"}\n')
    with pytest.raises(BadInput, match="there is no arrival_s and no total_steps"):
        read_jobs(lines, at)
    throughputs.write_text("[]")
    with pytest.raises(BadInput, match="holds no throughputs"):
        read_throughputs(throughputs)


def test_who_had_too_much_of_one_type_is_paid_only_the_difference_in_another() -> None:
    owed = np.array([[-300.0, 300.0], [0.0, 200.0]])
    seconds = due(standing([[0.5, 0.5], [0.0, 0.5]], [-1, -1], owed_s=owed), Rules(restart_s=0))
    assert seconds[0].tolist() == [0.0, 360.0]  # of 480 owed there, 120 were had elsewhere
    assert seconds[1].tolist() == [0.0, 380.0]


def test_a_large_job_takes_the_place_of_smaller_ones_that_are_due_less_together() -> None:
    size, owed = np.array([4, 1]), np.array([[400.0], [430.0]])
    assert choose(standing([[0.5], [0.5]], [-1, -1], size=size, owed_s=owed), np.array([4]), Rules()).tolist() == [0, -1]
    many = standing([[0.5]] * 5, [-1] * 5, size=np.array([4, 1, 1, 1, 1]), owed_s=np.array([[400.0]] + [[430.0]] * 4))
    assert choose(many, np.array([4]), Rules()).tolist() == [-1, 0, 0, 0, 0]


def test_what_is_free_is_kept_for_a_large_job_that_is_owed_and_cannot_move_others() -> None:
    pinned = np.array([False, True, False])
    fields = {"size": np.array([2, 1, 1]), "pinned": pinned}
    owing = standing([[0.5], [1.0], [0.5]], [-1, 0, -1], owed_s=np.array([[400.0], [0.0], [0.0]]), **fields)
    assert choose(owing, np.array([2]), Rules()).tolist() == [-1, 0, -1]
    assert choose(owing, np.array([2]), Rules(reserve_rounds=9)).tolist() == [-1, 0, 0]


@pytest.mark.parametrize("seed", range(4))
def test_a_large_job_among_many_small_ones_gets_what_it_was_promised(seed: int) -> None:
    lot = np.random.default_rng(seed)
    size = np.array([8] + [1] * 20)
    small = lot.uniform(0.1, 0.5, 20)
    share = np.concatenate([[0.3], small * 0.68 * 8 / small.sum()])[:, None]
    owed, on, got, waited, worst = np.zeros((21, 1)), np.full(21, -1), np.zeros(21), 0, 0
    rules = Rules(restart_s=10)
    for _ in range(200):
        on = choose(standing(share, on, owed_s=owed, size=size), np.array([8]), rules)
        assert size[on == 0].sum() <= 8
        got += on == 0
        waited = 0 if on[0] == 0 else waited + 1
        worst = max(worst, waited)
        owed = settle(owed, share, on, rules.round_s, rules)
    assert got[0] / 200 >= 0.27
    assert worst <= 8  # a few times what its share would make it wait


def test_the_bound_on_lateness_keeps_a_long_job_from_starving_and_is_a_parameter() -> None:
    accelerators = Accelerators.of({"k80": 1})
    short = [JobRow(f"s{i}", "even", 1, 3960.0 * i, 4.0 * 3600) for i in range(40)]  # an hour each, every 66 minutes
    workload = Workload.of([JobRow("long", "even", 1, 0.0, 4.0 * 4 * 3600), *short], table())
    slices = _ends_on_slices(workload, accelerators)
    late = {}
    for bound in (1.0, 1.3, 100.0):
        shares = Asked(objective_of("srpt_bounded", options={"bound": bound, "power": 1.0}))
        run = simulate_pool("srpt_bounded", workload, table(), accelerators, Setting(restart_s=0.0, round_s=60.0), shares)
        late[bound] = float((run.jct_s / slices)[workload.names.index("long")])
    assert late[1.0] <= 1.05
    assert late[1.0] < late[1.3] <= 1.35
    assert late[100.0] > 1.5


def _ends_on_slices(workload: Workload, accelerators: Accelerators) -> np.ndarray:
    """Completion times (n,) with exact slices, by small steps."""
    rate = table().on(accelerators).rate[workload.job_class]
    whole = (rate * accelerators.count / workload.accelerators[:, None]).sum(axis=1)
    most = workload.accelerators / accelerators.count.sum()
    left, took, now, step = workload.total_steps.copy(), np.full(len(workload), np.nan), 0.0, 5.0
    while np.isnan(took).any():
        here = (workload.arrival_s <= now) & np.isnan(took)
        left[here] -= step * whole[here] * np.minimum(1 / max(here.sum(), 1), most[here])
        now += step
        ended = here & (left <= 0)
        took[ended] = now - workload.arrival_s[ended]
    return took
