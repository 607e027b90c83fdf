"""Tables, bars and live lines."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "helper"))

from helper_builders import T0, attempt, run

from ischeduler.cli import output
from ischeduler.cli.common import progress_words
from ischeduler.cli.watch import bar, eta_s, live_lines, one_line, spark
from ischeduler.core.jobs import JobState
from ischeduler.core.run import Progress, RunState
from ischeduler.core.sizes import GIB
from ischeduler.planning.cells import most_cost, request_words


def going(**progress: object):  # type: ignore[no-untyped-def]
    fields = {
        "epochs_done": 27,
        "epochs": 50,
        "loss": 0.41234,
        "checkpoint_at": T0 + 480,
        "epoch_times_s": (60.0, 62.0, 61.0),
        **progress,
    }
    job = attempt(2, wait_s=0, ran_s=None, cause=None, state=JobState.RUNNING)
    return run(state=RunState.RUNNING, attempts=(attempt(1), job), progress=Progress(**fields), spent=0.21)  # type: ignore[arg-type]


def test_table_columns_are_stable_and_last_is_not_padded(capsys: pytest.CaptureFixture[str]) -> None:
    output.table(("A", "LONG HEADER", "C"), [("1", "x", "tail"), ("22", "yy", "t")])
    assert capsys.readouterr().out == "A   LONG HEADER  C\n1   x            tail\n22  yy           t\n"


def test_no_colour_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert output.style("x", "green") == "x"


def test_no_color_is_obeyed_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert output.style("x", "green") == "\x1b[32mx\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert output.style("x", "green") == "x"


def test_coloured_cells_do_not_shift_columns(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(output, "coloured", lambda: True)
    output.table(("S", "T"), [(output.style("ok", "green"), "1"), ("long", "2")])
    assert capsys.readouterr().out.splitlines()[1:] == ["\x1b[32mok\x1b[0m    1", "long  2"]


def test_bar_and_spark() -> None:
    assert bar(0.5, 4) == "━━──"
    assert bar(2.0, 4) == "━━━━"
    assert spark([1.0, 0.0]) == "█▁"
    assert spark([1.0, 1.0]) == "▄▄"


def test_live_lines_say_what_matters() -> None:
    first, second = live_lines(going(peak_gpu_bytes=23 * GIB), [0.5, 0.41234], T0 + 600)
    assert "job 2 of about 2  RUNNING  epoch 27/50" in first
    assert "54%  loss 0.4123 █▁" in first
    assert (
        second
        == "  checkpoint 2m ago · gpu memory 23 GB of 24 GB predicted · limit in 50m · 23m of training left · spent $0.21 of about $0.35"
    )


def test_eta_is_the_median_epoch_times_what_is_left() -> None:
    assert eta_s(going()) == 23 * 61.0
    assert eta_s(going(epoch_times_s=())) is None


def test_one_line_and_progress_words() -> None:
    assert one_line(going(), T0 + 600).startswith("r-1 RUNNING attempt 2 on pitzer/gpu (job 102): epoch 27/50 · loss 0.4123")
    assert progress_words(going(), T0 + 600).endswith("checkpoint 2m ago · spent $0.21 of about $0.35")


def test_the_question_before_submitting() -> None:
    from helper_builders import plan

    words = request_words(plan(partition="gpudbg", run_h=3, segments=3, cost=0.45, signal_lead_s=120))
    assert words == "Requesting 3 x 1h00 on gpudbg, SIGUSR2 120 s before each limit. At most $0.45."
    assert request_words(plan(account="abc"), 2.0).endswith("before the limit. At most $2.00, from account abc.")


def test_at_most_means_every_requested_job_to_its_limit() -> None:
    from helper_builders import plan

    three_hours = plan(run_h=2, segments=2, cost=0.348)
    assert most_cost(three_hours) == pytest.approx(0.348)
    longer = dataclasses.replace(
        three_hours, segments=tuple(dataclasses.replace(s, walltime_s=7200) for s in three_hours.segments)
    )
    assert most_cost(longer) == pytest.approx(0.696)
