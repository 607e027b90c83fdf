"""Copies of the database, on real SQLite and PostgreSQL: the same rows come back, and nothing is ever overwritten."""

from __future__ import annotations

import os
import shutil
import stat
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import inspect, text
from store_samples import event as sample_event
from store_samples import record as sample_record
from store_samples import run as sample_run

from ischeduler.core.errors import BadInput, ConfigError, StoreUnavailable
from ischeduler.helper import backup_postgresql
from ischeduler.helper.backup import backup, kind_of, restore
from ischeduler.store.engine import open_engine
from ischeduler.store.migrate import migrate
from ischeduler.store.sql_store import SqlStore
from ischeduler.testing.postgres import ThrowawayPostgres

NewDatabase = Callable[[], str]
RUNS = 40


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def new_database(request: pytest.FixtureRequest, tmp_path: Path) -> NewDatabase:
    """Each call gives the URL of an empty database; on PostgreSQL a whole one, as pg_dump takes it."""
    if request.param == "sqlite":
        return lambda: str(tmp_path / f"{uuid4().hex[:8]}.db")
    server: ThrowawayPostgres = request.getfixturevalue("postgres")
    if not shutil.which("pg_dump"):
        pytest.skip("pg_dump is not installed; scripts/install-postgres brings it")

    def create() -> str:
        import psycopg

        name = f"b{uuid4().hex[:10]}"
        with psycopg.connect(host=str(server.folder), user="isched", dbname="postgres", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return f"postgresql+psycopg://isched:s3cret-pw@/{name}?host={server.folder}"

    return create


def filled(url: str) -> SqlStore:
    """A database with runs, events and evidence in it."""
    engine = open_engine(url)
    migrate(engine)
    store = SqlStore(engine)
    for number in range(RUNS):
        run = store.create_run(sample_run(f"r-{number:03d}", owner="alice" if number % 2 else "bob"))
        store.save_run(run, [sample_event(run.id, seq=s) for s in range(1, 4)])
        store.record(replace(sample_record(), run_id=run.id))
    return store


def contents(url: str) -> dict[str, list[tuple[object, ...]]]:
    """Every row of every table."""
    engine = open_engine(url)
    with engine.connect() as connection:
        names = sorted(inspect(connection).get_table_names())
        found = {n: sorted(tuple(map(str, row)) for row in connection.execute(text(f'SELECT * FROM "{n}"'))) for n in names}
    engine.dispose()
    return found


def test_what_comes_back_is_what_was_there(new_database: NewDatabase, tmp_path: Path) -> None:
    url, other, file = new_database(), new_database(), tmp_path / "copy"
    store = filled(url)
    copy = backup(url, file)
    assert copy.tables["runs"] == RUNS
    assert copy.tables["events"] == 3 * RUNS
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []
    again = restore(other, file)
    assert again.tables == copy.tables
    assert contents(other) == contents(url)
    assert repr(SqlStore(other).get_run("r-007")) == repr(store.get_run("r-007"))
    fresh = SqlStore(other)
    run = fresh.get_run("r-007")
    fresh.save_run(run, [sample_event(run.id, seq=9)])
    assert len(fresh.events(run.id)) == 4, "row numbers go on after the restored ones"


def test_a_copy_is_of_one_instant_while_others_write(new_database: NewDatabase, tmp_path: Path) -> None:
    url, other = new_database(), new_database()
    store = filled(url)
    stop = threading.Event()

    def write() -> None:
        """Each save adds an event and a version in one transaction: a copy between the two would differ."""
        while not stop.is_set():
            run = store.get_run("r-000")
            store.save_run(run, [sample_event(run.id, seq=run.version + 100)])

    writer = threading.Thread(target=write)
    writer.start()
    try:
        backup(url, tmp_path / "copy")
    finally:
        stop.set()
        writer.join()
    restore(other, tmp_path / "copy")
    found = SqlStore(other)
    assert len(found.events("r-000")) - 3 == found.get_run("r-000").version - 2


def test_nothing_is_overwritten(new_database: NewDatabase, tmp_path: Path) -> None:
    url = new_database()
    filled(url)
    (tmp_path / "precious").write_text("precious")
    with pytest.raises(BadInput, match="not overwritten"):
        backup(url, tmp_path / "precious")
    assert (tmp_path / "precious").read_text() == "precious"
    backup(url, tmp_path / "copy")
    with pytest.raises(StoreUnavailable, match="not empty"):
        restore(url, tmp_path / "copy")
    with pytest.raises(BadInput, match="no folder"):
        backup(url, tmp_path / "nowhere" / "copy")


def test_a_damaged_copy_is_told_and_not_restored(new_database: NewDatabase, tmp_path: Path) -> None:
    url, other, file = new_database(), new_database(), tmp_path / "copy"
    filled(url)
    backup(url, file)
    whole = file.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole[: len(whole) // 2] + os.urandom(len(whole) // 4) + whole[3 * len(whole) // 4 :]):
        file.write_bytes(damaged)
        with pytest.raises((StoreUnavailable, BadInput)):
            restore(other, file)
        assert contents(other) == {}
    file.write_bytes(b"not a database at all")
    with pytest.raises(BadInput, match="no copy of a database"):
        restore(other, file)
    with pytest.raises(BadInput, match="cannot be read"):
        restore(other, tmp_path / "missing")


def test_a_copy_of_a_newer_program_is_refused(new_database: NewDatabase, tmp_path: Path) -> None:
    url, other = new_database(), new_database()
    store = filled(url)
    with store.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    backup(url, tmp_path / "copy")
    with pytest.raises(ConfigError, match="newer iScheduler"):
        restore(other, tmp_path / "copy")
    assert contents(other) == {}


def test_an_empty_database_is_not_worth_a_copy(new_database: NewDatabase, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing to copy"):
        backup(new_database(), tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_folder_keeps_the_newest(new_database: NewDatabase, tmp_path: Path) -> None:
    url, folder = new_database(), tmp_path / "copies"
    filled(url)
    folder.mkdir()
    for name in ("ischeduler-20200101-000000.sqlite", "ischeduler-20200102-000000.pgdump", "something-else"):
        (folder / name).write_text("old")
    copy = backup(url, folder, keep=2)
    assert copy.removed == ("ischeduler-20200101-000000.sqlite",)
    assert sorted(p.name for p in folder.iterdir()) == sorted(["ischeduler-20200102-000000.pgdump", "something-else", Path(copy.path).name])
    assert kind_of(Path(copy.path)) == copy.kind


@pytest.mark.postgres
def test_the_password_is_in_a_private_file_and_on_no_command_line(postgres: ThrowawayPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spy = tmp_path / "spy"
    spy.write_text(f'#!/bin/sh\nprintf "%s\\n" "$0" "$@" > {tmp_path}/argv\nenv > {tmp_path}/env\ncp -p "$PGPASSFILE" {tmp_path}/pass\n')
    spy.chmod(0o755)
    monkeypatch.setattr(backup_postgresql, "_program", lambda name: str(spy))
    monkeypatch.setenv("PGPASSWORD", "another-s3cret")
    url = open_engine("postgresql+psycopg://isched:s3c:ret%20pw@db.example/centre?sslmode=require").url
    backup_postgresql.dump(url, tmp_path / "out", "snap")
    said = (tmp_path / "argv").read_text()
    assert "s3c" not in said
    assert "s3c" not in (tmp_path / "env").read_text()
    assert "sslmode='require'" in said
    assert (tmp_path / "pass").read_text() == "*:*:*:*:s3c\\:ret pw\n"
    assert stat.S_IMODE((tmp_path / "pass").stat().st_mode) == 0o600
    with pytest.raises(BadInput, match="in its query"):
        backup_postgresql.dump(open_engine("postgresql+psycopg://u@/d?password=x").url, tmp_path / "o", "s")


def test_a_copy_goes_only_into_its_own_kind(tmp_path: Path) -> None:
    filled(str(tmp_path / "a.db"))
    backup(str(tmp_path / "a.db"), tmp_path / "copy")
    with pytest.raises(BadInput, match="like into like"):
        restore("postgresql+psycopg://u@/d?host=/nonexistent", tmp_path / "copy")
