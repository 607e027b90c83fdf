"""The sandbox on a real Slurm: it comes, does what a cluster does, suffers faults and goes without a trace."""

from __future__ import annotations

import json
import os
import pwd
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ischeduler.core.errors import BadInput, NotFound
from ischeduler.sandbox import Sandbox, SandboxCommandFailed, SandboxError, demo_spec, host, list_sandboxes, status
from ischeduler.sandbox import processes as proc
from ischeduler.sandbox.marker import Marker, write_marker

pytestmark = pytest.mark.slurm

TIMEOUT_S = 45.0
FINISHED = "COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL|PREEMPTED|OUT_OF_MEMORY|DEADLINE|BOOT_FAIL"


def submit(slurm: Sandbox, *arguments: str, user: str = "alice", wrap: str = "true") -> str:
    return slurm.run(["sbatch", "--parsable", *arguments, "--wrap", wrap], user).stdout.strip().partition(";")[0]


def queue_field(slurm: Sandbox, job: str, field: str = "%T") -> str:
    return slurm.run(["squeue", "-h", "-j", job, "-o", field], check=False).stdout.strip()


def accounted(slurm: Sandbox, job: str, fields: str = "State", *, duplicates: bool = False) -> list[str]:
    argv = ["sacct", "-X", "-n", "-P", "-j", job, "-o", fields, *(["-D"] if duplicates else [])]
    return slurm.run(argv).stdout.split("\n")[:-1]


def eventually(condition: Callable[[], bool], story: Callable[[], object] = lambda: "", *, timeout_s: float = TIMEOUT_S) -> None:
    if not proc.wait_until(condition, timeout_s=timeout_s, poll_s=0.2):
        pytest.fail(f"not within {timeout_s:.0f} s: {story()}")


def wait_finished(slurm: Sandbox, job: str) -> str:
    def state() -> str:
        return (accounted(slurm, job) or [""])[0]

    eventually(lambda: re.match(FINISHED, state()) is not None, lambda: (state(), queue_field(slurm, job, "%T %r")))
    return state()


def wait_running(slurm: Sandbox, job: str) -> None:
    eventually(lambda: queue_field(slurm, job) == "RUNNING", lambda: queue_field(slurm, job, "%T %r"))


def cancel(slurm: Sandbox, *jobs: str) -> None:
    slurm.run(["scancel", *jobs], check=False)
    eventually(lambda: all(queue_field(slurm, j) in ("", "CANCELLED", "FAILED", "COMPLETED") for j in jobs))


def test_partitions_and_nodes_are_those_of_the_spec(slurm: Sandbox) -> None:
    lines = set(slurm.run(["sinfo", "-h", "-o", "%R %l %D"]).stdout.splitlines())
    assert lines == {"gpudebug 1:00 1", "gpu 2:00 2", "cpu 10:00 2", "closed 5:00 1"}
    found = slurm.status()
    assert found.up
    assert set(found.nodes) == {n.name for n in slurm.spec.nodes}
    assert {d.state for d in found.daemons} == {"running"}


def test_a_users_job_runs_with_its_gpus_and_the_projects_python_and_is_accounted(slurm: Sandbox) -> None:
    code = "import os, sys, ischeduler.core; print(os.environ['CUDA_VISIBLE_DEVICES'], sys.executable)"
    job = submit(slurm, "-p", "gpu", "--gres=gpu:2", "-o", "first.out", wrap=f'python -c "{code}"')
    output = slurm.home("alice") / "first.out"
    assert wait_finished(slurm, job) == "COMPLETED", output.read_text()
    assert output.read_text().split() == ["0,1", str(slurm.python)]
    user, tres = accounted(slurm, job, "User,AllocTRES")[0].split("|")
    assert user == slurm.system_user("alice")
    assert "gres/gpu=2" in tres


def test_a_job_on_two_nodes_sees_both(slurm: Sandbox) -> None:
    job = submit(slurm, "-p", "cpu", "-N2", "-n2", "-o", "two.out", wrap="srun -l printenv SLURMD_NODENAME | sort")
    assert wait_finished(slurm, job) == "COMPLETED"
    assert (slurm.home("alice") / "two.out").read_text().split() == ["0:", "c01", "1:", "c02"]


def test_users_are_kept_apart(slurm: Sandbox) -> None:
    job = submit(slurm, "-p", "cpu", wrap="sleep 60")
    slurm.run(["sh", "-c", "umask 077; echo secret > mine"], "alice")
    with pytest.raises(SandboxCommandFailed, match="Permission denied"):
        slurm.run(["cat", str(slurm.home("alice") / "mine")], "bob")
    with pytest.raises(SandboxCommandFailed, match=r"[Aa]ccess/permission denied"):
        slurm.run(["scancel", job], "bob")
    assert queue_field(slurm, job) in ("PENDING", "RUNNING")
    for secret in (slurm.layout.jwt_key, slurm.layout.munge_key, slurm.layout.slurmdbd_conf):
        with pytest.raises(SandboxCommandFailed, match="Permission denied"):
            slurm.run(["cat", str(secret)], "bob")
    cancel(slurm, job)


def test_an_account_closes_a_partition(slurm: Sandbox) -> None:
    with pytest.raises(SandboxCommandFailed, match="Invalid account or account/partition combination"):
        slurm.run(["sbatch", "--test-only", "-p", "closed", "--wrap", "true"], "alice")
    slurm.run(["sbatch", "--test-only", "-p", "closed", "-A", "restricted", "--wrap", "true"], "carol")


def test_memory_beyond_the_request_ends_the_job(slurm: Sandbox) -> None:
    wrap = "python -c 'import time; held = bytearray(400_000_000); time.sleep(40)'"
    job = submit(slurm, "-p", "cpu", "--mem=60M", "-o", "memory.out", wrap=wrap)
    assert wait_finished(slurm, job) in ("FAILED", "OUT_OF_MEMORY")
    assert "exceeded memory limit" in (slurm.home("alice") / "memory.out").read_text()


@pytest.mark.slow
def test_a_walltime_limit_is_announced_and_enforced(slurm: Sandbox) -> None:
    wrap = "trap 'echo told' USR2; for i in $(seq 400); do sleep 0.5; done"
    job = submit(slurm, "-p", "gpudebug", "-t", "1", "--signal=B:USR2@10", "-o", "limit.out", wrap=wrap)
    wait_running(slurm, job)
    eventually(lambda: accounted(slurm, job) == ["TIMEOUT"], lambda: accounted(slurm, job), timeout_s=110)
    assert "told" in (slurm.home("alice") / "limit.out").read_text()
    elapsed_s = int(accounted(slurm, job, "ElapsedRaw")[0])
    assert 60 <= elapsed_s <= 60 + 30 + slurm.spec.kill_wait_s + 3


def test_a_node_taken_down_fails_its_job_and_comes_back(slurm: Sandbox) -> None:
    job = submit(slurm, "-p", "gpudebug", "--no-requeue", wrap="sleep 50")
    wait_running(slurm, job)
    slurm.node_down("d01")
    try:
        assert wait_finished(slurm, job) == "NODE_FAIL"
        assert re.match("down|drain", slurm.node_states()["d01"])
    finally:
        slurm.node_resume("d01")
    eventually(lambda: slurm.node_states()["d01"] == "idle", slurm.node_states)


@pytest.mark.slow
def test_a_killed_slurmd_leaves_its_job_running_and_is_noticed(slurm: Sandbox) -> None:
    """Split brain: the controller declares NODE_FAIL while the old script goes on."""
    job = submit(slurm, "-p", "gpudebug", "--no-requeue", wrap="for i in $(seq 300); do date +%s > beat; sleep 0.3; done")
    wait_running(slurm, job)
    slurm.kill_slurmd("d01")
    try:
        assert {d.name: d.state for d in slurm.status().daemons}["slurmd-d01"] == "dead"
        assert not slurm.status().up
        eventually(lambda: accounted(slurm, job) == ["NODE_FAIL"], lambda: accounted(slurm, job), timeout_s=90)
        declared_at = time.time()
        beat = slurm.home("alice") / "beat"
        eventually(lambda: float(beat.read_text() or 0) > declared_at + 1, beat.read_text, timeout_s=10)
    finally:
        slurm.start_slurmd("d01")
    eventually(lambda: slurm.node_states()["d01"] == "idle", slurm.node_states)
    slurm.run(["pkill", "-f", "beat"], "alice", check=False)


def test_the_controller_stops_and_comes_back_with_its_jobs(slurm: Sandbox) -> None:
    job = submit(slurm, "-p", "cpu", wrap="sleep 60")
    wait_running(slurm, job)
    slurm.stop_slurmctld()
    try:
        asked = slurm.run(["squeue"], "alice", check=False)
        assert asked.returncode == 1
        assert "Unable to contact slurm controller" in asked.stderr
        found = slurm.status()
        assert {d.name: d.state for d in found.daemons}["slurmctld"] == "stopped"
        assert found.nodes == {}
    finally:
        slurm.start_slurmctld()
    assert queue_field(slurm, job) == "RUNNING"
    cancel(slurm, job)


def test_accounting_stops_and_comes_back(slurm: Sandbox) -> None:
    slurm.stop_slurmdbd()
    try:
        assert slurm.run(["sacct"], "alice", check=False).returncode != 0
        job = submit(slurm, "-p", "cpu")
    finally:
        slurm.start_slurmdbd()
    assert wait_finished(slurm, job) == "COMPLETED"


def test_a_drained_partition_holds_jobs_back(slurm: Sandbox) -> None:
    slurm.drain_partition("gpu")
    try:
        refused = slurm.run(["sbatch", "-p", "gpu", "--wrap", "true"], "alice", check=False)
        assert refused.returncode != 0
        assert "not available" in refused.stderr
    finally:
        slurm.undrain_partition("gpu")
    assert wait_finished(slurm, submit(slurm, "-p", "gpu")) == "COMPLETED"


def test_a_removed_association_refuses_the_user(slurm: Sandbox) -> None:
    slurm.remove_association("bob")
    try:
        refused = slurm.run(["sbatch", "--wrap", "true"], "bob", check=False)
        assert "Invalid account" in refused.stderr
    finally:
        slurm.add_association("bob")
    assert wait_finished(slurm, submit(slurm, user="bob")) == "COMPLETED"


def test_a_better_qos_preempts_and_the_job_runs_again(slurm: Sandbox) -> None:
    low = submit(slurm, "-p", "gpudebug", "--qos=low", "--exclusive", wrap="echo started >> starts; sleep 8")
    wait_running(slurm, low)
    high = submit(slurm, "-p", "gpudebug", "--qos=high", "--exclusive", user="bob", wrap="sleep 2")
    assert wait_finished(slurm, high) == "COMPLETED"
    eventually(lambda: accounted(slurm, low)[-1] == "COMPLETED", lambda: accounted(slurm, low, duplicates=True), timeout_s=90)
    assert accounted(slurm, low, duplicates=True) == ["PREEMPTED", "COMPLETED"]
    assert (slurm.home("alice") / "starts").read_text().split() == ["started", "started"]


def test_the_rest_daemon_answers_with_a_token_only(slurm: Sandbox) -> None:
    headers = {"X-SLURM-USER-NAME": slurm.system_user("alice"), "X-SLURM-USER-TOKEN": slurm.token("alice", 60)}
    url = f"{slurm.rest_url}/slurm/v0.0.38/ping"
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as answer:
        assert json.load(answer)["pings"][0]["ping"] == "UP"
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(url, timeout=10)


def test_up_again_changes_nothing_and_another_shape_is_refused(slurm: Sandbox) -> None:
    before = {d.name: d.pid for d in slurm.status().daemons}
    assert {d.name: d.pid for d in Sandbox(slurm.spec, slurm.name).up().daemons} == before
    assert Sandbox.open(slurm.name).spec == slurm.spec
    with pytest.raises(SandboxError, match="another shape"):
        Sandbox(demo_spec(cpu_min=7), slurm.name).up()
    assert slurm.status().up
    with pytest.raises(BadInput, match="no user 'mallory'"):
        slurm.run(["true"], "mallory")


def _processes_about(root: Path, uids: set[int]) -> list[str]:
    listing = subprocess.run(["ps", "-wweo", "pid=,uid=,stat=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 3) for line in listing.splitlines()]
    return [" ".join(r) for r in rows if not r[2].startswith("Z") and (str(root) in r[-1] or int(r[1]) in uids)]


def test_down_leaves_nothing_and_a_neighbour_lives_on(slurm: Sandbox) -> None:
    """A second sandbox without accounting, beside the first; it is killed in parts, revived, and taken away under load."""
    spec = replace(demo_spec(cluster_name="second", accounting=False), users=("alice",))
    sandbox = Sandbox(spec, f"t{os.getpid()}b")
    try:
        sandbox.up()
        assert not set(sandbox.ports.all()) & set(slurm.ports.all())
        job = submit(sandbox, "-p", "cpu", wrap="setsid sleep 600 & touch /tmp/$USER.left; sleep 600")
        wait_running(sandbox, job)
        assert sandbox.run(["sacct"], "alice", check=False).returncode != 0
        with pytest.raises(BadInput, match="without accounting"):
            sandbox.stop_slurmdbd()

        for daemon in ("munged", "slurmctld", "slurmrestd", "slurmd-g01"):
            sandbox.signal_daemon(daemon, signal.SIGKILL)
        eventually(lambda: sum(d.state == "dead" for d in sandbox.status().daemons) == 4, sandbox.status)
        assert Sandbox.open(sandbox.name).up().up
        assert queue_field(sandbox, job) in ("PENDING", "RUNNING"), (
            "a killed controller may have forgotten the start, not the job"
        )
        wait_running(sandbox, job)

        uid = pwd.getpwnam(sandbox.system_user("alice")).pw_uid
        left = Path(f"/tmp/{sandbox.system_user('alice')}.left")
        eventually(lambda: left.exists() and len(proc.owned_by(frozenset({uid}))) >= 2)
        assert len(_processes_about(sandbox.layout.root, {uid})) > len(sandbox.daemon_names())
        started = time.monotonic()
    finally:
        sandbox.down()
    assert time.monotonic() - started < 5
    assert not sandbox.layout.root.exists()
    assert _processes_about(sandbox.layout.root, {uid}) == []
    assert not left.exists()
    assert "-".join(("isb-alice", sandbox.name)) not in Path("/etc/passwd").read_text()
    assert sandbox.name not in list_sandboxes()
    with pytest.raises(NotFound, match="isched sandbox up"):
        status(sandbox.name)
    sandbox.down()
    assert slurm.status().up
    assert wait_finished(slurm, submit(slurm)) == "COMPLETED"


def test_all_daemons_gone_is_recovered_with_jobs_and_accounting(slurm_host: None) -> None:
    """What a reboot or an out-of-memory killer leaves: files and stale process records."""
    sandbox = Sandbox(replace(demo_spec(cluster_name="third"), users=("alice",), rest=False), f"t{os.getpid()}c")
    try:
        sandbox.up()
        job = submit(sandbox, "-p", "cpu")
        assert wait_finished(sandbox, job) == "COMPLETED"
        for daemon in sandbox.daemon_names():
            sandbox.signal_daemon(daemon, signal.SIGKILL)
        eventually(lambda: {d.state for d in sandbox.status().daemons} == {"dead"}, sandbox.status)
        assert sandbox.up().up
        assert accounted(sandbox, job) == ["COMPLETED"]
        assert wait_finished(sandbox, submit(sandbox)) == "COMPLETED"
    finally:
        sandbox.down()


@pytest.mark.parametrize("reached", ["run/munged.json", "run/slurmdbd.json", "run/slurmctld.json"])
def test_up_killed_in_the_middle_is_taken_up_again(slurm_host: None, reached: str) -> None:
    spec = replace(demo_spec(cluster_name="fourth"), users=("alice",), rest=False)
    sandbox = Sandbox(spec, f"t{os.getpid()}d")
    code = f"from ischeduler.sandbox.sandbox import *; Sandbox.open({sandbox.name!r}).up()"
    try:
        ports = host.choose_ports((n.name for n in spec.nodes), taken=frozenset(), seed=str(sandbox.layout.root))
        write_marker(sandbox.layout, Marker(sandbox.name, spec, ports, time.time()))
        starter = subprocess.Popen([sys.executable, "-c", code])
        eventually((sandbox.layout.root / reached).exists)
        starter.kill()
        assert starter.wait() == -signal.SIGKILL
        assert sandbox.up().up
        assert wait_finished(sandbox, submit(sandbox)) == "COMPLETED"
        assert len(proc.holding(sandbox.layout.root, frozenset({"munged"}))) == 1
    finally:
        sandbox.down()
    assert _processes_about(sandbox.layout.root, set()) == []


def test_a_directory_of_somebody_else_is_not_touched(slurm_host: None) -> None:
    base = Path("/var/lib") / f"ischeduler-test-{os.getpid()}"
    theirs = base / "theirs" / "slurm.conf"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("ClusterName=real\n")
    try:
        sandbox = Sandbox(demo_spec(), "theirs", base=base)
        with pytest.raises(SandboxError, match="not made by a sandbox"):
            sandbox.up()
        with pytest.raises(SandboxError, match="not made by a sandbox"):
            sandbox.down()
        assert theirs.read_text() == "ClusterName=real\n"
        assert list(theirs.parent.iterdir()) == [theirs]
    finally:
        theirs.unlink()
        theirs.parent.rmdir()
        base.rmdir()
