"""``isched profile --scaled`` on the embedded batch system: short trainings through the plane, then a run time that was learned."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HEAD = """# isched: name = "sleeper"
# isched: epochs = 8
# isched: samples = 20480
# isched: batch_size = 10
# isched: checkpoints = false
# isched: command = ["{python}", "train.py", {arguments}]
import sys, time
time.sleep(int(sys.argv[1]) * int(sys.argv[2]) * 0.001)
{last}
"""
ASSUME = '[[given]]\nwait = 1\nhost_memory = "100M"\nstartup = 0.2\n'


def place(folder: Path, *, arguments: str = '"{samples}", "{epochs}"', last: str = "") -> Path:
    (folder / "train.py").write_text(HEAD.format(python=sys.executable, arguments=arguments, last=last))
    (folder / "ischeduler.toml").write_text(
        f'[batch]\nkind = "local"\n[paths]\nstate = "{folder}/state"\ndata = "{folder}/data"\n[plane]\nautostart = false\ninterval = "0.2s"\n'
    )
    return folder


def isched(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("ISCHED_", "SLURM"))} | {"HOME": str(folder)}
    command = [sys.executable, "-m", "ischeduler.cli.main", *arguments]
    return subprocess.run(command, cwd=folder, env=env, input="", capture_output=True, text=True, timeout=240, check=False)


def test_the_run_time_of_the_whole_is_learned_from_short_runs(tmp_path: Path) -> None:
    folder = place(tmp_path)
    done = isched(folder, "profile", "train.py", "--scaled", "--yes", "--max-cost", "1", "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["profile"]
    assert found["left_out"] == 0
    assert len({r["samples"] for r in found["runs"]}) == 4
    assert found["cost"] <= 1
    assert found["after"]["source"].startswith("scaling@")
    truth_s = 20480 * 8 * 0.001
    assert 0.7 * truth_s < found["after"]["p50"] < 1.4 * truth_s


def test_a_cap_that_allows_too_little_and_a_no_submit_nothing(tmp_path: Path) -> None:
    folder = place(tmp_path)
    poor = isched(folder, "profile", "train.py", "--scaled", "--yes", "--max-cost", "0.0000001")
    assert (poor.returncode, "--max-cost" in poor.stderr) == (1, True), poor.stderr
    unsure = isched(folder, "profile", "train.py", "--scaled", "--max-cost", "1")
    assert (unsure.returncode, "nothing was submitted" in unsure.stderr) == (2, True), unsure.stderr
    assert json.loads(isched(folder, "runs", "--json").stdout)["runs"] == []


def test_a_command_without_a_size_is_told_how(tmp_path: Path) -> None:
    done = isched(place(tmp_path, arguments='"1", "{epochs}"'), "profile", "train.py", "--scaled", "--yes")
    assert (done.returncode, "{samples}" in done.stderr) == (2, True), done.stderr


def test_a_short_run_that_fails_stops_the_others(tmp_path: Path) -> None:
    folder = place(tmp_path, last="sys.exit(3)")
    done = isched(folder, "profile", "train.py", "--scaled", "--yes", "--max-cost", "1")
    assert (done.returncode, "isched logs" in done.stderr) == (1, True), done.stderr
    assert len(json.loads(isched(folder, "runs", "--json").stdout)["runs"]) == 1
