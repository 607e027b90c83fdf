"""What people are told: why pending, why this plan, why refused, what fits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from planning_scenes import BATCH_64_MODEL, NOW, RESNET, by_tag, idle_cpus, memory, paper_needs, pitzer, seconds

from ischeduler.core.plan import PlanSet
from ischeduler.core.snapshot import NodeCounts, QueuedJob, QueueSnapshot
from ischeduler.planning.candidates import CandidateKey, candidates
from ischeduler.planning.explain import explain_place, explain_plan, explain_refusal, source_words
from ischeduler.planning.fits import batch_fits
from ischeduler.planning.pending import Waiting, why_pending
from ischeduler.planning.planner import plan
from ischeduler.planning.reasons import REASONS, reason_of


@pytest.fixture
def plans() -> PlanSet:
    return plan(RESNET, [pitzer()], {"pitzer": idle_cpus()}, paper_needs(), NOW)


QUEUE = QueueSnapshot(
    "pitzer", NOW, nodes=(NodeCounts("gpudbg", "v100x2", allocated=3, drained=1),),
    jobs=(
        QueuedJob("7", "gpudbg", "PENDING", priority=50, submit_s=100.0, mine=True),
        *(QueuedJob(str(i), "gpudbg", "PENDING", priority=60) for i in range(100, 106)),
        QueuedJob("200", "gpudbg", "PENDING", priority=40), QueuedJob("201", "gpudbg", "PENDING", priority=50, submit_s=200.0),
        QueuedJob("202", "gpudbg", "RUNNING", priority=90), QueuedJob("203", "cpu", "PENDING", priority=90),
    ),
)  # fmt: skip


def test_a_job_behind_others_is_told_the_nodes_and_its_rank(plans: PlanSet) -> None:
    waiting = Waiting("Priority", "gpudbg", job_id="7", waited_s=720, wait=seconds(60, 1800, 3600), system_start_s=NOW + 6000)
    answer = why_pending(waiting, QUEUE, NOW, better=by_tag(plans, "soonest"))
    assert answer.lines() == (
        "PENDING 12m · reason Priority: no idle node in gpudbg (4: 3 allocated, 1 drained); 6 jobs rank above you.",
        "Expected start in 18m–48m (ours; within 10 min 12%, within 1 h 97%); the batch system says in 1h40.",
        "Act: nothing needed; pitzer/cpu would be done in 9h00 for $0.756: isched move RUN pitzer/cpu",
    )
    assert answer.passes


def test_an_unknown_rank_is_not_made_up() -> None:
    queue = replace(QUEUE, jobs=(QueuedJob("7", "gpudbg", "PENDING"), QueuedJob("8", "gpudbg", "PENDING")))
    assert "1 other job waits there" in why_pending(Waiting("Resources", "gpudbg", job_id="7"), queue, NOW).why
    assert "rank" not in why_pending(Waiting("Resources", "gpudbg", job_id="7"), queue, NOW).why


def test_who_estimated_the_wait_is_said_with_the_chances_that_are_left() -> None:
    wait = replace(seconds(60, 1800, 3600), source="queue@1", as_of=NOW - 720, reason="learned from 812 jobs")
    waiting = Waiting("Priority", "gpudbg", waited_s=720, wait=wait, start_by_s=NOW + 60)
    answer = why_pending(waiting, None, NOW)
    assert answer.lines()[1:3] == (
        "Expected start in 18m–48m (ours; within 10 min 12%, within 1 h 97%, in time for the deadline 2%).",
        "Ours is of queue@1, 12m ago: learned from 812 jobs.",
    )
    late = why_pending(replace(waiting, start_by_s=NOW - 1), None, NOW)
    assert "in time for the deadline 0%" in late.expected
    held = why_pending(replace(waiting, text="JobHeldUser"), None, NOW)
    assert (held.expected, held.source) == ("", "")


def test_a_wait_beyond_the_interval_is_admitted() -> None:
    late = Waiting("Priority", "gpudbg", waited_s=7200, wait=seconds(60, 1800, 3600))
    assert "later than we thought" in why_pending(late, None, NOW).expected


@pytest.mark.parametrize(
    ("text", "words", "passes"),
    [
        ("Priority", "higher priority", True), ("(Resources)", "until enough nodes are free", True), ("", "has not looked", True),
        ("Dependency", "another job to end", True), ("DependencyNeverSatisfied", "without releasing it", False),
        ("BeginTime", "earliest start", True), ("JobHeldUser", "owner holds it", False), ("JobHeldAdmin", "administrator", False),
        ("InvalidAccount", "account is not valid", False), ("InvalidQOS", "QOS is not valid", False),
        ("PartitionTimeLimit", "more time than the partition allows", False), ("PartitionDown", "starts no jobs", True),
        ("ReqNodeNotAvail, UnavailableNodes:p[01-02]", "maintenance", True), ("BadConstraints", "no node has", False),
        ("QOSMaxJobsPerUserLimit", "the QOS's limit of running jobs", True), ("AssocMaxJobsLimit", "your account's limit of running jobs", True),
        ("AssocGrpCPUMinutesLimit", "your account's budget of machine time is used up", False), ("AssocGrpBillingMinutes", "budget", False),
        ("QOSGrpCPURunMinutesLimit", "running jobs hold as much machine time", True), ("QOSMaxWallDurationPerJobLimit", "more walltime", False),
        ("QOSMaxCpuPerUserLimit", "cores, GPUs, nodes or memory in use", True), ("QOSMaxGRESPerUser", "in use is reached", True),
        ("QOSGrpGRES", "in use is reached", True), ("QOSMaxSubmitJobPerUserLimit", "queued jobs", True), ("QOSMinGRES", "outside", False),
        ("QOSMaxCpuMinutesPerJobLimit", "more machine time", False), ("AssociationJobLimit", "running jobs", True),
        ("AssocMaxMemPerJob", "outside", False), ("launch failed requeued held", "it is held", False),
    ],
)  # fmt: skip
def test_slurms_reasons_in_plain_words(text: str, words: str, passes: bool) -> None:
    _, reason = reason_of(text)
    assert words in reason.words
    assert reason.passes is passes
    assert reason.action
    assert "{" not in reason.words


def test_a_reason_that_needs_an_act_says_which_job() -> None:
    held = why_pending(Waiting("JobHeldUser", "gpu", job_id="42", wait=seconds(0, 1, 2)), None, NOW)
    assert (held.action, held.expected) == ("release it: scontrol release 42", "")


@given(st.text(max_size=30))
def test_any_reason_gets_an_answer_that_repeats_unknown_words(text: str) -> None:
    word, reason = reason_of(text)
    assert reason.words
    assert reason.action
    if word not in REASONS and not reason.words.startswith("it is held"):
        assert text.strip("()") in reason.words or word.startswith(("QOS", "Assoc"))


def test_a_plan_tells_why_it_is_soonest_cheapest_and_ideal(plans: PlanSet) -> None:
    soonest, cheapest = ("\n".join(explain_plan(by_tag(plans, tag), plans)) for tag in ("soonest", "cheapest"))
    assert "soonest: done in 9h00 (nine in ten: 10h11); next is pitzer/gpudebug with 9h32, of which 7h30 waiting" in soonest
    assert "cheapest: $0.348; next is pitzer/gpudebug with $0.354" in cheapest
    assert "ideal: 0 interruptions and, among those, the shortest run once it starts, 2h00" in cheapest
    assert "28 cores and 1 GPU for 2h00 at $0.003 a RU" in cheapest


def test_a_cascade_tells_what_each_job_is_good_for(plans: PlanSet) -> None:
    lines = explain_place(plans, "gpudebug")
    assert any("3 jobs: each of 1h00 leaves 58m for training" in line for line in lines)
    assert explain_place(plans, "nowhere") == ()


def test_a_refusal_is_told_with_its_place() -> None:
    needs = paper_needs(64)
    key = CandidateKey("pitzer", "gpu", "v100x2", 64)
    needs[key] = replace(needs[key], gpu_memory=memory(41), memory_model=BATCH_64_MODEL)
    found = plan(replace(RESNET, batch_size=64), [pitzer()], {}, needs, NOW)
    (refusal,) = found.refusals
    line = "pitzer/gpu: needs 41 GB, card has 32 GB, 9 GB more needed: batch 48 fits, or gradient accumulation 2"
    assert explain_refusal(refusal) == explain_place(found, "pitzer/gpu") == (line,)


def test_a_number_says_how_old_it_is() -> None:
    assert source_words(replace(seconds(1, 2, 3), reason="12 similar runs", as_of=NOW - 7200), NOW) == "paper@1, 12 similar runs, 2h00 old"
    assert source_words(seconds(1, 2, 3), NOW) == "paper@1"


def test_which_batch_fits_where() -> None:
    needs = {**paper_needs(32), **paper_needs(64)}
    for batch, gib in ((32, 22.5), (64, 41.0)):
        key = CandidateKey("pitzer", "gpu", "v100x2", batch)
        needs[key] = replace(needs[key], gpu_memory=memory(gib), memory_model=BATCH_64_MODEL)
    rows = batch_fits(candidates(replace(RESNET, batch_size=(32, 64)), [pitzer()]), needs)
    assert [(r.batch_size, r.fits, r.largest) for r in rows if r.where == "pitzer/gpu"] == [(32, True, 48), (64, False, 48)]
    assert {r.where for r in rows} == {"pitzer/gpu", "pitzer/gpudebug"}


def test_a_stale_or_missing_look_at_the_queue_is_said() -> None:
    old = replace(idle_cpus(), taken_at=NOW - 7200)
    assert plan(RESNET, [pitzer()], {"pitzer": old}, paper_needs(), NOW).warnings == ("pitzer: its queue was looked at 2h00 ago",)
    assert "was not looked at" in plan(RESNET, [pitzer()], {}, paper_needs(), NOW).warnings[0]
