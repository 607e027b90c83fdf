"""Sia's simulation: the fit, the batch, the packing, and a job's life."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ischeduler.core.errors import BadInput
from ischeduler.simulator.pools.sia.applications import placement_number
from ischeduler.simulator.pools.sia.goodput import Data, Model, _error, best, fit  # pyright: ignore[reportPrivateUsage]
from ischeduler.simulator.pools.sia.simulate import CLUSTER, Simulation, mean_jct_s, packed, read_workload, runs

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
