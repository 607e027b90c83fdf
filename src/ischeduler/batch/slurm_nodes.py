"""``scontrol show node -d -o`` as node counts. Pure.

Free GPUs are counted from ``AllocTRES``: what jobs *asked for* (squeue's ``%b``) misses whole-node jobs and counts pending ones.
Where a site does not count GPUs as TRES, ``GresUsed`` says it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ischeduler.batch.slurm_text import tres_count
from ischeduler.core.naming import gpus_of_gres, node_type_name
from ischeduler.core.snapshot import NodeCounts

_FIELD = re.compile(r"(?:^|\s)(NodeName|CPUTot|RealMemory|Gres|GresUsed|AvailableFeatures|State|Partitions|CfgTRES|AllocTRES)=(\S*)")
_CLOSED = {"DRAIN", "DRAINED", "DRAINING", "MAINT", "MAINTENANCE", "RESERVED", "REBOOT_ISSUED", "REBOOT_REQUESTED", "FAIL", "FAILING"}
_AWAY = {"DOWN", "UNKNOWN", "ERROR", "NOT_RESPONDING", "NO_RESPOND", "POWERING_DOWN", "FUTURE", "INVALID_REG", "INVAL"}
_COLUMNS = {"IDLE": "idle", "MIXED": "mixed", "ALLOCATED": "allocated", "COMPLETING": "allocated"}


@dataclass(frozen=True, slots=True)
class NodeLine:
    """One node: its type's name, partitions, GPUs and what column of NodeCounts it belongs to."""

    name: str
    node_type: str
    partitions: tuple[str, ...]
    column: str
    gpus: int
    gpus_used: int


def read_nodes(text: str) -> list[NodeLine]:
    """One entry a node; lines without a node name are left out."""
    # Free text (Reason, Comment) comes after the node's own fields and may look like them: the first of a name counts.
    lines = [dict(reversed(_FIELD.findall(line))) for line in text.splitlines()]
    return [_node(fields) for fields in lines if fields.get("NodeName")]


def count_nodes(nodes: Iterable[NodeLine]) -> tuple[NodeCounts, ...]:
    """Counts by partition and node type; a node of two partitions counts in both, as users see it."""
    counts: dict[tuple[str, str], NodeCounts] = {}
    for node in nodes:
        for partition in node.partitions:
            place = (partition, node.node_type)
            counts[place] = _add(counts.get(place) or NodeCounts(*place), node)
    return tuple(counts[place] for place in sorted(counts))


def state_column(state: str) -> str:
    """``idle``, ``mixed``, ``allocated``, ``drained`` or ``down`` of ``MIXED+DRAIN``, ``IDLE*`` or ``DOWN+NOT_RESPONDING``.

    A draining node still runs jobs but takes none, so it counts as drained; a reserved or maintained one too.
    """
    word = state.strip().upper()
    flags = [part.rstrip("*~#!%$@^-") for part in word.split("+")]
    if _AWAY.intersection(flags) or "*" in word:
        return "down"
    if _CLOSED.intersection(flags):
        return "drained"
    return next((_COLUMNS[f] for f in flags if f in _COLUMNS), "down")


def _node(fields: Mapping[str, str]) -> NodeLine:
    gres = fields.get("Gres", "")
    total = sum(gpus_of_gres(gres).values())
    if tres_count(fields.get("CfgTRES", ""), "gres/gpu") is not None:
        used = tres_count(fields.get("AllocTRES", ""), "gres/gpu") or 0
    else:
        used = sum(gpus_of_gres(fields.get("GresUsed", "")).values())
    features = tuple(f for f in fields.get("AvailableFeatures", "").split(",") if f and f != "(null)")
    return NodeLine(
        name=fields["NodeName"],
        node_type=node_type_name(int(fields.get("CPUTot") or 0), int(fields.get("RealMemory") or 0), gres, features),
        partitions=tuple(p for p in fields.get("Partitions", "").split(",") if p),
        column=state_column(fields.get("State", "")),
        gpus=total,
        gpus_used=min(used, total),
    )


def _add(counts: NodeCounts, node: NodeLine) -> NodeCounts:
    free = node.gpus - node.gpus_used if node.column in ("idle", "mixed") else 0
    return replace(
        counts,
        **{node.column: getattr(counts, node.column) + 1},
        idle_gpus=counts.idle_gpus + free,
        total_gpus=counts.total_gpus + node.gpus,
    )
