"""A cluster's facts as table rows, and back: one set of rows a version."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, Row, Table, insert, select

from ischeduler.cidb.tables import ACCELERATORS, BILLING, FACTS, LIMITS, NODE_TYPES, QUEUE_NODE_TYPES, QUEUES, VERSIONS
from ischeduler.core.cluster import Accelerator, ChargePolicy, Cluster, NodeType, Partition, Provenance

_ACCELERATOR = (
    "name",
    "memory_bytes",
    "vendor",
    "gres",
    "fp32_flops",
    "tf32_flops",
    "fp16_flops",
    "bf16_flops",
    "bandwidth_bytes_s",
)
_NODE = ("name", "cores", "memory_bytes", "accelerators_per_node", "count", "cpu_model", "features")
_QUEUE = ("name", "state", "charge_factor", "preemptible", "debug", "restricted", "whole_node", "note")
_LIMIT = (
    "max_walltime_s",
    "default_walltime_s",
    "min_nodes",
    "max_nodes",
    "max_cores_per_node",
    "max_memory_bytes",
    "max_jobs_user",
    "max_submit_user",
    "max_gpus_user",
    "chaining_allowed",
    "allow_accounts",
    "allow_qos",
)
_TUPLES = frozenset({"features", "allow_accounts", "allow_qos"})


def write_version(connection: Connection, version_id: int, cluster: Cluster) -> None:
    """Insert every fact of a cluster under a version's row."""
    _write_nodes(connection, version_id, cluster.node_types)
    _write_queues(connection, version_id, cluster.partitions)
    charge = cluster.charge
    connection.execute(
        insert(BILLING),
        [
            {
                "version_id": version_id,
                "rule": charge.rule,
                "unit": charge.unit,
                "usd_per_unit": charge.usd_per_unit,
                "params": dict(charge.params),
            }
        ],
    )
    facts = [
        {"version_id": version_id, "path": path, "source": p.source, "as_of": p.as_of, "confidence": p.confidence}
        for path, p in cluster.provenance.items()
    ]
    if facts:
        connection.execute(insert(FACTS), facts)


def read_versions(connection: Connection, versions: Sequence[tuple[int, str]]) -> list[Cluster]:
    """Clusters of (version row, cluster name) pairs, in their order; one query a table however many there are."""
    ids = [v for v, _ in versions]
    heads = {row.id: row for row in connection.execute(select(VERSIONS).where(VERSIONS.c.id.in_(ids)))}
    nodes = _read_nodes(connection, ids)
    queues = _read_queues(connection, ids)
    charges = {row.version_id: _charge(row) for row in connection.execute(select(BILLING).where(BILLING.c.version_id.in_(ids)))}
    facts = _read_facts(connection, ids)
    return [
        Cluster(
            name=name,
            centre=heads[v].centre,
            batch=heads[v].batch,
            version=heads[v].batch_version,
            partitions=tuple(queues[v]),
            node_types=tuple(nodes[v]),
            charge=charges.get(v, ChargePolicy()),
            provenance=facts[v],
            as_of=heads[v].as_of,
        )
        for v, name in versions
    ]


def _write_nodes(connection: Connection, version_id: int, nodes: Sequence[NodeType]) -> None:
    ids: dict[Accelerator, int] = {}
    for accelerator in dict.fromkeys(n.accelerator for n in nodes if n.accelerator is not None):
        row = {"version_id": version_id} | {f: getattr(accelerator, f) for f in _ACCELERATOR}
        ids[accelerator] = _key(connection, ACCELERATORS, row)
    rows = [
        {
            "version_id": version_id,
            "position": position,
            "accelerator_id": ids[node.accelerator] if node.accelerator is not None else None,
            **_values(node, _NODE),
        }
        for position, node in enumerate(nodes)
    ]
    if rows:
        connection.execute(insert(NODE_TYPES), rows)


def _write_queues(connection: Connection, version_id: int, partitions: Sequence[Partition]) -> None:
    rows = [{"version_id": version_id, "position": i, **_values(p, _QUEUE)} for i, p in enumerate(partitions)]
    if not rows:
        return
    connection.execute(insert(QUEUES), rows)
    stored = connection.execute(select(QUEUES.c.name, QUEUES.c.id).where(QUEUES.c.version_id == version_id))
    ids = {row.name: row.id for row in stored}
    connection.execute(insert(LIMITS), [{"queue_id": ids[p.name], **_values(p, _LIMIT)} for p in partitions])
    uses = [{"queue_id": ids[p.name], "position": i, "node_type": n} for p in partitions for i, n in enumerate(p.node_types)]
    if uses:
        connection.execute(insert(QUEUE_NODE_TYPES), uses)


def _key(connection: Connection, table: Table, row: dict[str, Any]) -> int:
    key = connection.execute(insert(table).values(row)).inserted_primary_key
    assert key is not None
    return int(key[0])


def _values(item: NodeType | Partition, names: Iterable[str]) -> dict[str, Any]:
    return {n: list(getattr(item, n)) if n in _TUPLES else getattr(item, n) for n in names}


def _read_nodes(connection: Connection, ids: Sequence[int]) -> dict[int, list[NodeType]]:
    query = select(ACCELERATORS).where(ACCELERATORS.c.version_id.in_(ids))
    cards = {row.id: Accelerator(**{f: getattr(row, f) for f in _ACCELERATOR}) for row in connection.execute(query)}
    found: dict[int, list[NodeType]] = defaultdict(list)
    for row in connection.execute(select(NODE_TYPES).where(NODE_TYPES.c.version_id.in_(ids)).order_by(NODE_TYPES.c.position)):
        found[row.version_id].append(NodeType(accelerator=cards.get(row.accelerator_id), **_fields(row, _NODE)))
    return found


def _read_queues(connection: Connection, ids: Sequence[int]) -> dict[int, list[Partition]]:
    uses: dict[int, list[str]] = defaultdict(list)
    of_queue = QUEUE_NODE_TYPES.c.queue_id == QUEUES.c.id
    query = (
        select(QUEUE_NODE_TYPES).join(QUEUES, of_queue).where(QUEUES.c.version_id.in_(ids)).order_by(QUEUE_NODE_TYPES.c.position)
    )
    for row in connection.execute(query):
        uses[row.queue_id].append(row.node_type)
    found: dict[int, list[Partition]] = defaultdict(list)
    joined = select(QUEUES, LIMITS).join(LIMITS, LIMITS.c.queue_id == QUEUES.c.id)
    for row in connection.execute(joined.where(QUEUES.c.version_id.in_(ids)).order_by(QUEUES.c.position)):
        found[row.version_id].append(Partition(node_types=tuple(uses[row.id]), **_fields(row, (*_QUEUE, *_LIMIT))))
    return found


def _read_facts(connection: Connection, ids: Sequence[int]) -> dict[int, dict[str, Provenance]]:
    found: dict[int, dict[str, Provenance]] = defaultdict(dict)
    for row in connection.execute(select(FACTS).where(FACTS.c.version_id.in_(ids)).order_by(FACTS.c.path)):
        found[row.version_id][row.path] = Provenance(row.source, row.as_of, row.confidence)
    return found


def _charge(row: Row[Any]) -> ChargePolicy:
    return ChargePolicy(row.rule, row.unit, row.usd_per_unit, {k: float(v) for k, v in row.params.items()})


def _fields(row: Row[Any], names: Iterable[str]) -> dict[str, Any]:
    # By mapping and not by attribute: a row is a tuple, whose ``count`` is a method.
    values = row._mapping
    return {n: tuple(values[n]) if n in _TUPLES else values[n] for n in names}
