"""What administrators look at: people, who carries which runs, queues, and how much the controllers are asked. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from ischeduler.core.run import Run
from ischeduler.ports import WorkerSign
from ischeduler.service.dashboard.views.runs import state_words
from ischeduler.service.dashboard.words import NOT_KNOWN, ago

SILENT_S = 60.0
"""A worker that has given no sign for so long is taken for gone."""


@dataclass(frozen=True, slots=True)
class Row:
    """Cells, and how the table's toned column looks."""

    cells: tuple[str, ...]
    tone: str = ""


@dataclass(frozen=True, slots=True)
class AdminTable:
    """One table. ``right`` are columns of figures, ``toned`` the one that is a badge (-1: none)."""

    title: str
    header: tuple[str, ...]
    rows: tuple[Row, ...]
    right: tuple[int, ...] = ()
    toned: int = -1
    empty: str = "None."


class Person(Protocol):
    """What is read of a user (:class:`ischeduler.store.identities.User` is one)."""

    @property
    def name(self) -> str:
        """Who."""
        ...

    @property
    def roles(self) -> Sequence[str]:
        """What they may."""
        ...

    @property
    def projects(self) -> Collection[str]:
        """Theirs."""
        ...

    @property
    def disabled(self) -> bool:
        """Shut out."""
        ...

    @property
    def seen_at(self) -> float | None:
        """When they last came."""
        ...


class Letter(Protocol):
    """What is read of a refused message (:class:`ischeduler.store.ingest_read.DeadLetter` is one)."""

    @property
    def run_id(self) -> str:
        """Whose."""
        ...

    @property
    def channel(self) -> str:
        """How it came."""
        ...

    @property
    def reason(self) -> str:
        """Why it was refused."""
        ...

    @property
    def payload_bytes(self) -> int:
        """How long it was."""
        ...

    @property
    def received_at(self) -> float:
        """When."""
        ...


def people_table(people: Sequence[Person], runs: Sequence[Run], now: float) -> AdminTable:
    """Everybody, with how much they have under way."""
    going = Counter(r.owner for r in runs if not r.state.ended)
    rows = [
        Row(
            (p.name, ", ".join(r.replace("_", " ") for r in p.roles), ", ".join(sorted(p.projects)) or NOT_KNOWN, str(going[p.name]),
             ago(p.seen_at, now), "disabled" if p.disabled else "active"),
            "warn" if p.disabled else "good",
        )
        for p in people
    ]  # fmt: skip
    return AdminTable("Users", ("User", "Roles", "Projects", "Runs under way", "Last seen", "Account"), tuple(rows), (3,), 5)


def workers_table(signs: Sequence[WorkerSign], now: float) -> AdminTable:
    """Who carries how many runs, and when they last gave a sign of life."""
    rows = [
        Row((s.name, f"{s.host}, pid {s.pid}", str(s.carried), ago(s.started_at, now), ago(s.seen_at, now)), "good" if _alive(s, now) else "bad")
        for s in signs
    ]
    return AdminTable("Workers", ("Worker", "Where", "Runs carried", "Started", "Last sign"), tuple(rows), (2,), 4, "No worker has given a sign.")


def _alive(sign: WorkerSign, now: float) -> bool:
    return now - sign.seen_at < SILENT_S


def refused_table(letters: Sequence[Letter], now: float) -> AdminTable:
    """Messages of jobs that were no events, the newest first."""
    rows = tuple(Row((x.run_id or NOT_KNOWN, x.channel, x.reason[:200], str(x.payload_bytes), ago(x.received_at, now))) for x in letters)
    return AdminTable("Refused messages", ("Run", "Channel", "Reason", "Bytes", "When"), rows, (3, 4), empty="None was refused.")


def states_table(runs: Sequence[Run]) -> AdminTable:
    """Runs under way by state."""
    states = Counter(state_words(r.state) for r in runs if not r.state.ended)
    rows = tuple(Row((state, str(count))) for state, count in states.most_common())
    return AdminTable("Runs under way", ("State", "Runs"), rows, (1,), empty="No run is under way.")


def queues_table(runs: Sequence[Run]) -> AdminTable:
    """Where our jobs wait and run, place by place."""
    waiting: Counter[str] = Counter()
    running: Counter[str] = Counter()
    for run in runs:
        attempt = run.attempt
        if run.state.ended or attempt is None:
            continue
        place = f"{attempt.cluster}/{attempt.partition}"
        counted = running if attempt.state.value == "running" else waiting if attempt.state.value == "pending" else None
        if counted is not None:
            counted[place] += 1
    rows = tuple(Row((p, str(waiting[p]), str(running[p]))) for p in sorted(waiting | running))
    return AdminTable("Queues", ("Place", "Waiting", "Running"), rows, (1, 2), empty="No job of ours waits or runs.")


def controllers_table(signs: Sequence[WorkerSign], runs: Sequence[Run], now: float) -> AdminTable:
    """How often each controller is asked by the workers alive: one batched look for all runs, so the rate does not grow with them."""
    going = [r for r in runs if not r.state.ended]
    alive = [s for s in signs if _alive(s, now)]
    clusters = sorted({c for s in signs for c in s.looks} | {r.attempt.cluster for r in going if r.attempt is not None})
    rows = []
    for cluster in clusters:
        here = [r for r in going if r.attempt is not None and r.attempt.cluster == cluster]
        silent = sum(1 for r in here if r.query_failures)
        rate = sum(60 * s.looks.get(cluster, 0) / max(1.0, s.seen_at - s.started_at) for s in alive)
        said, tone = (f"no answer for {silent}", "warn") if silent else ("answers", "good") if rate else ("not asked", "idle")
        rows.append(Row((cluster, str(len(here)), f"{rate:.1f}", said), tone))
    header = ("Cluster", "Runs", "Looks a minute", "Answer")
    return AdminTable("Controllers", header, tuple(rows), (1, 2), 3, "No controller is asked yet.")
