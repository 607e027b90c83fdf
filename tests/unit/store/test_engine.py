"""A database opens privately, and each of its failures is one sentence that says what to do."""

from __future__ import annotations

import sqlite3
import stat
from pathlib import Path

import pytest
from sqlalchemy import event, text
from sqlalchemy.exc import IntegrityError

from ischeduler.core.errors import ConfigError, IschedError, StoreUnavailable
from ischeduler.core.event import Event
from ischeduler.store import engine as engine_module
from ischeduler.store.engine import WRITE, engine_notes, open_engine
from ischeduler.store.filesystems import file_system_type, is_network
from ischeduler.store.sql_store import SqlStore

MOUNTS = """\
22 1 259:2 / / rw,relatime - ext4 /dev/root rw
40 22 0:35 / /tmp rw - tmpfs tmpfs rw
57 22 0:51 / /users rw shared:7 - nfs4 filer:/users rw,vers=4.2
58 57 0:52 / /users/my\\040group rw - lustre 10.0.0.1@tcp:/fs rw
59 22 0:53 / /mnt/remote rw - fuse.sshfs host:/ rw
broken line
"""


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def failure(caught: pytest.ExceptionInfo[IschedError]) -> str:
    words = str(caught.value)
    assert "\n" not in words
    assert words.endswith(".")
    return words


def test_a_new_database_is_private(tmp_path: Path):
    place = tmp_path / "a" / "b" / "isched.db"
    store = SqlStore(place)
    store.history()
    assert mode(place) == 0o600
    assert mode(place.parent) == mode(place.parent.parent) == 0o700
    assert {mode(p) for p in place.parent.iterdir()} == {0o600}
    store.close()


def test_a_database_left_open_to_others_is_closed_to_them(tmp_path: Path):
    place = tmp_path / "isched.db"
    place.touch(0o644)
    open_engine(place).dispose()
    assert mode(place) == 0o600


def test_a_local_disk_gets_a_write_ahead_log_and_foreign_keys(tmp_path: Path):
    engine = open_engine(tmp_path / "isched.db")
    with engine.connect() as connection:
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
        assert connection.execute(text("PRAGMA foreign_keys")).scalar() == 1
        assert connection.execute(text("PRAGMA busy_timeout")).scalar() == 15000
    assert engine_notes(engine) == ()
    engine.dispose()


def test_a_network_disk_gets_a_rollback_journal_and_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    SqlStore(tmp_path / "isched.db").close()
    monkeypatch.setattr(engine_module, "file_system_type", lambda path: "nfs4")
    store = SqlStore(tmp_path / "isched.db")
    with store.engine.connect() as connection:
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "delete"
    assert "network file system (nfs4)" in engine_notes(store.engine)[0]
    store.close()


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/x.db", "ext4"),
        ("/tmp/x.db", "tmpfs"),
        ("/tmpfile/x.db", "ext4"),
        ("/users/a/x.db", "nfs4"),
        ("/users/my group/x.db", "lustre"),
        ("/mnt/remote/x.db", "fuse.sshfs"),
    ],
)
def test_the_innermost_mount_counts(path: str, kind: str):
    assert file_system_type(Path(path), MOUNTS) == kind


def test_network_file_systems_are_known():
    assert all(is_network(k) for k in ("nfs", "nfs4", "lustre", "gpfs", "beegfs", "cifs", "fuse.sshfs"))
    assert not any(is_network(k) for k in ("ext4", "xfs", "btrfs", "tmpfs", "overlay", None))
    assert file_system_type(Path("/x"), "") is None


def test_a_locked_database_says_so(tmp_path: Path):
    place = tmp_path / "isched.db"
    store = SqlStore(open_engine(place, busy_timeout_s=0.05))
    holder = sqlite3.connect(place, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="stayed locked by another process") as caught:
        store.acquire_lease("tick", "me", 1.0, 0.0)
    assert str(place) in failure(caught)
    assert store.history() == []
    holder.close()
    assert store.acquire_lease("tick", "me", 1.0, 0.0) is not None
    store.close()


def test_a_full_disk_says_so_and_writes_nothing(tmp_path: Path, some_run):
    store = SqlStore(tmp_path / "isched.db")
    made = store.create_run(some_run)

    def small(connection, record, proxy):
        connection.execute("PRAGMA max_page_count = 1")  # SQLite's own way to a full disk: it raises the same error

    event.listen(store.engine, "checkout", small)
    huge = Event(made.id, "log", 0.0, data={"text": "x" * 1_000_000})
    with pytest.raises(StoreUnavailable, match="disk or quota is full; free some space") as caught:
        store.save_run(made, [huge])
    failure(caught)
    assert store.get_run(made.id).version == made.version
    assert store.events(made.id) == []
    store.close()


def test_a_file_that_is_no_database_says_so(tmp_path: Path):
    place = tmp_path / "notes.txt"
    place.write_text("not a database, but long enough to be read as a header " * 20)
    with pytest.raises(StoreUnavailable, match="is not a database") as caught:
        SqlStore(place)
    failure(caught)


def test_a_damaged_database_says_so(tmp_path: Path):
    place = tmp_path / "isched.db"
    store = SqlStore(place)
    with store.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    store.close()
    content = bytearray(place.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    place.write_bytes(bytes(content))
    with pytest.raises(StoreUnavailable, match=r"damaged|disk I/O") as caught:
        SqlStore(place).history()
    failure(caught)


def test_a_folder_that_cannot_be_made_says_so(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnavailable, match="cannot open the database") as caught:
        open_engine(tmp_path / "file" / "isched.db")
    failure(caught)


def test_a_folder_in_place_of_the_file_says_so(tmp_path: Path):
    with pytest.raises(StoreUnavailable, match="cannot open the database"):
        open_engine(tmp_path)


def test_a_server_that_is_not_there_says_so_without_the_password(tmp_path: Path):
    with pytest.raises(StoreUnavailable, match="did not answer") as caught:
        SqlStore(f"postgresql://isched:secret@/isched?host={tmp_path}")
    assert "secret" not in failure(caught)


@pytest.mark.parametrize("url", ["mysql://host/db", "nonsense://", "sqlite+unknown:///x", "postgresql+asyncpg://h/x"])
def test_a_wrong_url_is_refused_in_one_sentence(url: str):
    with pytest.raises(ConfigError) as caught:
        open_engine(url)
    failure(caught)


def test_programming_errors_stay_what_they_are(tmp_path: Path):
    store = SqlStore(tmp_path / "isched.db")
    insert = text("INSERT INTO leases (name, holder, token, expires_at) VALUES ('a', '', 1, 0)")
    with store.engine.execution_options(**WRITE).begin() as connection:
        connection.execute(insert)
    with pytest.raises(IntegrityError), store.engine.execution_options(**WRITE).begin() as connection:
        connection.execute(insert)
    store.close()
