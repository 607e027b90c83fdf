"""What several devices add to a step: the gradients' all-reduce, and how much of it hides behind the backward pass. Pure.

A ring moves 2 (n-1)/n of the bytes over each device's link, in 2 (n-1) hops of one latency each; between nodes a two-level scheme
reduces inside, rings between, and spreads inside again (NCCL's and Horovod's; Patarasu and Yuan, JPDC 2009). DDP reduces buckets of
25 MB while the backward pass still runs: all but the last bucket can hide (Li et al., VLDB 2020).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

BUCKET_BYTES = 25 * 2**20
_OVERLAP = 0.85
"""Share of the backward pass that communication can use: kernels and collectives compete for memory and units."""


@dataclass(frozen=True, slots=True)
class Link:
    """``bytes_s`` a collective really reaches through one device's link, ``latency_s`` a hop."""

    name: str
    bytes_s: float
    latency_s: float


# Bus bandwidth that NCCL's all_reduce_perf reaches at large sizes, from vendors' datasheets times 0.75-0.8.
LINKS = {
    "nvlink1": Link("nvlink1", 6.0e10, 8e-6), "nvlink2": Link("nvlink2", 1.2e11, 8e-6), "nvlink3": Link("nvlink3", 2.3e11, 8e-6),
    "nvlink4": Link("nvlink4", 3.6e11, 8e-6), "nvlink5": Link("nvlink5", 7.0e11, 8e-6), "infinity": Link("infinity", 1.0e11, 1e-5),
    "pcie3": Link("pcie3", 9.0e9, 1.2e-5), "pcie4": Link("pcie4", 1.8e10, 1.2e-5), "pcie5": Link("pcie5", 3.6e10, 1.2e-5),
    "ib-edr": Link("ib-edr", 1.0e10, 2e-5), "ib-hdr": Link("ib-hdr", 2.0e10, 2e-5), "ib-ndr": Link("ib-ndr", 4.0e10, 2e-5),
    "ethernet-10g": Link("ethernet-10g", 1.0e9, 5e-5), "ethernet-100g": Link("ethernet-100g", 9.0e9, 4e-5),
    "memory": Link("memory", 8.0e9, 2e-5),
}
_INSIDE = {"volta": "nvlink2", "ampere": "nvlink3", "hopper": "nvlink4", "blackwell": "nvlink5", "cdna2": "infinity",
           "cdna3": "infinity", "ampere-graphics": "pcie4", "ada": "pcie4", "blackwell-graphics": "pcie5", "cpu": "memory"}
_BETWEEN = {"hopper": "ib-ndr", "blackwell": "ib-ndr", "ampere": "ib-hdr", "cdna3": "ib-ndr", "cdna2": "ib-hdr"}
PLAUSIBLE = 2.0
"""The links are a guess from the architecture: real ones are within this factor either way."""


@dataclass(frozen=True, slots=True)
class Links:
    """Inside a node and between nodes; ``known`` where somebody said so."""

    inside: Link
    between: Link
    known: bool = False


def links_of(architecture: str, card: str = "", inside: str = "", between: str = "") -> Links:
    """What usually comes with an architecture (PCIe where the card's name says so), or the named ones of :data:`LINKS`."""
    usual = _INSIDE.get(architecture, "pcie3")
    if "pcie" in card.lower() and usual.startswith("nvlink"):
        usual = "pcie4" if architecture != "volta" else "pcie3"
    first = LINKS.get(inside) or LINKS[usual]
    second = LINKS.get(between) or LINKS[_BETWEEN.get(architecture, "ib-edr")]
    return Links(first, second, bool(LINKS.get(inside) or LINKS.get(between)))


def all_reduce_s(volume_bytes: float, devices_per_node: int, nodes: int, links: Links) -> float:
    """Seconds to sum so many bytes over all devices, nothing hidden."""
    inside = _ring_s(volume_bytes, devices_per_node, links.inside)
    return inside + _ring_s(volume_bytes, nodes, links.between)


def exposed_s(volume_bytes: float, devices_per_node: int, nodes: int, links: Links, backward_s: float) -> float:
    """What the step gets longer: what does not fit behind the backward pass, and at least the last bucket."""
    if devices_per_node * nodes < 2 or volume_bytes <= 0:
        return 0.0
    buckets = max(1, math.ceil(volume_bytes / BUCKET_BYTES))
    each = all_reduce_s(volume_bytes / buckets, devices_per_node, nodes, links)
    hidden = min((buckets - 1) * each, _OVERLAP * backward_s * (buckets - 1) / buckets)
    return buckets * each - hidden


def efficiency(step_s: float, added_s: float) -> float:
    """Scaling efficiency: what share of n devices' work is left."""
    return step_s / (step_s + added_s) if step_s > 0 else 1.0


def _ring_s(volume_bytes: float, members: int, link: Link) -> float:
    if members < 2:
        return 0.0
    return 2 * (members - 1) / members * volume_bytes / link.bytes_s + 2 * (members - 1) * link.latency_s
