"""One suite for the event inbox on SQLite and PostgreSQL: each event once, nothing passed over, nobody overtaken."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine, text
from store_samples import run

from ischeduler.batch.stored_events import EventsOfAll, StoredEvents
from ischeduler.core.event import Event
from ischeduler.core.incoming import Fenced, Incoming, Mark, Refused
from ischeduler.core.run import Run, RunState
from ischeduler.store.engine import open_engine
from ischeduler.store.ingest import EventInbox
from ischeduler.store.ingest_jobs import JobNamesOfStore
from ischeduler.store.ingest_keep import Keep, prune
from ischeduler.store.ingest_read import EventArchive
from ischeduler.store.migrate import migrate
from ischeduler.store.sql_store import SqlStore


def progress(seq: int, *, run_id: str = "r-1", token: str = "1.0", kind: str = "progress", source: str = "job", **data: object) -> Incoming:
    return Incoming(run_id, source, token, seq, kind, 1000.0 + seq, json.dumps({"step": seq, **data}))


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    url = tmp_path / "isched.db" if request.param == "sqlite" else request.getfixturevalue("postgres").new_database()
    engine = open_engine(url)
    migrate(engine)
    store = SqlStore(engine)
    for name in ("r-1", "r-2"):
        store.create_run(run(name, state=RunState.RUNNING))
    yield engine
    engine.dispose()


@pytest.fixture
def inbox(engine: Engine) -> EventInbox:
    return EventInbox(engine, clock=lambda: 5000.0)


def told(engine: Engine, r: Run) -> tuple[list[tuple[str, int]], Run]:
    """What the plane is told, as (token, seq), and the run with its new offsets."""
    events, offsets = StoredEvents(EventArchive(engine)).read(r)
    return [(e.token, e.seq) for e in events], replace(r, spool_offsets=offsets)


def one(engine: Engine, query: str) -> int:
    with engine.connect() as connection:
        return connection.execute(text(query)).scalar_one()


class TestWriting:
    def test_an_event_is_stored_once_however_often_it_comes(self, engine: Engine, inbox: EventInbox):
        first = inbox.write([progress(1), progress(2), progress(2)])
        assert (first.new, first.repeated) == (2, 1)
        again = EventInbox(engine).write([progress(2), progress(3)])
        assert (again.new, again.repeated) == (1, 1)
        assert told(engine, run())[0] == [("1.0", 1), ("1.0", 2), ("1.0", 3)]

    def test_data_comes_back_as_it_went(self, engine: Engine, inbox: EventInbox):
        strange = {"text": 'a\\b "c" \t\n\r ü \U0001f600 \\N \\.', "big": 2**61, "tiny": 5e-324, "list": [1, None, True]}
        inbox.write([Incoming("r-1", "job", "1.0", 1, "exit", 0.1 + 0.2, json.dumps(strange))])
        (event,), _ = StoredEvents(EventArchive(engine)).read(run())
        assert event == Event("r-1", "exit", 0.1 + 0.2, source="job", token="1.0", seq=1, data=strange)

    def test_events_of_an_unknown_run_are_refused_and_stop_nothing(self, engine: Engine, inbox: EventInbox):
        written = inbox.write([progress(1, run_id="r-404"), progress(1)])
        assert (written.new, written.refused) == (1, 1)
        (letter,) = EventArchive(engine).dead_letters()
        assert (letter.run_id, letter.reason, letter.received_at) == ("r-404", "no run has this id", 5000.0)

    def test_refused_messages_are_kept_by_their_beginning(self, engine: Engine, inbox: EventInbox):
        inbox.write([], [Refused("kafka:t:0@7", "why\0not", b"\x00\xff" * 5000, "r-1")])
        (letter,) = EventArchive(engine).dead_letters(run_id="r-1")
        assert (letter.channel, letter.reason, letter.payload_bytes) == ("kafka:t:0@7", "whynot", 10_000)
        assert letter.payload == b"\x00\xff" * 2048
        assert EventArchive(engine).dead_letters(after=letter.id) == []

    def test_an_event_that_the_database_cannot_hold_is_refused_alone(self, engine: Engine, inbox: EventInbox):
        if engine.dialect.name == "sqlite":
            pytest.skip("SQLite holds any text: a case of PostgreSQL's alone, not shipped there")
        claimed = inbox.claim("kafka:t:0", "a")
        events = [progress(n) for n in range(1, 9)]
        events[4] = events[4]._replace(data="{not json")
        written = inbox.write(events, marks=[Mark("kafka:t:0", claimed.generation, 9)])
        assert (written.new, written.refused) == (7, 1)
        assert "invalid input syntax" in EventArchive(engine).dead_letters()[0].reason
        assert inbox.claim("kafka:t:0", "b").position == 9

    def test_only_what_matters_at_once_names_its_run(self, inbox: EventInbox):
        assert inbox.write([progress(1), progress(2, kind="heartbeat"), progress(3, kind="utilisation")]).runs == frozenset()
        assert inbox.write([progress(4, kind="exit"), progress(1, run_id="r-2")]).runs == {"r-1"}


class TestChannels:
    def test_positions_go_with_their_events_or_not_at_all(self, engine: Engine, inbox: EventInbox):
        claimed = inbox.claim("kafka:t:0", "a")
        assert (claimed.position, claimed.epoch) == (0, 0)
        inbox.write([progress(1)], marks=[Mark("kafka:t:0", claimed.generation, 10)])
        other = inbox.claim("kafka:t:0", "b")
        assert other.position == 10
        with pytest.raises(Fenced, match="kafka:t:0") as caught:
            inbox.write([progress(2)], [Refused("x", "y", b"")], [Mark("kafka:t:0", claimed.generation, 20)])
        assert caught.value.channels == ("kafka:t:0",)
        assert told(engine, run())[0] == [("1.0", 1)]
        assert EventArchive(engine).dead_letters() == []
        assert inbox.claim("kafka:t:0", "a").position == 10

    def test_only_the_lost_channels_are_named(self, inbox: EventInbox):
        mine, lost = inbox.claim("c:0", "a"), inbox.claim("c:1", "a")
        inbox.claim("c:1", "b")
        with pytest.raises(Fenced) as caught:
            inbox.write([], marks=[Mark("c:0", mine.generation, 5), Mark("c:1", lost.generation, 5)])
        assert caught.value.channels == ("c:1",)

    def test_a_channel_of_another_incarnation_begins_anew(self, inbox: EventInbox):
        first = inbox.claim("c:0", "a", "one")
        inbox.write([], marks=[Mark("c:0", first.generation, 50)])
        assert inbox.claim("c:0", "a", "one").position == 50
        anew = inbox.claim("c:0", "a", "two")
        assert (anew.position, anew.epoch, anew.incarnation) == (0, 1, "two")

    def test_restarting_takes_the_claim(self, inbox: EventInbox):
        old = inbox.claim("c:0", "a")
        new = inbox.claim("c:0", "b")
        assert inbox.restart(new, 3).epoch == 1
        with pytest.raises(Fenced):
            inbox.restart(old, 0)
        assert inbox.claim("c:0", "c").position == 3


class TestReading:
    def test_a_late_event_is_not_passed_over(self, engine: Engine, inbox: EventInbox):
        inbox.write([progress(5), progress(6)])
        first, r = told(engine, run())
        assert first == [("1.0", 5), ("1.0", 6)]
        inbox.write([progress(2)])
        late, r = told(engine, r)
        assert late == [("1.0", 2)]
        assert told(engine, r)[0] == []

    def test_older_incarnations_come_first_and_each_in_its_order(self, engine: Engine, inbox: EventInbox):
        inbox.write([progress(1, token="10.0"), progress(2, token="2.1"), progress(1, token="2.1")])
        inbox.write([progress(1, token="2.0")])
        assert told(engine, run())[0] == [("2.0", 1), ("2.1", 1), ("2.1", 2), ("10.0", 1)]

    def test_telemetry_never_reaches_the_plane(self, engine: Engine, inbox: EventInbox):
        inbox.write([progress(1, kind="performance", accuracy=0.5), progress(2), progress(3, kind="utilisation")])
        assert told(engine, run())[0] == [("1.0", 2)]
        assert EventArchive(engine).curve("r-1", "performance") == [(1001.0, {"step": 1, "accuracy": 0.5})]
        assert EventArchive(engine).curve("r-2", "performance") == []

    def test_curves_are_thinned_evenly(self, engine: Engine, inbox: EventInbox):
        inbox.write([progress(n, kind="utilisation" if n % 2 else "progress") for n in range(1, 101)])
        archive = EventArchive(engine)
        assert [e.seq for e in archive.curve_events("r-1")] == list(range(1, 101))
        assert [e.seq for e in archive.curve_events("r-1", limit=10)] == list(range(1, 101, 10))
        assert archive.curve_events("r-2") == []

    @pytest.mark.parametrize("count", [399, 401])
    def test_few_and_many_go_in_alike(self, engine: Engine, inbox: EventInbox, count: int):
        events = [progress(n, kind=("exit", "utilisation")[n % 2], text="\\ \t ü") for n in range(1, count + 1)]
        assert (inbox.write(events).new, inbox.write(events).repeated) == (count, count)
        archive = EventArchive(engine)
        assert {e.data["text"] for e in archive.curve_events("r-1")} == {"\\ \t ü"}
        assert len(told(engine, run())[0]) == count // 2

    def test_many_runs_in_one_question(self, engine: Engine, inbox: EventInbox):
        inbox.write([progress(1), progress(1, run_id="r-2")])
        found = StoredEvents(EventArchive(engine)).read_many([run("r-1"), run("r-2"), run("r-3")])
        assert {r: [e.seq for e in events] for r, (events, _) in found.items()} == {"r-1": [1], "r-2": [1]}

    def test_offsets_of_other_sources_stay(self, engine: Engine, inbox: EventInbox):
        inbox.write([progress(1)])
        _, r = told(engine, replace(run(), spool_offsets={"1.0.jsonl": 12}))
        assert r.spool_offsets == {"1.0.jsonl": 12, "stored:1.0": 1}

    def test_an_unread_source_does_not_hide_another(self, engine: Engine, inbox: EventInbox):
        class Broken:
            def read(self, run: Run):
                raise OSError("the file system is away")

        inbox.write([progress(1)])
        stored = StoredEvents(EventArchive(engine))
        events, offsets = EventsOfAll(Broken(), stored, stored).read(replace(run(), spool_offsets={"1.0.jsonl": 12}))
        assert ([e.seq for e in events], offsets) == ([1], {"1.0.jsonl": 12, "stored:1.0": 1})
        with pytest.raises(OSError, match="away"):
            EventsOfAll(Broken()).read(run())

        many = EventsOfAll(Broken(), stored).read_many([run("r-1"), replace(run("r-2"), spool_offsets={"1.0.jsonl": 12})])
        assert {r: ([e.seq for e in events], offsets) for r, (events, offsets) in many.items()} == {"r-1": ([1], {**run().spool_offsets, "stored:1.0": 1})}

    def test_a_source_that_stands_still_undoes_no_other(self, engine: Engine, inbox: EventInbox):
        """Each source gives back the offsets it knows; an old value of one must not go over a new one of another."""
        inbox.write([progress(1)])
        stored = StoredEvents(EventArchive(engine))

        class Still:
            def read(self, run: Run):
                return (), dict(run.spool_offsets)

        _, offsets = EventsOfAll(stored, Still()).read(replace(run(), spool_offsets={"1.0.jsonl": 12}))
        assert offsets == {"1.0.jsonl": 12, "stored:1.0": 1}

    def test_numbers_of_reference_messages_are_kept_from_the_plane(self, engine: Engine, inbox: EventInbox):
        inbox.write([progress(900, source="kafka:progress-messages:0:0")])
        assert told(engine, run())[0] == [("1.0", 0)]

    def test_writers_at_once_and_a_reader_beside_them(self, engine: Engine):
        """Whatever the order of commits, a reader that goes on from its offsets has everything at the end, once."""
        total, writers = 60, 4
        seen: list[tuple[str, int]] = []
        done = threading.Event()

        def write(number: int) -> None:
            box = EventInbox(engine)
            for seq in range(number + 1, total + 1, writers):
                box.write([progress(seq), progress(seq, run_id="r-2"), progress(max(1, seq - 7))])

        def read() -> None:
            r, last = run(), False
            while True:
                found, r = told(engine, r)
                seen.extend(found)
                if last:
                    return
                last = done.is_set()

        threads = [threading.Thread(target=write, args=(n,)) for n in range(writers)]
        reader = threading.Thread(target=read)
        for thread in [*threads, reader]:
            thread.start()
        for thread in threads:
            thread.join()
        done.set()
        reader.join()
        assert sorted(seen) == [("1.0", n) for n in range(1, total + 1)]


class TestJobNames:
    def test_a_job_is_found_by_its_id_and_a_double_one_by_none(self, engine: Engine):
        names = JobNamesOfStore(engine)
        assert names.find(["7", "r-1", "404"]) == {"r-1": ("r-1", "2.0")}  # both runs have a job 7


class TestKeeping:
    def test_what_ended_long_ago_goes_and_the_rest_stays(self, engine: Engine, inbox: EventInbox):
        inbox.write([progress(1), progress(1, run_id="r-2")], [Refused("x", "y", b"")])
        with engine.begin() as connection:
            connection.execute(text("UPDATE runs SET state = 'completed', updated_at = 1000 WHERE id = 'r-2'"))
        day = 86400.0
        swept = prune(engine, 1000 + 8 * day, Keep(ended_s=7 * day))
        assert (swept.events, one(engine, "SELECT count(*) FROM job_events")) == (1, 1)
        assert told(engine, run())[0] == [("1.0", 1)]
        assert prune(engine, 5000 + 31 * day, Keep(refused_s=30 * day)).refused == 1

    def test_telemetry_is_thinned_to_one_a_minute_and_stays_thin(self, engine: Engine, inbox: EventInbox):
        points = [progress(n, kind="utilisation")._replace(at=1000.0 + n) for n in range(1, 181)]
        inbox.write(points)
        keep = Keep(full_s=3600.0, minute_s=86400.0)
        assert prune(engine, 1120.0 + 3600, keep).telemetry > 0
        left = one(engine, "SELECT count(*) FROM telemetry")
        assert 63 <= left <= 64  # the last 61 in full, one for each minute before
        assert inbox.write(points[:50]).new == 0  # sent again: what was thinned stays away
        assert one(engine, "SELECT count(*) FROM telemetry") == left
        prune(engine, 1000.0 + 90_000, keep)
        assert one(engine, "SELECT count(*) FROM telemetry") == 0

    def test_what_a_deleted_run_left_goes(self, engine: Engine, inbox: EventInbox):
        inbox.write([progress(1), progress(2, kind="utilisation")])
        with engine.begin() as connection:
            connection.execute(text("DELETE FROM runs WHERE id = 'r-1'"))
        assert inbox.write([progress(3)]).new == 0
        swept = prune(engine, 2000.0, Keep())
        assert (swept.events, swept.telemetry) == (1, 1)


