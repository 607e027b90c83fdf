"""Claims, bases, control words and the stopped note of a run's directory."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from ischeduler.training.lineage import CheckpointName
from ischeduler.training.rundir import Claim, DoubledSubmission, RunDir
from ischeduler.training.token import Token

NAME = CheckpointName(3, 120, Token(1))


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    made = RunDir(tmp_path / "run")
    made.prepare(Token(1))
    return made


def test_only_the_owner_may_enter(run_dir: RunDir) -> None:
    assert run_dir.path.stat().st_mode & 0o777 == 0o700


def test_another_job_with_the_same_token_is_a_double(run_dir: RunDir) -> None:
    run_dir.claim(Token(1), Claim.mine("100"))
    with pytest.raises(DoubledSubmission, match="job 100"):
        run_dir.claim(Token(1), Claim.mine("101"))
    assert run_dir.read_claim(Token(1)).job_id == "100"


def test_the_same_job_may_claim_again_once_its_process_is_gone(run_dir: RunDir) -> None:
    alive = Claim.mine("100")
    run_dir.claim(Token(1), alive)
    with pytest.raises(DoubledSubmission):
        run_dir.claim(Token(1), replace(alive, pid=alive.pid))
    (run_dir.attempt(Token(1)) / "claim").unlink()
    run_dir.claim(Token(1), replace(alive, pid=2**22 + 7))
    run_dir.claim(Token(1), alive)
    assert run_dir.read_claim(Token(1)).pid == os.getpid()


def test_a_claim_on_another_host_is_never_judged_dead(run_dir: RunDir) -> None:
    run_dir.claim(Token(1), replace(Claim.mine("100"), host="elsewhere", pid=2**22 + 7))
    with pytest.raises(DoubledSubmission, match="elsewhere"):
        run_dir.claim(Token(1), Claim.mine("100"))


def test_without_a_job_id_no_claim_is_shared(run_dir: RunDir) -> None:
    run_dir.claim(Token(1), replace(Claim.mine(None), pid=2**22 + 7))
    with pytest.raises(DoubledSubmission):
        run_dir.claim(Token(1), Claim.mine(None))


def test_a_torn_claim_is_still_a_claim(run_dir: RunDir) -> None:
    (run_dir.attempt(Token(1)) / "claim").write_text('{"job_id": "1')
    assert run_dir.read_claim(Token(1)) is None
    with pytest.raises(DoubledSubmission):
        run_dir.claim(Token(1), Claim.mine("1"))


def test_bases_leave_out_what_was_not_written(run_dir: RunDir) -> None:
    run_dir.write_base(Token(1), None)
    run_dir.write_base(Token(2), NAME)
    run_dir.prepare(Token(3))
    run_dir.prepare(Token(4))
    (run_dir.attempt(Token(4)) / "base.json").write_text('{"checkpoint": "no such na')
    run_dir.prepare(Token(5))
    (run_dir.attempt(Token(5)) / "base.json").write_text('{"checkpoint": "weights-final"}')
    assert run_dir.bases() == {Token(1): None, Token(2): NAME}


def test_control_words(run_dir: RunDir) -> None:
    assert run_dir.read_control(Token(1)) is None
    run_dir.write_control(Token(1), "move")
    assert run_dir.read_control(Token(1)) == "move"
    run_dir.control(Token(1)).write_text("explode\n")
    assert run_dir.read_control(Token(1)) is None
    with pytest.raises(ValueError, match="explode"):
        run_dir.write_control(Token(1), "explode")


def test_stopped_note(run_dir: RunDir) -> None:
    assert run_dir.read_stopped(Token(1)) is None
    run_dir.mark_stopped(Token(1), 85)
    assert run_dir.read_stopped(Token(1)) == 85
    run_dir.clear_stopped(Token(1))
    run_dir.clear_stopped(Token(1))
    assert run_dir.read_stopped(Token(1)) is None
