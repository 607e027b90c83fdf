"""The plane's side of the run directory, on a real folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ischeduler.batch.run_files import SharedRunFiles
from ischeduler.core.estimate import Estimate
from ischeduler.core.jobs import Resources
from ischeduler.core.plan import Needs, Plan
from ischeduler.core.run import Run, RunState
from ischeduler.core.workload import Workload
from ischeduler.training.rundir import RunDir
from ischeduler.training.token import Token, read_fence


def make(folder: Path) -> Run:
    zero = Estimate.exact(0.0, "s", "test@1")
    workload = Workload(name="toy", epochs=4, command=("python", "train.py"))
    plan = Plan(1, "c", "p", "n", workload, Resources(), (), Needs(), zero, zero, zero, zero)
    return Run("r-1", "alice", plan, RunState.PLANNED, str(folder / "r-1"), 0.0)


def test_prepare_twice(tmp_path: Path):
    run, files = make(tmp_path), SharedRunFiles()
    files.prepare(run)
    files.prepare(run)
    folder = Path(run.directory)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "logs").is_dir()
    about = json.loads((folder / "run.json").read_text())
    assert about == {"v": 1, "run": "r-1", "name": "toy", "epochs": 4, "command": ["python", "train.py"]}


def test_fence_only_rises(tmp_path: Path):
    run, files = make(tmp_path), SharedRunFiles()
    files.prepare(run)
    for token in ("2.0", "3.1", "1.0"):
        files.raise_fence(run, token)
    assert read_fence(Path(run.directory)) == Token(3, 1)


def test_control_is_what_the_job_reads(tmp_path: Path):
    run, files = make(tmp_path), SharedRunFiles()
    files.prepare(run)
    files.control(run, "2.0", "stop")
    files.control(run, "2.0", "move")
    assert RunDir(Path(run.directory)).read_control(Token(2, 0)) == "move"


def test_log_tail(tmp_path: Path):
    run, files = make(tmp_path), SharedRunFiles()
    files.prepare(run)
    assert files.log_tail(run, 1) == ""
    (Path(run.directory) / "logs" / "1.out").write_bytes(b"x" * 200_000 + b"\nexceeded memory limit\xff\n")
    tail = files.log_tail(run, 1)
    assert "exceeded memory limit" in tail
    assert len(tail) < 70_000


def test_a_planted_link_is_not_followed(tmp_path: Path):
    run, files = make(tmp_path), SharedRunFiles()
    files.prepare(run)
    (tmp_path / "secret").write_text("secret")
    (Path(run.directory) / "logs" / "1.out").symlink_to(tmp_path / "secret")
    with pytest.raises(OSError, match="symbolic links"):
        files.log_tail(run, 1)
