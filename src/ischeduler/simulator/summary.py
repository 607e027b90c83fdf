"""What a simulation came to: utilisation, queue depth, waits; as figures and as curves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ischeduler.simulator.figures import Summary
from ischeduler.simulator.trace import Trace

BOUND_S = 10.0
"""Bounded slowdown counts no run time as shorter (Feitelson and Rudolph, JSSPP 1998)."""


@dataclass(frozen=True, slots=True, eq=False)
class Curves:
    """Steps over time (value from each second until the next) and the sorted waits."""

    second: NDArray[Any]
    used: NDArray[Any]
    depth: NDArray[Any]
    waits_s: NDArray[Any]


def ends(trace: Trace, start_s: NDArray[Any]) -> NDArray[Any]:
    """When each job ended, -1 where it never started. A job that reaches its limit ends there."""
    held = np.minimum(trace.run_s, np.maximum(trace.limit_s, 1))
    return np.where(start_s >= 0, start_s + held, -1)


def summarise(trace: Trace, start_s: NDArray[Any], nodes: int, scheduler: str) -> tuple[Summary, Curves]:
    """The figures and the curves of a simulation with these starts (-1: never)."""
    ran = start_s >= 0
    end = ends(trace, start_s)
    curves = _curves(trace, start_s, end, ran)
    waits = curves.waits_s
    held = (end - start_s)[ran]
    first, last = (int(start_s[ran].min()), int(end[ran].max())) if ran.any() else (0, 0)
    span = max(1, last - first)
    p50, p90, p95, longest = np.quantile(waits, [0.5, 0.9, 0.95, 1.0]).tolist() if len(waits) else [0.0] * 4
    slowdown = np.maximum(1.0, ((start_s - trace.submit_s)[ran] + held) / np.maximum(held, BOUND_S))
    known = trace.start_s >= 0
    return Summary(
        trace.name, scheduler, nodes, len(trace), int(ran.sum()), int((~ran).sum()), last - first,
        float((held * trace.units[ran]).sum() / (nodes * span)), _mean(waits), p50, p90, p95, longest, _mean(waits > 0), _mean(slowdown),
        _over_time(curves.second, curves.depth), int(curves.depth.max(initial=0)),
        float(trace.wait_s[known].mean()) if known.any() else None,
    ), curves  # fmt: skip


def _mean(values: NDArray[Any]) -> float:
    return float(values.mean()) if len(values) else 0.0


def _curves(trace: Trace, start: NDArray[Any], end: NDArray[Any], ran: NDArray[Any]) -> Curves:
    """Units in use and jobs waiting after every second in which either changed."""
    submit, begin, stop, width = trace.submit_s[ran], start[ran], end[ran], trace.units[ran]
    times = np.concatenate([submit, begin, stop])
    nothing, one = np.zeros_like(width), np.ones_like(width)
    use = np.concatenate([nothing, width, -width])
    wait = np.concatenate([one, -one, nothing])
    order = np.argsort(times, kind="stable")
    sorted_times = times[order]
    last = np.flatnonzero(np.append(np.diff(sorted_times) > 0, True)) if len(times) else np.zeros(0, np.int64)
    used, depth = np.cumsum(use[order])[last], np.cumsum(wait[order])[last]
    return Curves(sorted_times[last], used, depth, np.sort(begin - submit))


def _over_time(second: NDArray[Any], value: NDArray[Any]) -> float:
    """Mean of a step curve weighted by how long each step lasts."""
    lasting = np.diff(second)
    total = lasting.sum() if len(lasting) else 0
    return float((value[:-1] * lasting).sum() / total) if total else 0.0


def thinned(second: NDArray[Any], value: NDArray[Any], points: int = 1500) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """A step curve as mean and highest value in equal stretches of time: second, mean, highest."""
    if len(second) < 2:
        return second, value, value
    edges = np.linspace(second[0], second[-1], points + 1)
    area = np.concatenate([[0.0], np.cumsum(value[:-1] * np.diff(second))])
    mean = np.diff(np.interp(edges, second, area)) / np.diff(edges)
    place = np.clip(np.searchsorted(second, edges[:-1], side="right") - 1, 0, len(value) - 1)
    return edges[:-1], mean, np.maximum.reduceat(value, place)
