"""A successor that starts early: whom it asks, how long it waits, and when it does not."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from ischeduler.training import handover
from ischeduler.training.handover import gives_back, relieve
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


def early(run_dir: RunDir, token: Token, in_s: float = 3600.0, *, leads: bool = True) -> bool:
    """What a job does that may take over in so many seconds."""
    return gives_back(run_dir, token, {"ISCHED_KEEP_FROM": f"{time.time() + in_s:.0f}"}, leads=leads)


def contents(run_dir: RunDir) -> dict[str, bytes]:
    return {str(p.relative_to(run_dir.path)): p.read_bytes() if p.is_file() else b"" for p in run_dir.path.rglob("*")}


def test_too_early_beside_one_that_trains_is_given_back_without_a_trace(run_dir: RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    begun(run_dir, 1)
    before = contents(run_dir)
    assert early(run_dir, Token(2))
    assert contents(run_dir) == before
    said = capsys.readouterr().err
    assert "attempt 2.0" in said
    assert "gives its allocation back" in said
    assert len(said.splitlines()) == 1


def test_who_may_take_over_stays(run_dir: RunDir) -> None:
    begun(run_dir, 1)
    assert not early(run_dir, Token(2), -1.0)
    for environ in ({}, {"ISCHED_KEEP_FROM": "soon"}, {"ISCHED_KEEP_FROM": "inf"}):
        assert not gives_back(run_dir, Token(2), environ, leads=True)


def test_what_it_was_told_last_goes_before_the_time(run_dir: RunDir) -> None:
    begun(run_dir, 1)
    run_dir.write_control(Token(2), "stay")
    assert not early(run_dir, Token(2))
    run_dir.write_control(Token(2), "return")
    assert early(run_dir, Token(2), -1.0)
    assert run_dir.read_control(Token(2)) is None, "a training is not stopped by it"
    run_dir.control(Token(2)).write_text("go\n")
    assert early(run_dir, Token(2))
    assert not early(run_dir, Token(2), -1.0)


def test_nobody_gives_back_for_one_that_is_gone(run_dir: RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    assert not early(run_dir, Token(2)), "there never was one"
    begun(run_dir, 1).emit("exit", code=85, reason="checkpointed")
    assert not early(run_dir, Token(2))
    begun(run_dir, 2)
    assert early(run_dir, Token(3)), "the newest counts"
    run_dir.spool(Token(2)).unlink()
    capsys.readouterr()
    assert not early(run_dir, Token(3)), "claimed, and never a word"
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("written_s", [-91.0, 91.0])
def test_nobody_gives_back_for_one_that_is_silent(run_dir: RunDir, written_s: float) -> None:
    """Nor where the clocks are so far apart that nobody can tell."""
    begun(run_dir, 1)
    spool, at = run_dir.spool(Token(1)), time.time()
    os.utime(spool, (at - 80, at - 80))
    assert early(run_dir, Token(2))
    os.utime(spool, (at + written_s, at + written_s))
    assert not early(run_dir, Token(2))


def test_a_job_that_was_put_back_into_the_queue_does_not_give_way_to_itself(run_dir: RunDir) -> None:
    begun(run_dir, 1)
    token = Token(2, 0)
    run_dir.prepare(token)
    run_dir.claim(token, Claim.mine("2"))
    SpoolWriter(run_dir.spool(token), "r", token).emit("started", job_id="2")
    assert not early(run_dir, Token(2, 1))


def test_other_processes_of_the_job_follow_the_leading_one(run_dir: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "_LEADER_S", 1.0)
    begun(run_dir, 1)
    assert early(run_dir, Token(2), leads=False), "it neither claimed nor asked"
    run_dir.write_control(Token(1), "stop")
    assert not early(run_dir, Token(2), leads=False), "it asks"
    run_dir.control(Token(1)).unlink()
    threading.Timer(0.3, lambda: begun(run_dir, 2)).start()
    assert not early(run_dir, Token(2), leads=False), "it claims"


def test_an_unreadable_directory_lets_the_job_stay(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("not a folder")
    assert not early(RunDir(tmp_path / "run"), Token(2))
