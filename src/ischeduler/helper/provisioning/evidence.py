"""What is known at every look of an episode, and what each look would have led to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ischeduler.estimators.jobruntime.history import elapsed_s
from ischeduler.estimators.jobruntime.model import RuntimeLaw
from ischeduler.estimators.jobruntime.sampling import draw_remaining_s, uniforms
from ischeduler.helper.provisioning.known import known_in
from ischeduler.helper.provisioning.setting import Setting
from ischeduler.helper.provisioning.state import full_state, waits_known
from ischeduler.simulator.chain import OWN, Episode, QueueAt, gaps_s, queue_at
from ischeduler.simulator.rollouts import start_waits_s

LEVELS = np.round(np.arange(0.05, 0.96, 0.05), 2)
"""Levels of the twin's forecast."""
FAR_H = 400.0
"""A start beyond this is as good as never."""


@dataclass(frozen=True)
class Evidence:
    """One episode, hours everywhere. K looks, of which every ``stride``-th (and the last) is a forecast.

    ``looks_s`` (epoch seconds), ``remaining``, ``gap`` (what submitting at that look leads to): shape (K,). ``asked``: the looks
    with a forecast, shape (M,). ``state`` (M, features), ``mean`` (M,) mean of the last 100 waits, ``twin`` (M, levels) quantiles of
    the wait, ``twin_true`` (M,) the twin's wait when it is told the true run times of the jobs alive (a bound, not a method).
    """

    start_s: int
    units: int
    looks_s: NDArray[np.int64]
    remaining: NDArray[np.float64]
    gap: NDArray[np.float64]
    asked: NDArray[np.int64]
    state: NDArray[np.float32]
    mean: NDArray[np.float64]
    twin: NDArray[np.float64]
    twin_true: NDArray[np.float64]

    @property
    def wait(self) -> NDArray[np.float64]:
        """The true wait of a job queued at each look, shape (K,)."""
        return self.gap + self.remaining

    def held(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Forecasts at every look: the newest one holds until the next, shape (K, ...) from (M, ...)."""
        return values[np.searchsorted(self.asked, np.arange(len(self.remaining)), "right") - 1]


@dataclass(frozen=True)
class Sight:
    """How evidence is gathered: forecasts every ``stride`` looks, ``rolls`` roll-outs each."""

    stride: int = 6
    rolls: int = 64
    together: float = 0.3
    seed: int = 0


def gather(setting: Setting, law: RuntimeLaw, starts_s: Sequence[int], units: int, sight: Sight) -> Iterator[Evidence | None]:
    """Evidence of each start; None where the predecessor never starts."""
    for start in starts_s:
        of = setting.episode(int(start), units)
        yield None if of is None else look_at(setting, law, of, int(start), sight)


def look_at(
    setting: Setting, law: RuntimeLaw, of: Episode, start_s: int, sight: Sight, *, outcomes: bool = True
) -> Evidence:
    """All evidence of one episode; ``gap`` is not a number everywhere without ``outcomes`` (a chain walks only one of them)."""
    asked = np.unique(np.append(np.arange(0, len(of.looks_s), sight.stride), len(of.looks_s) - 1))
    queues = [queue_at(of.world, int(t)) for t in of.looks_s[asked]]
    before = _waits_before(setting, start_s)
    waits = [waits_known(of.world, q.now_s, before) for q in queues]
    twin, true = twin_forecasts(setting, law, of, start_s, queues, sight)
    gaps = np.minimum(gaps_s(of) / 3600.0, FAR_H) if outcomes else np.full(len(of.looks_s), np.nan)
    return Evidence(
        start_s, of.units, of.looks_s, (of.end_s - of.looks_s) / 3600.0, gaps, asked,
        np.stack([full_state(of, q, w) for q, w in zip(queues, waits, strict=True)]),
        np.array([w[-100:].mean() if len(w) else 0.0 for w in waits]), twin, true,
    )


def twin_forecasts(
    setting: Setting, law: RuntimeLaw, of: Episode, start_s: int, queues: Sequence[QueueAt], sight: Sight
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Quantiles of the wait in hours at each queue, shape (queues, levels); and the wait with the true run times, (queues,).

    The random numbers of a job are the same at all looks, so that the forecast changes only because the queue does.
    """
    world, known = of.world, known_in(of.world, setting.table, start_s)
    alive = [q.alive for q in queues]
    theirs = [a[world.row[a] != OWN] for a in alive]
    rows = known.place[np.concatenate(theirs)]
    at = np.concatenate([np.full(len(a), q.now_s) for a, q in zip(theirs, queues, strict=True)])
    deciles = law.remaining_deciles(known.table, rows, at)
    gone = elapsed_s(known.table, rows, at)
    left = known.table.limit_s[rows] - gone
    table, row = setting.table, np.maximum(world.row, 0)
    alike = (table.user[row] * 1_000_003 + table.limit_s[row]) * 8191 + table.units[row]
    noise = uniforms(alike, sight.rolls, seed=sight.seed + start_s % 1_000_003, together=sight.together, jobs=world.row)
    out, true, first = np.empty((len(queues), len(LEVELS))), np.empty(len(queues)), 0
    for i, (queue, jobs) in enumerate(zip(queues, alive, strict=True)):
        other = world.row[jobs] != OWN
        span = slice(first, first + int(other.sum()))
        first = span.stop
        run = np.repeat(world.run_s[jobs][:, None], sight.rolls, axis=1)
        run[other] = gone[span, None] + draw_remaining_s(deciles[span], left[span], noise[jobs[other]])
        found = start_waits_s(world, queue, run.T, of.units, of.segment_s) / 3600
        out[i] = np.quantile(np.minimum(found, FAR_H), LEVELS)
        true[i] = start_waits_s(world, queue, world.run_s[jobs][None, :], of.units, of.segment_s)[0] / 3600
    return out, np.minimum(true, FAR_H)


def _waits_before(setting: Setting, start_s: int) -> NDArray[np.float64]:
    """The real waits (hours) before a warm start; a cold one knows nothing."""
    if setting.protocol == "mirage":
        return np.empty(0)
    table = setting.table
    begun = np.flatnonzero(table.start_s <= start_s)
    begun = begun[np.argsort(table.start_s[begun], kind="stable")][-100:]
    return (table.start_s[begun] - table.submit_s[begun]) / 3600
