"""When to look again: soon where something is about to change, seldom where nothing is; never more for more runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ischeduler.core.run import Run, RunState
from ischeduler.plane.attempts import alive_attempts


@dataclass(frozen=True, slots=True)
class Cadence:
    """Bounds of the interval between two ticks, in seconds."""

    fast_s: float = 2.0
    slow_s: float = 60.0
    idle_s: float = 300.0


_SOON = frozenset({RunState.PLANNED, RunState.SUBMITTING, RunState.CHECKPOINTING, RunState.HANDING_OVER, RunState.STALLED})


def next_tick_s(runs: Iterable[Run], now: float, cadence: Cadence) -> float:
    """Seconds until the next tick is worth it: the soonest that any run asks for; ``idle_s`` without runs."""
    return min((max(cadence.fast_s, _of(run, now, cadence)) for run in runs if not run.state.ended), default=cadence.idle_s)


def _of(run: Run, now: float, cadence: Cadence) -> float:
    if run.query_failures:
        return min(cadence.slow_s, cadence.fast_s * 2.0**run.query_failures)
    if run.state in _SOON or run.cancel_requested or any(a.ending or a.absent_since is not None for a in alive_attempts(run)):
        return cadence.fast_s
    since_s = max(0.0, now - run.state_since)
    if run.state is RunState.BETWEEN_SEGMENTS:
        wait_s = 0.0 if run.not_before is None else run.not_before - now
        return min(cadence.slow_s, max(cadence.fast_s, wait_s))
    if run.state is RunState.RUNNING:
        return min(cadence.slow_s, _while_running(run, since_s))
    return min(cadence.slow_s, 0.1 * since_s)


def _while_running(run: Run, since_s: float) -> float:
    """A tenth of the time to the limit, at least a fiftieth of the segment: dense near the expected end.

    ``since_s`` is the plane's own measure of how long the job has run; no job's clock enters.
    """
    walltime_s = max((a.resources.walltime_s for a in alive_attempts(run)), default=0.0)
    return max(0.02 * walltime_s, 0.1 * max(0.0, walltime_s - since_s))
