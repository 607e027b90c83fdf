"""Each earlier database comes up to date with its rows, and the migrations build what the tables say."""

from __future__ import annotations

from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, inspect, text

from ischeduler.cidb.tables import METADATA as CIDB
from ischeduler.core.errors import ConfigError
from ischeduler.core.run import Run
from ischeduler.store import migrate as module
from ischeduler.store.centre_tables import CENTRE
from ischeduler.store.engine import WRITE, open_engine
from ischeduler.store.ingest_tables import METADATA as STORE
from ischeduler.store.mailbox_tables import AGENTS
from ischeduler.store.migrate import HEAD, alembic_config, known_revisions, migrate, prepare, revision
from ischeduler.store.pool_tables import POOLS
from ischeduler.store.sql_store import SqlStore


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return open_engine(tmp_path / "isched.db")


def test_the_head_known_in_code_is_the_newest_file():
    assert known_revisions()[-1] == HEAD


def test_migrations_and_tables_say_the_same(engine: Engine):
    assert {AGENTS.name, POOLS.name} <= set(STORE.tables)
    migrate(engine)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        context.opts["target_metadata"] = [STORE, CIDB, CENTRE]
        assert compare_metadata(context, [STORE, CIDB, CENTRE]) == []  # pyright: ignore[reportArgumentType]
    names = set(inspect(engine).get_table_names())
    assert names == set(STORE.tables) | set(CIDB.tables) | set(CENTRE.tables) | {"alembic_version"}


@pytest.mark.parametrize("start", [None, *known_revisions()])
def test_every_earlier_database_comes_up_to_date_and_keeps_its_rows(engine: Engine, some_run: Run, start: str | None):
    if start is not None:
        assert migrate(engine, start) == start
        insert = text(
            "INSERT INTO runs (id, owner, state, version, doc, created_at, updated_at) "
            "VALUES (:id, 'alice', 'planned', 1, :doc, 1.0, 1.0)"
        )
        from ischeduler.core.codec import dumps

        with engine.execution_options(**WRITE).begin() as connection:
            connection.execute(insert, {"id": some_run.id, "doc": dumps(some_run)})
    store = SqlStore(engine)
    assert revision(engine) == HEAD
    assert [r.id for r in store.list_runs()] == ([some_run.id] if start is not None else [])


def test_down_and_up_again(engine: Engine):
    from alembic import command

    migrate(engine)
    with engine.execution_options(**WRITE).begin() as connection:
        config = alembic_config()
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
    assert set(inspect(engine).get_table_names()) == {"alembic_version"}
    assert migrate(engine) == HEAD


def test_migrating_twice_changes_nothing(engine: Engine):
    assert migrate(engine) == migrate(engine) == HEAD


def test_a_migration_that_fails_leaves_no_half_database(engine: Engine, monkeypatch: pytest.MonkeyPatch):
    upgrade = module._upgrade

    def breaks(connection, target):
        upgrade(connection, target)
        raise RuntimeError("power cut")

    monkeypatch.setattr(module, "_upgrade", breaks)
    with pytest.raises(RuntimeError):
        migrate(engine)
    assert inspect(engine).get_table_names() == []


def upgraded_by_a_newer_program(engine: Engine, oldest: str) -> None:
    migrate(engine)
    with engine.execution_options(**WRITE).begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        connection.execute(text("UPDATE compatible SET oldest = :oldest"), {"oldest": oldest})


def test_a_database_of_a_newer_program_is_refused_with_the_way_out(engine: Engine):
    upgraded_by_a_newer_program(engine, "9000")
    with pytest.raises(ConfigError, match=r"written by a newer iScheduler \(version 9999\); update this program"):
        prepare(engine)


def test_two_versions_side_by_side_where_the_newer_one_says_so(engine: Engine, some_run: Run):
    upgraded_by_a_newer_program(engine, HEAD)
    store = SqlStore(engine)
    assert store.create_run(some_run).version == 1
    assert revision(engine) == "9999"
