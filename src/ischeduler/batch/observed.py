"""Putting together what a queue and its accounting say of jobs into one observation. Pure; shared by the Slurm adapters."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from ischeduler.core.jobs import JobRef, JobStatus, Observation

Found = dict[str, dict[str, JobStatus]]
"""Key -> job id -> status."""


def add_statuses(found: Found, statuses: Iterable[JobStatus], keys: Collection[str]) -> None:
    """Takes in the jobs of these keys."""
    for status in statuses:
        if status.key in keys:
            found.setdefault(status.key, {})[status.job_id] = status


def add_accounting(found: Found, rows: Iterable[JobStatus], keys: Collection[str]) -> None:
    """The queue's word stands (accounting lags behind); accounting adds the jobs that have left and the memory of those that ended."""
    known: Mapping[str, JobStatus] = {i: s for by_id in found.values() for i, s in by_id.items()}
    remembered = list(rows)
    add_statuses(found, (s for s in remembered if s.job_id not in known), keys)
    for row in remembered:
        live = known.get(row.job_id)
        if live is not None and live.state.ended:
            found[live.key][live.job_id] = replace(live, max_rss_bytes=row.max_rss_bytes)


def is_absent(ref: JobRef, found: Found) -> bool:
    """Nothing of its key, or nothing of its id: then another job of the same key may hide that the known one has left."""
    by_id = found.get(ref.key)
    return not by_id or (ref.job_id is not None and ref.job_id not in by_id)


def observation(found: Found, taken_at: float, complete: bool) -> Observation:
    """The whole answer, the jobs of each key oldest first."""
    return Observation(taken_at, {k: tuple(sorted(by_id.values(), key=_age)) for k, by_id in found.items()}, complete)


def _age(status: JobStatus) -> tuple[float, int]:
    return (status.submit_s or 0.0, int(re.sub(r"\D", "", status.job_id) or 0))
