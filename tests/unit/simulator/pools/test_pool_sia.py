"""Sia's simulation: the fit, the batch, the packing, and a job's life."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from benchmarks.sia import draw_apart

from ischeduler.core.errors import BadInput
from ischeduler.simulator.pools.sia.applications import placement_number
from ischeduler.simulator.pools.sia.goodput import Data, Model, _error, best, fit  # pyright: ignore[reportPrivateUsage]
from ischeduler.simulator.pools.sia.simulate import CLUSTER, Rules, Simulation, mean_jct_s, packed, read_workload, runs

DATA = Path(__file__).resolve().parents[5] / "shared" / "data" / "sia"
TRUE = Model(0.02, 0.001, 0.03, 0.002, 0.01, 0.001, 1.5)


def observed() -> dict[tuple[int, int, int], tuple[float, float]]:
    seen = {}
    for nodes, replicas, local in ((1, 1, 16), (1, 2, 16), (1, 4, 32), (2, 8, 32), (3, 12, 64), (1, 4, 128)):
        step = float(TRUE.seconds(np.array(nodes), np.array(replicas), np.array(local), 0))
        seen[nodes, replicas, local] = (step, step - (TRUE.alpha_c + TRUE.beta_c * local))
    return seen


def test_a_fit_predicts_what_was_seen() -> None:
    found = fit(observed())
    for (nodes, replicas, local), (step, _) in observed().items():
        assert float(found.seconds(np.array(nodes), np.array(replicas), np.array(local), 0)) == pytest.approx(step, rel=0.1)


def test_the_objectives_gradient_is_its_slope() -> None:
    keys, times = np.array(list(observed()), np.float64), np.array(list(observed().values()))
    data = Data(keys[:, 0], keys[:, 1], keys[:, 2], np.log(times[:, 0] - times[:, 1]), np.log(times[:, 0]))
    at = np.array([0.03, 0.002, 0.02, 0.003, 0.02, 0.002, 1.3])
    _, slope = _error(at, data)
    for i in range(7):
        step = np.zeros(7)
        step[i] = 1e-7
        assert slope[i] == pytest.approx((_error(at + step, data)[0] - _error(at - step, data)[0]) / 2e-7, rel=1e-3, abs=1e-5)


def test_noisier_gradients_want_larger_batches() -> None:
    nodes, replicas = np.array([1, 1, 2]), np.array([1, 4, 8])
    quiet = best(TRUE, 1.0, 1.0, 32, 4096, (1, 256), nodes, replicas)
    noisy = best(TRUE, 1.0, 1000.0, 32, 4096, (1, 256), nodes, replicas)
    assert (noisy.local * (noisy.accumulations + 1) >= quiet.local * (quiet.accumulations + 1)).all()
    assert (np.diff(noisy.goodput) > 0).all()


def test_accelerators_are_packed_largest_first_and_never_twice() -> None:
    placed = packed([("a", 1), ("b", 8), ("c", 2), ("d", 4)], 4, 4)
    assert runs(placed["b"]) == (4, 4)
    used = [node for nodes in placed.values() for node in nodes]
    assert all(used.count(node) <= 4 for node in range(4))
    assert sorted(map(len, placed.values())) == [1, 2, 4, 8]


def test_rotations_of_a_placement_are_one() -> None:
    assert placement_number((4, 1)) == placement_number((1, 4)) == 14


def test_a_workload_without_its_columns_is_told(tmp_path: Path) -> None:
    (tmp_path / "w.csv").write_text("name,time\na,1\n")
    with pytest.raises(BadInput, match="no column application, num_replicas, batch_size"):
        read_workload(tmp_path / "w.csv", tmp_path, ("aws",))
    (tmp_path / "w.csv").write_text("name,time,application,num_replicas,batch_size\na,1,llama,1,8\n")
    with pytest.raises(BadInput, match="nobody measured the application 'llama'"):
        read_workload(tmp_path / "w.csv", tmp_path, ("aws",))


@pytest.mark.skipif(not DATA.is_dir(), reason="the shared workloads are not here")
def test_the_first_jobs_of_a_workload_end() -> None:
    jobs = read_workload(DATA / "workloads" / "philly" / "workload-1.csv", DATA / "traces", tuple(CLUSTER))[:6]
    result = Simulation(jobs, CLUSTER).run()
    assert len(result.jct_s) == 6
    assert 100 < mean_jct_s(result) < 100_000


def measured(folder: Path) -> Path:
    """Applications 'one' and 'two' on a type 'fast', as ``TRUE`` takes them, with noisy gradients; ten epochs."""
    for name in ("one", "two"):
        (folder / name).mkdir()
        rows = ["placement,local_bsz,step_time,sync_time"]
        scale = ["num_nodes,num_replicas,local_bsz,step_time,sync_time"]
        for number in range(1, 9):
            nodes = -(-number // 4)
            for local in (8, 32, 128, 512):
                step = float(TRUE.seconds(np.array(nodes), np.array(number), np.array(local), 0))
                times = f"{local},{step},{step - (TRUE.alpha_c + TRUE.beta_c * local)}"
                if number in (1, 2, 4, 8):
                    rows.append(f"{'4' * (nodes - 1)}{number - 4 * (nodes - 1)},{times}")
                scale.append(f"{nodes},{number},{times}")
        (folder / name / "placements-fast.csv").write_text("\n".join(rows))
        (folder / name / "scalability-fast.csv").write_text("\n".join(scale))
        for batch in (32, 4096):
            epochs = [f"{1500 * (e + 1)},{1500 * (e + 1)},1.0,100.0" for e in range(10)]
            (folder / name / f"validation-{batch}.csv").write_text("\n".join(["progress,iteration,grad_sqr,grad_var", *epochs]))
    return folder


def played(folder: Path, second: str, *, shared: bool) -> tuple[Simulation, list[dict[str, int]]]:
    """A job of 'one' and, when that has ended, one of ``second``; what each held (accelerators) round by round."""
    (folder / "w.csv").write_text(f"name,time,application,num_replicas,batch_size\nfirst,0,one,1,4096\nlater,6000,{second},1,4096\n")
    jobs = read_workload(folder / "w.csv", folder, ("fast",))
    held: list[dict[str, int]] = []
    rules = Rules(decimals=None, shared=shared, measured_restarts=True)
    simulation = Simulation(jobs, {"fast": (2, 4)}, rules, watch=lambda problem, chosen: held.append({j.name: sum(j.placement) for j in jobs}))
    simulation.run()
    return simulation, held


def first_size(held: list[dict[str, int]], name: str) -> int:
    return next(now[name] for now in held if now[name])


def test_a_job_starts_with_what_an_earlier_one_of_its_application_saw(tmp_path: Path) -> None:
    folder = measured(tmp_path)
    alone, before = played(folder, "one", shared=False)
    shared, after = played(folder, "one", shared=True)
    assert alone.jobs[0].completed_s == shared.jobs[0].completed_s
    assert float(alone.jobs[0].completed_s or 0) < 6000
    assert first_size(before, "later") == 1
    assert first_size(after, "later") == 8
    assert shared.jobs[1].restarts == 0 < alone.jobs[1].restarts
    assert float(shared.jobs[1].completed_s or 0) < float(alone.jobs[1].completed_s or 0)


def test_another_application_tells_a_job_nothing(tmp_path: Path) -> None:
    folder = measured(tmp_path)
    alone, before = played(folder, "two", shared=False)
    shared, after = played(folder, "two", shared=True)
    assert before == after
    assert [j.completed_s for j in alone.jobs] == [j.completed_s for j in shared.jobs]


@pytest.mark.parametrize(("measured_restarts", "cost_s"), [(False, 30.0), (True, 300.0)])
def test_a_restart_counts_as_much_as_it_is_expected_to_cost(tmp_path: Path, measured_restarts: bool, cost_s: float) -> None:
    """A job 300 s old on one of two configurations of equal goodput: the other is worth age / (age + cost) of it."""
    folder = measured(tmp_path)
    (folder / "w.csv").write_text("name,time,application,num_replicas,batch_size\nfirst,0,one,1,4096\n")
    jobs = read_workload(folder / "w.csv", folder, ("fast",))
    jobs[0].apps["fast"].restart_s = 300.0
    costs: list[np.ndarray] = []
    rules = Rules(power=-1.0, decimals=None, measured_restarts=measured_restarts)
    simulation = Simulation(jobs, {"fast": (2, 4)}, rules, watch=lambda problem, chosen: costs.append(problem.cost))
    simulation.rows["first"] = ((jobs[0].revision, jobs[0].most_replicas()), np.array([1.0, 1.0, 0.0, 0.0]))
    simulation.held["first"], simulation.now = 0, 300.0
    simulation._decide(jobs)  # pyright: ignore[reportPrivateUsage]
    assert costs[0][0, 0] / costs[0][0, 1] == pytest.approx(300 / (300 + cost_s))


def test_jobs_that_are_drawn_apart_differ_by_one_factor_and_leave_the_others_alone(tmp_path: Path) -> None:
    folder = measured(tmp_path)
    (folder / "w.csv").write_text("name,time,application,num_replicas,batch_size\na,0,one,1,4096\nb,0,one,1,4096\n")
    jobs = read_workload(folder / "w.csv", folder, ("fast",))
    true = jobs[0].apps["fast"]
    draw_apart(jobs, 0.3)
    factors = []
    for job in jobs:
        pairs = [(job.apps["fast"].seconds(place, local), true.seconds(place, local)) for place, local in (((1,), 32), ((4,), 128), ((4, 4), 512))]
        ratios = [own[i] / same[i] for own, same in pairs if own and same for i in (0, 1)]
        assert len(ratios) == 6
        assert ratios == pytest.approx([ratios[0]] * 6)
        assert job.apps["fast"].noise(32, 0)[0] == true.noise(32, 0)[0]
        factors.append(ratios[0])
    assert abs(factors[0] / factors[1] - 1) > 0.01
    assert true.seconds((1,), 32) == pytest.approx((float(TRUE.seconds(1, 1, 32, 0)), float(TRUE.seconds(1, 1, 32, 0)) - TRUE.alpha_c - 32 * TRUE.beta_c))
