"""The job table as it is known inside an episode's world: nothing of the trace's own later course shines through."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ischeduler.estimators.jobruntime.table import NEVER, JobTable
from ischeduler.simulator.chain import World

HISTORY_S = 120 * 86400


@dataclass(frozen=True)
class Known:
    """``table``: jobs that ended in truth before the episode, and the world's jobs at the world's start times.

    ``place`` gives the table's row of each of the world's jobs, -1 for segments of ours.
    """

    table: JobTable
    place: NDArray[np.int64]


def known_in(world: World, trace: JobTable, start_s: int) -> Known:
    """The table of an episode that starts at ``start_s``."""
    theirs = np.flatnonzero(world.row >= 0)
    inside = world.row[theirs]
    past = np.flatnonzero((trace.start_s + trace.run_s <= start_s) & (trace.submit_s > start_s - HISTORY_S))
    past = np.setdiff1d(past, inside)
    rows = np.concatenate([past, inside])
    begun = np.where(world.start_s[theirs] < 0, NEVER, world.start_s[theirs])
    table = trace.take(rows).started_at(np.concatenate([trace.start_s[past], begun]))
    place = np.full(len(world), -1, np.int64)
    place[theirs] = len(past) + np.arange(len(theirs))
    return Known(table, place)
