"""Backfill holes: nodes idle now, held for a job that is planned to start later. A job that ends before it may start at once.

Source: slurm.conf(5), SchedulerType=sched/backfill: lower-priority jobs start if that does not delay the expected start of any
higher-priority job.
"""

from __future__ import annotations

import math

from ischeduler.core.durations import human
from ischeduler.core.estimate import Estimate
from ischeduler.planning.candidates import Candidate
from ischeduler.planning.course import First
from ischeduler.planning.live import Live
from ischeduler.planning.structure import count_of

WORTH_S = 120.0
"""A usual wait below this needs no hole."""
BACKFILL_CYCLE_S = 60.0
MINUTE_S = 60.0


def backfill_hole(c: Candidate, live: Live | None, now: float, usual: Estimate) -> First | None:
    """A first job that fits the hole, or None where there is none (or none is known).

    The wait's p90 is the usual wait's median: about one hole in ten is taken by somebody else first.
    """
    if live is None or usual.p50 <= WORTH_S or not _idle_enough(c, live):
        return None
    sharing = [p.name for p in c.cluster.partitions if c.node_type.name in p.node_types]
    start_s = live.next_planned_start_s(sharing)
    if start_s is None:
        return None
    length_s = math.floor((start_s - now - BACKFILL_CYCLE_S) / MINUTE_S) * MINUTE_S
    limit = c.partition.max_walltime_s
    length_s = length_s if limit is None else min(length_s, limit)
    if length_s < MINUTE_S:
        return None
    idle = sum(n.idle for n in live.counts(c.partition.name, c.node_type.name))
    reason = f"{count_of(idle, 'idle node')} until a waiting job's planned start in {human(start_s - now)}"
    wait = Estimate(0.0, BACKFILL_CYCLE_S, usual.p50, "s", "hole@1", basis="live", as_of=live.taken_at, reason=reason)
    return First(length_s, wait)


def _idle_enough(c: Candidate, live: Live) -> bool:
    counts = live.counts(c.partition.name, c.node_type.name)
    if c.gpus and not c.resources.whole_node:
        return sum(n.idle_gpus for n in counts) >= c.gpus and sum(n.idle + n.mixed for n in counts) >= c.resources.nodes
    return sum(n.idle for n in counts) >= c.resources.nodes
