"""Two real processes at one store: of each contest exactly one wins, and nothing is lost or doubled."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from store_samples import run

from ischeduler.store.engine import open_engine
from ischeduler.store.migrate import migrate
from ischeduler.store.sql_store import SqlStore

ROUNDS = 60
FOLDER = Path(__file__).parent

# Each contestant waits for the other at every round by a barrier made of files, then tries at once.
LEASE = """
import json, sys, time, pathlib
from ischeduler.store.sql_store import SqlStore
url, me, other, folder, rounds = sys.argv[1], sys.argv[2], sys.argv[3], pathlib.Path(sys.argv[4]), int(sys.argv[5])
store = SqlStore(url)
won = []
for n in range(rounds):
    (folder / f"{me}-{n}").touch()
    while not (folder / f"{other}-{n}").exists():
        time.sleep(0.0002)
    lease = store.acquire_lease("tick", me, ttl_s=1.0, now=1000.0 + 2 * n)
    if lease is not None:
        won.append([n, lease.token])
print(json.dumps(won))
"""
SAVE = """
import json, sys, time, pathlib
from dataclasses import replace
from ischeduler.core.errors import StoreConflict
from ischeduler.core.event import Event
from ischeduler.store.sql_store import SqlStore
url, me, other, folder, rounds = sys.argv[1], sys.argv[2], sys.argv[3], pathlib.Path(sys.argv[4]), int(sys.argv[5])
store = SqlStore(url)
won = []
for n in range(rounds):
    current = store.get_run("r-1")
    (folder / f"{me}-{n}").touch()
    while not (folder / f"{other}-{n}").exists():
        time.sleep(0.0002)
    try:
        saved = store.save_run(replace(current, message=f"{me} {n}"), [Event("r-1", "won", 1.0, data={"by": me, "round": n})])
        won.append([n, saved.version])
    except StoreConflict:
        pass
    (folder / f"{me}-{n}-done").touch()
    while not (folder / f"{other}-{n}-done").exists():
        time.sleep(0.0002)
print(json.dumps(won))
"""
START = """
import sys
from ischeduler.store.sql_store import SqlStore
print(len(SqlStore(sys.argv[1]).list_runs()))
"""


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    place = str(tmp_path / "isched.db") if request.param == "sqlite" else request.getfixturevalue("postgres").new_database()
    engine = open_engine(place)
    migrate(engine)
    engine.dispose()
    return place


def contest(script: str, url: str, folder: Path) -> list[list[list[int]]]:
    folder.mkdir()
    answers = together([[script, url, me, other, str(folder), str(ROUNDS)] for me, other in (("a", "b"), ("b", "a"))])
    return [json.loads(answer) for answer in answers]


def together(scripts: Sequence[Sequence[str]]) -> list[str]:
    running = [
        subprocess.Popen([sys.executable, "-c", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for words in scripts
    ]
    answers = [process.communicate(timeout=120) for process in running]
    for process, (_, err) in zip(running, answers, strict=True):
        assert process.returncode == 0, err
    return [out for out, _ in answers]


def test_a_lease_has_one_holder_each_round(url: str, tmp_path: Path):
    won = contest(LEASE, url, tmp_path / "barrier")
    rounds = Counter(n for wins in won for n, _ in wins)
    assert rounds == dict.fromkeys(range(ROUNDS), 1)
    tokens = [token for _, token in sorted((n, token) for wins in won for n, token in wins)]
    assert tokens == list(range(1, ROUNDS + 1))


def test_a_version_is_saved_once_and_only_the_winners_event_is_there(url: str, tmp_path: Path):
    store = SqlStore(url)
    store.create_run(run())
    won = contest(SAVE, url, tmp_path / "barrier")
    assert Counter(n for wins in won for n, _ in wins) == dict.fromkeys(range(ROUNDS), 1)
    assert sorted(version for wins in won for _, version in wins) == list(range(2, ROUNDS + 2))
    stored = [(e.data["round"], e.data["by"]) for _, e in store.events("r-1")]
    assert stored == sorted((n, by) for by, wins in zip("ab", won, strict=True) for n, _ in wins)
    assert store.get_run("r-1").version == ROUNDS + 1
    store.close()


def test_many_first_starts_at_once_make_one_database(tmp_path: Path):
    place = tmp_path / "new" / "folder" / "isched.db"
    assert together([[START, str(place)]] * 4) == ["0\n"] * 4
    assert place.stat().st_mode & 0o777 == 0o600
    assert place.parent.stat().st_mode & 0o777 == place.parent.parent.stat().st_mode & 0o777 == 0o700
