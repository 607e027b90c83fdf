"""Which nodes: jobs that stay keep theirs; the others go, the largest first, into the smallest gap that holds them, or over the fewest nodes.

Pure. A node is a number within its type; ``per_node`` accelerators of the type are in each, the last one may have fewer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ischeduler.policies.problem import Ints


class Spot(NamedTuple):
    """Where a job stands: the type, and accelerators by node."""

    type: int
    nodes: tuple[tuple[int, int], ...]


def nodes_of(count: int, per_node: int) -> Ints:
    """Accelerators in each node of a type."""
    whole, rest = divmod(count, per_node)
    return np.array([per_node] * whole + ([rest] if rest else []), np.int64)


def consolidated(spot: Spot, per_node: int) -> bool:
    """Whether a job stands on as few nodes as can be."""
    size = sum(n for _, n in spot.nodes)
    return len(spot.nodes) <= -(-size // per_node)


def place(
    chosen: Mapping[int, tuple[int, int]], before: Mapping[int, Spot], capacity: Mapping[int, Ints], keep: frozenset[int] = frozenset(),
) -> dict[int, Spot]:
    """Spots for ``chosen`` (job -> (type, accelerators)); ``before``: where jobs stood; ``capacity``: type -> accelerators by node.

    A job that keeps its type keeps its nodes, so nothing moves without need; scattered jobs may be brought together (all but those in
    ``keep``) when a gap for them is there. The counts must fit the types' totals; scattering over nodes is always possible.
    """
    free = {k: room.copy() for k, room in capacity.items()}
    spots: dict[int, Spot] = {}
    for job, (kind, size) in chosen.items():
        old = before.get(job)
        if old is not None and old.type == kind and sum(n for _, n in old.nodes) == size:
            spots[job] = old
            for node, n in old.nodes:
                free[kind][node] -= n
    for job, (kind, size) in sorted(((j, c) for j, c in chosen.items() if j not in spots), key=lambda item: (-item[1][1], item[0])):
        spots[job] = Spot(kind, _gap(free[kind], size))
    for job, spot in spots.items():
        if job not in keep and len(spot.nodes) > 1:
            spots[job] = _gathered(spot, free[spot.type])
    return spots


def _gap(free: Ints, size: int) -> tuple[tuple[int, int], ...]:
    """The smallest gap that holds the job whole (best fit), else the fullest-first split over the fewest nodes. ``free`` is reduced."""
    holds = np.flatnonzero(free >= size)
    if len(holds):
        node = int(holds[np.argmin(free[holds])])
        free[node] -= size
        return ((node, size),)
    parts: list[tuple[int, int]] = []
    left = size
    for node in np.argsort(-free, kind="stable").tolist():
        take = min(left, int(free[node]))
        if take > 0:
            parts.append((node, take))
            free[node] -= take
            left -= take
        if left == 0:
            break
    return tuple(sorted(parts))


def _gathered(spot: Spot, free: Ints) -> Spot:
    """The job on fewer nodes, where gaps (with its own) allow it."""
    own = free.copy()
    for node, n in spot.nodes:
        own[node] += n
    trial = own.copy()
    parts = _gap(trial, sum(n for _, n in spot.nodes))
    if len(parts) >= len(spot.nodes):
        return spot
    free[:] = trial
    return Spot(spot.type, parts)
