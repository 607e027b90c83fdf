"""Row leases and due times of runs, each cluster's next look, workers' signs of life, and which programs may use the database."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_LIVE = sa.text("state NOT IN ('completed', 'failed', 'cancelled')")
_CLUSTER = {
    "postgresql": "COALESCE(doc->'attempts'->-1->>'cluster', doc->'plan'->>'cluster', '')",
    "sqlite": "COALESCE(json_extract(doc, '$.attempts[#-1].cluster'), json_extract(doc, '$.plan.cluster'), '')",
}


def upgrade() -> None:
    """Only additions, each with a default: a program of the version before goes on working on the new tables."""
    nothing, zero = sa.text("''"), sa.text("0")
    for column in (
        sa.Column("cluster", sa.String(128), nullable=False, server_default=nothing),
        sa.Column("due_at", sa.Float(), nullable=False, server_default=zero),
        sa.Column("lease_holder", sa.String(200), nullable=False, server_default=nothing),
        sa.Column("lease_token", sa.BigInteger(), nullable=False, server_default=zero),
        sa.Column("lease_expires_at", sa.Float(), nullable=False, server_default=zero),
    ):
        op.add_column("runs", column)
    op.execute(f"UPDATE runs SET cluster = {_CLUSTER[op.get_bind().dialect.name]}")
    op.create_index("ix_runs_due", "runs", ["due_at"], sqlite_where=_LIVE, postgresql_where=_LIVE)
    op.create_table(
        "looks", sa.Column("cluster", sa.String(128), primary_key=True), sa.Column("next_at", sa.Float(), nullable=False)
    )
    op.create_table(
        "workers",
        sa.Column("name", sa.String(200), primary_key=True),
        sa.Column("host", sa.String(200), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("started_at", sa.Float(), nullable=False),
        sa.Column("seen_at", sa.Float(), nullable=False),
        sa.Column("carried", sa.Integer(), nullable=False),
        sa.Column("looks", sa.JSON(), nullable=False),
    )
    compatible = op.create_table(
        "compatible",
        sa.Column("id", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("oldest", sa.String(32), nullable=False),
    )
    op.bulk_insert(compatible, [{"id": 1, "oldest": "0001"}])


def downgrade() -> None:
    """Back to one plane an owner."""
    for table in ("compatible", "workers", "looks"):
        op.drop_table(table)
    op.drop_index("ix_runs_due", table_name="runs")
    for column in ("lease_expires_at", "lease_token", "lease_holder", "due_at", "cluster"):
        op.drop_column("runs", column)
