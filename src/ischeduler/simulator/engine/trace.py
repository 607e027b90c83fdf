"""A trace of jobs through the engine: columns in, starts out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ischeduler.core.errors import BadInput
from ischeduler.simulator.engine.cluster_sim import ClusterSim
from ischeduler.simulator.engine.jobs import JobRequest
from ischeduler.simulator.engine.machine import Machine, whole_nodes
from ischeduler.simulator.engine.options import SchedulerOptions

NEEDED = ("submit_s", "run_s", "req_units", "req_walltime_s")
NEVER = -1.0


def run_trace(
    trace: Any, machine: Machine | int, options: SchedulerOptions | None = None, *, partitions: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> list[float]:  # fmt: skip
    """Start of each job in seconds, in the rows' order; -1 for a job that never starts (wider than the machine, say).

    ``trace`` has the columns of :data:`NEEDED` and, where there are, ``user`` and ``account`` for fair-share (a data frame, or a
    mapping of sequences), or it is a sequence of :class:`JobRequest`. A unit is a node of ``machine``, or one of that many equal ones.
    ``partitions`` True takes the column ``queue`` as the partition's name. ``progress`` is told (jobs ended, jobs) now and then.
    """
    machine = whole_nodes(machine) if isinstance(machine, int) else machine
    sim, starts = replay(requests_of(trace, machine, partitions=partitions), machine, options, progress=progress)
    del sim
    return starts


def replay(
    requests: Sequence[JobRequest], machine: Machine, options: SchedulerOptions | None = None, *,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[ClusterSim, list[float]]:  # fmt: skip
    """The engine after all of these jobs, and their starts in the order given."""
    from ischeduler.core.errors import SubmitRefused

    first_s = min((r.submit_s for r in requests), default=0.0)
    sim = ClusterSim(machine, options, start_s=first_s)
    ordered = sorted(range(len(requests)), key=lambda i: requests[i].submit_s)
    for done, i in enumerate(ordered):
        sim.run_until_before(requests[i].submit_s)
        try:
            sim.submit(requests[i])
        except SubmitRefused:
            continue  # a site would not have taken it: it never starts
        if progress is not None and done % 500 == 0:
            progress(done, len(requests))
    sim.run()
    return sim, [_start(sim, r) for r in requests]


def _start(sim: ClusterSim, request: JobRequest) -> float:
    job = sim.jobs.get(request.job_id)
    return NEVER if job is None or job.start_s is None else job.start_s


def requests_of(trace: Any, machine: Machine, *, partitions: bool = False) -> list[JobRequest]:
    """The rows of a trace as requests of whole nodes. BadInput when a column is missing."""
    if isinstance(trace, Sequence):
        return list(_all_requests(trace))
    columns: Mapping[str, Any] = trace
    missing = [name for name in NEEDED if name not in columns]
    if missing:
        raise BadInput(f"the trace has no column '{missing[0]}'; expected {', '.join(NEEDED)}.")
    values = {name: _listed(columns[name]) for name in (*NEEDED, "user", "account", "queue") if name in columns}
    nowhere = [""] * len(values["submit_s"])
    users, accounts = values.get("user", nowhere), values.get("account", nowhere)
    queues = values.get("queue", nowhere) if partitions else nowhere
    rows = zip(*(values[name] for name in NEEDED), users, accounts, queues, strict=True)
    cores = machine.nodes[0].cores
    return [
        JobRequest(
            str(i), float(submit), float(max(limit, 1)), float(max(run, 0)), int(units), cores, user=str(user), account=str(account),
            partition=str(queue), exclusive=True, requeue=True,
        )
        for i, (submit, run, units, limit, user, account, queue) in enumerate(rows)
    ]  # fmt: skip


def _all_requests(trace: Iterable[Any]) -> Iterable[JobRequest]:
    for item in trace:
        if not isinstance(item, JobRequest):
            raise BadInput("a sequence given as a trace must hold JobRequest; expected those, or columns by name.")
        yield item


def _listed(column: Any) -> list[Any]:
    """numpy's and pandas' columns become plain Python numbers, which is faster to walk through."""
    return column.tolist() if hasattr(column, "tolist") else list(column)
