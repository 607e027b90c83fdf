"""What had started, and how long it had run, by the time of a snapshot: per account, partition, kind of job. Only from what lay in the past.

A start counts once: in the last snapshot that showed the job pending, and only for snapshots taken after it. Run times count once they ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

Column = np.ndarray[Any, Any]
_DAYS = 14
_SPANS_S = (3600.0, 6 * 3600.0, 86400.0, 3 * 86400.0)
_PRIOR = 3.0  # finished jobs' worth of the whole queue's law


def starts(codes: Mapping[str, Column], day: Column, poll: Column, wait: Column, size: Column) -> Iterator[tuple[str, Column]]:
    """(name, values): log hours since the last start of the group, starts and their core hours within each of the last spans."""
    begun = poll + wait
    last = wait < _next_poll(day, poll) - poll
    for name, code in codes.items():
        many = int(code.max()) + 1
        since, mean = np.full(len(day), np.nan), np.full(len(day), np.nan)
        counts = {s: np.zeros(len(day)) for s in _SPANS_S}
        sizes = {s: np.zeros(len(day)) for s in _SPANS_S}
        for here, now, seen in _instants(day, poll):
            known = seen[last[seen] & (begun[seen] < now)]
            newest = np.full(many, np.nan)
            np.fmax.at(newest, code[known], begun[known])
            since[here] = np.log1p((now - newest[code[here]]) / 3600)
            mean[here] = _group_mean(code[known], np.log1p(wait[known]), many)[code[here]]
            for span in _SPANS_S:
                fresh = known[begun[known] >= now - span]
                counts[span][here] = np.bincount(code[fresh], minlength=many)[code[here]]
                sizes[span][here] = np.bincount(code[fresh], size[fresh], many)[code[here]]
        yield f"started_{name}_since", since
        yield f"started_{name}_wait", mean
        for span in _SPANS_S:
            yield f"started_{name}_{span / 3600:.0f}h", counts[span]
            yield f"started_{name}_{span / 3600:.0f}h_size", sizes[span]


def used(codes: Mapping[str, Column], day: Column, poll: Column, end: Column, share: Column) -> Iterator[tuple[str, Column]]:
    """(name, values): mean share of their limits that the group's finished jobs used, drawn towards everybody's; nan shares are left out."""
    for name, code in codes.items():
        many = int(code.max()) + 1
        told = np.full(len(day), np.nan)
        for here, now, seen in _instants(day, poll):
            known = seen[(end[seen] < now) & np.isfinite(share[seen])]
            if len(known):
                whole, count = np.bincount(code[known], share[known], many), np.bincount(code[known], minlength=many)
                told[here] = ((whole + _PRIOR * share[known].mean()) / (count + _PRIOR))[code[here]]
        yield f"used_{name}", told


def drained(ahead: Column, rate: Column, span_s: float) -> Column:
    """Log hours until what stands ahead has started, if starts go on as within the last span."""
    return np.log1p(ahead / (rate + 0.5) * span_s / 3600)


def _instants(day: Column, poll: Column) -> Iterator[tuple[Column, float, Column]]:
    """(rows of a snapshot, its second, rows of the snapshots before it)."""
    edges = np.searchsorted(day, np.arange(int(day.max()) + 2))
    for today in range(1, len(edges) - 1):
        here = np.arange(edges[today], edges[today + 1])
        yield here, float(poll[here[0]]), np.arange(edges[max(0, today - _DAYS)], edges[today])


def _next_poll(day: Column, poll: Column) -> Column:
    """The second of the snapshot after each row's own; the last one has none."""
    seconds = np.unique(poll)
    return np.append(seconds[1:], np.inf)[day]


def _group_mean(code: Column, values: Column, many: int) -> Column:
    count = np.bincount(code, minlength=many)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.bincount(code, values, many) / np.where(count, count, np.nan)
