"""A real PyTorch training through the real wrapper: whatever interrupts it, the final weights are bitwise the same."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from exec_runs import Exec, environ, until

from ischeduler.training.processes import family
from ischeduler.training.spool import read_events
from ischeduler.training.token import Token

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

SCRIPT = str(Path(__file__).with_name("exec_train.py"))
EPOCHS, STEPS = 4, 12


def command(out: Path, pause_s: float = 0.0, *more: str) -> list[str]:
    return [sys.executable, SCRIPT, str(out), str(EPOCHS), str(pause_s), *more]


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest of an uninterrupted run, without the wrapper."""
    folder = tmp_path_factory.mktemp("straight")
    env = environ(folder, None)
    del env["ISCHED_RUN_DIR"]
    subprocess.run(command(folder / "digest"), env=env, cwd=folder, check=True, capture_output=True)
    assert len(os.listdir(folder / "checkpoints")) == 6
    return (folder / "digest").read_text()


def steps_done(run: Exec) -> int:
    return max((e.data["step"] for e in run.events("progress", "checkpoint")), default=0)


def trainer(run: Exec) -> int | None:
    """The Python process that has entered the training."""
    pids = [pid for pid, stat in family(run.process.pid).items() if stat.parent == run.process.pid]
    return pids[0] if pids else None


def carry(run_dir: Path, out: Path, interrupt: list[str], seed: int) -> list[int]:
    """Run attempt after attempt, interrupting each as told at a random time; returns their exit codes."""
    chance, codes = random.Random(seed), []
    for attempt, how in enumerate([*interrupt, ""], start=1):
        with Exec(run_dir, *command(out, 0.01), attempt=attempt, TEST_EVERY_S="0.05") as run:
            if how:
                run.await_line("entered")
                time.sleep(chance.uniform(0.0, 0.15))  # the moment of the blow is what is varied
                _interrupt(run, how)
            codes.append(run.finish()[0])
        if codes[-1] == 0:
            break
    return codes


def _interrupt(run: Exec, how: str) -> None:
    if how == "usr2":
        run.signal(signal.SIGUSR2)
    elif how == "kill" and (pid := trainer(run)) is not None:
        os.kill(pid, signal.SIGKILL)
    elif how == "kill-all":
        for pid in [run.process.pid, *family(run.process.pid)]:
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("seed", [1, 2])
def test_interrupted_anyhow_the_weights_are_bitwise_the_same(tmp_path: Path, straight: str, seed: int) -> None:
    hows = random.Random(seed).choices(["usr2", "kill", "kill-all"], k=4)
    codes = carry(tmp_path / "run", tmp_path / "digest", hows, seed)
    assert codes[-1] == 0
    assert set(codes[:-1]) <= {85, 137, -9}
    assert len(codes) > 2, "the interruptions came too late to test anything"
    assert (tmp_path / "digest").read_text() == straight
    events, _ = read_events(tmp_path / "run", {})
    assert [e.data["epochs"] for e in events if e.kind == "finished"] == [EPOCHS]
    resumed = [e.data["step"] for e in events if e.kind == "resumed"]
    assert resumed == sorted(resumed)
    assert resumed[-1] > 0


def test_a_walltime_is_never_hit(tmp_path: Path, straight: str) -> None:
    """No signal at all: the training knows when the job ends and stops before, each time further on."""
    with Exec(tmp_path / "warm", *command(tmp_path / "warm-digest"), attempt=1) as run:
        run.finish(120)
    startup_s = run.events("exit")[0].t - run.events("started")[0].t
    walltime_s = 2 * startup_s + 6
    codes: list[int] = []
    while not codes or codes[-1] == 85:
        assert len(codes) < 20
        pace = command(tmp_path / "digest", walltime_s / 40)
        walltime = {"ISCHED_WALLTIME_S": f"{walltime_s:.1f}", "ISCHED_GRACE_S": "1"}
        with Exec(tmp_path / "run", *pace, attempt=len(codes) + 1, **walltime) as run:
            codes.append(run.finish(120)[0])
        own = [e for e in run.events() if e.token == Token(len(codes))]
        assert max(e.t for e in own if e.kind == "checkpoint") < own[0].data["deadline"]
    assert len(codes) >= 2
    assert codes[-1] == 0
    assert (tmp_path / "digest").read_text() == straight
    assert "deadline" in {e.data["reason"] for e in run.events("checkpointing")}


def test_a_corrupt_newest_checkpoint_only_costs_a_few_steps(tmp_path: Path, straight: str) -> None:
    run_dir, out = tmp_path / "run", tmp_path / "digest"
    with Exec(run_dir, *command(out, 0.02), TEST_EVERY_S="0.05") as run:
        until(lambda: steps_done(run) >= 15)
        run.signal(signal.SIGUSR2)
        assert run.finish()[0] == 85
    newest, previous = sorted(path.stem for path in (run_dir / "checkpoints").glob("*.json"))[::-1][:2]
    content = bytearray((run_dir / "checkpoints" / f"{newest}.pt").read_bytes())
    content[len(content) // 2] ^= 4
    (run_dir / "checkpoints" / f"{newest}.pt").write_bytes(content)
    with Exec(run_dir, *command(out), attempt=2) as run:
        code, _, err = run.finish()
    assert code == 0
    assert f"{newest} is passed over: its sha256 differs" in err
    resumed = [e.data for e in run.events("resumed")][-1]
    assert resumed["checkpoint"] == previous
    assert [item["name"] for item in resumed["skipped"]] == [newest]
    assert out.read_text() == straight


def test_a_zombie_s_checkpoints_are_never_taken(tmp_path: Path, straight: str) -> None:
    """Split brain: attempt 1 is cut off (its wrapper dead, its process alive) while attempts 2 and 3 run."""
    run_dir, out = tmp_path / "run", tmp_path / "digest"
    with Exec(run_dir, *command(tmp_path / "late", 0.05), TEST_EVERY_S="0.1") as zombie:
        until(lambda: len(zombie.events("checkpoint")) >= 2)
        pid = trainer(zombie)
        os.kill(zombie.process.pid, signal.SIGKILL)
        zombie.process.wait()  # a group that is orphaned while a member is stopped gets SIGHUP
        os.kill(pid, signal.SIGSTOP)
        with Exec(run_dir, *command(out, 0.03), attempt=2, TEST_EVERY_S="0.1") as heir:
            until(lambda: [e for e in heir.events("checkpoint") if e.token == Token(2)])
            os.kill(pid, signal.SIGCONT)
            until(lambda: pid not in family(pid))
            heir.signal(signal.SIGUSR2)
            assert heir.finish()[0] in (85, 0)
        with Exec(run_dir, *command(out), attempt=3) as last:
            assert last.finish()[0] == 0
    assert out.read_text() == straight
    assert not (tmp_path / "late").exists()
    heirs_start = next(e.t for e in last.events("started") if e.token == Token(2))
    late = [e for e in last.events("checkpoint") if e.token == Token(1) and e.t > heirs_start]
    assert late == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 1 MiB for the run's directory."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    folder = tmp_path / "small"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_successor_that_starts_early_loses_no_step(tmp_path: Path, straight: str) -> None:
    """Hand-over: the predecessor saves and leaves when its successor starts; nothing is done twice."""
    run_dir, out = tmp_path / "run", tmp_path / "digest"
    with Exec(run_dir, *command(out, 0.1), TEST_EVERY_S="3600") as first:
        until(lambda: steps_done(first) >= 8)
        with Exec(run_dir, *command(out), attempt=2, ISCHED_HANDOVER_S="60") as second:
            assert first.finish()[0] == 85
            left_at = first.events("checkpoint")[-1].data["step"]
            assert second.finish()[0] == 0
            resumed = second.events("resumed")[-1].data["step"]
    assert resumed == left_at >= 8
    assert max(e.data["step"] for e in first.events("progress") if e.token == Token(1)) <= left_at
    assert out.read_text() == straight


def files_of(run_dir: Path) -> set[str]:
    """All but checkpoints, which a training that goes on writes."""
    return {str(path.relative_to(run_dir)) for path in run_dir.rglob("*") if run_dir / "checkpoints" not in path.parents}


def test_a_successor_that_starts_too_early_gives_its_allocation_back(tmp_path: Path, straight: str) -> None:
    """The predecessor trains on; once that one is dead, a successor stays, however early it is."""
    run_dir, out = tmp_path / "run", tmp_path / "digest"
    early = {"ISCHED_HANDOVER_S": "60", "ISCHED_KEEP_FROM": f"{time.time() + 86400:.0f}"}
    with Exec(run_dir, *command(out, 0.2), TEST_EVERY_S="3600") as first:
        until(lambda: steps_done(first) >= 4)
        before, step = files_of(run_dir), steps_done(first)
        fence = (run_dir / "fence").read_bytes()
        for more in ({}, {"SLURM_PROCID": "0"}):
            with Exec(run_dir, *command(out), attempt=2, **early, **more) as second:
                code, printed, said = second.finish()
            assert (code, printed) == (88, b"")
            assert [line for line in said.splitlines() if "gives its allocation back" in line]
        until(lambda: steps_done(first) >= step + 4)
        assert files_of(run_dir) == before
        assert (run_dir / "fence").read_bytes() == fence
        assert first.process.poll() is None
        for pid in [first.process.pid, *family(first.process.pid)]:
            os.kill(pid, signal.SIGKILL)
    spool = run_dir / "events" / "1.0.jsonl"
    os.utime(spool, (time.time() - 100, time.time() - 100))
    with Exec(run_dir, *command(out), attempt=2, **early | {"ISCHED_HANDOVER_S": "1"}) as second:
        assert second.finish()[0] == 0
    assert {e.token for e in second.events("started")} == {Token(1), Token(2)}
    assert out.read_text() == straight


def test_a_disk_that_fills_up_and_is_freed(tmp_path: Path, small_disk: Path, straight: str) -> None:
    """Full from the start: no claim, no events, no checkpoints, and yet training goes on. Freed: all of it comes."""
    _fill(small_disk)
    with Exec(small_disk / "run", *command(tmp_path / "digest", 0.06), TEST_EVERY_S="0.05") as run:
        run.await_line("epoch 0")
        (small_disk / "ballast").unlink()
        code, _, err = run.finish()
    assert code == 0
    assert (tmp_path / "digest").read_text() == straight
    assert "checkpoint failed" in err
    assert "can be written again" in err
    kinds = [e.kind for e in run.events()]
    assert {"started", "checkpoint_failed", "checkpoint", "finished", "exit"} <= set(kinds)
    failed = run.events("checkpoint_failed")
    assert {e.data["errno"] for e in failed} == {28}


def _fill(folder: Path) -> None:
    """Take every last byte; writes the ballast itself."""
    with open(folder / "ballast", "wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            pass


def torchrun(out: Path, pause_s: float) -> list[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--rdzv-backend", "c10d"]
    return [*launcher, "--rdzv-endpoint", "127.0.0.1:0", SCRIPT, str(out), str(EPOCHS), str(pause_s), "ddp"]


def test_two_ranks_stop_together_and_go_on_together(tmp_path: Path) -> None:
    """torchrun turns exit code 85 into 1; the wrapper still knows. Only rank 0 writes; both resume alike.

    Python's lock is hardly ever passed on in the first run: a Gloo thread that still needs it when the interpreter ends aborts the process.
    """
    with Exec(tmp_path / "a", *torchrun(tmp_path / "straight", 0.0), OMP_NUM_THREADS="1", TEST_SWITCH_S="5") as run:
        code, _, err = run.finish(120)
        assert code == 0, err[-2000:]
    for attempt, code in ((1, 85), (2, 0)):
        with Exec(tmp_path / "b", *torchrun(tmp_path / "digest", 0.2), attempt=attempt, OMP_NUM_THREADS="1") as run:
            run.await_line("epoch")
            if code:
                run.signal(signal.SIGUSR2)
            assert run.finish()[0] == code
    assert (tmp_path / "digest").read_text() == (tmp_path / "straight").read_text()
    assert [e.data["reason"] for e in run.events("exit")] == ["checkpointed", "completed"]
    assert [e.data["step"] > 0 for e in run.events("resumed")] == [False, True]
