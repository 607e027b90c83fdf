"""Tables of the agents' mailbox."""

from __future__ import annotations

from sqlalchemy import JSON, Column, Float, Index, String, Table

from ischeduler.store.tables import METADATA, ROW_ID

AGENTS = Table(
    "agents",
    METADATA,
    Column("owner", String(128), primary_key=True),
    Column("cluster", String(128), primary_key=True),
    Column("name", String(200), nullable=False),
    Column("seen_at", Float, nullable=False),
    Column("expires_at", Float, nullable=False),
)
"""The one agent of an owner on a cluster, alive until ``expires_at`` unless it comes again."""

AGENT_REQUESTS = Table(
    "agent_requests",
    METADATA,
    Column("id", ROW_ID, primary_key=True, autoincrement=True),
    Column("owner", String(128), nullable=False),
    Column("cluster", String(128), nullable=False),
    Column("kind", String(32), nullable=False),
    Column("body", JSON, nullable=False),
    Column("state", String(16), nullable=False),
    Column("agent", String(200), nullable=False),
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float, nullable=False),
    Column("answer", JSON, nullable=False),
    Index("ix_agent_requests_box", "owner", "cluster", "state", "id"),
    Index("ix_agent_requests_expires_at", "expires_at"),
    sqlite_autoincrement=True,
)
"""``state``: waiting, taken (an agent has it, or had it when it died), answered, withdrawn (nobody will ever do it)."""
