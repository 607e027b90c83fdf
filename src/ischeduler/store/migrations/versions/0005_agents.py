"""The mailbox of agents: who is there, and what was asked of them."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "agents",
        sa.Column("owner", sa.String(128), primary_key=True),
        sa.Column("cluster", sa.String(128), primary_key=True),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("seen_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
    )
    op.create_table(
        "agent_requests",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("owner", sa.String(128), nullable=False),
        sa.Column("cluster", sa.String(128), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("agent", sa.String(200), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.Column("answer", sa.JSON(), nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_agent_requests_box", "agent_requests", ["owner", "cluster", "state", "id"])
    op.create_index("ix_agent_requests_expires_at", "agent_requests", ["expires_at"])


def downgrade() -> None:
    """Forget the agents."""
    op.drop_table("agent_requests")
    op.drop_table("agents")
