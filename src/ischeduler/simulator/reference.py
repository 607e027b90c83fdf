"""The scheduling rules in plain Python: slow, meant to be read. The compiled kernel must give the same answers.

The clock jumps from second to second where something happens. In such a second, in this order:

1. jobs that reach their limit give their units back, all at once (the scheduler saw that coming), and jobs whose start is given
   take theirs; a pass of the scheduler if there were any of those;
2. jobs are submitted one at a time, in the order of the trace, with a pass after each;
3. jobs end one at a time, in the order in which they were started, with a pass after each; one that ends before its limit gives
   its units back only now.

A job that runs for no time at all ends in the same second, after all of that. A pass is

- ``fcfs``: the head of the queue starts while it fits;
- ``easy``: the same; then the head gets a reservation for the earliest second at which enough units will be free by the announced
  ends, and any job behind it (``depth`` jobs are looked at) starts that fits now and either ends by then or leaves the head its units;
- ``conservative``: every job has a reservation, made at its submission at the earliest second that disturbs nobody else's. When a job
  ends before its limit, each reservation in the queue's order is moved forward as far as it goes; none ever moves back, unless a
  job whose start is given takes units nobody had reckoned with: then all are made anew.

Sources: Lifka, JSSPP 1995 (EASY); Mu'alem and Feitelson, IEEE TPDS 12(6), 2001 (both, and the compression).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class Cluster:
    """Jobs by number, the machine, and what runs and waits on it. Times in seconds."""

    submit_s: Sequence[int]
    units: Sequence[int]
    run_s: Sequence[int]
    limit_s: Sequence[int]
    rank: Sequence[int]
    capacity: int
    start: list[int]
    running: list[int] = field(default_factory=list[int])
    queue: list[int] = field(default_factory=list[int])
    reserved: dict[int, int] = field(default_factory=dict[int, int])
    depth: int = 1 << 60

    @property
    def free(self) -> int:
        """Units nobody holds; negative when given starts hold more than there is."""
        return self.capacity - sum(self.units[k] for k in self.running)

    def announced(self, job: int) -> int:
        """When a running job ends at the latest."""
        return self.start[job] + self.limit_s[job]

    def end(self, job: int) -> int:
        """When a running job ends."""
        return self.start[job] + self.run_s[job]

    def begin(self, job: int, now: int) -> None:
        """Start a job."""
        self.start[job] = now
        self.running.append(job)


def _fcfs(c: Cluster, now: int) -> None:
    while c.queue and c.units[c.queue[0]] <= c.free:
        c.begin(c.queue.pop(0), now)


def _easy(c: Cluster, now: int) -> None:
    _fcfs(c, now)
    if not c.queue:
        return
    shadow, extra = _head_reservation(c)
    for job in c.queue[1 : 1 + c.depth]:
        if c.units[job] > c.free:
            continue
        in_time = shadow is None or now + c.limit_s[job] <= shadow
        if in_time or c.units[job] <= extra:
            if not in_time:
                extra -= c.units[job]
            c.queue.remove(job)
            c.begin(job, now)


def _head_reservation(c: Cluster) -> tuple[int | None, int]:
    """When the head can start, and the units it leaves free then; None when it never can."""
    need, have = c.units[c.queue[0]], c.free
    for end in sorted({c.announced(k) for k in c.running}):
        have += sum(c.units[k] for k in c.running if c.announced(k) == end)
        if have >= need:
            return end, have - need
    return None, 0


def _holds(c: Cluster, but: int) -> list[tuple[int, int, int]]:
    """Who holds units from when to when: running jobs until their announced end, and reservations except job ``but``'s."""
    running = [(-1, c.announced(k), c.units[k]) for k in c.running]
    return running + [(s, s + c.limit_s[k], c.units[k]) for k, s in c.reserved.items() if k != but]


def _earliest(c: Cluster, job: int, now: int) -> int:
    """The first second from ``now`` at which the job fits for as long as its limit."""
    holds = _holds(c, job)
    for at in sorted({now} | {end for _, end, _ in holds if end > now}):
        until = at + c.limit_s[job]
        turns = [at] + [begin for begin, _, _ in holds if at < begin < until]
        if all(sum(u for b, e, u in holds if b <= t < e) + c.units[job] <= c.capacity for t in turns):
            return at
    raise AssertionError("a job no wider than the machine fits once everything else has ended")


def _reserve(c: Cluster, job: int, now: int) -> None:
    c.reserved[job] = _earliest(c, job, now)


def _compress(c: Cluster, now: int) -> None:
    """Move every reservation forward as far as it goes, in the queue's order."""
    for job in c.queue:
        c.reserved[job] = min(c.reserved[job], _earliest(c, job, now))


def _anew(c: Cluster, now: int) -> None:
    """Make all reservations again, in the queue's order."""
    c.reserved.clear()
    for job in c.queue:
        _reserve(c, job, now)


def _start_due(c: Cluster, now: int) -> None:
    for job in [k for k in c.queue if c.reserved[k] <= now]:
        c.queue.remove(job)
        del c.reserved[job]
        c.begin(job, now)


def _pass(c: Cluster, scheduler: str, now: int) -> None:
    {"fcfs": _fcfs, "easy": _easy, "conservative": _start_due}[scheduler](c, now)


def starts(
    submit_s: Sequence[int], units: Sequence[int], run_s: Sequence[int], limit_s: Sequence[int], capacity: int, *,
    scheduler: str, fixed_start_s: Sequence[int], until_s: int, rank: Sequence[int], target: int = -1,
    depth: int = 1 << 60,
) -> list[int]:  # fmt: skip
    """Start of each job, -1 where it has none by ``until_s``; see :func:`ischeduler.simulator.kernel.starts`."""
    c = Cluster(submit_s, units, run_s, limit_s, rank, capacity, [max(int(s), -1) for s in fixed_start_s], depth=depth)
    given = sorted((k for k, s in enumerate(fixed_start_s) if s >= 0), key=lambda k: fixed_start_s[k])
    coming = [k for k, s in enumerate(fixed_start_s) if s < 0 and units[k] <= capacity]
    while True:
        happenings = [c.end(k) for k in c.running] + [submit_s[k] for k in coming[:1]] + [fixed_start_s[k] for k in given[:1]]
        now = min([*happenings, *c.reserved.values()], default=until_s + 1)
        if now > until_s or (target >= 0 and c.start[target] >= 0):
            return c.start
        _second(c, scheduler, now, given, coming)


def _second(c: Cluster, scheduler: str, now: int, given: list[int], coming: list[int]) -> None:
    """Everything that happens in one second."""
    ending = [k for k in c.running if c.end(k) <= now]
    c.running = [k for k in c.running if c.announced(k) > now]
    surprised = False
    while given and c.start[given[0]] <= now:
        c.running.append(given.pop(0))
        surprised = True
    if surprised and scheduler == "conservative":
        _anew(c, now)
    if surprised or scheduler == "conservative":
        _pass(c, scheduler, now)
    while coming and c.submit_s[coming[0]] <= now:
        job = coming.pop(0)
        c.queue.append(job)
        c.queue.sort(key=lambda k: c.rank[k])
        if scheduler == "conservative":
            _reserve(c, job, now)
        _pass(c, scheduler, now)
    for job in ending:
        if job in c.running:
            c.running.remove(job)
            if scheduler == "conservative":
                _compress(c, now)
        _pass(c, scheduler, now)
