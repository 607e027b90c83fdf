"""Runs, events, leases, history; the CI database's clusters, versions, queues, nodes, limits, billing, facts and probes."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make all tables."""
    op.create_table(
        "history",
        sa.Column("id", ROW_ID, autoincrement=True, nullable=False),
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("finished_at", sa.Float(), nullable=False),
        sa.Column("owner", sa.String(length=128), nullable=False),
        sa.Column("family", sa.Text(), nullable=False),
        sa.Column("cluster", sa.String(length=128), nullable=False),
        sa.Column("partition", sa.String(length=128), nullable=False),
        sa.Column("doc", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("run_id", "kind", "finished_at", name="uq_history_once"),
    )
    op.create_index("ix_history_family", "history", ["family"], unique=False)
    op.create_index("ix_history_finished_at", "history", ["finished_at"], unique=False)
    op.create_index("ix_history_place", "history", ["cluster", "partition", "kind"], unique=False)
    op.create_table(
        "leases",
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("holder", sa.String(length=200), nullable=False),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("owner", sa.String(length=128), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("doc", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("updated_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_runs_created_at", "runs", ["created_at"], unique=False)
    op.create_index("ix_runs_owner_state", "runs", ["owner", "state"], unique=False)
    op.create_table(
        "events",
        sa.Column("row", ROW_ID, autoincrement=True, nullable=False),
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("source", sa.String(length=32), nullable=False),
        sa.Column("token", sa.String(length=32), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(length=64), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("row"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_events_run_id_row", "events", ["run_id", "row"], unique=False)
    op.create_index(
        "uq_events_once",
        "events",
        ["run_id", "source", "token", "seq"],
        unique=True,
        sqlite_where=sa.text("seq > 0"),
        postgresql_where=sa.text("seq > 0"),
    )
    op.create_table(
        "access_probes",
        sa.Column("cluster", sa.String(length=128), nullable=False),
        sa.Column("partition", sa.String(length=128), nullable=False),
        sa.Column("user", sa.String(length=128), nullable=False),
        sa.Column("account", sa.String(length=128), nullable=False),
        sa.Column("allowed", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("as_of", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "partition", "user", "account"),
    )
    op.create_table(
        "cluster_layers",
        sa.Column("cluster", sa.String(length=128), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("origin", sa.String(length=64), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("saved_at", sa.Float(), nullable=False),
        sa.Column("doc", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "kind"),
    )
    op.create_table(
        "overrides",
        sa.Column("cluster", sa.String(length=128), nullable=False),
        sa.Column("path", sa.String(length=300), nullable=False),
        sa.Column("value", sa.JSON(), nullable=False),
        sa.Column("author", sa.String(length=128), nullable=False),
        sa.Column("edited_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "path"),
    )
    op.create_table(
        "systems",
        sa.Column("id", ROW_ID, autoincrement=True, nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
    )
    op.create_table(
        "user_facts",
        sa.Column("cluster", sa.String(length=128), nullable=False),
        sa.Column("user", sa.String(length=128), nullable=False),
        sa.Column("accounts", sa.JSON(), nullable=False),
        sa.Column("default_account", sa.String(length=128), nullable=True),
        sa.Column("max_submit", sa.Integer(), nullable=True),
        sa.Column("as_of", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "user"),
    )
    op.create_table(
        "clusters",
        sa.Column("id", ROW_ID, autoincrement=True, nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("system_id", ROW_ID, nullable=False),
        sa.Column("current_version", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["system_id"],
            ["systems.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
    )
    op.create_table(
        "cluster_versions",
        sa.Column("id", ROW_ID, autoincrement=True, nullable=False),
        sa.Column("cluster_id", ROW_ID, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("made_at", sa.Float(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("centre", sa.String(length=128), nullable=False),
        sa.Column("batch", sa.String(length=32), nullable=False),
        sa.Column("batch_version", sa.String(length=64), nullable=True),
        sa.Column("as_of", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(["cluster_id"], ["clusters.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("cluster_id", "number", name="uq_cluster_versions_number"),
    )
    op.create_table(
        "accelerators",
        sa.Column("id", ROW_ID, autoincrement=True, nullable=False),
        sa.Column("version_id", ROW_ID, autoincrement=False, nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("vendor", sa.String(length=64), nullable=False),
        sa.Column("gres", sa.String(length=128), nullable=True),
        sa.Column("fp32_flops", sa.Float(), nullable=True),
        sa.Column("tf32_flops", sa.Float(), nullable=True),
        sa.Column("fp16_flops", sa.Float(), nullable=True),
        sa.Column("bf16_flops", sa.Float(), nullable=True),
        sa.Column("bandwidth_bytes_s", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(["version_id"], ["cluster_versions.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_accelerators_version", "accelerators", ["version_id"], unique=False)
    op.create_table(
        "billing",
        sa.Column("version_id", ROW_ID, autoincrement=False, nullable=False),
        sa.Column("rule", sa.String(length=128), nullable=False),
        sa.Column("unit", sa.String(length=64), nullable=False),
        sa.Column("usd_per_unit", sa.Float(), nullable=True),
        sa.Column("params", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["version_id"], ["cluster_versions.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("version_id"),
    )
    op.create_table(
        "facts",
        sa.Column("version_id", ROW_ID, autoincrement=False, nullable=False),
        sa.Column("path", sa.String(length=300), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("as_of", sa.Float(), nullable=False),
        sa.Column("confidence", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["version_id"], ["cluster_versions.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("version_id", "path"),
    )
    op.create_table(
        "queues",
        sa.Column("id", ROW_ID, autoincrement=True, nullable=False),
        sa.Column("version_id", ROW_ID, autoincrement=False, nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("charge_factor", sa.Float(), nullable=False),
        sa.Column("preemptible", sa.Boolean(), nullable=False),
        sa.Column("debug", sa.Boolean(), nullable=False),
        sa.Column("restricted", sa.Boolean(), nullable=False),
        sa.Column("whole_node", sa.Boolean(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["version_id"], ["cluster_versions.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("version_id", "name", name="uq_queues_name"),
    )
    op.create_table(
        "node_types",
        sa.Column("id", ROW_ID, autoincrement=True, nullable=False),
        sa.Column("version_id", ROW_ID, autoincrement=False, nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=128), nullable=False),
        sa.Column("cores", sa.Integer(), nullable=True),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=True),
        sa.Column("accelerator_id", ROW_ID, nullable=True),
        sa.Column("accelerators_per_node", sa.Integer(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=True),
        sa.Column("cpu_model", sa.Text(), nullable=True),
        sa.Column("features", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["accelerator_id"], ["accelerators.id"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["version_id"], ["cluster_versions.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("version_id", "name", name="uq_node_types_name"),
    )
    op.create_table(
        "queue_limits",
        sa.Column("queue_id", ROW_ID, autoincrement=False, nullable=False),
        sa.Column("max_walltime_s", sa.Float(), nullable=True),
        sa.Column("default_walltime_s", sa.Float(), nullable=True),
        sa.Column("min_nodes", sa.Integer(), nullable=False),
        sa.Column("max_nodes", sa.Integer(), nullable=True),
        sa.Column("max_cores_per_node", sa.Integer(), nullable=True),
        sa.Column("max_memory_bytes", sa.BigInteger(), nullable=True),
        sa.Column("max_jobs_user", sa.Integer(), nullable=True),
        sa.Column("max_submit_user", sa.Integer(), nullable=True),
        sa.Column("max_gpus_user", sa.Integer(), nullable=True),
        sa.Column("chaining_allowed", sa.Boolean(), nullable=False),
        sa.Column("allow_accounts", sa.JSON(), nullable=False),
        sa.Column("allow_qos", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["queue_id"], ["queues.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("queue_id"),
    )
    op.create_table(
        "queue_node_types",
        sa.Column("queue_id", ROW_ID, nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("node_type", sa.String(length=128), nullable=False),
        sa.ForeignKeyConstraint(["queue_id"], ["queues.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("queue_id", "position"),
    )
    # ### end Alembic commands ###


def downgrade() -> None:
    """Drop all tables."""
    op.drop_table("queue_node_types")
    op.drop_table("queue_limits")
    op.drop_table("node_types")
    op.drop_table("queues")
    op.drop_table("facts")
    op.drop_table("billing")
    op.drop_index("ix_accelerators_version", table_name="accelerators")
    op.drop_table("accelerators")
    op.drop_table("cluster_versions")
    op.drop_table("clusters")
    op.drop_table("user_facts")
    op.drop_table("systems")
    op.drop_table("overrides")
    op.drop_table("cluster_layers")
    op.drop_table("access_probes")
    op.drop_index("uq_events_once", table_name="events", sqlite_where=sa.text("seq > 0"), postgresql_where=sa.text("seq > 0"))
    op.drop_index("ix_events_run_id_row", table_name="events")
    op.drop_table("events")
    op.drop_index("ix_runs_owner_state", table_name="runs")
    op.drop_index("ix_runs_created_at", table_name="runs")
    op.drop_table("runs")
    op.drop_table("leases")
    op.drop_index("ix_history_place", table_name="history")
    op.drop_index("ix_history_finished_at", table_name="history")
    op.drop_index("ix_history_family", table_name="history")
    op.drop_table("history")
    # ### end Alembic commands ###
