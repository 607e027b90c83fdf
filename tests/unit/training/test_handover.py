"""A successor that starts early: whom it asks, how long it waits, and when it does not."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from ischeduler.training import handover
from ischeduler.training.handover import relieve
from ischeduler.training.rundir import Claim, RunDir
from ischeduler.training.spool import SpoolWriter
from ischeduler.training.token import Token

ASKED = {"ISCHED_HANDOVER_S": "20"}


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path / "run")


def begun(run_dir: RunDir, attempt: int) -> SpoolWriter:
    """An incarnation that holds its claim and has said so."""
    token = Token(attempt)
    run_dir.prepare(token)
    run_dir.claim(token, Claim.mine(str(attempt)))
    spool = SpoolWriter(run_dir.spool(token), "r", token)
    spool.emit("started", job_id=str(attempt))
    return spool


def test_nobody_is_asked_when_the_plane_did_not_say_so_or_nobody_is_there(run_dir: RunDir) -> None:
    assert not relieve(run_dir, Token(1), ASKED)
    begun(run_dir, 1)
    for environ in ({}, {"ISCHED_HANDOVER_S": "0"}, {"ISCHED_HANDOVER_S": "soon"}):
        assert not relieve(run_dir, Token(2), environ)
    assert run_dir.read_control(Token(1)) is None


def test_who_has_left_is_not_waited_for(run_dir: RunDir) -> None:
    begun(run_dir, 1).emit("exit", code=85, reason="checkpointed")
    begin = time.monotonic()
    assert not relieve(run_dir, Token(2), ASKED)
    assert time.monotonic() - begin < 5
    assert run_dir.read_control(Token(1)) is None


def test_the_newest_predecessor_is_asked_and_awaited(run_dir: RunDir) -> None:
    begun(run_dir, 1)
    spool = begun(run_dir, 2)

    def leave() -> None:
        while run_dir.read_control(Token(2)) != "stop":
            time.sleep(0.05)
        spool.emit("checkpoint", name="x", epoch=1, step=9)
        spool.emit("exit", code=85, reason="checkpointed")

    thread = threading.Thread(target=leave)
    thread.start()
    assert relieve(run_dir, Token(3), ASKED)
    thread.join()
    assert run_dir.read_control(Token(1)) is None


def test_a_predecessor_that_falls_silent_or_does_not_obey_is_left_to_the_fence(
    run_dir: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = begun(run_dir, 1)
    monkeypatch.setattr(handover, "QUIET_S", 0.6)
    assert not relieve(run_dir, Token(2), ASKED)
    monkeypatch.setattr(handover, "QUIET_S", 90.0)
    spool.emit("heartbeat")
    begin = time.monotonic()
    assert not relieve(run_dir, Token(2), {"ISCHED_HANDOVER_S": "1.5"})
    assert time.monotonic() - begin >= 1.5


def test_an_unreadable_directory_keeps_nobody_from_starting(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("not a folder")
    assert not relieve(RunDir(tmp_path / "run"), Token(2), ASKED)
