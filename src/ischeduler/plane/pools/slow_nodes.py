"""What members' own progress says of the nodes they ran on: looks for :mod:`ischeduler.policies.stragglers`.

Pure, but for :class:`SlowSeen`, which reads each event of a run's log once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ischeduler.core.event import Event
from ischeduler.core.pilots import PilotSign
from ischeduler.core.run import Attempt, Run
from ischeduler.policies.stragglers import Look, Straggler, avoided, stragglers
from ischeduler.ports import Store

LOOKS_KEPT = 50
"""Newest looks of a job on a node; what a node was long ago says little."""
EVENTS_KEPT = 1000
"""Newest words of progress of a run that are kept in memory."""
KindOf = Callable[[Attempt], str]
"""The type of accelerators that a job on one node has or had; '' where that is not known."""


def asked_for(attempt: Attempt) -> str:
    """The type that a job of its own asked for."""
    return attempt.node_type or attempt.partition


def looks_of(run: Run, events: Iterable[Event], kind_of: KindOf = asked_for) -> list[Look]:
    """A run's step times by the node of the job that told them; of jobs on one node, whose node and type are known."""
    where = {a.number: (kind, a.nodes[0]) for a in run.attempts if len(a.nodes) == 1 and (kind := kind_of(a))}
    found: dict[tuple[str, str], list[Look]] = {}
    for event in events:
        step_time_s, number = event.data.get("step_time_s"), event.token.partition(".")[0]
        if event.kind != "progress" or not isinstance(step_time_s, (int, float)) or not 0 < step_time_s < float("inf"):
            continue
        if number.isdigit() and int(number) in where:
            kind, node = where[int(number)]
            found.setdefault((kind, node), []).append(Look(run.id, kind, node, float(step_time_s)))
    return [look for looks in found.values() for look in looks[-LOOKS_KEPT:]]


def slow_nodes(runs: Mapping[str, Run], events: Mapping[str, Iterable[Event]], kind_of: KindOf = asked_for) -> dict[str, tuple[Straggler, ...]]:
    """By run: the nodes that it should leave and keep off, and what says so."""
    found = stragglers(look for i, run in runs.items() for look in looks_of(run, events.get(i, ()), kind_of))
    return {i: tuple(_evidence(found, i, node) for node in nodes) for i in runs if (nodes := avoided(found, i))}


def _evidence(found: Iterable[Straggler], run_id: str, node: str) -> Straggler:
    """What says that a node is slow: the run's own finding, else another's."""
    about = [s for s in found if s.node == node]
    return next((s for s in about if s.job == run_id), about[0])


class SlowSeen:
    """Slow nodes of pools with pilots, looked for anew when a round begins. Only pilots that are there count: of others the type is not known."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._found: dict[str, Mapping[str, tuple[Straggler, ...]]] = {}
        self._heard: dict[str, dict[str, _Heard]] = {}

    def look(self, pool: str, runs: Mapping[str, Run], signs: Iterable[PilotSign], *, anew: bool) -> Mapping[str, tuple[Straggler, ...]]:
        """By run: the nodes on which it crawls, as of the last round's start unless ``anew``."""
        if anew or pool not in self._found:
            types: dict[str, set[str]] = {}
            for sign in signs:
                types.setdefault(sign.node, set()).add(sign.type)
            kinds = {node: next(iter(found)) for node, found in types.items() if len(found) == 1}
            before = self._heard.get(pool, {})
            self._heard[pool] = {i: self._more(i, before.get(i, _Heard())) for i in runs}
            events = {i: heard.progress for i, heard in self._heard[pool].items()}
            found = slow_nodes(runs, events, lambda a: kinds.get(a.nodes[0], ""))
            self._found[pool] = {i: slow for i, slow in found.items() if slow}
        return self._found[pool]

    def _more(self, run_id: str, heard: _Heard) -> _Heard:
        for row, event in self._store.events(run_id, after=heard.row):
            heard.row = row
            if event.kind == "progress":
                heard.progress.append(event)
        return heard


@dataclass(slots=True)
class _Heard:
    """Up to which row of the log a run was heard, and its newest words of progress."""

    row: int = 0
    progress: deque[Event] = field(default_factory=lambda: deque[Event](maxlen=EVENTS_KEPT))
