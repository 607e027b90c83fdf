"""Spooled events become core events once each, in order, and a torn last line waits."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from ischeduler.batch.spool_events import SpoolEvents
from ischeduler.core.estimate import Estimate
from ischeduler.core.jobs import Resources
from ischeduler.core.plan import Needs, Plan
from ischeduler.core.run import Run, RunState
from ischeduler.core.workload import Workload


def run_in(folder: Path) -> Run:
    hour = Estimate.exact(3600.0, "s", "test")
    plan = Plan(1, "c", "gpu", "t", Workload(name="w"), Resources(), (), Needs(), hour, hour, hour, hour)
    return Run("r-1", "me", plan, RunState.RUNNING, str(folder), 0.0)


def line(seq: int, kind: str, token: str = "1.0") -> str:
    return json.dumps({"v": 1, "run": "r-1", "token": token, "seq": seq, "t": 100.0 + seq, "kind": kind, "data": {"n": seq}}) + "\n"


def test_events_come_once_and_a_torn_line_comes_when_it_is_whole(tmp_path: Path) -> None:
    spool = tmp_path / "events" / "1.0.jsonl"
    spool.parent.mkdir()
    torn = line(3, "heartbeat")
    spool.write_text(line(1, "started") + line(2, "progress") + torn[:20])
    run, source = run_in(tmp_path), SpoolEvents()
    events, offsets = source.read(run)
    assert [(e.run_id, e.source, e.token, e.seq, e.kind, e.at, e.data["n"]) for e in events] == [
        ("r-1", "job", "1.0", 1, "started", 101.0, 1),
        ("r-1", "job", "1.0", 2, "progress", 102.0, 2),
    ]
    spool.write_text(line(1, "started") + line(2, "progress") + torn)
    (tmp_path / "events" / "2.0.jsonl").write_text(line(1, "started", "2.0"))
    events, offsets = source.read(replace(run, spool_offsets=offsets))
    assert [(e.token, e.seq) for e in events] == [("1.0", 3), ("2.0", 1)]
    assert source.read(replace(run, spool_offsets=offsets))[0] == []


def test_a_run_that_never_started_has_no_events(tmp_path: Path) -> None:
    assert SpoolEvents().read(run_in(tmp_path / "none")) == ([], {})
