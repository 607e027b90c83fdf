"""priority/multifactor: age, fair-share, size, partition, QOS and nice make one whole number; recomputed every calculation period.

Source: priority_multifactor(5) and the plug-in's behaviour in Slurm 22.05.
"""

from __future__ import annotations

from collections.abc import Iterable

from ischeduler.core.jobs import JobState
from ischeduler.simulator.engine.fairshare import FairShare
from ischeduler.simulator.engine.jobs import Job
from ischeduler.simulator.engine.machine import Machine
from ischeduler.simulator.engine.options import PriorityOptions

PRIORITY_MAX = 0xFFFFFFFF


class Priorities:
    """Gives jobs their priority and remembers when that was last done."""

    def __init__(self, machine: Machine, options: PriorityOptions, now_s: float) -> None:
        self._options, self._nodes, self._cores = options, len(machine.nodes), machine.cores
        self.fair_share = FairShare(machine.accounts, options)
        self._factors: dict[tuple[str, str], float] = {}
        qos_max = max((q.priority for q in machine.qos), default=0)
        self._qos = {q.name: q.priority / qos_max if qos_max else 0.0 for q in machine.qos}
        part_max = max(p.priority_factor for p in machine.partitions)
        self._partition = [p.priority_factor / part_max if part_max else 0.0 for p in machine.partitions]
        self._basic_next = PRIORITY_MAX - 1
        self._calculated_s = now_s

    def first(self, job: Job, now_s: float) -> None:
        """The priority at submission."""
        if self._options.basic:
            job.priority = max(1, self._basic_next - job.request.nice)
            self._basic_next -= 1
            return
        who = (job.request.account, job.request.user)
        if who not in self._factors:
            self.fair_share.known(who)
            if self._options.fair_share:
                self._factors = self.fair_share.factors()
        job.priority = self.of(job, now_s)

    def due(self, now_s: float) -> bool:
        """Whether the calculation period has passed."""
        return not self._options.basic and now_s - self._calculated_s >= self._options.calc_period_s

    def recalculate(self, jobs: Iterable[Job], now_s: float) -> bool:
        """Charge usage, let it decay, give every pending job its priority. Whether any changed."""
        waiting = list(jobs)
        self.fair_share.decay(now_s - self._calculated_s)
        for job in waiting:
            if job.state is JobState.RUNNING:
                self.charge(job, now_s)
        self._calculated_s = now_s
        if self._options.fair_share:
            self._factors = self.fair_share.factors()
        changed = False
        for job in waiting:
            if job.state is JobState.PENDING:
                was, job.priority = job.priority, self.of(job, now_s)
                changed |= was != job.priority
        return changed

    def charge(self, job: Job, now_s: float) -> None:
        """Count what the job has used since it was last counted."""
        if self._options.fair_share and job.start_s is not None:
            since_s = max(job.usage_counted_s, job.start_s)
            self.fair_share.charge((job.request.account, job.request.user), job.cores_total * max(0.0, now_s - since_s))
            job.usage_counted_s = now_s

    def of(self, job: Job, now_s: float) -> int:
        """The weighted sum, at least 1."""
        o = self._options
        total = o.age * self._age(job, now_s) + o.partition * self._partition[job.shape.partition] + o.qos * self._qos.get(job.request.qos, 0.0)
        if o.fair_share:
            total += o.fair_share * self._factors.get((job.request.account, job.request.user), 0.0)
        if o.size:
            total += o.size * self._size(job)
        return min(PRIORITY_MAX, int(max(1.0, total - job.request.nice)))

    def _age(self, job: Job, now_s: float) -> float:
        since_s = job.queued_s if self._options.accrue_always else job.eligible_s
        return 0.0 if since_s is None else min(1.0, max(0.0, now_s - since_s) / self._options.max_age_s)

    def _size(self, job: Job) -> float:
        nodes, cores = job.nodes, job.cores_total
        if self._options.size_relative_to_time:
            relative = max(nodes * self._cores / self._nodes, cores) / max(1.0, job.limit_s // 60) / self._cores
            return 1.0 - relative if self._options.favor_small else relative
        size = (nodes / self._nodes + cores / self._cores) / 2
        return 1.0 - size if self._options.favor_small else size
