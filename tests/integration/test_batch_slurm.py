"""The batch contract on a real Slurm, and what only a real one can show: quoting, memory, two nodes, accounting away."""

from __future__ import annotations

import re
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from ischeduler.batch.commands import Answer, CommandTimeout
from ischeduler.batch.slurm_cli import SlurmCli
from ischeduler.core.errors import BatchUnavailable, SubmitRefused
from ischeduler.core.jobs import JobRef, JobSpec, JobState, JobStatus, Resources
from ischeduler.sandbox import Sandbox
from ischeduler.testing.batch_contract import BatchContract, Program, ended, one, running, statuses

pytestmark = pytest.mark.slurm
RESOURCE_FIELDS = {f.name for f in fields(Resources)}


class AsUser:
    """Runs Slurm's commands as a sandbox user."""

    def __init__(self, sandbox: Sandbox, user: str) -> None:
        self._sandbox, self._user = sandbox, user

    def __call__(self, argv: Sequence[str], *, stdin: str = "", timeout_s: float = 30.0) -> Answer:
        try:
            done = self._sandbox.run(argv, user=self._user, check=False, stdin=stdin, timeout_s=timeout_s)
        except subprocess.TimeoutExpired:
            raise CommandTimeout(f"{argv[0]} did not answer within {timeout_s:.0f} s") from None
        return Answer(done.returncode, done.stdout, done.stderr)


class SlurmRig:
    """Jobs of the sandbox user alice on the one node of ``gpudebug``, whose limit is Slurm's shortest: a minute."""

    walltime_s, lead_s = 60.0, 30

    def __init__(self, sandbox: Sandbox, **options: Any) -> None:
        self.sandbox, self.options = sandbox, options

    def connect(self) -> SlurmCli:
        options = {"python": str(self.sandbox.python), **self.options}
        return SlurmCli("testbed", AsUser(self.sandbox, "alice"), self.sandbox.system_user("alice"), **options)

    def spec(self, key: str, program: Program, **changes: Any) -> JobSpec:
        home = str(self.sandbox.home("alice"))
        resources = Resources(memory_bytes=200 * 2**20, walltime_s=60.0)
        job = JobSpec(key, "test", "gpudebug", resources, program.argv(), home, f"{home}/out 100% {key}.txt", signal_lead_s=None)
        resources = replace(resources, **{k: v for k, v in changes.items() if k in RESOURCE_FIELDS})
        return replace(job, resources=resources, **{k: v for k, v in changes.items() if k not in RESOURCE_FIELDS})

    def refused(self, key: str) -> JobSpec:
        return self.spec(key, Program(), cpus_per_node=999)

    def crowd(self, key: str) -> JobSpec:
        return self.spec(key, Program(run_s=300), cpus_per_node=8)

    def output_of(self, spec: JobSpec) -> str:
        path = Path(spec.output)
        return path.read_text() if path.exists() else ""

    def wait_until(self, condition: Callable[[], bool], timeout_s: float = 30.0) -> bool:
        until = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() >= until:
                return False
            time.sleep(0.5)
        return True

    def go_down(self) -> None:
        self.sandbox.stop_slurmctld()

    def come_back(self) -> None:
        self.sandbox.start_slurmctld()

    def new_key(self) -> str:
        return f"r-{uuid.uuid4().hex[:12]}.1"

    def close(self) -> None:
        """No job of alice's may disturb the next test."""
        user = self.sandbox.system_user("alice")
        self.sandbox.run(["scancel", f"--user={user}"], check=False)
        self.wait_until(lambda: not self.sandbox.run(["squeue", "-h", f"--user={user}"]).stdout.strip(), 20.0)


@pytest.fixture
def rig(slurm: Sandbox) -> Iterator[SlurmRig]:
    rig = SlurmRig(slurm)
    yield rig
    rig.close()


class TestSlurm(BatchContract):
    """The contract itself."""


def test_the_json_reader_says_the_same_as_the_text_reader(rig: SlurmRig) -> None:
    batch, keys = rig.connect(), [rig.new_key() for _ in range(3)]
    done, now, held = (rig.spec(k, Program(run_s=r, exit_code=3)) for k, r in zip(keys, (0, 50, 50), strict=True))
    batch.submit(done)
    batch.submit(now)
    batch.submit(replace(held, resources=replace(held.resources, cpus_per_node=8)))
    ended(rig, batch, done.key)
    refs = [JobRef(k) for k in keys]
    assert rig.wait_until(lambda: one(batch, now.key).state is JobState.RUNNING)
    by_text, by_json = batch.observe(refs).jobs, SlurmRig(rig.sandbox, reader="json").connect().observe(refs).jobs
    assert {k: _timeless(v) for k, v in by_text.items()} == {k: _timeless(v) for k, v in by_json.items()}
    assert [by_text[k][0].state for k in keys] == [JobState.FAILED, JobState.RUNNING, JobState.PENDING]


def _timeless(found: tuple[JobStatus, ...]) -> list[JobStatus]:
    """Without what moves between two questions: the expected start, the reason to wait and a late memory figure."""
    return [replace(s, expected_start_s=None, reason="", max_rss_bytes=None) for s in found]


def test_any_text_survives_the_options_of_the_script(rig: SlurmRig) -> None:
    batch, text = rig.connect(), "a \"b\" \\ 'c' # $HOME `id` | ; ü % end"
    spec = rig.spec(rig.new_key(), Program(), comment=text)
    job_id = batch.submit(spec)
    shown = rig.sandbox.run(["squeue", "-h", "--states=all", "-j", job_id, "-o", "%k"]).stdout.rstrip("\n")
    assert shown == f"isched:{spec.key} test {text}"
    ended(rig, batch, spec.key)


def test_memory_beyond_the_request_is_seen_and_measured(rig: SlurmRig) -> None:
    batch, key = rig.connect(), rig.new_key()
    eater = "import time; x = bytearray(400_000_000); time.sleep(30)"
    spec = replace(rig.spec(key, Program(), memory_bytes=100 * 2**20), command=(str(rig.sandbox.python), "-c", eater))
    batch.submit(spec)
    status = ended(rig, batch, key)
    assert status.state in (JobState.FAILED, JobState.OUT_OF_MEMORY)
    assert rig.wait_until(lambda: (one(batch, key).max_rss_bytes or 0) > 100 * 2**20, 20.0)


def test_a_job_that_left_the_queue_is_remembered_by_accounting(rig: SlurmRig) -> None:
    batch, spec = rig.connect(), rig.spec(rig.new_key(), Program(exit_code=7))
    job_id = batch.submit(spec)
    before = ended(rig, batch, spec.key)
    assert rig.wait_until(lambda: not _in_queue(rig, job_id), 90.0)
    after = one(rig.connect(), spec.key)
    assert (after.job_id, after.state, after.exit_code, after.start_s, after.end_s, after.nodes) == (
        job_id, JobState.FAILED, 7, before.start_s, before.end_s, before.nodes,
    )  # fmt: skip


def _in_queue(rig: SlurmRig, job_id: str) -> bool:
    return job_id in rig.sandbox.run(["squeue", "-h", "--states=all", "-o", "%A"]).stdout.split()


def test_accounting_away_makes_absence_unproven_and_is_not_asked_again_at_once(rig: SlurmRig) -> None:
    batch, spec = rig.connect(), rig.spec(rig.new_key(), Program(run_s=300))
    batch.submit(spec)
    rig.sandbox.stop_slurmdbd()
    try:
        seen = batch.observe([JobRef(spec.key), JobRef("r-nobody.1")])
        assert (set(seen.jobs), seen.complete) == ({spec.key}, False)
        assert batch.observe([JobRef("r-nobody.1")]).complete is False
        assert batch.calls["sacct"] == 1
        assert batch.observe([JobRef(spec.key)]).complete is True
    finally:
        rig.sandbox.start_slurmdbd()
    assert rig.wait_until(lambda: batch.observe([JobRef("r-nobody.1")]).complete, 30.0)


def test_back_off_keeps_questions_from_a_controller_that_is_away(rig: SlurmRig) -> None:
    batch = rig.connect()
    rig.go_down()
    try:
        for _ in range(5):
            with pytest.raises(BatchUnavailable):
                batch.observe([JobRef("r-nobody.1")])
        assert batch.calls["squeue"] < 5
    finally:
        rig.come_back()


def test_free_gpus_are_counted_from_what_is_allocated(rig: SlurmRig) -> None:
    batch, before = rig.connect(), rig.connect().snapshot().counts("gpu")
    spec = rig.spec(rig.new_key(), Program(run_s=300), partition="gpu", gpus_per_node=1, gres="v100")
    batch.submit(spec)
    running(rig, batch, spec)
    seen = batch.snapshot()
    after = seen.counts("gpu")
    assert [c.total_gpus for c in after] == [c.total_gpus for c in before]
    assert sum(c.idle_gpus for c in after) == sum(c.idle_gpus for c in before) - 1
    assert [j.gpus for j in seen.jobs if j.mine] == [1]


def test_a_partition_that_is_closed_is_a_site_limit(rig: SlurmRig) -> None:
    batch, spec = rig.connect(), rig.spec(rig.new_key(), Program())
    rig.sandbox.drain_partition("gpudebug")
    try:
        with pytest.raises(SubmitRefused) as refused:
            batch.submit(spec)
    finally:
        rig.sandbox.undrain_partition("gpudebug")
    assert refused.value.kind == "site_limit"


TRAIN = """\
import os, signal, sys, time
got = []
signal.signal(signal.SIGUSR2, lambda *a: got.append(1))
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(total)
print(f"READY rank {dist.get_rank()} of {dist.get_world_size()} on {os.environ['SLURMD_NODENAME']} sum {total.item():.0f}", flush=True)
end = time.time() + 50
while time.time() < end:
    told = torch.tensor([float(len(got))])
    dist.all_reduce(told)
    if told.item() >= dist.get_world_size():
        break
    time.sleep(0.1)
print(f"SIGNALLED rank {dist.get_rank()}: {len(got)}", flush=True)
dist.destroy_process_group()
"""


@pytest.mark.torch
@pytest.mark.parametrize("wrapped", [False, True])
def test_torchrun_meets_over_two_nodes_and_every_process_gets_the_signal(rig: SlurmRig, wrapped: bool) -> None:
    batch, key, home, python = rig.connect(), rig.new_key(), rig.sandbox.home("alice"), str(rig.sandbox.python)
    script = home / f"train {key}.py"
    script.write_text(TRAIN)
    command = (python, str(script))
    run_dir = home / f"run {key}"
    if wrapped:
        command = (python, "-m", "ischeduler.training.wrapper", "--", *command)
    variables = {"ISCHED_RUN_DIR": str(run_dir), "ISCHED_RUN_ID": key, "ISCHED_ATTEMPT": "1"} if wrapped else {}
    base = rig.spec(key, Program(), nodes=2, cpus_per_node=2, memory_bytes=3 * 2**30, walltime_s=120.0, partition="cpu")
    spec = replace(base, command=command, launcher="torchrun", processes_per_node=2, variables=variables)
    job_id = batch.submit(spec)
    assert rig.wait_until(lambda: rig.output_of(spec).count("READY rank") == 4, 100.0), rig.output_of(spec)
    batch.cancel(job_id, signal="USR2")
    status = ended(rig, batch, key, 90.0)
    said = rig.output_of(spec)
    assert (status.state, status.exit_code) == (JobState.COMPLETED, 0), said
    ready = dict(re.findall(r"READY rank (\d) of 4 on (c0\d) sum 10", said))
    assert sorted(ready) == ["0", "1", "2", "3"], said
    assert sorted(ready.values()) == ["c01", "c01", "c02", "c02"], said
    assert sum(f"SIGNALLED rank {r}: 1" in said for r in range(4)) == 4, said
    if wrapped:
        assert (run_dir / "attempts" / "1.0" / "claim").exists()
        assert '"kind":"signal"' in (run_dir / "events" / "1.0.jsonl").read_text().replace(" ", "")


def test_a_job_of_two_nodes_names_both(rig: SlurmRig) -> None:
    batch = rig.connect()
    base = rig.spec(rig.new_key(), Program(), nodes=2, partition="cpu")
    spec = replace(base, launcher="srun", command=("bash", "-c", 'echo "on $SLURMD_NODENAME"'))
    batch.submit(spec)
    status = ended(rig, batch, spec.key)
    assert (status.state, status.nodes) == (JobState.COMPLETED, ("c01", "c02"))
    assert sorted(rig.output_of(spec).split("\n")) == ["", "on c01", "on c02"]


def test_a_cancelled_job_that_never_could_start_is_still_found(rig: SlurmRig) -> None:
    batch, spec = rig.connect(), rig.spec(rig.new_key(), Program())
    script = batch.script(spec).replace("#SBATCH --no-requeue", "#SBATCH --hold")
    job_id = AsUser(rig.sandbox, "alice")(["sbatch", "--parsable"], stdin=script).out.strip()
    batch.cancel(job_id)
    assert rig.wait_until(lambda: not _in_queue(rig, job_id), 90.0)
    found = statuses(rig.connect(), JobRef(spec.key, job_id))
    assert [s.state for s in found] == [JobState.CANCELLED]
