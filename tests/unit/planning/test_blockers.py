"""Every kind of refusal, with what would fix it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from planning_scenes import (
    A100,
    BATCH_64_MODEL,
    CPU_NODE,
    GPU_NODE,
    HOUR,
    NOW,
    RESNET,
    idle_cpus,
    memory,
    paper_needs,
    pitzer,
    seconds,
)

from ischeduler.core.blocker import KINDS, Blocker
from ischeduler.core.cluster import Access, ChargePolicy, Cluster, NodeType, Partition
from ischeduler.core.plan import Needs, PlanSet
from ischeduler.core.sizes import GIB
from ischeduler.core.snapshot import NodeCounts, QueuedJob, QueueSnapshot
from ischeduler.core.workload import Workload
from ischeduler.planning.candidates import CandidateKey
from ischeduler.planning.planner import plan

GPU_KEY = CandidateKey("pitzer", "gpu", "v100x2", 32)
A100_NODE = NodeType("a100x4", cores=88, memory_bytes=900 * GIB, accelerator=A100, accelerators_per_node=4, count=24)
ROOMY = Needs(run=seconds(3600, 7200, 9000), wait=seconds(0, 60, 600), gpu_memory=memory(24), host_memory=memory(16))


def changed(partition: str, **fields: Any) -> Cluster:
    """Pitzer with one partition changed."""
    cluster = pitzer()
    return replace(cluster, partitions=tuple(replace(p, **fields) if p.name == partition else p for p in cluster.partitions))


def refused(cluster: Cluster, where: str, workload: Workload = RESNET, **given: Any) -> Blocker:
    """The only blocker at a place."""
    found = answer(cluster, workload, **given)
    (refusal,) = [r for r in found.refusals if r.where == where]
    assert not [p for p in found.plans if p.where == where]
    (blocker,) = refusal.blockers
    assert blocker.kind in KINDS
    assert blocker.fix
    return blocker


def answer(cluster: Cluster, workload: Workload = RESNET, **given: Any) -> PlanSet:
    """The plan set with the paper's needs and queue, unless others are given."""
    needs, snapshot = given.pop("needs", paper_needs()), given.pop("snapshot", idle_cpus())
    return plan(workload, [cluster], {cluster.name: snapshot}, needs, NOW, **given)


@pytest.mark.parametrize(("state", "words"), [("DOWN", "starts none"), ("DRAIN", "takes no new jobs"), ("INACTIVE", "neither")])
def test_a_partition_that_is_not_up(state: str, words: str) -> None:
    blocker = refused(changed("gpu", state=state), "pitzer/gpu")
    assert blocker.kind == "partition_state"
    assert state in blocker.have
    assert words in blocker.have
    assert blocker.fix == "use pitzer/gpudebug"


def test_the_sites_own_words_are_repeated() -> None:
    closed = Access(False, "Invalid account or account/partition combination specified", NOW)
    blocker = refused(changed("gpu", access=closed), "pitzer/gpu")
    assert blocker.kind == "account"
    assert closed.reason in blocker.have
    assert "ask OSC for access to gpu" in blocker.fix


def test_a_qos_refusal_is_told_as_such() -> None:
    assert refused(changed("gpu", access=Access(False, "Invalid qos specification", NOW)), "pitzer/gpu").kind == "qos"


def test_a_restricted_partition_is_refused_until_the_batch_system_was_asked() -> None:
    blocker = refused(changed("gpu", restricted=True), "pitzer/gpu")
    assert (blocker.kind, "isched clusters sync pitzer" in blocker.fix) == ("account", True)
    accepted = changed("gpu", restricted=True, access=Access(True, "", NOW))
    assert "pitzer/gpu" in {p.where for p in answer(accepted).plans}


def test_accounts() -> None:
    closed = refused(changed("gpu", allow_accounts=("PYS1122",)), "pitzer/gpu")
    assert closed.sentence().startswith("needs one of PYS1122, account PAS0001 is not among them: ask the owner of PYS1122")
    other = replace(changed("gpu", allow_accounts=("PYS1122",)), accounts=("PAS0001", "PYS1122"))
    assert "pitzer/gpu" in {p.where for p in answer(other).plans}
    named = refused(other, "pitzer/gpu", accounts={"pitzer": "PAS0001"})
    assert named.fix == "--account PYS1122"
    unknown = answer(pitzer(), accounts={"pitzer": "nobody"})
    assert {b.fix for r in unknown.refusals for b in r.blockers} == {"--account PAS0001"}


def test_a_qos_the_partition_does_not_take() -> None:
    blocker = refused(changed("gpu", allow_qos=("gpu-normal",)), "pitzer/gpu", qos={"pitzer": "high"})
    assert (blocker.kind, blocker.fix) == ("qos", "--qos gpu-normal")


def test_nodes() -> None:
    blocker = refused(changed("gpudebug", max_nodes=1), "pitzer/gpudebug", replace(RESNET, nodes=2))
    assert blocker.sentence() == "needs 2 nodes, partition allows 1 node: --nodes 1, or pitzer/gpu"


def test_cores() -> None:
    blocker = refused(pitzer(), "pitzer/cpu", replace(RESNET, cpus=44))
    assert blocker.sentence() == "needs 44 cores a node, a job may have 40: --cpus 40, or pitzer/gpu"


def test_gpus_that_a_node_does_not_have() -> None:
    both = replace(pitzer(), partitions=(*pitzer().partitions, Partition("quad", ("a100x4",))), node_types=(CPU_NODE, GPU_NODE, A100_NODE))
    blocker = refused(both, "pitzer/gpu", replace(RESNET, gpus=4))
    assert blocker.sentence() == "needs 4 GPUs a node, a node has 2: pitzer/quad, or --gpus 2 --nodes 2"
    assert refused(pitzer(), "pitzer/cpu", replace(RESNET, gpus=1)).have == "nodes have none"


def test_no_gpu_wanted() -> None:
    assert refused(pitzer(), "pitzer/gpu", replace(RESNET, gpus=0)).kind == "gres"


def test_memory_asked_for() -> None:
    blocker = refused(pitzer(), "pitzer/cpu", replace(RESNET, memory_bytes=300 * GIB))
    assert blocker.kind == "host_memory"
    assert "pitzer/gpu" in blocker.fix


def test_gpus_one_user_may_have() -> None:
    blocker = refused(changed("gpudebug", max_gpus_user=1), "pitzer/gpudebug", replace(RESNET, gpus=2))
    assert (blocker.kind, blocker.fix) == ("user_limit", "--gpus 1, or pitzer/gpu")


def test_jobs_one_user_may_queue() -> None:
    mine = replace(idle_cpus(), jobs=tuple(QueuedJob(str(i), "gpudebug", "PENDING", mine=True) for i in range(2)))
    blocker = refused(changed("gpudebug", max_submit_user=2), "pitzer/gpudebug", snapshot=mine)
    assert blocker.kind == "user_limit"
    assert "you have 2 of at most 2 jobs in gpudebug" in blocker.have
    all_used = answer(replace(pitzer(), user_max_submit=2), snapshot=mine)
    assert not all_used.plans
    assert len(all_used.refusals) == 3


def test_running_as_many_as_allowed_is_a_note_and_no_refusal() -> None:
    mine = replace(idle_cpus(), jobs=(QueuedJob("1", "gpudebug", "RUNNING", mine=True),))
    (debug,) = [p for p in answer(changed("gpudebug", max_jobs_user=1), snapshot=mine).plans if p.partition == "gpudebug"]
    assert any("1 of at most 1 jobs" in note for note in debug.notes)


def test_nodes_that_are_all_down() -> None:
    down = QueueSnapshot("pitzer", NOW, nodes=(NodeCounts("cpu", "cpu", idle=1), NodeCounts("gpu", "v100x2", down=3, drained=1)))
    blocker = refused(pitzer(), "pitzer/gpu", snapshot=down)
    assert blocker.sentence() == "needs 1 node, 0 usable (3 down, 1 drained): use pitzer/gpudebug"


def test_a_cluster_that_is_down_altogether() -> None:
    down = QueueSnapshot("pitzer", NOW, nodes=tuple(NodeCounts(p, t, down=4) for p, t in (("cpu", "cpu"), ("gpu", "v100x2"), ("gpudebug", "v100x2"))))
    found = answer(pitzer(), snapshot=down)
    assert not found.plans
    assert {(b.kind, b.have) for r in found.refusals for b in r.blockers} == {("availability", "every node of pitzer is down or drained")}


def test_a_partition_without_nodes() -> None:
    assert refused(changed("gpu", node_types=()), "pitzer/gpu").fix == "isched clusters sync pitzer"


def with_need(key: CandidateKey, **fields: Any) -> dict[CandidateKey, Needs]:
    needs = paper_needs()
    needs[key] = replace(needs[key], **fields)
    return needs


def test_a_bigger_card_is_named() -> None:
    both = replace(pitzer(), partitions=(*pitzer().partitions, Partition("big", ("a100x4",))), node_types=(CPU_NODE, GPU_NODE, A100_NODE))
    needs = with_need(GPU_KEY, gpu_memory=memory(41), memory_model=BATCH_64_MODEL)
    needs[CandidateKey("pitzer", "big", "a100x4", 32)] = replace(ROOMY, gpu_memory=memory(41))
    assert refused(both, "pitzer/gpu", needs=needs).fix.endswith("or pitzer/big (80 GB cards)")


def test_a_model_too_big_for_any_batch() -> None:
    needs = with_need(GPU_KEY, gpu_memory=memory(60), memory_model=BATCH_64_MODEL.__class__(58 * GIB, GIB / 16))
    assert "not even batch 1 fits" in refused(pitzer(), "pitzer/gpu", needs=needs).fix


def test_a_swept_smaller_batch_tells_what_fits_without_a_model() -> None:
    needs = {**paper_needs(32), **paper_needs(64)}
    for batch, gib in ((32, 22.5), (64, 41.0)):
        key = GPU_KEY._replace(batch_size=batch)
        needs[key] = replace(needs[key], gpu_memory=memory(gib))
    found = answer(pitzer(), replace(RESNET, batch_size=(32, 64)), needs=needs)
    (refusal,) = [r for r in found.refusals if r.where == "pitzer/gpu"]
    assert refusal.blockers[0].fix == "batch 48 fits, or gradient accumulation 2"


def test_memory_without_any_model_still_has_a_fix() -> None:
    assert "--grad-accum" in refused(pitzer(), "pitzer/gpu", needs=with_need(GPU_KEY, gpu_memory=memory(41))).fix


def test_the_interval_decides_about_memory_not_the_median() -> None:
    tight = replace(memory(31), p10=30.0 * GIB, p90=33.0 * GIB)
    blocker = refused(pitzer(), "pitzer/gpu", needs=with_need(GPU_KEY, gpu_memory=tight))
    assert blocker.need == "33 GB"


def test_an_unknown_card_is_not_checked_and_said() -> None:
    unknown = replace(GPU_NODE, accelerator=replace(A100, memory_bytes=0))
    cluster = replace(pitzer(), node_types=(CPU_NODE, unknown))
    (gpu,) = [p for p in answer(cluster, needs=with_need(GPU_KEY, gpu_memory=memory(500))).plans if p.partition == "gpu"]
    assert any("GPU memory is not checked" in note for note in gpu.notes)


def test_host_memory() -> None:
    blocker = refused(pitzer(), "pitzer/cpu", needs=with_need(CandidateKey("pitzer", "cpu", "cpu", 32), host_memory=memory(200)))
    assert blocker.sentence() == (
        "needs 200 GB, a job may have 192 GB of a node, 8 GB more needed: pitzer/gpu, or fewer data workers or a smaller batch"
    )


def test_chaining_prohibited() -> None:
    blocker = refused(changed("gpudebug", chaining_allowed=False), "pitzer/gpudebug")
    assert blocker.kind == "chaining"
    assert blocker.sentence() == (
        "needs 2h30, limit is 1h00, 1h30 more needed, and gpudebug prohibits job chaining: pitzer/gpu allows 7d00h"
    )


def test_a_run_that_fits_one_job_may_use_a_debug_queue_without_chaining() -> None:
    short = with_need(CandidateKey("pitzer", "gpudebug", "v100x2", 32), run=seconds(1000, 2000, 3600))
    found = answer(changed("gpudebug", chaining_allowed=False), needs=short)
    (debug,) = [p for p in found.plans if p.partition == "gpudebug"]
    assert [s.walltime_s for s in debug.segments] == [HOUR]


def test_without_checkpoints_nothing_is_cut() -> None:
    blocker = refused(pitzer(), "pitzer/gpudebug", replace(RESNET, checkpoints=False))
    assert blocker.kind == "walltime"
    assert "has no checkpoints" in blocker.have
    assert blocker.fix == "pitzer/gpu allows 7d00h, or save checkpoints, so that it can be cut into several jobs"


def test_overheads_that_leave_no_time() -> None:
    key = CandidateKey("pitzer", "gpudebug", "v100x2", 32)
    blocker = refused(pitzer(), "pitzer/gpudebug", needs=with_need(key, startup=seconds(3000, 3300, 3600)))
    assert blocker.kind == "walltime"
    assert "nothing is left" in blocker.have
    slow = refused(pitzer(), "pitzer/gpudebug", needs=with_need(key, step_time=seconds(3000, 3300, 3600)))
    assert "one step takes 1h00" in slow.have


def test_too_many_jobs_in_one_cascade() -> None:
    needs = with_need(CandidateKey("pitzer", "gpudebug", "v100x2", 32), run=seconds(90 * HOUR, 99 * HOUR, 100 * HOUR))
    blocker = refused(pitzer(), "pitzer/gpudebug", needs=needs)
    assert (blocker.kind, blocker.need) == ("chaining", "104 jobs of 1h00")
    assert "pitzer/gpu allows 7d00h" in blocker.fix
    assert "pitzer/gpudebug" in {p.where for p in answer(pitzer(), needs=needs, max_segments=104).plans}


@pytest.mark.parametrize("missing", ["run", "wait"])
def test_what_nobody_could_estimate(missing: str) -> None:
    blocker = refused(pitzer(), "pitzer/gpu", needs=with_need(GPU_KEY, **{missing: None}))
    assert blocker.kind == "estimate"
    absent = paper_needs()
    del absent[GPU_KEY]
    assert {b.kind for r in answer(pitzer(), needs=absent).refusals for b in r.blockers} == {"estimate"}


def test_an_unknown_charging_rule_refuses_its_own_cluster_only() -> None:
    blocker = refused(replace(changed("gpu"), charge=ChargePolicy("by-mood"), partitions=pitzer().partitions[1:2]), "pitzer/gpu")
    assert "by-mood" in blocker.have
    assert blocker.fix == "isched clusters edit pitzer"


def test_all_reasons_are_given_at_once() -> None:
    cluster = changed("gpudebug", state="DRAIN", max_nodes=1, max_gpus_user=1)
    (refusal,) = [r for r in answer(cluster, replace(RESNET, nodes=2)).refusals if r.partition == "gpudebug"]
    assert [b.kind for b in refusal.blockers] == ["partition_state", "nodes", "user_limit"]


def test_the_interval_decides_about_time_not_the_median() -> None:
    needs = with_need(CandidateKey("pitzer", "gpudebug", "v100x2", 32), run=seconds(3000, 3500, 3700))
    assert refused(changed("gpudebug", chaining_allowed=False), "pitzer/gpudebug", needs=needs).kind == "chaining"
