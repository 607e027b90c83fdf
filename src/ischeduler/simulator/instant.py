"""The queue of a trace as it was at one instant, by the recorded starts: nothing later is known, as in a live queue."""

from __future__ import annotations

from ischeduler.core.errors import BadInput
from ischeduler.core.snapshot import FinishedJob, NodeCounts, QueuedJob, QueueSnapshot
from ischeduler.simulator.trace import Trace

PARTITION = "all"
LOOK_BACK_S = 7 * 86400.0


def queue_of(trace: Trace, at_s: float, units: int) -> tuple[QueueSnapshot, tuple[FinishedJob, ...]]:
    """The snapshot just before whatever is submitted at ``at_s`` (the trace's clock), and the jobs that ended in the week before.

    ``units`` is the machine's size; its units are the nodes of one partition. BadInput where the trace tells no starts, or the instant
    lies outside it.
    """
    import numpy as np

    if not len(trace) or not (trace.start_s >= 0).any():
        raise BadInput(f"{trace.name} does not tell when its jobs started; give a trace with recorded starts.")
    first, last = int(trace.submit_s[0]), int(trace.submit_s[-1])
    if not first <= at_s <= last:
        raise BadInput(f"{trace.name} runs from {first} to {last} (epoch seconds), {at_s:.0f} lies outside it.")
    end_s = trace.start_s + trace.run_s
    known = (trace.submit_s < at_s) & (trace.start_s >= 0)
    alive = np.flatnonzero(known & (end_s > at_s))
    over = np.flatnonzero(known & (end_s <= at_s) & (end_s > at_s - LOOK_BACK_S))
    jobs = tuple(_queued(trace, int(i), at_s) for i in alive)
    busy = sum(j.nodes for j in jobs if j.state == "RUNNING")
    counts = NodeCounts(PARTITION, "unit", idle=max(0, units - busy), allocated=min(busy, units))
    return QueueSnapshot(trace.name, at_s, (counts,), jobs), tuple(_finished(trace, int(i)) for i in over)


def _queued(trace: Trace, i: int, at_s: float) -> QueuedJob:
    runs = trace.start_s[i] <= at_s
    return QueuedJob(
        str(trace.job_id[i]), PARTITION, "RUNNING" if runs else "PENDING", int(trace.units[i]), 0, float(trace.submit_s[i]),
        float(trace.start_s[i]) if runs else None, float(trace.limit_s[i]), user=_user(trace, i),
    )  # fmt: skip


def _finished(trace: Trace, i: int) -> FinishedJob:
    start = float(trace.start_s[i])
    return FinishedJob(
        _user(trace, i), "", PARTITION, float(trace.submit_s[i]), start, start + float(trace.run_s[i]), float(trace.limit_s[i]), int(trace.units[i])
    )


def _user(trace: Trace, i: int) -> str:
    return trace.users[trace.user[i]] if 0 <= trace.user[i] < len(trace.users) else ""
