"""The batch contract on a real slurmrestd, each user with a token of their own, and what only a real one can show."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_batch_slurm import AsUser, SlurmRig

from ischeduler.batch.clocks import SystemClock
from ischeduler.batch.commands import Answer, LocalCommands
from ischeduler.batch.slurm_rest import SlurmRest
from ischeduler.batch.slurm_rest_tokens import CommandTokens, FileTokens
from ischeduler.core.errors import BatchUnavailable, SubmitRefused, SubmitUncertain
from ischeduler.core.jobs import JobRef, JobState
from ischeduler.sandbox import Sandbox, daemons
from ischeduler.testing.batch_contract import BatchContract, Program, ended, one, running
from ischeduler.training.rundir import RunDir

pytestmark = pytest.mark.slurm
SCONTROL = ("scontrol", "token", "username={user}", "lifespan={lifespan_s}")


def tokens(sandbox: Sandbox, **options: Any) -> CommandTokens:
    """Tokens as an administrator would configure them: by a command that root may run."""
    return CommandTokens(SCONTROL, SystemClock(), run_command=LocalCommands(sandbox.env()), **options)


class RestRig(SlurmRig):
    """The jobs of the command line's rig, sent and seen over HTTP as alice."""

    def connect(self, user: str = "alice", **options: Any) -> SlurmRest:  # type: ignore[override]
        source = options.pop("source", None) or tokens(self.sandbox)
        account = self.sandbox.system_user(user)
        python = str(self.sandbox.python)
        return SlurmRest(
            "testbed", self.sandbox.rest_url, account, source, SystemClock(), python=python, **{**self.options, **options}
        )


@pytest.fixture
def rig(slurm: Sandbox) -> Iterator[RestRig]:
    rig = RestRig(slurm)
    yield rig
    rig.close()


class TestSlurmRest(BatchContract):
    """The contract itself."""


def test_slurmrestd_away_says_nothing_of_jobs_and_doubles_nothing(rig: RestRig) -> None:
    batch, spec = rig.connect(), rig.spec(rig.new_key(), Program(run_s=300))
    job_id = batch.submit(spec)
    running(rig, batch, spec)
    rig.sandbox.stop_daemon(daemons.SLURMRESTD)
    try:
        for ask in (batch.snapshot, lambda: batch.observe([JobRef(spec.key, job_id)]), lambda: batch.submit(spec)):
            with pytest.raises(BatchUnavailable) as away:
                ask()
            assert not isinstance(away.value, SubmitUncertain)
        assert batch.calls["submit"] == 1, "the back-off kept the second one"
    finally:
        rig.sandbox.start_daemon(daemons.SLURMRESTD)
    assert rig.wait_until(lambda: _sees(rig.connect(), spec.key) == [job_id])
    batch.cancel(job_id) if not batch.backoff.waits(SystemClock().now()) else rig.connect().cancel(job_id)


def _sees(batch: SlurmRest, key: str) -> list[str]:
    try:
        return [s.job_id for s in batch.observe([JobRef(key)]).jobs[key]]
    except BatchUnavailable:
        return []


def test_nobody_acts_with_another_s_token(rig: RestRig) -> None:
    batch, spec = rig.connect(), rig.spec(rig.new_key(), Program(run_s=300))
    job_id = batch.submit(spec)
    with pytest.raises(BatchUnavailable, match=r"[Pp]ermission|denied"):
        rig.connect("bob").cancel(job_id)
    borrowed = FixedTokens(tokens(rig.sandbox).token(rig.sandbox.system_user("bob")))
    with pytest.raises(BatchUnavailable):
        rig.connect("alice", source=borrowed).submit(rig.spec(rig.new_key(), Program()))
    assert one(batch, spec.key).state in (JobState.PENDING, JobState.RUNNING)
    assert dict(rig.connect("bob").observe([JobRef(spec.key)]).jobs) == {}
    assert set(rig.connect("bob", everyone=True).observe([JobRef(spec.key)]).jobs) == {spec.key}
    batch.cancel(job_id)


class FixedTokens:
    """Always the same token; counts how often it was called useless."""

    def __init__(self, token: str) -> None:
        self._token, self.forgotten = token, 0

    def token(self, user: str) -> str:
        return self._token

    def forget(self, user: str) -> None:
        self.forgotten += 1


def test_a_token_that_expired_is_replaced_and_never_shown(rig: RestRig, tmp_path: Path) -> None:
    account = rig.sandbox.system_user("alice")
    path = tmp_path / f"{account}.jwt"
    path.touch(mode=0o600)
    path.write_text(_scontrol(rig, account, 1))
    source = FileTokens(str(tmp_path / "{user}.jwt"))
    batch = rig.connect(source=source)
    assert rig.wait_until(lambda: not _answers(batch), 10.0)
    with pytest.raises(BatchUnavailable) as refused:
        rig.connect(source=source).observe([JobRef("r-nobody.1")])
    assert path.read_text().strip()[-20:] not in str(refused.value)
    path.write_text(_scontrol(rig, account, 600))
    assert rig.connect(source=source).observe([JobRef("r-nobody.1")]).complete


def _scontrol(rig: RestRig, account: str, lifespan_s: int) -> str:
    argv = ["scontrol", "token", f"username={account}", f"lifespan={lifespan_s}"]
    answer: Answer = LocalCommands(rig.sandbox.env())(argv)
    return answer.out


def _answers(batch: SlurmRest) -> bool:
    try:
        batch.observe([JobRef("r-nobody.1")])
    except BatchUnavailable:
        return False
    return True


def test_many_jobs_cost_one_question_to_the_queue(rig: RestRig) -> None:
    batch = rig.connect()
    specs = [rig.spec(rig.new_key(), Program(run_s=60)) for _ in range(5)]
    for spec in specs:
        batch.submit(spec)
    before = dict(batch.calls)
    assert len(batch.observe([JobRef(s.key) for s in specs]).jobs) == 5
    assert {k: n - before.get(k, 0) for k, n in batch.calls.items() if n != before.get(k, 0)} == {"queue": 1}


def test_the_job_makes_its_own_run_directory_which_the_service_may_not_write(rig: RestRig) -> None:
    batch, key = rig.connect(), rig.new_key()
    home = rig.sandbox.home("alice")
    run_dir = home / "runs" / f"of a 100% $HOME 'user' {key}"
    variables = {"ISCHED_RUN_DIR": str(run_dir), "ISCHED_RUN_ID": key, "ISCHED_ATTEMPT": "3"}
    wrapped = (str(rig.sandbox.python), "-m", "ischeduler.training.wrapper", "--", *Program(text="hello").argv())
    spec = replace(
        rig.spec(key, Program()), variables=variables, command=wrapped, output=f"{run_dir}/logs/3.out", directory=str(run_dir)
    )
    batch.submit(spec)
    assert ended(rig, batch, key).state is JobState.COMPLETED
    assert "hello" in (run_dir / "logs" / "3.out").read_text()
    assert run_dir.owner() == rig.sandbox.system_user("alice")
    assert run_dir.stat().st_mode & 0o777 == 0o700
    assert json.loads((run_dir / "run.json").read_text())["run"] == key
    assert [str(t) for t in RunDir(run_dir).tokens()] == ["3.0"]
    assert (run_dir / "fence").read_text() == "3.0\n", "the attempt fences for itself"


def test_a_signal_does_not_end_a_wrapped_training_that_does_not_know_it(rig: RestRig) -> None:
    batch, key = rig.connect(), rig.new_key()
    run_dir = rig.sandbox.home("alice") / f"run-{key}"
    variables = {"ISCHED_RUN_DIR": str(run_dir), "ISCHED_RUN_ID": key, "ISCHED_ATTEMPT": "1"}
    program = (str(rig.sandbox.python), "-c", "import time; print('READY', flush=True); time.sleep(6); print('DONE')")
    wrapped = (str(rig.sandbox.python), "-m", "ischeduler.training.wrapper", "--", *program)
    spec = replace(
        rig.spec(key, Program()), variables=variables, command=wrapped, output=f"{run_dir}/logs/1.out", directory=str(run_dir)
    )
    job_id = batch.submit(spec)
    running(rig, batch, spec)
    batch.cancel(job_id, signal="USR2")
    assert ended(rig, batch, key).exit_code == 0
    assert "DONE" in rig.output_of(spec)
    assert '"name":"SIGUSR2"' in (run_dir / "events" / "1.0.jsonl").read_text().replace(" ", "")


def test_accounting_away_makes_absence_unproven(rig: RestRig) -> None:
    batch = rig.connect()
    assert batch.observe([JobRef("r-nobody.1")]).complete
    rig.sandbox.stop_slurmdbd()
    try:
        assert batch.observe([JobRef("r-nobody.1")]).complete is False
        assert batch.observe([JobRef("r-nobody.1")]).complete is False
        assert batch.calls["accounting"] == 2, "the back-off kept the third one"
    finally:
        rig.sandbox.start_slurmdbd()


def test_nodes_and_jobs_are_told_as_by_the_command_line(rig: RestRig) -> None:
    rest, cli = rig.connect(), SlurmRig(rig.sandbox).connect()
    spec = rig.spec(rig.new_key(), Program(run_s=300), partition="gpu", gpus_per_node=1, gres="v100")
    job_id = rest.submit(spec)
    running(rig, rest, spec)
    over_http, by_command = rest.snapshot(), cli.snapshot()
    assert over_http.nodes == by_command.nodes
    assert [(j.job_id, j.gpus, j.mine, j.limit_s, j.user) for j in over_http.jobs] == [
        (j.job_id, j.gpus, j.mine, j.limit_s, j.user) for j in by_command.jobs
    ]
    rest.cancel(job_id)
    status = ended(rig, rest, spec.key)
    seen = cli.observe([JobRef(spec.key)]).jobs[spec.key][0]
    assert (seen.state, seen.start_s, seen.end_s, seen.nodes) == (status.state, status.start_s, status.end_s, status.nodes)


def test_memory_is_told_as_by_the_command_line(rig: RestRig) -> None:
    rest, cli, spec = rig.connect(), SlurmRig(rig.sandbox).connect(), rig.spec(rig.new_key(), Program(run_s=2))
    rest.submit(spec)
    ended(rig, rest, spec.key)
    assert rig.wait_until(lambda: (one(rest, spec.key).max_rss_bytes or 0) > 0, 20.0)
    assert one(rest, spec.key).max_rss_bytes == cli.observe([JobRef(spec.key)]).jobs[spec.key][0].max_rss_bytes


def test_a_closed_partition_is_a_site_limit(rig: RestRig) -> None:
    batch, spec = rig.connect(), rig.spec(rig.new_key(), Program())
    rig.sandbox.drain_partition("gpudebug")
    try:
        with pytest.raises(SubmitRefused) as refused:
            batch.submit(spec)
        assert not batch.probe(spec).accepted
    finally:
        rig.sandbox.undrain_partition("gpudebug")
    assert refused.value.kind == "site_limit"


def test_any_text_survives_the_way(rig: RestRig) -> None:
    batch, text = rig.connect(), "a \"b\" \\ 'c' # $HOME `id` | ; ü % end"
    spec = rig.spec(rig.new_key(), Program(), comment=text)
    job_id = batch.submit(spec)
    shown = AsUser(rig.sandbox, "alice")(["squeue", "-h", "--states=all", "-j", job_id, "-o", "%k"]).out.rstrip("\n")
    assert shown == f"isched:{spec.key} test {text}"
    ended(rig, batch, spec.key)


def test_a_line_break_never_reaches_slurm(rig: RestRig) -> None:
    from ischeduler.core.errors import BadInput

    spec = rig.spec(rig.new_key(), Program(), account="research\nx")
    with pytest.raises(BadInput, match="one line"):
        rig.connect().submit(spec)


def test_a_service_that_may_write_nothing_carries_a_run_through_a_walltime_limit(rig: RestRig) -> None:
    """The whole plane over HTTP as alice, who alone may write the run's directory; two segments, every step done once."""
    from carried import Carried

    from ischeduler.batch.slurm_rest_files import JobSideRunFiles
    from ischeduler.batch.spool_events import SpoolEvents
    from ischeduler.core.run import Run, RunState
    from ischeduler.plane.cadence import Cadence
    from ischeduler.plane.loop import Plane
    from ischeduler.testing.memory_store import MemoryStore

    work = Carried(rig.sandbox, f"rest-{rig.new_key()[2:8]}", epochs=5, steps=10, step_s=1.1)
    plan = work.plan(signal_lead_s=45)
    run = Run(work.name, "alice", plan, RunState.PLANNED, str(work.run_directory), 1.0, state_since=1.0)
    store, batch = MemoryStore(), rig.connect()
    cadence = Cadence(fast_s=0.5, slow_s=1.0, idle_s=1.0)
    plane = Plane(
        store,
        {"testbed": batch},
        SpoolEvents(),
        SystemClock(),
        _Silent(),
        JobSideRunFiles(),
        owner="alice",
        holder="t",
        cadence=cadence,
    )
    plane.delegate(run)
    assert rig.wait_until(lambda: bool(plane.tick().held) and store.get_run(run.id).state.ended, 150.0)
    after = store.get_run(run.id)
    assert after.state is RunState.COMPLETED, after.message
    assert [str(a.cause) for a in after.attempts] == ["walltime", "finished"]
    assert work.right(), "every step exactly once, in order"
    assert work.run_directory.stat().st_mode & 0o777 == 0o700


class _Silent:
    def notify(self, run: object, subject: str, text: str) -> None:
        """Tells nobody."""
