"""People, projects, tokens, sessions, the audit log, idempotency keys, kept plans and workloads, webhooks; a run's project."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_TABLES = (
    "webhooks", "workloads", "plans", "idempotency", "audit", "one_time", "sessions", "tokens", "memberships", "projects",
    "identities", "users",
)  # fmt: skip


def upgrade() -> None:
    """Make the tables; the audit log takes rows and gives none back."""
    _people()
    _secrets()
    _requests()
    op.add_column("runs", sa.Column("project", sa.String(64), nullable=False, server_default=sa.text("''")))
    op.create_index("ix_runs_project", "runs", ["project", "created_at"])
    _append_only()


def _people() -> None:
    op.create_table(
        "users",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("display_name", sa.String(200), nullable=False),
        sa.Column("email", sa.String(320), nullable=False),
        sa.Column("roles", sa.JSON(), nullable=False),
        sa.Column("disabled", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("seen_at", sa.Float(), nullable=True),
    )
    op.create_table(
        "identities",
        sa.Column("issuer", sa.String(300), primary_key=True),
        sa.Column("subject", sa.String(300), primary_key=True),
        sa.Column("user", sa.String(64), sa.ForeignKey("users.name", ondelete="CASCADE"), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
    )
    op.create_index("ix_identities_user", "identities", ["user"])
    op.create_table(
        "projects",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("title", sa.String(200), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
    )
    op.create_table(
        "memberships",
        sa.Column("project", sa.String(64), sa.ForeignKey("projects.name", ondelete="CASCADE"), primary_key=True),
        sa.Column("user", sa.String(64), sa.ForeignKey("users.name", ondelete="CASCADE"), primary_key=True),
        sa.Column("admin", sa.Boolean(), nullable=False),
    )
    op.create_index("ix_memberships_user", "memberships", ["user"])


def _secrets() -> None:
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("user", sa.String(64), nullable=False),
        sa.Column("run_id", sa.String(64), nullable=True),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("label", sa.String(200), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.Column("used_at", sa.Float(), nullable=True),
        sa.Column("revoked_at", sa.Float(), nullable=True),
    )
    op.create_index("ix_tokens_user", "tokens", ["user"])
    op.create_index("ix_tokens_run_id", "tokens", ["run_id"])
    op.create_table(
        "sessions",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("user", sa.String(64), nullable=False),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
    )
    op.create_index("ix_sessions_user", "sessions", ["user"])
    op.create_table(
        "one_time",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("purpose", sa.String(32), nullable=False),
        sa.Column("doc", sa.JSON(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
    )
    op.create_table(
        "audit",
        sa.Column("row", ROW_ID, primary_key=True, autoincrement=True),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("who", sa.String(64), nullable=False),
        sa.Column("token_id", sa.String(32), nullable=False),
        sa.Column("origin", sa.String(64), nullable=False),
        sa.Column("what", sa.String(64), nullable=False),
        sa.Column("about", sa.String(300), nullable=False),
        sa.Column("outcome", sa.String(32), nullable=False),
        sa.Column("detail", sa.JSON(), nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_audit_who", "audit", ["who", "row"])


def _requests() -> None:
    op.create_table(
        "idempotency",
        sa.Column("user", sa.String(64), primary_key=True),
        sa.Column("key", sa.String(200), primary_key=True),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("headers", sa.JSON(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
    )
    op.create_index("ix_idempotency_expires_at", "idempotency", ["expires_at"])
    op.create_table(
        "plans",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("owner", sa.String(64), nullable=False),
        sa.Column("made_at", sa.Float(), nullable=False),
        sa.Column("doc", sa.JSON(), nullable=False),
    )
    op.create_index("ix_plans_owner", "plans", ["owner", "made_at"])
    op.create_table(
        "workloads",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("owner", sa.String(64), nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("doc", sa.JSON(), nullable=False),
        sa.UniqueConstraint("owner", "name", name="uq_workloads_name"),
    )
    op.create_table(
        "webhooks",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("owner", sa.String(64), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("kinds", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("cursor", sa.BigInteger(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("next_try_at", sa.Float(), nullable=False),
        sa.Column("paused", sa.Boolean(), nullable=False),
        sa.Column("last_error", sa.String(300), nullable=False),
    )
    op.create_index("ix_webhooks_owner", "webhooks", ["owner"])
    op.create_index("ix_webhooks_due", "webhooks", ["paused", "next_try_at"])


def _append_only() -> None:
    """No statement changes or removes a line of the audit log, whoever sends it through this database's tables."""
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            "CREATE FUNCTION isched_audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'the audit log is append-only'; END $$"
        )
        op.execute(
            "CREATE TRIGGER audit_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit "
            "FOR EACH STATEMENT EXECUTE FUNCTION isched_audit_is_append_only()"
        )
        return
    for verb in ("UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER audit_append_only_{verb.lower()} BEFORE {verb} ON audit "
            "BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END"
        )


def downgrade() -> None:
    """Drop the tables."""
    op.drop_index("ix_runs_project", table_name="runs")
    with op.batch_alter_table("runs") as runs:
        runs.drop_column("project")
    postgresql = op.get_bind().dialect.name == "postgresql"
    for name in _TABLES:
        op.drop_table(name)
    if postgresql:
        op.execute("DROP FUNCTION isched_audit_is_append_only()")
