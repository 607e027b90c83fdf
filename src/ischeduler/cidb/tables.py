"""Tables of the CI database. A cluster's facts hang on a version of it; a new version is a new set of rows and old ones stay.

Three layers feed a version: ``catalog`` (shipped or imported), ``live`` (discovery) and the user's edits (``overrides``).
What belongs to one user (accounts, access to partitions) is kept apart: it is not the cluster's, and changes more often.
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

METADATA = MetaData()
_ROW_ID = BigInteger().with_variant(Integer(), "sqlite")


def _id() -> Column[int]:
    return Column("id", _ROW_ID, primary_key=True, autoincrement=True)


def _version(*, key: bool = False) -> Column[int]:
    target = ForeignKey("cluster_versions.id", ondelete="CASCADE")
    return Column("version_id", _ROW_ID, target, nullable=False, primary_key=key, autoincrement=False)


SYSTEMS = Table("systems", METADATA, _id(), Column("name", String(128), nullable=False, unique=True))
"""Centres (tenants) that run clusters."""

CLUSTERS = Table(
    "clusters",
    METADATA,
    _id(),
    Column("name", String(128), nullable=False, unique=True),
    Column("system_id", _ROW_ID, ForeignKey("systems.id"), nullable=False),
    Column("current_version", Integer, nullable=False),
)

VERSIONS = Table(
    "cluster_versions",
    METADATA,
    _id(),
    Column("cluster_id", _ROW_ID, ForeignKey("clusters.id", ondelete="CASCADE"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("made_at", Float, nullable=False),
    Column("source", Text, nullable=False),
    Column("centre", String(128), nullable=False),
    Column("batch", String(32), nullable=False),
    Column("batch_version", String(64)),
    Column("as_of", Float),
    UniqueConstraint("cluster_id", "number", name="uq_cluster_versions_number"),
)

ACCELERATORS = Table(
    "accelerators",
    METADATA,
    _id(),
    _version(),
    Column("name", String(128), nullable=False),
    Column("memory_bytes", BigInteger, nullable=False),
    Column("vendor", String(64), nullable=False),
    Column("gres", String(128)),
    Column("fp32_flops", Float),
    Column("tf32_flops", Float),
    Column("fp16_flops", Float),
    Column("bf16_flops", Float),
    Column("bandwidth_bytes_s", Float),
    Index("ix_accelerators_version", "version_id"),
)

NODE_TYPES = Table(
    "node_types",
    METADATA,
    _id(),
    _version(),
    Column("position", Integer, nullable=False),
    Column("name", String(128), nullable=False),
    Column("cores", Integer),
    Column("memory_bytes", BigInteger),
    Column("accelerator_id", _ROW_ID, ForeignKey("accelerators.id", ondelete="CASCADE")),
    Column("accelerators_per_node", Integer, nullable=False),
    Column("count", Integer),
    Column("cpu_model", Text),
    Column("features", JSON, nullable=False),
    UniqueConstraint("version_id", "name", name="uq_node_types_name"),
)

QUEUES = Table(
    "queues",
    METADATA,
    _id(),
    _version(),
    Column("position", Integer, nullable=False),
    Column("name", String(128), nullable=False),
    Column("state", String(32), nullable=False),
    Column("charge_factor", Float, nullable=False),
    Column("preemptible", Boolean, nullable=False),
    Column("debug", Boolean, nullable=False),
    Column("restricted", Boolean, nullable=False),
    Column("whole_node", Boolean, nullable=False),
    Column("note", Text, nullable=False),
    UniqueConstraint("version_id", "name", name="uq_queues_name"),
)

QUEUE_NODE_TYPES = Table(
    "queue_node_types",
    METADATA,
    Column("queue_id", _ROW_ID, ForeignKey("queues.id", ondelete="CASCADE"), primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("node_type", String(128), nullable=False),
)
"""Which node types a queue uses, in its order."""

LIMITS = Table(
    "queue_limits",
    METADATA,
    Column("queue_id", _ROW_ID, ForeignKey("queues.id", ondelete="CASCADE"), primary_key=True, autoincrement=False),
    Column("max_walltime_s", Float),
    Column("default_walltime_s", Float),
    Column("min_nodes", Integer, nullable=False),
    Column("max_nodes", Integer),
    Column("max_cores_per_node", Integer),
    Column("max_memory_bytes", BigInteger),
    Column("max_jobs_user", Integer),
    Column("max_submit_user", Integer),
    Column("max_gpus_user", Integer),
    Column("chaining_allowed", Boolean, nullable=False),
    Column("allow_accounts", JSON, nullable=False),
    Column("allow_qos", JSON, nullable=False),
)

BILLING = Table(
    "billing",
    METADATA,
    _version(key=True),
    Column("rule", String(128), nullable=False),
    Column("unit", String(64), nullable=False),
    Column("usd_per_unit", Float),
    Column("params", JSON, nullable=False),
)

FACTS = Table(
    "facts",
    METADATA,
    _version(key=True),
    Column("path", String(300), primary_key=True),
    Column("source", Text, nullable=False),
    Column("as_of", Float, nullable=False),
    Column("confidence", Text, nullable=False),
)
"""Provenance: where the fact at ``path`` and all below it come from."""

LAYERS = Table(
    "cluster_layers",
    METADATA,
    Column("cluster", String(128), primary_key=True),
    Column("kind", String(16), primary_key=True),
    Column("origin", String(64), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("saved_at", Float, nullable=False),
    Column("doc", JSON, nullable=False),
)
"""The raw inputs of a cluster's versions: ``catalog`` and ``live``."""

OVERRIDES = Table(
    "overrides",
    METADATA,
    Column("cluster", String(128), primary_key=True),
    Column("path", String(300), primary_key=True),
    Column("value", JSON(none_as_null=False), nullable=False),
    Column("author", String(128), nullable=False),
    Column("edited_at", Float, nullable=False),
)

ACCESS = Table(
    "access_probes",
    METADATA,
    Column("cluster", String(128), primary_key=True),
    Column("partition", String(128), primary_key=True),
    Column("user", String(128), primary_key=True),
    Column("account", String(128), primary_key=True),
    Column("allowed", Boolean, nullable=False),
    Column("reason", Text, nullable=False),
    Column("as_of", Float, nullable=False),
)

USER_FACTS = Table(
    "user_facts",
    METADATA,
    Column("cluster", String(128), primary_key=True),
    Column("user", String(128), primary_key=True),
    Column("accounts", JSON, nullable=False),
    Column("default_account", String(128)),
    Column("max_submit", Integer),
    Column("as_of", Float, nullable=False),
)
