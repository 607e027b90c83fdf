"""SlurmCli against scripted answers: what it asks, how often, and what it makes of errors."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ischeduler.batch.backoff import Backoff
from ischeduler.batch.commands import Answer, CommandMissing, CommandTimeout
from ischeduler.batch.slurm_cli import SlurmCli
from ischeduler.batch.slurm_errors import submit_error
from ischeduler.batch.slurm_text import OWN_FIELDS, SACCT_FIELDS, SEPARATOR
from ischeduler.core.errors import BadInput, BatchUnavailable, SubmitRefused, SubmitUncertain
from ischeduler.core.jobs import JobRef, JobSpec, JobState, Resources
from ischeduler.testing.sim_clock import SimClock

SPEC = JobSpec("k", "n", "gpu", Resources(), ("python", "t.py"), "/d", "/d/o")
REFUSED_CONNECTION = Answer(1, "", "squeue: error: Unable to contact slurm controller (connect failure)")


def live(job_id: str, key: str, state: str = "RUNNING") -> str:
    row = dict.fromkeys(OWN_FIELDS, "") | {"JobID": job_id, "Name": f"isched-{key}", "State": state, "exit_code": "0", "RestartCnt": "0"}
    return "".join(row[f] + SEPARATOR for f in OWN_FIELDS) + "\n"


def past(job_id: str, key: str, state: str = "COMPLETED", rss: str = "") -> str:
    def line(job: str, name: str, peak: str) -> str:
        row = dict.fromkeys(SACCT_FIELDS, "") | {"JobID": job, "JobName": name, "State": state, "ExitCode": "0:0", "MaxRSS": peak}
        return SEPARATOR.join(row[f] for f in SACCT_FIELDS) + "\n"

    return line(job_id, f"isched-{key}", "") + line(f"{job_id}.batch", "batch", rss)


class Scripted:
    """Answers by program; an exception is raised; the last answer is repeated."""

    def __init__(self, **answers: list[Answer | Exception]) -> None:
        self.answers, self.asked = answers, list[tuple[str, ...]]()

    def __call__(self, argv: Sequence[str], *, stdin: str = "", timeout_s: float = 30.0) -> Answer:
        self.asked.append(tuple(argv))
        assert timeout_s > 0
        program = next(w for w in argv if w != "env" and "=" not in w)
        queue = self.answers.get(program) or [Answer(0, "", "")]
        answer = queue.pop(0) if len(queue) > 1 else queue[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def cli(slurm: Scripted, clock: SimClock | None = None) -> SlurmCli:
    return SlurmCli("c", slurm, "alice", clock or SimClock())


@pytest.mark.parametrize("runs", [1, 10, 1000])
def test_a_tick_costs_one_squeue_however_many_runs_there_are(runs: int) -> None:
    slurm = Scripted(squeue=[Answer(0, "".join(live(str(i), f"k{i}") for i in range(runs)), "")])
    batch = cli(slurm)
    seen = batch.observe([JobRef(f"k{i}", str(i)) for i in range(runs)])
    assert (len(seen.jobs), seen.complete, dict(batch.calls)) == (runs, True, {"squeue": 1})


def test_only_those_that_left_are_asked_of_sacct() -> None:
    slurm = Scripted(squeue=[Answer(0, live("1", "a"), "")], sacct=[Answer(0, past("2", "b"), "")])
    batch = cli(slurm)
    seen = batch.observe([JobRef("a", "1"), JobRef("b", "2"), JobRef("c")])
    assert {k: [s.state for s in v] for k, v in seen.jobs.items()} == {"a": [JobState.RUNNING], "b": [JobState.COMPLETED]}
    assert seen.complete
    assert "--name=isched-b,isched-c" in slurm.asked[1]
    assert dict(batch.calls) == {"squeue": 1, "sacct": 1}


def test_a_known_job_that_left_is_not_hidden_by_its_double() -> None:
    slurm = Scripted(squeue=[Answer(0, live("9", "a"), "")], sacct=[Answer(0, past("2", "a") + past("9", "a", "RUNNING"), "")])
    seen = cli(slurm).observe([JobRef("a", "2")])
    assert [(s.job_id, s.state) for s in seen.jobs["a"]] == [("2", JobState.COMPLETED), ("9", JobState.RUNNING)]


def test_an_ended_job_in_the_queue_gets_its_memory_from_accounting() -> None:
    slurm = Scripted(squeue=[Answer(0, live("1", "a", "FAILED"), "")], sacct=[Answer(0, past("1", "a", "RUNNING", "2048K"), "")])
    (status,) = cli(slurm).observe([JobRef("a", "1")]).jobs["a"]
    assert (status.state, status.max_rss_bytes) == (JobState.FAILED, 2048 * 1024)


@pytest.mark.parametrize("trouble", [Answer(1, "", "Slurm accounting storage is disabled"), CommandTimeout("sacct"), CommandMissing("sacct")])
def test_without_accounting_absence_proves_nothing_and_the_queue_still_counts(trouble: Answer | Exception) -> None:
    clock = SimClock()
    slurm = Scripted(squeue=[Answer(0, live("1", "a"), "")], sacct=[trouble])
    batch = cli(slurm, clock)
    refs = [JobRef("a", "1"), JobRef("b")]
    assert batch.observe(refs).complete is False
    clock.advance(1)
    seen = batch.observe(refs)
    assert (set(seen.jobs), seen.complete) == ({"a"}, False)
    assert batch.observe([JobRef("a", "1")]).complete is True
    assert batch.calls["sacct"] == 1


def test_after_a_failure_nobody_is_asked_until_the_wait_is_over() -> None:
    clock = SimClock()
    batch = cli(Scripted(squeue=[REFUSED_CONNECTION]), clock)
    for _ in range(600):
        with pytest.raises(BatchUnavailable, match="Unable to contact"):
            batch.observe([JobRef("a")])
        clock.advance(1)
    assert batch.calls["squeue"] <= 11


def test_the_first_answer_ends_the_back_off() -> None:
    clock = SimClock()
    batch = cli(Scripted(squeue=[REFUSED_CONNECTION, Answer(0, live("1", "a"), "")]), clock)
    with pytest.raises(BatchUnavailable):
        batch.observe([JobRef("a")])
    clock.advance(2)
    assert set(batch.observe([JobRef("a")]).jobs) == {"a"}
    assert batch.backoff.failures == 0


def test_back_off_doubles_up_to_its_longest() -> None:
    backoff, waits = Backoff(first_s=2, longest_s=20), []
    for _ in range(6):
        backoff.failed(0.0, "x")
        waits.append(backoff.waits(0.0))
    assert waits == [2, 4, 8, 16, 20, 20]


@pytest.mark.parametrize("out", ["42\n", "42;pitzer\n", "Welcome to the cluster\n42\n"])
def test_the_id_is_read_from_any_sbatch(out: str) -> None:
    slurm = Scripted(sbatch=[Answer(0, out, "")])
    assert cli(slurm).submit(SPEC) == "42"
    assert slurm.asked == [("sbatch", "--parsable")]


@pytest.mark.parametrize(
    ("answer", "kind", "why"),
    [
        ("Batch job submission failed: Unable to contact slurm controller (connect failure)", BatchUnavailable, ""),
        ("Batch job submission failed: Socket timed out on send/recv operation", SubmitUncertain, ""),
        ("Batch job submission failed: Zero Bytes were transmitted or received", SubmitUncertain, ""),
        ("Batch job submission failed: Unexpected message received", SubmitUncertain, ""),
        ("Batch job submission failed: Invalid account or account/partition combination specified", SubmitRefused, "invalid"),
        ("QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's "
         "size and/or time limits)", SubmitRefused, "site_limit"),
        ("QOSMaxWallDurationPerJobLimit\nsbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, "
         "user's size and/or time limits)", SubmitRefused, "invalid"),
        ("Batch job submission failed: Requested node configuration is not available", SubmitRefused, "invalid"),
        ("Batch job submission failed: Required partition not available (inactive or drain)", SubmitRefused, "site_limit"),
    ],
)  # fmt: skip
def test_every_refusal_is_understood(answer: str, kind: type[Exception], why: str) -> None:
    error = submit_error(Answer(1, "", f"sbatch: error: {answer}\n"))
    assert type(error) is kind
    assert "sbatch: error" not in str(error) or kind is not SubmitRefused
    if isinstance(error, SubmitRefused):
        assert error.kind == why


def test_a_killed_or_silent_sbatch_may_have_been_accepted() -> None:
    for answer in (Answer(-9, "", ""), Answer(0, "", "")):
        assert type(submit_error(answer)) is SubmitUncertain
    with pytest.raises(SubmitUncertain, match="look its key up"):
        cli(Scripted(sbatch=[CommandTimeout("sbatch did not answer within 60 s")])).submit(SPEC)


def test_a_missing_command_is_no_answer_and_certainly_no_job() -> None:
    with pytest.raises(BatchUnavailable, match="PATH") as error:
        cli(Scripted(sbatch=[CommandMissing("sbatch cannot be started: No such file or directory")])).submit(SPEC)
    assert not isinstance(error.value, SubmitUncertain)


def test_cancelling_what_is_gone_is_no_error_and_ids_are_checked() -> None:
    slurm = Scripted(scancel=[Answer(1, "", "scancel: error: Kill job error on job id 1: Invalid job id specified")])
    batch = cli(slurm)
    batch.cancel("1")
    batch.cancel("1", signal="USR2")
    assert slurm.asked == [("scancel", "1"), ("scancel", "--signal=USR2", "--batch", "1")]
    assert batch.backoff.failures == 0
    with pytest.raises(BadInput, match="not a Slurm job id"):
        batch.cancel("--user=bob")


def test_a_cancel_that_was_not_done_is_said() -> None:
    slurm = Scripted(scancel=[Answer(1, "", "scancel: error: Kill job error on job id 1: Access/permission denied")])
    batch = cli(slurm)
    with pytest.raises(BatchUnavailable, match="denied"):
        batch.cancel("1")
    assert batch.backoff.failures == 0  # the controller did answer


def test_a_probe_reads_start_and_reason() -> None:
    yes = Answer(0, "", "sbatch: Job 7 to start at 1795236775 using 1 processors on nodes g01 in partition gpu\n")
    no = Answer(1, "", "sbatch: error: Memory specification can not be satisfied\nallocation failure: Requested node configuration is not available\n")
    batch = cli(Scripted(sbatch=[yes, no, REFUSED_CONNECTION]))
    assert (batch.probe(SPEC).accepted, batch.probe(SPEC).accepted) == (True, False)
    with pytest.raises(BatchUnavailable):
        batch.probe(SPEC)
    assert cli(Scripted(sbatch=[yes])).probe(SPEC).start_s == 1795236775.0
    assert cli(Scripted(sbatch=[no])).probe(SPEC).reason == (
        "Memory specification can not be satisfied; Requested node configuration is not available"
    )


def test_an_unknown_reader_is_refused() -> None:
    with pytest.raises(BadInput, match="reader"):
        SlurmCli("c", reader="xml")
