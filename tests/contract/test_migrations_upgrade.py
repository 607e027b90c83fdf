"""Every earlier version's database, filled, comes up to date with all its rows; and a program of that version goes on working on
the newest tables beside a new one, as during an upgrade without downtime."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import JSON, Boolean, Engine, Float, Integer, LargeBinary, MetaData, Table, insert, select, update
from store_samples import run

from ischeduler.core.codec import to_plain
from ischeduler.core.run import RunState
from ischeduler.store.engine import WRITE, open_engine
from ischeduler.store.migrate import HEAD, known_revisions, migrate
from ischeduler.store.sql_store import SqlStore

APPEND_ONLY = {"audit"}
EARLIER = [r for r in known_revisions() if r != HEAD]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    place = tmp_path / "isched.db" if request.param == "sqlite" else request.getfixturevalue("postgres").new_database()
    engine = open_engine(place)
    yield engine
    engine.dispose()


class OldProgram:
    """What a program of one version knows: its own tables as that version made them, and one row for each."""

    def __init__(self, engine: Engine) -> None:
        self.metadata = MetaData()
        self.metadata.reflect(engine)
        self.tables = [t for t in self.metadata.sorted_tables if t.name not in ("alembic_version", "compatible")]

    def rows(self, number: int) -> dict[str, dict[str, Any]]:
        """One row a table that refers to the other rows of the same number."""
        made: dict[str, dict[str, Any]] = {}
        for table in self.tables:
            row = {c.name: self._value(c, number, made) for c in table.columns}
            made[table.name] = {**row, **self._run(number, row)} if table.name == "runs" else row
        return made

    def _value(self, column: Any, number: int, made: dict[str, dict[str, Any]]) -> Any:
        for key in column.foreign_keys:
            return made[key.column.table.name][key.column.name]
        kind = column.type
        if isinstance(kind, JSON):
            return {"number": number}
        if isinstance(kind, Boolean):
            return number % 2 == 0
        if isinstance(kind, (Integer, Float)):
            return number
        return f"v{number}".encode() if isinstance(kind, LargeBinary) else f"v{number}"

    def _run(self, number: int, row: dict[str, Any]) -> dict[str, Any]:
        doc = to_plain(run(row["id"], state=RunState.QUEUED))
        return {"owner": "alice", "state": "queued", "version": 1, "doc": doc}

    def write(self, engine: Engine, number: int) -> dict[str, dict[str, Any]]:
        rows = self.rows(number)
        with engine.execution_options(**WRITE).begin() as connection:
            for table in self.tables:
                connection.execute(insert(table), rows[table.name])
        return rows

    def change(self, engine: Engine) -> None:
        """Write every row anew, each column with what it holds."""
        with engine.execution_options(**WRITE).begin() as connection:
            for table in (t for t in self.tables if t.name not in APPEND_ONLY):
                for row in connection.execute(select(table)).mappings().all():
                    where = [c == row[c.name] for c in table.primary_key.columns]
                    assert connection.execute(update(table).where(*where).values(dict(row))).rowcount == 1

    def read(self, engine: Engine) -> dict[str, list[dict[str, Any]]]:
        with engine.connect() as connection:
            return {t.name: [dict(r) for r in connection.execute(_ordered(t)).mappings()] for t in self.tables}


def _ordered(table: Table) -> Any:
    return select(table).order_by(*table.primary_key.columns)


@pytest.mark.parametrize("version", EARLIER)
def test_every_row_of_an_earlier_version_is_there_after_the_upgrade(engine: Engine, version: str):
    assert migrate(engine, version) == version
    old = OldProgram(engine)
    assert {"runs", "events", "leases", "history"} <= {t.name for t in old.tables}
    for number in (1, 2):
        old.write(engine, number)
    before = old.read(engine)
    assert all(len(rows) == 2 for rows in before.values())
    assert migrate(engine) == HEAD
    assert old.read(engine) == before
    store = SqlStore(engine)
    assert sorted(r.id for r in store.list_runs(owner="alice")) == ["v1", "v2"]
    if version < "0003":
        assert list(store.due_clusters(1.0)) == ["pitzer"], "runs from before the leases are due, and known by their cluster"
        assert len(store.claim_runs("w", now=1.0, ttl_s=60.0, limit=9, clusters=["pitzer"])) == 2


@pytest.mark.parametrize("version", EARLIER)
def test_a_program_of_an_earlier_version_goes_on_beside_the_new_one(engine: Engine, version: str):
    migrate(engine, version)
    old = OldProgram(engine)
    old.write(engine, 1)
    migrate(engine)
    new = SqlStore(engine)
    new.create_run(run("r-new"))
    rows = old.write(engine, 2)
    old.change(engine)
    assert old.read(engine)["runs"][-1]["doc"] == rows["runs"]["doc"]
    assert {r.id for r in new.list_runs()} == {"r-new", "v1", "v2"}
    claims = new.claim_runs("w", now=1e10, ttl_s=60.0, limit=9)
    assert {c.run.id for c in claims} == {"r-new", "v1", "v2"}
    saved = new.save_claimed(claims[0], claims[0].run)
    assert any(r["id"] == saved.run.id and r["version"] == saved.run.version for r in old.read(engine)["runs"])
