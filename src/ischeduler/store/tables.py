"""Tables of runs, events, leases and history. The CI database's own tables are in :mod:`ischeduler.cidb.tables`."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
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
    text,
)

METADATA = MetaData()
ROW_ID = BigInteger().with_variant(Integer(), "sqlite")
"""SQLite counts up by itself in INTEGER keys only."""

RUNS = Table(
    "runs",
    METADATA,
    Column("id", String(64), primary_key=True),
    Column("owner", String(128), nullable=False),
    Column("state", String(32), nullable=False),
    Column("version", Integer, nullable=False),
    Column("doc", JSON, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("updated_at", Float, nullable=False),
    Column("project", String(64), nullable=False, server_default=text("''")),
    Column("cluster", String(128), nullable=False, server_default=text("''")),
    Column("due_at", Float, nullable=False, server_default=text("0")),
    Column("lease_holder", String(200), nullable=False, server_default=text("''")),
    Column("lease_token", BigInteger, nullable=False, server_default=text("0")),
    Column("lease_expires_at", Float, nullable=False, server_default=text("0")),
    Index("ix_runs_project", "project", "created_at"),
    Index("ix_runs_owner_state", "owner", "state"),
    Index("ix_runs_created_at", "created_at"),
)
"""One row a run: the whole run as JSON; beside it what queries need, its version for compare-and-swap, and who carries it until when."""
_LIVE = text("state NOT IN ('completed', 'failed', 'cancelled')")
Index("ix_runs_due", RUNS.c.due_at, sqlite_where=_LIVE, postgresql_where=_LIVE)

EVENTS = Table(
    "events",
    METADATA,
    Column("row", ROW_ID, primary_key=True, autoincrement=True),
    Column("run_id", String(64), ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    Column("source", String(32), nullable=False),
    Column("token", String(32), nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("kind", String(64), nullable=False),
    Column("at", Float, nullable=False),
    Column("data", JSON, nullable=False),
    Index("ix_events_run_id_row", "run_id", "row"),
    sqlite_autoincrement=True,
)
"""What happened, in order of arrival. A numbered event (``seq`` above 0) of one run, source and token is stored once."""
# seq 0 is an event without a number, always new; any other comes once, however often it arrives.
Index(
    "uq_events_once",
    EVENTS.c.run_id,
    EVENTS.c.source,
    EVENTS.c.token,
    EVENTS.c.seq,
    unique=True,
    sqlite_where=text("seq > 0"),
    postgresql_where=text("seq > 0"),
)

LEASES = Table(
    "leases",
    METADATA,
    Column("name", String(200), primary_key=True),
    Column("holder", String(200), nullable=False),
    Column("token", BigInteger, nullable=False),
    Column("expires_at", Float, nullable=False),
)
"""Who may act on what until when. The token grows with each new holder and never falls."""

HISTORY = Table(
    "history",
    METADATA,
    Column("id", ROW_ID, primary_key=True, autoincrement=True),
    Column("run_id", String(64), nullable=False),
    Column("kind", String(32), nullable=False),
    Column("finished_at", Float, nullable=False),
    Column("owner", String(128), nullable=False),
    Column("family", Text, nullable=False),
    Column("cluster", String(128), nullable=False),
    Column("partition", String(128), nullable=False),
    Column("doc", JSON, nullable=False),
    UniqueConstraint("run_id", "kind", "finished_at", name="uq_history_once"),
    Index("ix_history_finished_at", "finished_at"),
    Index("ix_history_family", "family"),
    Index("ix_history_place", "cluster", "partition", "kind"),
)
"""What attempts and runs really took: the evidence of estimates."""

LOOKS = Table(
    "looks",
    METADATA,
    Column("cluster", String(128), primary_key=True),
    Column("next_at", Float, nullable=False),
)

WORKERS = Table(
    "workers",
    METADATA,
    Column("name", String(200), primary_key=True),
    Column("host", String(200), nullable=False),
    Column("pid", Integer, nullable=False),
    Column("started_at", Float, nullable=False),
    Column("seen_at", Float, nullable=False),
    Column("carried", Integer, nullable=False),
    Column("looks", JSON, nullable=False),
)

COMPATIBLE = Table(
    "compatible",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("oldest", String(32), nullable=False),
)
