"""What must hold whatever happened: no run lost, none doubled, every event applied once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import bindparam, select, text

from ischeduler.core.run import Run, RunState
from ischeduler.store.sql_store import SqlStore
from ischeduler.store.tables import EVENTS, HISTORY

Token = tuple[str, int]
_INBOX = text(
    "SELECT l.run_id, l.token, e.seq FROM event_lanes l JOIN (SELECT lane, seq FROM job_events UNION ALL SELECT lane, seq FROM telemetry) e "
    "ON e.lane = l.lane WHERE l.run_id IN :runs"
).bindparams(bindparam("runs", expanding=True))


def broken(store: SqlStore, run_ids: Sequence[str], truth: Mapping[str, Any], *, cancelled: set[str], late_words: bool, by_broker: bool) -> list[str]:
    """The invariants that do not hold for these runs, in words. ``truth`` is what the controller knows really happened."""
    with store.engine.connect() as connection:
        rows = connection.execute(select(EVENTS).where(EVENTS.c.run_id.in_(run_ids))).all()
        evidence = connection.execute(select(HISTORY.c.run_id, HISTORY.c.kind).where(HISTORY.c.run_id.in_(run_ids))).all()
        inbox = connection.execute(_INBOX, {"runs": list(run_ids)}).all() if by_broker else []
    found: list[str] = []
    for run_id in run_ids:
        run = store.get_run(run_id)
        mine = [r for r in rows if r.run_id == run_id]
        words = [*_not_lost(run, truth[run_id], run_id in cancelled, words_may_lack=by_broker or late_words), *_not_doubled(run, truth[run_id])]
        if by_broker:
            words += _taken_in_once(run, mine, truth[run_id], [(r.token, r.seq) for r in inbox if r.run_id == run_id])
        else:
            words += _applied_once(run, mine, truth[run_id], late_words)
        words += _recorded_once(run, [e.kind for e in evidence if e.run_id == run_id], mine)
        found += [f"{run_id}: {w}" for w in words]
    return found


def _not_lost(run: Run, truth: Mapping[str, Any], cancelled: bool, *, words_may_lack: bool) -> list[str]:
    if cancelled and run.state is RunState.CANCELLED:
        alive = [j["id"] for j in truth["jobs"] if j["state"] in ("pending", "running")]
        return [f"cancelled, and its jobs {alive} live"] if alive else []
    if run.state is not RunState.COMPLETED:
        return [f"ended as {run.state}: {run.message}"]
    if len(truth["finished_by"]) != 1:
        return [f"completed, and its training was finished {len(truth['finished_by'])} times"]
    if words_may_lack:
        return []  # a job's exit code says that it ended well while its last words are on their way, or its disk is full
    return [] if run.progress.epochs_done == run.plan.workload.epochs else [f"completed after {run.progress.epochs_done} epochs"]


def _not_doubled(run: Run, truth: Mapping[str, Any]) -> list[str]:
    """Each attempt is one job and each job an attempt; none lives on when the run has ended."""
    keys = Counter(j["key"] for j in truth["jobs"])
    found = [f"{key} was accepted {n} times" for key, n in keys.items() if n > 1]
    known = {a.key for a in run.attempts}
    found += [f"job {j['id']} of {j['key']} is no attempt of the run" for j in truth["jobs"] if j["key"] not in known]
    found += [f"job {j['id']} is {j['state']} after the end" for j in truth["jobs"] if j["state"] in ("pending", "running")]
    ids = {(j["key"], j["id"]) for j in truth["jobs"]}
    return found + [f"attempt {a.key} names job {a.job_id}, which is not its" for a in run.attempts if a.job_id and (a.key, a.job_id) not in ids]


def _applied_once(run: Run, rows: Sequence[Any], truth: Mapping[str, Any], late_words: bool) -> list[str]:
    """What is in the store is what the spools hold, each word once; where a disk was full, nothing but a gapless beginning of it."""
    stored = Counter((r.token, r.seq) for r in rows if r.source == "job")
    said = _spooled(Path(run.directory))
    found = [f"event {key} was applied {n} times" for key, n in stored.items() if n > 1]
    found += [f"event {key} was never said" for key in stored.keys() - said]
    if not late_words and run.state is RunState.COMPLETED:
        found += [f"event {key} was not applied" for key in sorted(said - stored.keys())]
        heard = {(str(t), int(s)) for t, s in truth["said"]}
        found += [f"event {key} did not reach the spool" for key in sorted(heard - said)]
    for token in {t for t, _ in stored}:
        numbers = sorted(s for t, s in stored if t == token)
        if numbers != list(range(1, len(numbers) + 1)):
            found.append(f"events of {token} have gaps: {numbers}")
    return found


def _taken_in_once(run: Run, rows: Sequence[Any], truth: Mapping[str, Any], inbox: Sequence[Token]) -> list[str]:
    """Everything said came through the broker into the store, once; and the plane took in nothing twice."""
    said, taken = {(str(t), int(s)) for t, s in truth["said"]}, Counter(inbox)
    found = [f"event {key} was not taken in" for key in sorted(said - taken.keys())]
    found += [f"event {key} was taken in {n} times" for key, n in taken.items() if n > 1]
    applied = Counter((r.token, r.seq) for r in rows if r.source == "job")
    found += [f"event {key} was applied {n} times" for key, n in applied.items() if n > 1]
    return found + [f"event {key} was never said" for key in (applied.keys() | taken.keys()) - said]


def all_taken_in(store: SqlStore, run_ids: Sequence[str], truth: Mapping[str, Any]) -> bool:
    """Whether the store has as many events of these runs as were said."""
    with store.engine.connect() as connection:
        there = len(connection.execute(_INBOX, {"runs": list(run_ids)}).all())
    return there >= sum(len(truth[run_id]["said"]) for run_id in run_ids)


def _spooled(directory: Path) -> set[Token]:
    """Read by other eyes than the program's: JSON lines with a number each."""
    found: set[Token] = set()
    for path in (directory / "events").glob("*.jsonl"):
        for line in path.read_bytes().split(b"\n")[:-1]:
            try:
                event = json.loads(line)
            except ValueError:
                continue  # a line that a full disk tore
            found.add((event["token"], event["seq"]))
    return found


def _recorded_once(run: Run, evidence: Sequence[str], rows: Sequence[Any]) -> list[str]:
    count = evidence.count("run")  # a run that was cancelled before it began leaves no evidence
    fits = count == 1 if run.state is RunState.COMPLETED else count <= 1
    found = [] if fits else [f"{count} records of the run"]
    ended = [r for r in rows if r.source == "plane" and r.kind == "state" and r.data.get("to") == str(run.state)]
    if len(ended) != 1:
        found.append(f"told {len(ended)} times that it is {run.state}")
    causes = Counter(r.data["attempt"] for r in rows if r.source == "plane" and r.kind == "attempt_ended")
    return found + [f"attempt {n} was judged {times} times" for n, times in causes.items() if times > 1]
