"""The spool: two writers, torn lines, full disks, and a reader that misses and repeats nothing."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ischeduler.training.spool import SpoolReader, SpoolWriter, read_events
from ischeduler.training.token import Token

FIRST = Token(1)


def writer(run_dir: Path, token: Token = FIRST, **options: object) -> SpoolWriter:
    return SpoolWriter(run_dir / "events" / f"{token}.jsonl", "r-1", token, **options)


def test_events_read_back_in_order(tmp_path: Path) -> None:
    spool = writer(tmp_path, clock=lambda: 1234.5)
    assert spool.emit("started", job_id="7", host="n1")
    assert spool.emit("progress", epoch=1, loss=float("nan"))
    events, offsets = read_events(tmp_path, {})
    assert [(e.seq, e.kind, e.t, str(e.token), e.run) for e in events] == [
        (1, "started", 1234.5, "1.0", "r-1"),
        (2, "progress", 1234.5, "1.0", "r-1"),
    ]
    assert events[1].data == {"epoch": 1, "loss": "nan"}
    assert read_events(tmp_path, offsets) == ([], offsets)


def test_two_writers_of_one_spool_share_the_numbering(tmp_path: Path) -> None:
    wrapper, training = writer(tmp_path), writer(tmp_path)
    for _ in range(5):
        assert wrapper.emit("heartbeat")
        assert training.emit("progress")
        assert training.emit("progress")
    events, _ = read_events(tmp_path, {})
    assert [e.seq for e in events] == list(range(1, 16))


def test_two_processes_at_once_lose_and_double_nothing(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from ischeduler.training.spool import SpoolWriter;"
        "from ischeduler.training.token import Token;"
        "w = SpoolWriter(Path(sys.argv[1]), 'r', Token(1)); import time;"
        "print('ready', flush=True); sys.stdin.readline();"
        "[w.emit('progress', who=sys.argv[2], n=n, pad='x' * 500) for n in range(300)];"
        "[time.sleep(0.01) for _ in range(500) if not w.flush()]"
    )
    path = str(tmp_path / "events" / "1.0.jsonl")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    children = [subprocess.Popen([sys.executable, "-c", code, path, who], **pipes) for who in "ab"]
    for child in children:
        child.stdout.readline()
    for child in children:
        child.stdin.write("go\n")
        child.stdin.close()
    assert [child.wait(60) for child in children] == [0, 0]
    for child in children:
        child.stdout.close()
    events, _ = read_events(tmp_path, {})
    assert [e.seq for e in events] == list(range(1, 601))
    for who in "ab":
        assert [e.data["n"] for e in events if e.data["who"] == who] == list(range(300))


def test_while_the_other_writes_an_event_waits(tmp_path: Path) -> None:
    spool = writer(tmp_path)
    spool.emit("started")
    with open(spool.path, "ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert not spool.emit("progress")
    assert spool.flush()
    assert [e.seq for e in read_events(tmp_path, {})[0]] == [1, 2]


def test_a_new_writer_goes_on_counting(tmp_path: Path) -> None:
    writer(tmp_path).emit("started")
    writer(tmp_path).emit("exit", code=0)
    assert [e.seq for e in read_events(tmp_path, {})[0]] == [1, 2]


def test_a_torn_line_is_left_then_fenced_off(tmp_path: Path) -> None:
    """A writer killed in mid-line: the reader waits for it, the next writer ends it, the reader counts it as corrupt."""
    writer(tmp_path).emit("started")
    path = tmp_path / "events" / "1.0.jsonl"
    with open(path, "ab") as file:
        file.write(b'{"v":1,"run":"r-1","tok')
    reader = SpoolReader(tmp_path)
    assert [e.kind for e in reader.poll()] == ["started"]
    assert reader.poll() == []
    assert reader.corrupt_lines == 0
    writer(tmp_path).emit("exit", code=0)
    assert [(e.seq, e.kind) for e in reader.poll()] == [(2, "exit")]
    assert reader.corrupt_lines == 1


@pytest.mark.parametrize(
    "line",
    [
        b"not json",
        b"{}",
        b"[1, 2]",
        b"null",
        b'{"v":2,"run":"r","token":"1.0","seq":1,"t":1,"kind":"x","data":{}}',
        b'{"v":1,"run":"r","token":"2.0","seq":1,"t":1,"kind":"x","data":{}}',
        b'{"v":1,"run":"r","token":"1.0","seq":0,"t":1,"kind":"x","data":{}}',
        b'{"v":1,"run":"r","token":"1.0","seq":true,"t":1,"kind":"x","data":{}}',
        b'{"v":1,"run":"r","token":"1.0","seq":1,"t":"1","kind":"x","data":{}}',
        b'{"v":1,"run":"r","token":"1.0","seq":1,"t":1,"kind":"x","data":[]}',
        b'{"v":1,"run":7,"token":"1.0","seq":1,"t":1,"kind":"x","data":{}}',
        b"\xff\xfe\x00",
        b"[" * 100_000,
    ],
)
def test_corrupt_lines_are_skipped_and_counted(tmp_path: Path, line: bytes) -> None:
    spool = writer(tmp_path)
    spool.emit("started")
    with open(spool.path, "ab") as file:
        file.write(line + b"\n")
    spool.emit("exit")
    reader = SpoolReader(tmp_path)
    assert [e.kind for e in reader.poll()] == ["started", "exit"]
    assert reader.corrupt_lines == 1


def test_incarnations_come_oldest_first_and_foreign_files_are_ignored(tmp_path: Path) -> None:
    for token in (Token(10), Token(2, 1), Token(2)):
        writer(tmp_path, token).emit("started")
    (tmp_path / "events" / "notes.txt").write_text("hello\n")
    (tmp_path / "events" / "x.jsonl").write_text("hello\n")
    assert [str(e.token) for e in read_events(tmp_path, {})[0]] == ["2.0", "2.1", "10.0"]
    assert read_events(tmp_path / "nowhere", {}) == ([], {})


payloads = st.dictionaries(
    st.text(max_size=8), st.one_of(st.text(max_size=20), st.integers(), st.floats(), st.none()), max_size=3
)


@settings(max_examples=60, deadline=None)
@given(st.lists(payloads, max_size=12), st.data())
def test_reading_at_any_byte_gives_each_event_once(items: list[dict], data: st.DataObject) -> None:
    """The file grows byte range by byte range, as a shared file system may show it; offsets are stored in between."""
    with tempfile.TemporaryDirectory() as folder:
        whole, seen = Path(folder) / "whole", Path(folder) / "seen"
        spool = writer(whole, clock=lambda: 1.0)
        for item in items:
            assert spool.emit("progress", item=item)
        content = spool.path.read_bytes() if items else b""
        (seen / "events").mkdir(parents=True)
        cuts = data.draw(st.lists(st.integers(0, len(content)), max_size=8).map(sorted))
        offsets: dict[str, int] = {}
        events = []
        for cut in [*cuts, len(content)]:
            (seen / "events" / "1.0.jsonl").write_bytes(content[:cut])
            found, offsets = read_events(seen, json.loads(json.dumps(offsets)))
            events += found
        assert [e.seq for e in events] == list(range(1, len(items) + 1))
        assert [set(e.data["item"]) for e in events] == [set(item) for item in items]


def full(path: Path) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_delays_events_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spool = writer(tmp_path, opener=full)
    assert not spool.emit("started")
    assert not spool.emit("progress", epoch=1)
    assert spool.waiting == 2
    assert capsys.readouterr().err.count("events cannot be written") == 1
    spool._open = writer(tmp_path)._open
    assert spool.emit("progress", epoch=2)
    assert "can be written again" in capsys.readouterr().err
    assert [(e.seq, e.kind) for e in read_events(tmp_path, {})[0]] == [(1, "started"), (2, "progress"), (3, "progress")]
    assert spool.dropped == 0


def test_the_backlog_is_bounded_and_gives_up_the_least_important(tmp_path: Path) -> None:
    spool = writer(tmp_path, opener=full, backlog=10)
    spool.emit("started")
    for epoch in range(30):
        spool.emit("progress", epoch=epoch)
    spool.emit("checkpoint", name="x")
    assert spool.waiting == 10
    assert spool.dropped == 22
    spool._open = writer(tmp_path)._open
    assert spool.flush()
    events, _ = read_events(tmp_path, {})
    assert [e.kind for e in events] == ["started", *["progress"] * 8, "checkpoint", "dropped"]
    assert events[-1].data == {"count": 22}


def test_a_write_cut_short_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = writer(tmp_path)
    spool.emit("started")
    before = spool.path.read_bytes()
    real = os.write

    def short(descriptor: int, data: bytes) -> int:
        if len(data) < 20:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data[: len(data) // 2])

    monkeypatch.setattr("ischeduler.training.spool.os.write", short)
    assert not spool.emit("progress")
    monkeypatch.undo()
    assert spool.path.read_bytes() == before
    assert spool.flush()
    assert [e.seq for e in read_events(tmp_path, {})[0]] == [1, 2]


def test_a_directory_that_cannot_be_written_raises_nothing(tmp_path: Path) -> None:
    (tmp_path / "events").write_text("a file where the folder should be")
    spool = writer(tmp_path)
    assert not spool.emit("started")
    assert spool.waiting == 1
