"""Node records of a live Slurm as node types: one for each kind of hardware, named as the queue snapshot names it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ischeduler.cidb import scontrol
from ischeduler.cidb.accelerators import by_gres
from ischeduler.cidb.scontrol import Record
from ischeduler.core.cluster import NodeType
from ischeduler.core.naming import gpus_of_gres, node_type_name
from ischeduler.core.sizes import MIB


def node_types(rows: Sequence[Record]) -> tuple[tuple[NodeType, ...], dict[str, tuple[str, ...]], dict[str, str]]:
    """Hardware types; the types of each partition, commonest first; and what is doubtful about an accelerator, by type.

    Nodes are of one type when cores, memory (to the GiB) and cards are the same. The type's memory is the least of its nodes',
    and its features are those that all of them have.
    """
    found: dict[str, NodeType] = {}
    doubts: dict[str, str] = {}
    counts: dict[str, dict[str, int]] = {}
    for row in rows:
        if "FUTURE" in row.get("State", ""):
            continue
        node, doubt = _node_type(row)
        if doubt:
            doubts[node.name] = doubt
        known = found.get(node.name)
        found[node.name] = node if known is None else _joined(known, node)
        for partition in scontrol.names(row.get("Partitions")):
            of = counts.setdefault(partition, {})
            of[node.name] = of.get(node.name, 0) + 1
    ordered = {p: tuple(sorted(of, key=lambda n: (-of[n], n))) for p, of in counts.items()}
    return tuple(found.values()), ordered, doubts


def _joined(one: NodeType, other: NodeType) -> NodeType:
    memory = [m for m in (one.memory_bytes, other.memory_bytes) if m is not None]
    features = tuple(f for f in one.features if f in other.features)
    return replace(one, count=(one.count or 0) + 1, memory_bytes=min(memory, default=None), features=features)


def _node_type(row: Record) -> tuple[NodeType, str]:
    cpus = scontrol.number(row.get("CPUEfctv")) or scontrol.number(row.get("CPUTot")) or 1
    memory_mb = scontrol.number(row.get("RealMemory")) or 0
    reserved_mb = scontrol.number(row.get("MemSpecLimit")) or 0
    features = scontrol.names(row.get("AvailableFeatures"))
    gres = row.get("Gres", "")
    cards = gpus_of_gres(gres)
    kind = next(iter(cards), None)
    accelerator, doubt = by_gres(kind, features) if kind is not None else (None, "")
    if len(cards) > 1:
        doubt = f"the node has several kinds of card ({gres}); all are counted as the first"
    node = NodeType(
        name=node_type_name(cpus, memory_mb, gres, features),
        cores=cpus,
        memory_bytes=(memory_mb - reserved_mb) * MIB if memory_mb > reserved_mb else None,
        accelerator=accelerator,
        accelerators_per_node=sum(cards.values()),
        count=1,
        features=features,
    )
    return node, doubt
