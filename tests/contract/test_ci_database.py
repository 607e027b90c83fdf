"""The CI database on SQLite and PostgreSQL: layers, versions, edits, one user's facts, and many processes at once."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from ischeduler.cidb.catalog import load_catalog
from ischeduler.cidb.ci_database import CIDatabase
from ischeduler.cidb.provenance import EDITED, LIVE, WHOLE, origin
from ischeduler.core.cluster import Access, Cluster, NodeType, Partition, Provenance
from ischeduler.core.errors import BadInput, NotFound
from ischeduler.core.sizes import GIB
from ischeduler.store.engine import open_engine
from ischeduler.store.migrate import migrate

NOW = 1_790_000_000.0


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    url = tmp_path / "isched.db" if request.param == "sqlite" else request.getfixturevalue("postgres").new_database()
    made = open_engine(url)
    migrate(made)
    yield made
    made.dispose()


@pytest.fixture
def ticks() -> Callable[[], float]:
    now = [NOW]

    def tick() -> float:
        now[0] += 1.0
        return now[0]

    return tick


@pytest.fixture
def database(engine: Engine, ticks: Callable[[], float]) -> CIDatabase:
    return CIDatabase(engine, user="alice", clock=ticks)


def seen(*, wall_s: float = 3600.0, as_of: float = NOW, account: str = "research") -> Cluster:
    node = NodeType("cpu-48c-178g", 48, 178 * GIB, count=7)
    return Cluster(
        "pitzer",
        version="22.05.8",
        partitions=(
            Partition("gpu", (node.name,), wall_s, access=Access(True, "accepted", as_of)),
            Partition("own", (node.name,)),
        ),
        node_types=(node,),
        accounts=(account,),
        default_account=account,
        user_max_submit=5,
        provenance={WHOLE: Provenance("scontrol", as_of, LIVE)},
        as_of=as_of,
    )


def test_the_catalog_comes_back_as_it_was_written(database: CIDatabase):
    names = database.load_catalog()
    assert database.clusters() == sorted(load_catalog(), key=lambda c: c.name)
    assert names == [c.name for c in database.clusters()]
    assert database.load_catalog() == []
    assert [v.number for v in database.versions("pitzer")] == [1]


def test_an_unknown_cluster_names_the_known(database: CIDatabase):
    with pytest.raises(NotFound, match="known are none"):
        database.get("pitzer")
    database.load_catalog()
    with pytest.raises(NotFound, match=r"no cluster 'x'; known are anvil, ascend"):
        database.get("x")
    with pytest.raises(NotFound, match="pitzer has no version 9; the newest is 1"):
        database.get("pitzer", 9)


def test_each_change_makes_a_version_and_old_ones_stay(database: CIDatabase):
    database.load_catalog()
    database.edit("pitzer", {"charge.usd_per_unit": 0.004})
    database.sync("pitzer", seen())
    assert [v.number for v in database.versions("pitzer")] == [1, 2, 3]
    assert [v.made_at for v in database.versions("pitzer")] == sorted(v.made_at for v in database.versions("pitzer"))
    assert database.get("pitzer", 1) == next(c for c in load_catalog() if c.name == "pitzer")
    assert database.get("pitzer", 2).charge.usd_per_unit == 0.004
    newest = database.get("pitzer")
    assert [p.name for p in newest.partitions] == ["gpu", "own"]
    assert newest.charge.usd_per_unit == 0.004
    assert "edited by alice" in database.versions("pitzer")[1].source


def test_a_sync_without_news_refreshes_dates_only(database: CIDatabase):
    database.load_catalog()
    database.sync("pitzer", seen())
    count = len(database.versions("pitzer"))
    again = database.sync("pitzer", seen(as_of=NOW + 99))
    assert len(database.versions("pitzer")) == count
    source = origin(again, "partitions.gpu.max_walltime_s")
    assert source is not None
    assert (source.as_of, again.as_of) == (NOW + 99, NOW + 99)
    database.sync("pitzer", seen(wall_s=60.0))
    assert len(database.versions("pitzer")) == count + 1


def test_edits_win_and_can_be_undone(database: CIDatabase):
    database.load_catalog()
    edited = database.edit("pitzer", {"partitions.gpu.max_walltime_s": "1h", "partitions.gpu.note": "mine"}, author="eve")
    assert edited.partition("gpu").max_walltime_s == 3600.0
    source = origin(edited, "partitions.gpu.max_walltime_s")
    assert source is not None
    assert (source.confidence, source.source) == (EDITED, "edited by user eve")
    synced = database.sync("pitzer", seen(wall_s=7200.0))
    assert synced.partition("gpu").max_walltime_s == 3600.0
    assert [e.path for e in database.edits("pitzer")] == ["partitions.gpu.max_walltime_s", "partitions.gpu.note"]
    after = database.revert("pitzer", ["partitions.gpu.max_walltime_s"])
    assert (after.partition("gpu").max_walltime_s, after.partition("gpu").note[:4]) == (7200.0, "mine")
    assert database.revert("pitzer").partition("gpu").note != "mine"
    assert database.edits("pitzer") == []


def test_an_edit_to_unknown_survives_the_database(database: CIDatabase):
    database.load_catalog()
    assert database.edit("pitzer", {"charge.usd_per_unit": "unknown"}).charge.usd_per_unit is None
    assert database.edits("pitzer")[0].value is None


def test_a_wrong_edit_changes_nothing(database: CIDatabase):
    database.load_catalog()
    with pytest.raises(BadInput, match="not a duration"):
        database.edit("pitzer", {"charge.usd_per_unit": 1, "partitions.gpu.max_walltime_s": "soon"})
    with pytest.raises(NotFound):
        database.edit("nowhere", {"charge.usd_per_unit": 1})
    assert database.get("pitzer").charge.usd_per_unit == 0.003
    assert len(database.versions("pitzer")) == 1


def test_an_edited_export_becomes_edits(database: CIDatabase):
    database.load_catalog()
    before = database.export_yaml("pitzer")
    assert database.edit_text("pitzer", before) == database.get("pitzer")
    assert database.edits("pitzer") == []
    database.edit_text("pitzer", before.replace("usd_per_unit: 0.003", "usd_per_unit: 0.005"))
    assert [(e.path, e.value) for e in database.edits("pitzer")] == [("charge.usd_per_unit", 0.005)]
    with pytest.raises(BadInput, match=r"pitzer\.yaml"):
        database.edit_text("pitzer", before.replace("usd_per_unit: 0.003", "usd_per_unit: cheap"))


def test_what_is_exported_can_be_imported_elsewhere(database: CIDatabase):
    database.load_catalog()
    exported = database.export_yaml("delta").replace("name: delta", "name: lab", 1)
    lab = database.import_yaml(exported)
    assert replace(lab, name="delta") == database.get("delta")
    with pytest.raises(BadInput):
        database.import_yaml("name: 3")


def test_an_import_is_not_overwritten_by_the_shipped_catalog(database: CIDatabase):
    database.load_catalog()
    mine = replace(database.get("vista"), centre="Mine")
    database.save(mine, "by hand")
    assert database.load_catalog() == []
    assert database.get("vista").centre == "Mine"


def test_a_shipped_definition_that_changed_is_taken_again_under_live_facts(engine: Engine, database: CIDatabase):
    database.load_catalog()
    database.sync("pitzer", seen())
    with engine.begin() as connection:
        connection.execute(text("UPDATE cluster_layers SET digest = 'older' WHERE kind = 'catalog' AND cluster = 'pitzer'"))
    assert database.load_catalog() == ["pitzer"]
    assert [p.name for p in database.get("pitzer").partitions] == ["gpu", "own"]


def test_accounts_and_access_are_each_users_own(engine: Engine, database: CIDatabase):
    bob = CIDatabase(engine, user="bob")
    database.load_catalog()
    database.sync("pitzer", seen())
    bob.sync("pitzer", replace(seen(account="physics"), partitions=tuple(replace(p, access=None) for p in seen().partitions)))
    assert database.get("pitzer").accounts == ("research",)
    assert bob.get("pitzer").accounts == ("physics",)
    assert (bob.get("pitzer").default_account, bob.get("pitzer").user_max_submit) == ("physics", 5)
    access = database.get("pitzer").partition("gpu").access
    assert access == Access(True, "accepted", NOW)
    assert bob.get("pitzer").partition("gpu").access is None
    assert CIDatabase(engine).get("pitzer").accounts == ()
    assert len(database.versions("pitzer")) == 2


def test_a_live_cluster_without_a_definition_takes_the_rules_of_another(database: CIDatabase):
    database.load_catalog()
    plain = database.sync("nameless", seen())
    assert (plain.name, plain.charge.rule) == ("nameless", "free")
    like = database.sync("sandbox", seen(), like="pitzer")
    assert (like.name, like.charge.usd_per_unit) == ("sandbox", 0.003)
    assert database.sync("sandbox", seen(wall_s=9.0), like="ascend").charge.usd_per_unit == 0.003
    with pytest.raises(NotFound):
        database.sync("other", seen(), like="nowhere")


def test_stale_facts_are_said(database: CIDatabase):
    database.load_catalog()
    database.sync("pitzer", seen())
    kinds = {(w.cluster, w.kind) for w in database.stale(NOW + 8 * 86400)}
    assert ("pitzer", "live") in kinds
    assert ("pitzer", "probe") in kinds
    assert ("expanse", "catalog") in kinds
    assert ("pitzer", "live") not in {(w.cluster, w.kind) for w in database.stale(NOW + 60)}


def test_a_removed_cluster_is_gone_with_all_its_rows(engine: Engine, database: CIDatabase):
    database.save(replace(seen(), name="lab"), "by hand")
    database.edit("lab", {"partitions.gpu.note": "x"})
    database.remove("lab")
    with pytest.raises(NotFound):
        database.get("lab")
    tables = (
        "clusters",
        "cluster_versions",
        "queues",
        "queue_limits",
        "node_types",
        "billing",
        "facts",
        "overrides",
        "cluster_layers",
    )
    with engine.connect() as connection:
        assert {connection.execute(text(f"SELECT count(*) FROM {t}")).scalar() for t in tables} == {0}
    with pytest.raises(NotFound):
        database.remove("lab")


def test_limits_can_be_asked_in_sql(engine: Engine, database: CIDatabase):
    database.load_catalog()
    question = """
        SELECT c.name, q.name FROM clusters c
        JOIN cluster_versions v ON v.cluster_id = c.id AND v.number = c.current_version
        JOIN queues q ON q.version_id = v.id JOIN queue_limits l ON l.queue_id = q.id
        JOIN queue_node_types u ON u.queue_id = q.id
        JOIN node_types n ON n.version_id = v.id AND n.name = u.node_type
        JOIN accelerators a ON a.id = n.accelerator_id
        WHERE a.memory_bytes >= 90 * 1073741824.0 AND l.max_walltime_s <= 7200 ORDER BY 1, 2
    """
    with engine.connect() as connection:
        found = [tuple(row) for row in connection.execute(text(question))]
    assert ("vista", "gh-dev") in found
    assert all(cluster not in ("pitzer", "frontera") for cluster, _ in found)


def test_reading_the_catalog_is_fast(database: CIDatabase):
    database.load_catalog()
    database.clusters()
    times = []
    for _ in range(5):
        start = time.perf_counter()
        database.load_catalog()
        found = database.clusters()
        times.append(time.perf_counter() - start)
    assert len(found) >= 12
    assert min(times) < 0.15


EDITOR = """
import sys
from ischeduler.cidb.ci_database import CIDatabase
from ischeduler.store.engine import open_engine
database = CIDatabase(open_engine(sys.argv[1]), user=sys.argv[2])
database.load_catalog()
for i in range(5):
    database.edit("pitzer", {f"charge.params.{sys.argv[2]}": i})
"""


def test_processes_that_load_and_edit_at_once_lose_nothing(engine: Engine):
    url = engine.url.render_as_string(hide_password=False)
    users = ("ann", "ben", "cem")
    running = [subprocess.Popen([sys.executable, "-c", EDITOR, url, u], stderr=subprocess.PIPE, text=True) for u in users]
    for process in running:
        _, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
    database = CIDatabase(engine)
    params = database.get("pitzer").charge.params
    assert {u: params[u] for u in users} == dict.fromkeys(users, 4.0)
    assert [v.number for v in database.versions("pitzer")] == list(range(1, 17))
