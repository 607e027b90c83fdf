"""From a feasible candidate and its needs to plans: the usual one, and one that starts in a backfill hole."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from ischeduler.core.jobs import Resources
from ischeduler.core.plan import Needs, Plan
from ischeduler.core.sizes import GIB, human_size
from ischeduler.planning.candidates import Candidate
from ischeduler.planning.cost import cost_of
from ischeduler.planning.course import Course, Timing, cascade, one_job
from ischeduler.planning.feasible import MAX_SEGMENTS, limit_s, may_chain
from ischeduler.planning.holes import backfill_hole
from ischeduler.planning.live import Live

MEMORY_MARGIN = 1.1
PREEMPTIBLE = "jobs here may be preempted; the run goes on from its last checkpoint"


def plans_for(c: Candidate, needs: Needs, live: Live | None, now: float) -> Iterator[Plan]:
    """The usual plan, then one for a backfill hole where that would end sooner. BadInput when the charging rule is unknown."""
    timing, limit = Timing.of(needs), limit_s(c)
    usual = cascade(timing, limit) if may_chain(c) else one_job(timing, limit)
    yield _plan(c, needs, usual, live)
    hole = _in_hole(c, timing, limit, live, now)
    if hole is not None and hole.finish.p50 < usual.finish.p50 and len(hole.segments) <= MAX_SEGMENTS:
        yield _plan(c, needs, hole, live, f"starts in a backfill hole: {hole.segments[0].wait.reason}")


def _in_hole(c: Candidate, timing: Timing, limit: float, live: Live | None, now: float) -> Course | None:
    first = backfill_hole(c, live, now, timing.wait)
    if first is None:
        return None
    if not may_chain(c):
        return one_job(replace(timing, wait=first.wait), first.limit_s) if timing.run.p90 <= first.limit_s else None
    return cascade(timing, limit, first) if timing.useful_s(first.limit_s) > 0 else None


def _plan(c: Candidate, needs: Needs, course: Course, live: Live | None, *more: str) -> Plan:
    resources = replace(c.resources, walltime_s=course.segments[0].walltime_s, memory_bytes=_memory(c, needs))
    return Plan(
        number=0, cluster=c.cluster.name, partition=c.partition.name, node_type=c.node_type.name, workload=c.workload,
        resources=resources, segments=course.segments, needs=needs, run=course.run, wait=course.wait, finish=course.finish,
        cost=cost_of(c, resources, course), account=c.account, qos=c.qos, signal_lead_s=course.signal_lead_s,
        notes=(*more, *_notes(c, needs, resources, live)), node_memory_bytes=c.node_memory_bytes,
        max_walltime_s=limit_s(c) if math.isfinite(limit_s(c)) else None,
    )


def _memory(c: Candidate, needs: Needs) -> int | None:
    """Host memory to ask for: as the user said, else the p90 and a tenth more in whole GiB (or 256 MiB below 4 GiB)."""
    if c.workload.memory_bytes is not None:
        return c.workload.memory_bytes
    if needs.host_memory is None or c.resources.whole_node:
        return None
    wanted = needs.host_memory.p90 * MEMORY_MARGIN
    step = GIB if wanted > 4 * GIB else GIB // 4
    rounded = max(1, math.ceil(wanted / step)) * step
    return rounded if c.node_memory_bytes is None else min(rounded, c.node_memory_bytes)


def _notes(c: Candidate, needs: Needs, resources: Resources, live: Live | None) -> Iterator[str]:
    if c.partition.note:
        yield c.partition.note
    if c.partition.preemptible:
        yield PREEMPTIBLE
    if c.resources.nodes > c.workload.nodes:
        yield f"the partition gives at least {c.resources.nodes} nodes; the training uses {c.workload.nodes}"
    if c.partition.max_walltime_s is None:
        yield "the partition's walltime limit is unknown"
    if resources.gpus_per_node and (needs.gpu_memory is None or c.card_memory_bytes is None):
        yield f"GPU memory is not checked: the {'need' if needs.gpu_memory is None else 'card'}'s is unknown"
    if needs.startup is None or (needs.checkpoint is None and c.workload.checkpoints):
        missing = [w for w, e in (("start-up", needs.startup), ("checkpoint", needs.checkpoint)) if e is None]
        yield f"{' and '.join(missing)} time unknown: counted as zero"
    if resources.memory_bytes and needs.host_memory and resources.memory_bytes < needs.host_memory.p90:
        yield f"asks for {human_size(resources.memory_bytes)} as told; the estimate's p90 is {human_size(needs.host_memory.p90)}"
    yield from _busy(c, live)


def _busy(c: Candidate, live: Live | None) -> Iterator[str]:
    most = c.partition.max_jobs_user
    running = sum(j.partition == c.partition.name and j.state == "RUNNING" for j in live.mine) if live else 0
    if most and running >= most:
        yield f"you run {running} of at most {most} jobs here: this one starts when one of them ends"
