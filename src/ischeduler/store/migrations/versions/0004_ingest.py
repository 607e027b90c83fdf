"""Events on their way in: lanes, what the plane reads, telemetry, how far each channel was read, and what was refused."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make the tables."""
    _lanes()
    _events()
    op.create_table(
        "event_channels",
        sa.Column("name", sa.String(200), primary_key=True),
        sa.Column("holder", sa.String(200), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("incarnation", sa.String(64), nullable=False, server_default=sa.text("''")),
    )
    op.create_table(
        "dead_letters",
        sa.Column("id", ROW_ID, primary_key=True, autoincrement=True),
        sa.Column("channel", sa.String(200), nullable=False),
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.Column("payload_bytes", sa.Integer(), nullable=False),
        sa.Column("received_at", sa.Float(), nullable=False),
    )
    op.create_index("ix_dead_letters_received_at", "dead_letters", ["received_at"])
    if op.get_bind().dialect.name == "postgresql":  # room in each page, so that counting up a lane writes no index
        op.execute("ALTER TABLE event_lanes SET (fillfactor = 50)")


def _lanes() -> None:
    op.create_table(
        "event_lanes",
        sa.Column("lane", ROW_ID, primary_key=True, autoincrement=True),
        sa.Column("run_id", sa.String(64), sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
        sa.Column("source", sa.String(64), nullable=False),
        sa.Column("token", sa.String(32), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False, server_default=sa.text("0")),
        sa.Column("thinned_to", sa.BigInteger(), nullable=False, server_default=sa.text("0")),
        sa.UniqueConstraint("run_id", "source", "token", name="uq_event_lanes"),
    )


def _events() -> None:
    op.create_table(
        "job_events",
        sa.Column("lane", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("seq", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(64), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
    )
    op.create_index("ix_job_events_position", "job_events", ["lane", "position"])
    op.create_table(
        "telemetry",
        sa.Column("lane", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("seq", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("kind", sa.String(64), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
    )


def downgrade() -> None:
    """Drop them: what the plane has not read yet is lost to it."""
    for table in ("dead_letters", "event_channels", "telemetry", "job_events", "event_lanes"):
        op.drop_table(table)
