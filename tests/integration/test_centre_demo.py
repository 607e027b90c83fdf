"""The guided demo of a whole centre, with short trainings: what `scripts/centre demo` does, from the first start to the report."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ischeduler.sandbox import Sandbox, list_sandboxes
from ischeduler.testing.broker import BrokerMissing, find_program
from ischeduler.testing.postgres import PostgresMissing, find_programs

pytestmark = [pytest.mark.slurm, pytest.mark.postgres, pytest.mark.slow, pytest.mark.timeout(1500)]
DEMO = Path(__file__).resolve().parents[2] / "examples" / "centre" / "centre.py"
LIMIT_S = 1400


@pytest.fixture
def folder(slurm_host: None) -> Iterator[Path]:
    """Where ordinary accounts can reach it; gone afterwards. Skips where a part is missing, and while somebody plays with the centre."""
    try:
        find_program()
        find_programs()
    except (BrokerMissing, PostgresMissing) as missing:
        pytest.skip(str(missing))
    if "centre" in list_sandboxes():
        pytest.skip("a centre is up on this machine: the demo's place is not here")
    place = Path(f"/var/lib/ischeduler-test-{DEMO.parent.name}")
    yield place
    if "centre" in list_sandboxes():
        Sandbox.open("centre").down()
    shutil.rmtree(place, ignore_errors=True)


def test_three_users_five_trainings_three_faults(folder: Path) -> None:
    argv = [sys.executable, str(DEMO), "demo", "--port", "0", "--folder", str(folder), "--training-s", "6"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    told = json.loads((folder / "report.json").read_text())
    assert told["states"] == ["completed"] * 5
    assert [c for c in told["checks"] if not c[1]] == []
    assert len(told["checks"]) >= 8
    assert [f["what"].partition(",")[0] for f in told["faults"]] == ["kill -9 of plane worker 1", "kill -9 of the Kafka broker", "kill -9 of slurmctld"]
    assert (folder / "report.md").read_text().count("held: ") == len(told["checks"])
    if shutil.which("chromium"):
        assert sorted(p.name for p in folder.glob("*.png")) == ["admin.png", "clusters.png", "run.png", "runs.png"]
    assert "centre" not in list_sandboxes(), "nothing stays but the folder"
