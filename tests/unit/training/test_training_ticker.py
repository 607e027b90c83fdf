"""The job calls the plane: seldom, never twice at once, never in the training's way."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from ischeduler.training.ticker import Ticker, ticker_from_environ


def counting(folder: Path, more: str = "") -> list[str]:
    return [sys.executable, "-c", f"open({str(folder / 'calls')!r}, 'a').write('x'); {more}"]


def calls(folder: Path) -> int:
    path = folder / "calls"
    return len(path.read_text()) if path.exists() else 0


def told(folder: Path, mode: int = 0o600, **entry: object) -> dict[str, str]:
    path = folder / "tick.json"
    path.write_text(json.dumps({"command": counting(folder), "environment": {}, "every_s": 300, **entry}))
    path.chmod(mode)
    return {"ISCHED_TICK_FILE": str(path)}


def test_a_look_is_started_only_when_due(tmp_path: Path) -> None:
    ticker = Ticker(counting(tmp_path), {}, every_s=1000)
    for _ in range(5):
        ticker.look()
    ticker.last_look(None)
    assert calls(tmp_path) == 1


def test_looks_never_overlap(tmp_path: Path) -> None:
    ticker = Ticker(counting(tmp_path, "import time; time.sleep(60)"), {}, every_s=0)
    for _ in range(5):
        ticker.look()
        time.sleep(0.05)
    ticker.last_look(time.time() + 3.5)  # one and a half seconds for the one that hangs, then it is cut off
    assert calls(tmp_path) <= 1


def test_it_is_called_with_the_settings_of_the_file(tmp_path: Path) -> None:
    out = tmp_path / "seen"
    command = [sys.executable, "-c", f"import os; open({str(out)!r}, 'w').write(os.environ['ISCHED_PATHS_STATE'])"]
    ticker = ticker_from_environ(told(tmp_path, command=command, environment={"ISCHED_PATHS_STATE": "/home/ada/state"}))
    assert ticker is not None
    ticker.last_look(None)
    assert out.read_text() == "/home/ada/state"


def test_the_training_leaves_time_for_the_last_look() -> None:
    ends = Ticker.training_ends
    assert (ends(None, 0.0), ends(7200.0, 0.0), ends(60.0, 0.0), ends(5.0, 9.0)) == (None, 7170.0, 48.0, 5.0)


def test_nobody_asked() -> None:
    assert ticker_from_environ({}) is None


@pytest.mark.parametrize(("mode", "entry", "words"), [(0o644, {}, "mode 600"), (0o600, {"every_s": "soon"}, "soon")])
def test_a_file_that_is_not_to_be_trusted_is_left_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], mode: int, entry: dict[str, object], words: str
) -> None:
    assert ticker_from_environ(told(tmp_path, mode, **entry)) is None
    assert words in capfd.readouterr().err


def test_a_command_that_is_gone_is_only_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ticker = Ticker([str(tmp_path / "gone")], {}, every_s=0)
    ticker.look()
    ticker.last_look(None)
    assert "cannot be called" in capfd.readouterr().err
