"""The table of pools."""

from __future__ import annotations

from sqlalchemy import JSON, Column, Float, Integer, String, Table

from ischeduler.store.tables import METADATA

POOLS = Table(
    "pools",
    METADATA,
    Column("owner", String(128), primary_key=True),
    Column("name", String(64), primary_key=True),
    Column("version", Integer, nullable=False),
    Column("doc", JSON, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("updated_at", Float, nullable=False),
)
"""One row a pool: the whole pool as JSON, and its version for compare-and-swap. Names are an owner's own."""
