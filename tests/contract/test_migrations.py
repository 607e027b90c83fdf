"""On PostgreSQL nothing is migrated behind an administrator's back, and the migrations build what the tables say."""

from __future__ import annotations

import threading

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from ischeduler.cidb.tables import METADATA as CIDB
from ischeduler.core.errors import ConfigError
from ischeduler.store.centre_tables import CENTRE
from ischeduler.store.engine import open_engine
from ischeduler.store.ingest_tables import METADATA as STORE
from ischeduler.store.mailbox_tables import AGENTS
from ischeduler.store.migrate import HEAD, migrate, revision
from ischeduler.store.pool_tables import POOLS
from ischeduler.store.sql_store import SqlStore
from ischeduler.testing.postgres import ThrowawayPostgres

pytestmark = pytest.mark.postgres


def test_an_empty_database_asks_for_the_upgrade_and_takes_it(postgres: ThrowawayPostgres):
    engine = open_engine(postgres.new_database())
    with pytest.raises(ConfigError, match="no tables of iScheduler yet; run: isched db upgrade"):
        SqlStore(engine)
    assert revision(engine) is None
    assert migrate(engine) == HEAD
    assert SqlStore(engine).list_runs() == []
    engine.dispose()


def test_migrations_and_tables_say_the_same(postgres: ThrowawayPostgres):
    assert {AGENTS.name, POOLS.name} <= set(STORE.tables)
    engine = open_engine(postgres.new_database())
    migrate(engine)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"target_metadata": [STORE, CIDB, CENTRE], "compare_type": True})
        assert compare_metadata(context, [STORE, CIDB, CENTRE]) == []  # pyright: ignore[reportArgumentType]
    engine.dispose()


def test_upgrades_at_once_wait_for_each_other(postgres: ThrowawayPostgres):
    url = postgres.new_database()
    reached: list[str | None] = []

    def upgrade() -> None:
        engine = open_engine(url)
        reached.append(migrate(engine))
        engine.dispose()

    threads = [threading.Thread(target=upgrade) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert reached == [HEAD] * 3
