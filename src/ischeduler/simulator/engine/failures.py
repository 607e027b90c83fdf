"""Nodes that fail and come back: seeded, so that the same seed gives the same story."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

from ischeduler.core.errors import BadInput
from ischeduler.simulator.engine.cluster_sim import ClusterSim
from ischeduler.simulator.engine.machine import Machine


@dataclass(frozen=True, slots=True)
class Outage:
    """A node is away from ``down_s`` until ``up_s``. ``drain`` True lets its jobs end first: maintenance, not a failure."""

    node: str
    down_s: float
    up_s: float
    drain: bool = False


def draw_outages(machine: Machine, *, seed: int, mean_between_s: float, mean_repair_s: float, start_s: float, until_s: float) -> list[Outage]:
    """Failures of each node by itself: exponential times between them and exponential repairs. BadInput for times that are not positive."""
    if mean_between_s <= 0 or mean_repair_s <= 0:
        raise BadInput("the mean times between failures and to repair must be positive.")
    found: list[Outage] = []
    for number, node in enumerate(machine.nodes):
        draw = random.Random(f"{seed}/{number}")
        now_s = start_s + draw.expovariate(1 / mean_between_s)
        while now_s < until_s:
            up_s = now_s + draw.expovariate(1 / mean_repair_s)
            found.append(Outage(node.name, now_s, up_s))
            now_s = up_s + draw.expovariate(1 / mean_between_s)
    return sorted(found, key=lambda o: (o.down_s, o.node))


def apply_outages(sim: ClusterSim, outages: Iterable[Outage]) -> None:
    """Let them happen at their times."""
    for outage in outages:
        sim.at(outage.down_s, sim.drain if outage.drain else sim.node_down, outage.node)
        sim.at(outage.up_s, sim.node_up, outage.node)
