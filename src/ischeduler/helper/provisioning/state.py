"""The queue's state at a look as numbers: what learned provisioners see. Causal: no true run time of a job alive is read."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ischeduler.simulator.chain import Episode, QueueAt, World, queue_at
from ischeduler.simulator.rollouts import start_waits_s

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
MIRAGE = tuple(
    [f"{who}_{what}" for who in ("waiting", "running") for what in ("jobs", "units")]
    + [f"{who}_{what}_{int(100 * q)}" for who, what in (
        ("waiting", "limit"), ("waiting", "age"), ("waiting", "units"), ("running", "limit"), ("running", "elapsed"), ("running", "units"),
    ) for q in SHARES]
    + ["own_limit", "own_units", "own_waited", "own_elapsed", "next_limit", "next_units", "next_waited", "next_elapsed"]
)  # fmt: skip
"""The 42 features of Mirage's snapshots: hours and units."""
MORE = (
    "free", "waiting_unit_hours", "running_left_unit_hours", "wait_by_limits", "hour", "weekday", "mean_wait", "recent_wait_1",
    "recent_wait_2", "waiting_oldest_first", "bigger_waiting",
)  # fmt: skip
FEATURES = (*MIRAGE, *MORE)


def mirage_state(of: Episode, queue: QueueAt) -> NDArray[np.float32]:
    """One snapshot, shape (42,)."""
    w = of.world
    now, waiting, running = queue.now_s, queue.waiting, queue.running
    out = [len(waiting), w.units[waiting].sum(), len(running), w.units[running].sum()]
    for values in (
        w.limit_s[waiting] / 3600, (now - w.submit_s[waiting]) / 3600, w.units[waiting],
        w.limit_s[running] / 3600, (now - w.start_s[running]) / 3600, w.units[running],
    ):  # fmt: skip
        out.extend(_five(values))
    hours = of.segment_s / 3600
    begun = now >= of.start_s
    waited = (min(now, of.start_s) - int(w.submit_s[of.predecessor])) / 3600
    out.extend([hours, of.units, max(waited, 0.0), (now - of.start_s) / 3600 if begun else 0.0, hours, of.units, 0.0, 0.0])
    return np.array(out, np.float32)


def full_state(of: Episode, queue: QueueAt, waits_h: NDArray[np.float64]) -> NDArray[np.float32]:
    """:data:`FEATURES` at a look; ``waits_h`` are the waits of the jobs that started before it, oldest first."""
    w, now = of.world, queue.now_s
    waiting, running = queue.waiting, queue.running
    left = np.maximum(w.limit_s[running] - (now - w.start_s[running]), 0) / 3600
    by_limits = start_waits_s(w, queue, w.limit_s[queue.alive][None, :], of.units, of.segment_s)[0] / 3600
    last = waits_h[-100:]
    more = [
        w.capacity - w.units[running].sum(), (w.units[waiting] * w.limit_s[waiting]).sum() / 3600, (w.units[running] * left).sum(),
        min(by_limits, 1000.0), now / 3600 % 24, now // 86400 % 7, last.mean() if len(last) else 0.0,
        last[-1] if len(last) else 0.0, last[-10:].mean() if len(last) else 0.0,
        (now - w.submit_s[waiting[0]]) / 3600 if len(waiting) else 0.0, (w.units[waiting] > of.units).sum(),
    ]  # fmt: skip
    return np.concatenate([mirage_state(of, queue), np.array(more, np.float32)])


def waits_known(world: World, now_s: int, before: NDArray[np.float64]) -> NDArray[np.float64]:
    """Waits in hours of jobs that started by ``now_s``, in the order of their starts, after those known ``before`` the episode."""
    begun = np.flatnonzero((world.start_s >= 0) & (world.start_s <= now_s) & (world.row >= 0) & (world.fixed_start_s < 0))
    begun = begun[np.argsort(world.start_s[begun], kind="stable")][-100:]
    return np.concatenate([before, (world.start_s[begun] - world.submit_s[begun]) / 3600])


def snapshots(of: Episode, times_s: NDArray[np.int64]) -> NDArray[np.float32]:
    """Mirage's states at several times, shape (times, 42)."""
    return np.stack([mirage_state(of, queue_at(of.world, int(t))) for t in times_s])


def _five(values: NDArray[np.float64] | NDArray[np.int64]) -> list[float]:
    if len(values) == 0:
        return [0.0] * len(SHARES)
    ordered = np.sort(values)
    return [float(ordered[round(q * (len(ordered) - 1))]) for q in SHARES]
