"""Figures, curves, tables and pictures of a simulation; synthetic traces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ischeduler.core.errors import BadInput
from ischeduler.simulator.plots import write_plot
from ischeduler.simulator.readers import read_trace
from ischeduler.simulator.results import write_results
from ischeduler.simulator.summary import summarise, thinned
from ischeduler.simulator.synthetic import synthetic_trace
from ischeduler.simulator.trace import Trace, make_trace


def small() -> tuple[Trace, Any]:
    """Four jobs on 4 units: one at once, one after it, one killed at its limit, one too wide."""
    trace = make_trace("small", {
        "job_id": np.array([1, 2, 3, 4]), "submit_s": np.array([0, 5, 10, 10]), "units": np.array([4, 4, 2, 9]),
        "run_s": np.array([10, 10, 50, 1]), "limit_s": np.array([20, 10, 20, 1]), "user": (np.array([0, 1, 0, 0]), ["ann", "bob"]),
    })  # fmt: skip
    return trace, np.array([0, 10, 20, -1])


def test_the_figures() -> None:
    trace, start = small()
    s, curves = summarise(trace, start, 4, "easy")
    assert (s.jobs, s.started, s.never_started, s.makespan_s) == (4, 3, 1, 40)
    assert s.utilisation == pytest.approx((4 * 10 + 4 * 10 + 2 * 20) / (4 * 40))
    assert s.wait_mean_s == pytest.approx((0 + 5 + 10) / 3)
    assert (s.wait_p50_s, s.wait_max_s, s.waited_share) == (5, 10, pytest.approx(2 / 3))
    assert s.bounded_slowdown_mean == pytest.approx((1 + 1.5 + 1.5) / 3)
    assert s.queue_depth_max == 1
    assert s.queue_depth_mean == pytest.approx(15 / 40)
    assert s.recorded_wait_mean_s is None
    assert curves.second.tolist() == [0, 5, 10, 20, 40]
    assert curves.used.tolist() == [4, 4, 4, 2, 0]
    assert curves.depth.tolist() == [0, 1, 1, 0, 0]


def test_thinning_keeps_the_area_and_the_peak() -> None:
    second, value = np.array([0, 3, 4, 10]), np.array([1, 100, 2, 0])
    edges, mean, highest = thinned(second, value, points=5)
    assert mean.sum() * 2 == pytest.approx(1 * 3 + 100 * 1 + 2 * 6)
    assert highest.max() == 100
    assert len(edges) == 5


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_results_can_be_read_back_as_a_trace(tmp_path: Path, suffix: str) -> None:
    trace, start = small()
    path = tmp_path / f"out{suffix}"
    write_results(path, trace, start)
    back = read_trace(path)
    assert back.start_s.tolist() == [0, 10, 20], "the job that never started has no run time and is left out"
    assert back.run_s.tolist() == [10, 10, 20], "held until the limit"
    assert [back.users[u] for u in back.user][:2] == ["ann", "bob"]
    assert back.notes == ("one job without run time (never started or not ended) is left out",)
    assert [p.name for p in tmp_path.iterdir()] == [path.name], "nothing half-written is left"


def test_results_of_an_unknown_kind_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"\.parquet or \.csv"):
        write_results(tmp_path / "out.xls", *small())


@pytest.mark.parametrize("suffix", [".png", ".svg", ".html"])
def test_the_picture(tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    trace, start = small()
    path = tmp_path / f"out{suffix}"
    write_plot(path, *summarise(trace, start, 4, "easy"))
    data = path.read_bytes()
    assert data.startswith({".png": b"\x89PNG", ".svg": b"<?xml", ".html": b"<!doctype html>"}[suffix])
    if suffix == ".html":
        assert b"<svg" in data
        assert b"src=" not in data, "one file that needs nothing else"
        assert b"utilisation" in data
    with pytest.raises(BadInput, match=r"\.png, \.svg or \.html"):
        write_plot(tmp_path / "out.doc", *summarise(trace, start, 4, "easy"))


def test_a_simulation_in_which_nothing_starts_has_a_picture_too(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    trace, start = small()
    summary, curves = summarise(trace, np.full_like(start, -1), 1, "fcfs")
    assert (summary.started, summary.utilisation, summary.wait_mean_s) == (0, 0.0, 0.0)
    write_plot(tmp_path / "none.png", summary, curves)


def test_synthetic_traces_are_seeded_and_keep_their_load() -> None:
    one, same, other = (synthetic_trace(4000, 64, seed=s) for s in (1, 1, 2))
    assert (one.submit_s == same.submit_s).all()
    assert (one.run_s == same.run_s).all()
    assert (one.run_s != other.run_s).any()
    asked = (one.units * np.minimum(one.run_s, one.limit_s)).sum() / (64 * one.span_s)
    assert asked == pytest.approx(0.85, rel=0.15)
    assert (np.diff(one.submit_s) >= 0).all()
    assert (one.units <= 64).all()
    assert (one.limit_s >= one.run_s).mean() > 0.95
    with pytest.raises(BadInput, match="must be positive"):
        synthetic_trace(0, 64)
