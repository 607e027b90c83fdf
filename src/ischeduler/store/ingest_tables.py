"""Tables of events on their way to the plane. Wide rows are avoided: an event refers to its lane by a number.

No foreign key from an event to its lane: checking one a row costs as much as writing it.
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from ischeduler.store.tables import METADATA, ROW_ID

_ZERO = text("0")

EVENT_LANES = Table(
    "event_lanes",
    METADATA,
    Column("lane", ROW_ID, primary_key=True, autoincrement=True),
    Column("run_id", String(64), ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    Column("source", String(64), nullable=False),
    Column("token", String(32), nullable=False),
    Column("position", BigInteger, nullable=False, server_default=_ZERO),
    Column("thinned_to", BigInteger, nullable=False, server_default=_ZERO),
    UniqueConstraint("run_id", "source", "token", name="uq_event_lanes"),
)
"""Where ``seq`` counts: one row for each (run, source, token). ``position`` grows with each batch that brought it news."""

JOB_EVENTS = Table(
    "job_events",
    METADATA,
    Column("lane", BigInteger, primary_key=True, autoincrement=False),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("position", BigInteger, nullable=False),
    Column("kind", String(64), nullable=False),
    Column("at", Float, nullable=False),
    Column("data", JSON, nullable=False),
    Index("ix_job_events_position", "lane", "position"),
)
"""What the plane reads."""

TELEMETRY = Table(
    "telemetry",
    METADATA,
    Column("lane", BigInteger, primary_key=True, autoincrement=False),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", String(64), nullable=False),
    Column("at", Float, nullable=False),
    Column("data", JSON, nullable=False),
)
"""What only people and curves read: performance and utilisation, thinned with age."""

EVENT_CHANNELS = Table(
    "event_channels",
    METADATA,
    Column("name", String(200), primary_key=True),
    Column("holder", String(200), nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("incarnation", String(64), nullable=False, server_default=text("''")),
)
"""How far each partition or spool was read, written in the transaction of what was read, and who may write it."""

DEAD_LETTERS = Table(
    "dead_letters",
    METADATA,
    Column("id", ROW_ID, primary_key=True, autoincrement=True),
    Column("channel", String(200), nullable=False),
    Column("run_id", String(64), nullable=False),
    Column("reason", Text, nullable=False),
    Column("payload", LargeBinary, nullable=False),
    Column("payload_bytes", Integer, nullable=False),
    Column("received_at", Float, nullable=False),
    Index("ix_dead_letters_received_at", "received_at"),
)
"""Messages that were no events; ``payload`` holds their beginning."""
