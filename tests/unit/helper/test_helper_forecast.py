"""``isched forecast``: what less would gain, the picture, holes, and the queue of a trace at an instant."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from ischeduler.core.errors import BadInput
from ischeduler.core.snapshot import NodeCounts, QueuedJob, QueueSnapshot
from ischeduler.helper.forecast import EDGES_S, Question, of_partition

pytest.importorskip("numba", reason="numba is not installed")

NOW, HOUR = 1_800_000_000.0, 3600.0


def running(job_id: str, gpus: int, left_h: float) -> QueuedJob:
    """One that has an hour behind it."""
    return QueuedJob(job_id, "gpu", "RUNNING", 1, gpus, NOW - HOUR - 9, NOW - HOUR, (1 + left_h) * HOUR, user="ann", name="a")


def queue(*jobs: QueuedJob, idle: int) -> QueueSnapshot:
    return QueueSnapshot("c", NOW, (NodeCounts("gpu", "v100", mixed=2, idle_gpus=idle, total_gpus=8),), jobs)


def test_fewer_gpus_start_where_more_have_to_wait() -> None:
    told = of_partition(queue(running("1", 6, 20.0), idle=2), (), "gpu", Question(1, 4, 8 * HOUR, what_if=True))
    assert told.wait is not None
    assert told.wait.p50 > HOUR
    less = {v.words: v for v in told.what_if}
    assert {"--gpus 2 (2 less)", "--time 4h00 (4h00 less)", "--time 6h00 (2h00 less)"} <= set(less)
    two = less["--gpus 2 (2 less)"]
    assert two.wait.p90 < 120
    assert two.sooner_s == pytest.approx(told.wait.p50, rel=0.2)
    assert less["--time 4h00 (4h00 less)"].sooner_s == 0, "nobody is ahead: asking for less time frees no GPU"
    assert [(h.amount, h.unit) for h in told.holes] == [(2.0, "GPU")]


def test_less_time_fits_into_the_hole_before_a_job_that_waits() -> None:
    ahead = QueuedJob("2", "gpu", "PENDING", 1, 8, NOW - 60, None, 20 * HOUR, 9, reason="Resources")
    told = of_partition(queue(running("1", 6, 6.0), ahead, idle=2), (), "gpu", Question(1, 2, 8 * HOUR, what_if=True, rolls=100))
    assert told.wait is not None
    short = next(v for v in told.what_if if v.words == "--time 4h00 (4h00 less)")
    assert short.wait.p50 < 120 < told.wait.p50
    assert short.sooner_s > HOUR


def test_chances_and_picture_are_those_of_the_roll_outs() -> None:
    told = of_partition(queue(running("1", 8, 5.0), idle=0), (), "gpu", Question(2, 4, HOUR))
    assert told.wait is not None
    assert len(told.picture) == len(EDGES_S)
    assert sum(told.picture) == pytest.approx(1.0)
    within = {edge: sum(told.picture[: i + 1]) for i, edge in enumerate(EDGES_S)}
    assert told.chances == {"600": pytest.approx(within[600.0]), "3600": pytest.approx(within[3600.0]), "28800": pytest.approx(within[8 * HOUR])}
    assert 0 < told.chances["3600"] < told.chances["28800"] == pytest.approx(1.0)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Eight nodes, always full: jobs of two hours that ask for three."""
    rng = np.random.default_rng(3)
    submit = np.sort(rng.integers(0, 40 * 3600, 200))
    start = submit + rng.integers(0, 3600, 200)
    rows = [f"{a},{b},{b + 7200},{rng.integers(1, 3)},10800" for a, b in zip(submit, start, strict=True)]
    path = tmp_path / "site.csv"
    path.write_text("\n".join(["submit_s,start_s,end_s,req_units,req_walltime_s", *rows]) + "\n")
    return path


def test_the_queue_of_a_trace_at_an_instant(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from typer.testing import CliRunner

    from ischeduler.cli.forecast import app

    asked = ["--trace", str(trace), "--at", str(20 * 3600), "--units", "16", "--nodes", "8", "--time", "4h", "--what-if"]
    shown = CliRunner().invoke(app, asked, standalone_mode=False)
    assert shown.return_value == 0, shown.output
    assert "8 nodes, 4h00" in shown.output
    assert "WHEN: columns up to 1m 10m 30m" in shown.output
    assert any(c in shown.output for c in "▁▂▃▄▅▆▇█")
    assert "--nodes 4 (4 less)" in shown.output
    (told,) = json.loads(CliRunner().invoke(app, [*asked, "--json"], standalone_mode=False).output)["forecasts"]
    assert told["running"] > 0
    assert {v["nodes"] for v in told["what_if"]} == {8, 4}
    too_many = CliRunner().invoke(app, [*asked[:6], "--nodes", "17"], standalone_mode=False)
    assert too_many.return_value == 1
    assert "16 nodes are up, 17 asked for" in too_many.output
    with pytest.raises(BadInput, match="belong together"):
        CliRunner().invoke(app, ["--trace", str(trace)], standalone_mode=False, catch_exceptions=False)
