"""Clusters now: idle accelerators by type, forecast waits, and how old each fact is. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ischeduler.core.cluster import Cluster, NodeType, Partition
from ischeduler.core.durations import human
from ischeduler.core.estimate import Estimate
from ischeduler.core.snapshot import NodeCounts, QueueSnapshot
from ischeduler.service.dashboard.words import NOT_KNOWN, ago, amount

OLD_QUEUE_S = 15 * 60.0
OLD_FACTS_S = 180 * 86400.0


class WaitForecast(Protocol):
    """What is read of a partition's forecast (:class:`ischeduler.helper.forecast.PartitionForecast` is one)."""

    @property
    def partition(self) -> str:
        """Its name."""
        ...

    @property
    def wait(self) -> Estimate | None:
        """Seconds until a small job would start."""
        ...

    @property
    def chances(self) -> Mapping[str, float]:
        """Shares of roll-outs that start within so many seconds (keys '600', '3600', ...)."""
        ...

    @property
    def problem(self) -> str:
        """Why there is no forecast."""
        ...


@dataclass(frozen=True, slots=True)
class CardRow:
    """Accelerators of one type on one cluster."""

    name: str
    idle: int
    total: int


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """One partition now. ``idle`` and ``total`` count accelerators where there are any, else nodes; -1 where nobody looked."""

    name: str
    hardware: str
    unit: str
    idle: int
    total: int
    down: int
    running: int
    waiting: int
    wait: str
    chance: float | None
    wait_note: str
    limit: str
    access: str
    allowed: bool | None


@dataclass(frozen=True, slots=True)
class ClusterCard:
    """One cluster. ``looked`` is the age of the queue's snapshot, ``facts`` that of the newest fact; the flags say 'too old'."""

    name: str
    centre: str
    live: bool
    seen: bool
    looked: str
    looked_old: bool
    facts: str
    facts_old: bool
    price: str
    cards: tuple[CardRow, ...]
    partitions: tuple[PartitionRow, ...]
    problem: str


def cluster_card(
    cluster: Cluster, snapshot: QueueSnapshot | None, forecasts: Sequence[WaitForecast], now: float, *, live: bool = True, problem: str = "",
) -> ClusterCard:
    """A cluster's card. ``problem`` says why its queue could not be seen."""
    dated = [p.as_of for p in cluster.provenance.values()] + ([cluster.as_of] if cluster.as_of else [])
    newest = max(dated, default=None)
    taken = snapshot.taken_at if snapshot else None
    waits = {f.partition: f for f in forecasts}
    return ClusterCard(
        cluster.name, cluster.centre, live, snapshot is not None, ago(taken, now), taken is None or now - taken > OLD_QUEUE_S, ago(newest, now),
        newest is None or now - newest > OLD_FACTS_S, price_words(cluster), tuple(_cards(cluster, snapshot)),
        tuple(_partition(cluster, p, snapshot, waits.get(p.name), now) for p in cluster.partitions), problem,
    )  # fmt: skip


def price_words(cluster: Cluster) -> str:
    """``$0.003 a RU``; nothing where no price is published."""
    charge = cluster.charge
    if charge.usd_per_unit is None:
        return "free" if charge.rule == "free" else f"in {charge.unit}"
    return f"${charge.usd_per_unit:g} a {charge.unit}"


def _cards(cluster: Cluster, snapshot: QueueSnapshot | None) -> list[CardRow]:
    """Idle and all cards by type. A node type that several partitions share is counted once: there where most of it shows."""
    if snapshot is None:
        return []
    counts: dict[str, NodeCounts] = {}
    for c in snapshot.nodes:
        if c.total_gpus > (counts[c.node_type].total_gpus if c.node_type in counts else 0):
            counts[c.node_type] = c
    totals: dict[str, tuple[int, int]] = {}
    for node_type, count in counts.items():
        name = _card_name(cluster, node_type)
        idle, total = totals.get(name, (0, 0))
        totals[name] = (idle + count.idle_gpus, total + count.total_gpus)
    return [CardRow(name, idle, total) for name, (idle, total) in sorted(totals.items(), key=lambda t: -t[1][1])]


def _card_name(cluster: Cluster, node_type: str) -> str:
    found = next((n for n in cluster.node_types if n.name == node_type), None)
    return found.accelerator.name if found and found.accelerator else node_type


def _partition(cluster: Cluster, p: Partition, snapshot: QueueSnapshot | None, forecast: WaitForecast | None, now: float) -> PartitionRow:
    nodes = [n for n in cluster.node_types if n.name in p.node_types]
    counts = snapshot.counts(p.name) if snapshot else ()
    gpus = sum(c.total_gpus for c in counts)
    unit = "GPU" if gpus or any(n.accelerators_per_node for n in nodes) else "node"
    idle = sum(c.idle_gpus if gpus else c.idle for c in counts) if counts else -1
    total = (gpus or sum(c.total for c in counts)) if counts else -1
    wait = forecast.wait if forecast else None
    return PartitionRow(
        p.name, hardware_words(nodes), unit, idle, total, sum(c.down + c.drained for c in counts),
        len(snapshot.running(p.name)) if snapshot else -1, len(snapshot.pending(p.name)) if snapshot else -1,
        f"{amount(wait.p50, 's')}–{amount(wait.p90, 's')}" if wait else NOT_KNOWN,
        forecast.chances.get("3600") if forecast and wait else None, forecast.problem if forecast else "",
        human(p.max_walltime_s) if p.max_walltime_s is not None else NOT_KNOWN, _access(p, now), p.access.allowed if p.access else None,
    )  # fmt: skip


def hardware_words(nodes: Sequence[NodeType]) -> str:
    """``1 × v100-32g, 28 cores``; of several types joined."""
    told = []
    for n in nodes:
        cards = f"{n.accelerators_per_node} × {n.accelerator.name}" if n.accelerator and n.accelerators_per_node else ""
        told.append(", ".join(w for w in (cards, f"{n.cores} cores" if n.cores else "") if w) or n.name)
    return "; ".join(dict.fromkeys(told))


def _access(p: Partition, now: float) -> str:
    if p.state != "UP":
        return p.state.lower()
    if p.access is None:
        return ""
    return f"asked {ago(p.access.as_of, now)}" if p.access.allowed else p.access.reason
