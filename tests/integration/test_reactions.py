"""Each reaction of the plane on a real Slurm: what went wrong, what the plane did, and whether the training came out right."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from carried import CHAIN, Carried

from conftest import sandbox_name
from ischeduler.core.codec import to_plain
from ischeduler.core.run import Caps
from ischeduler.core.sizes import MIB
from ischeduler.sandbox import Sandbox, demo_spec

pytestmark = pytest.mark.slurm
QUICK = {"settle_s": 4.0, "in_flight_s": 12.0, "evidence_s": 2.0, "retry_s": 1.0, "nudge_s": 8.0, "soft_s": 20.0, "stuck_s": 5.0, "site_limit_s": 3.0}
Make = Callable[..., Carried]


@pytest.fixture
def carried(slurm: Sandbox) -> Iterator[Make]:
    """Makes runs of the shared sandbox and cleans up behind them."""
    made: list[Carried] = []

    def make(name: str, *, sandbox: Sandbox = slurm, **options: Any) -> Carried:
        config = {"policy": QUICK, **options.pop("config", {})}
        made.append(Carried(sandbox, f"{name}{len(made)}-{time.time_ns() % 10**6}", config=config, **options))
        return made[-1]

    yield make
    for one in made:
        one.stop()


def test_a_training_longer_than_the_limit_crosses_it(carried: Make) -> None:
    run = carried("limit", partition="gpudebug", epochs=13, steps=20, step_s=0.25).start()
    ended = run.ended()
    assert ended["state"] == "completed", run.story()
    assert set(run.causes()[:-1]) == {"walltime"}, run.story()
    assert run.right()


def test_host_memory_grows_after_an_out_of_memory_kill(carried: Make) -> None:
    script = "import os, time\nhold = bytearray(330 * 2**20)\nhold[::4096] = b'x' * len(hold[::4096])\ntime.sleep(6)\n"
    run = carried("oom", script=script, memory_bytes=250 * MIB).start()
    ended = run.ended()
    assert ended["state"] == "completed", run.story()
    assert run.causes()[0] == "out_of_memory", run.story()
    assert run.attempts[-1]["resources"]["memory_bytes"] > 250 * MIB


def test_accelerator_out_of_memory_takes_a_smaller_batch_when_allowed(carried: Make) -> None:
    script = (
        "import sys\nbatch, accum = int(sys.argv[1]), int(sys.argv[2])\n"
        "if batch > 16:\n    print('torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB', file=sys.stderr); sys.exit(1)\n"
        "open('result.txt', 'w').write(f'{batch} {accum}')\n"
    )
    run = carried("cuda", script=script, arguments=("{batch_size}", "{grad_accum}"), caps=Caps(allow_smaller_batch=True)).start()
    assert run.ended()["state"] == "completed", run.story()
    assert set(run.causes()[:-1]) == {"gpu_out_of_memory"}, run.story()
    assert run.result() == "16 4"


def test_a_lost_node_is_left_and_avoided(carried: Make, slurm: Sandbox) -> None:
    run = carried("node", epochs=10, steps=5).start()
    node = run.until_running()["attempts"][-1]["nodes"][0]
    slurm.node_down(node, reason="test")
    try:
        assert run.ended()["state"] == "completed", run.story()
    finally:
        slurm.node_resume(node)
    assert run.causes() == ["node_failure", "finished"], run.story()
    assert run.attempts[1]["nodes"] != [node]
    assert run.right()


def test_a_preempted_job_is_submitted_again(carried: Make, slurm: Sandbox) -> None:
    slurm.sacctmgr(["modify", "account", "research", "set", "qos+=low,high"])
    run = carried("preempt", partition="cpu", node_type="cpu-16c-31g", qos="low", epochs=12, steps=5).start()
    node = run.until_running()["attempts"][-1]["nodes"][0]
    bob = slurm.run(
        ["sbatch", "--parsable", "--qos=high", "-p", "cpu", f"--nodelist={node}", "-c", "16", "-t", "1", "-o", "/dev/null", "--wrap=sleep 8"], user="bob"
    )  # fmt: skip
    try:
        assert run.ended()["state"] == "completed", run.story()
    finally:
        slurm.run(["scancel", bob.stdout.strip()], user="bob", check=False)
    assert run.causes()[0] == "preempted", run.story()
    assert run.right()


def test_a_user_error_stops_after_one_retry_and_says_so(carried: Make) -> None:
    run = carried("error", script="import sys; print('no such file: data.npz'); sys.exit(3)").start()
    ended = run.ended()
    assert ended["state"] == "failed", run.story()
    assert run.causes() == ["user_error", "user_error"]
    assert "exit code 3" in ended["message"]


def test_no_progress_is_a_stall(carried: Make) -> None:
    script = CHAIN.replace("time.sleep(step_s)", "time.sleep(step_s if run.step_count < 3 else 3600)")
    run = carried("stall", script=script, caps=Caps(stall_after_s=6.0), partition="cpu", node_type="cpu-16c-31g", walltime_s=300.0).start()
    run.until(lambda r: r["state"] == "stalled")
    assert run.ended()["state"] == "failed", run.story()
    assert run.causes() == ["stalled", "stalled"], run.story()


def test_a_site_limit_is_waited_for(carried: Make, slurm: Sandbox) -> None:
    alice = slurm.system_user("alice")
    slurm.sacctmgr(["modify", "user", alice, "set", "MaxSubmitJobs=1"])
    other = slurm.run(["sbatch", "--parsable", "-p", "cpu", "-t", "1", "-o", "/dev/null", "--wrap=sleep 8"], user="alice").stdout.strip()
    try:
        run = carried("sitelimit", epochs=2).start()
        run.until(lambda r: "waits" in r["message"])
        assert run.run["attempts"][-1]["job_id"] is None
        assert run.ended()["state"] == "completed", run.story()
        assert run.causes() == ["finished"]
    finally:
        slurm.sacctmgr(["modify", "user", alice, "set", "MaxSubmitJobs=-1"])
        slurm.run(["scancel", other], user="alice", check=False)


def test_a_cancelled_job_ends_the_run(carried: Make, slurm: Sandbox) -> None:
    run = carried("scancel", epochs=30).start()
    job = run.until_running()["attempts"][-1]["job_id"]
    slurm.run(["scancel", job], user="alice")
    assert run.ended()["state"] == "cancelled", run.story()


@pytest.mark.slow
def test_the_controller_away_for_a_minute_costs_nothing(carried: Make, slurm: Sandbox) -> None:
    run = carried("ctld", partition="cpu", node_type="cpu-16c-31g", walltime_s=300.0, epochs=20, steps=20).start()
    run.until_running()
    slurm.stop_slurmctld()
    try:
        run.until(lambda r: r["state"] == "unknown", 60.0)
        time.sleep(45)
    finally:
        slurm.start_slurmctld()
    assert run.ended()["state"] == "completed", run.story()
    assert run.causes() == ["finished"], run.story()
    assert run.right()


@pytest.mark.slow
def test_accounting_off(slurm_host: None, carried: Make) -> None:
    sandbox = Sandbox(demo_spec(cluster_name="noacct", accounting=False), sandbox_name("n"))
    sandbox.up()
    try:
        run = carried("noacct", sandbox=sandbox, partition="gpudebug", epochs=13, steps=20, step_s=0.25).start()
        assert run.ended()["state"] == "completed", run.story()
        assert set(run.causes()[:-1]) == {"walltime"}, run.story()
        assert run.right()
        run.stop()
    finally:
        sandbox.down()


def test_a_drained_partition_is_left_for_another(carried: Make, slurm: Sandbox) -> None:
    slurm.drain_partition("gpu")
    try:
        run = carried("drain", epochs=3)
        other = run.plan(partition="cpu", node_type="cpu-16c-31g", resources=run.plan().resources.__class__(cpus_per_node=1, walltime_s=120.0))
        run.start(plans=[to_plain(other)])
        assert run.ended()["state"] == "completed", run.story()
    finally:
        slurm.undrain_partition("gpu")
    assert run.attempts[-1]["partition"] == "cpu", run.story()
    assert run.right()


def test_a_removed_association_is_told_in_a_sentence(carried: Make, slurm: Sandbox) -> None:
    slurm.remove_association("alice")
    try:
        run = carried("assoc", epochs=2).start()
        ended = run.ended()
    finally:
        slurm.add_association("alice")
    assert ended["state"] == "failed", run.story()
    assert "nvalid account" in ended["message"], run.story()


def test_a_full_disk_does_not_stop_the_training(carried: Make, slurm: Sandbox, tmp_path: Path) -> None:
    place = slurm.home("alice") / f"small{time.time_ns() % 10**6}"
    slurm.run(["mkdir", str(place)], user="alice")
    owner = place.stat()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size=512k,mode=700,uid={owner.st_uid},gid={owner.st_gid}", "tmpfs", str(place)], check=True)
    try:
        run = carried("disk", epochs=20, steps=5, directory=place / "run").start()
        run.until_running()
        ballast = os.open(place / "ballast", os.O_WRONLY | os.O_CREAT)
        with contextlib.suppress(OSError):
            while True:
                os.write(ballast, b"x" * 4096)
        os.close(ballast)
        assert run.ended()["state"] == "completed", run.story()
        assert run.right()
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.parametrize("skew_s", [600.0, -600.0])
def test_a_wrong_clock_changes_no_decision(carried: Make, skew_s: float) -> None:
    run = carried("skew", epochs=4, config={"skew_s": skew_s}).start()
    assert run.ended()["state"] == "completed", run.story()
    assert run.causes() == ["finished"], run.story()
    assert run.right()


@pytest.mark.slow
def test_split_brain_the_older_incarnation_does_no_harm(carried: Make, slurm: Sandbox) -> None:
    """slurmd dies, its job goes on unseen and is declared failed; the next attempt runs beside it for a while."""
    run = carried("brain", epochs=60, steps=5, walltime_s=120.0).start()
    node = run.until_running()["attempts"][-1]["nodes"][0]
    slurm.kill_slurmd(node)
    try:
        run.until(lambda r: len(r["attempts"]) >= 2, 90.0)
        ended = run.ended(200.0)
    finally:
        slurm.start_slurmd(node)
        slurm.node_resume(node)
    assert ended["state"] == "completed", run.story()
    assert run.causes()[0] in ("node_failure", "lost"), run.story()
    assert run.right()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_kill_at_every_call_submits_once(carried: Make) -> None:
    """kill -9 of the plane before and after each call to store and batch system: every key is one job, and the training is right."""
    whole = carried("calls", epochs=1, steps=2, step_s=0.1).start(crash_at=10**9)
    assert whole.ended()["state"] == "completed", whole.story()
    for crash_at in range(1, 27):
        run = carried("crash", epochs=1, steps=2, step_s=0.1, config={"lease_ttl_s": 2.0})
        run.start(crash_at=crash_at)
        assert run.process is not None
        run.process.wait(60)
        run.start()
        assert run.ended()["state"] == "completed", f"killed at call {crash_at}: {run.story()}"
        assert run.right(), crash_at
        jobs = run.jobs()
        assert len(jobs) == len(set(jobs)) == len(run.attempts), f"killed at call {crash_at}: {jobs}"
