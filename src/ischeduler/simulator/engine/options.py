"""How the simulated cluster schedules: the words of slurm.conf(5), in seconds, with Slurm 22.05's own defaults."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from ischeduler.core.errors import BadInput

SCHEDULERS = ("slurm", "fcfs", "easy", "conservative")
PREEMPT_TYPES = ("", "qos", "partition_prio")


@dataclass(frozen=True, slots=True)
class PriorityOptions:
    """priority/multifactor (or ``basic``: first come, first served). Weights are whole numbers, factors run from 0 to 1.

    ``fair_tree`` False is the classic 2^(-usage/shares); ``damping`` its FairShareDampeningFactor. ``half_life_s`` 0: no decay.
    """

    basic: bool = False
    age: int = 0
    fair_share: int = 0
    size: int = 0
    partition: int = 0
    qos: int = 0
    max_age_s: float = 7 * 86400.0
    half_life_s: float = 7 * 86400.0
    calc_period_s: float = 300.0
    favor_small: bool = False
    size_relative_to_time: bool = False
    accrue_always: bool = False
    fair_tree: bool = True
    damping: float = 1.0


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """All of it. ``scheduler`` is 'slurm', or the textbook's 'fcfs', 'easy', 'conservative' in order of submission.

    ``backfill`` False is sched/builtin. ``timeout_poll_s``: walltimes are looked at that often (Slurm: 30 s; 0: at the second).
    ``sched_tick_s``: the main scheduler looks for something new only that often (slurmctld: about each second; 0: at once), at
    multiples of it. ``bf_first_s`` is when backfill looked before the first job came, and ``bf_poll_s`` how often it looks again where it
    found nothing to do: its later looks fall on that grid.
    ``release_s`` is how long an ended job's nodes stay COMPLETING. ``idle_cycles`` True runs backfill cycles in which nothing has
    changed since the last one; they can start a job only where priorities changed places, and cost time.
    ``estimates`` True lets backfill go on to jobs that cannot start now, for their expected starts. ``requeue`` is JobRequeue.
    """

    scheduler: str = "slurm"
    priority: PriorityOptions = field(default_factory=PriorityOptions)
    backfill: bool = True
    sched_interval_s: float = 60.0
    sched_tick_s: float = 0.0
    bf_first_s: float = -math.inf
    bf_poll_s: float = 1.0
    default_queue_depth: int = 100
    bf_interval_s: float = 30.0
    bf_window_s: float = 86400.0
    bf_resolution_s: float = 60.0
    bf_max_job_test: int = 500
    bf_max_job_user: int = 0
    bf_max_job_part: int = 0
    bf_max_job_start: int = 0
    bf_min_age_reserve_s: float = 0.0
    bf_window_scale_s: float = 0.0
    preempt: str = ""
    preempt_mode: str = "OFF"
    preempt_exempt_s: float = 0.0
    requeue: bool = True
    requeue_delay_s: float = 121.0
    enforce_part_limits: bool = True
    kill_wait_s: float = 30.0
    timeout_poll_s: float = 0.0
    release_s: float = 0.0
    idle_cycles: bool = False
    estimates: bool = False

    def __post_init__(self) -> None:
        if self.scheduler not in SCHEDULERS:
            raise BadInput(f"'{self.scheduler}' is not a scheduler; expected one of {', '.join(SCHEDULERS)}.")
        if self.preempt not in PREEMPT_TYPES:
            raise BadInput(f"'{self.preempt}' is not a kind of preemption; expected qos or partition_prio.")
        if self.bf_resolution_s < 1 or self.bf_interval_s < 1 or self.bf_window_s < self.bf_resolution_s:
            raise BadInput("bf_resolution and bf_interval must be at least 1 s and bf_window at least bf_resolution.")
