"""Tables that a centre's service needs beside the runs: people, what they may do, and what was asked of the service."""

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

CENTRE = MetaData()
ROW_ID = BigInteger().with_variant(Integer(), "sqlite")

USERS = Table(
    "users",
    CENTRE,
    Column("name", String(64), primary_key=True),
    Column("display_name", String(200), nullable=False),
    Column("email", String(320), nullable=False),
    Column("roles", JSON, nullable=False),
    Column("disabled", Boolean, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("seen_at", Float, nullable=True),
)

IDENTITIES = Table(
    "identities",
    CENTRE,
    Column("issuer", String(300), primary_key=True),
    Column("subject", String(300), primary_key=True),
    Column("user", String(64), ForeignKey("users.name", ondelete="CASCADE"), nullable=False),
    Column("created_at", Float, nullable=False),
    Index("ix_identities_user", "user"),
)

PROJECTS = Table(
    "projects",
    CENTRE,
    Column("name", String(64), primary_key=True),
    Column("title", String(200), nullable=False),
    Column("created_at", Float, nullable=False),
)

MEMBERSHIPS = Table(
    "memberships",
    CENTRE,
    Column("project", String(64), ForeignKey("projects.name", ondelete="CASCADE"), primary_key=True),
    Column("user", String(64), ForeignKey("users.name", ondelete="CASCADE"), primary_key=True),
    Column("admin", Boolean, nullable=False),
    Index("ix_memberships_user", "user"),
)

TOKENS = Table(
    "tokens",
    CENTRE,
    Column("id", String(32), primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("user", String(64), nullable=False),
    Column("run_id", String(64), nullable=True),
    Column("digest", String(64), nullable=False),
    Column("scopes", JSON, nullable=False),
    Column("label", String(200), nullable=False),
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float, nullable=False),
    Column("used_at", Float, nullable=True),
    Column("revoked_at", Float, nullable=True),
    Index("ix_tokens_user", "user"),
    Index("ix_tokens_run_id", "run_id"),
)

SESSIONS = Table(
    "sessions",
    CENTRE,
    Column("digest", String(64), primary_key=True),
    Column("user", String(64), nullable=False),
    Column("scopes", JSON, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float, nullable=False),
    Index("ix_sessions_user", "user"),
)

ONE_TIME = Table(
    "one_time",
    CENTRE,
    Column("digest", String(64), primary_key=True),
    Column("purpose", String(32), nullable=False),
    Column("doc", JSON, nullable=False),
    Column("expires_at", Float, nullable=False),
)

AUDIT = Table(
    "audit",
    CENTRE,
    Column("row", ROW_ID, primary_key=True, autoincrement=True),
    Column("at", Float, nullable=False),
    Column("who", String(64), nullable=False),
    Column("token_id", String(32), nullable=False),
    Column("origin", String(64), nullable=False),
    Column("what", String(64), nullable=False),
    Column("about", String(300), nullable=False),
    Column("outcome", String(32), nullable=False),
    Column("detail", JSON, nullable=False),
    Index("ix_audit_who", "who", "row"),
    sqlite_autoincrement=True,
)

IDEMPOTENCY = Table(
    "idempotency",
    CENTRE,
    Column("user", String(64), primary_key=True),
    Column("key", String(200), primary_key=True),
    Column("digest", String(64), nullable=False),
    Column("status", Integer, nullable=True),
    Column("headers", JSON, nullable=False),
    Column("body", Text, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float, nullable=False),
    Index("ix_idempotency_expires_at", "expires_at"),
)

PLANS = Table(
    "plans",
    CENTRE,
    Column("id", String(32), primary_key=True),
    Column("owner", String(64), nullable=False),
    Column("made_at", Float, nullable=False),
    Column("doc", JSON, nullable=False),
    Index("ix_plans_owner", "owner", "made_at"),
)

WORKLOADS = Table(
    "workloads",
    CENTRE,
    Column("id", String(32), primary_key=True),
    Column("owner", String(64), nullable=False),
    Column("name", String(200), nullable=False),
    Column("created_at", Float, nullable=False),
    Column("doc", JSON, nullable=False),
    UniqueConstraint("owner", "name", name="uq_workloads_name"),
)

WEBHOOKS = Table(
    "webhooks",
    CENTRE,
    Column("id", String(32), primary_key=True),
    Column("owner", String(64), nullable=False),
    Column("url", Text, nullable=False),
    Column("kinds", JSON, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("cursor", BigInteger, nullable=False),
    Column("failures", Integer, nullable=False),
    Column("next_try_at", Float, nullable=False),
    Column("paused", Boolean, nullable=False),
    Column("last_error", String(300), nullable=False),
    Index("ix_webhooks_owner", "owner"),
    Index("ix_webhooks_due", "paused", "next_try_at"),
)
