"""What members' own progress says of the nodes they ran on: looks for :mod:`ischeduler.policies.stragglers`. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ischeduler.core.event import Event
from ischeduler.core.run import Run
from ischeduler.policies.stragglers import Look, Straggler, avoided, stragglers

LOOKS_KEPT = 50
"""Newest looks of a job on a node; what a node was long ago says little."""


def looks_of(run: Run, events: Iterable[Event]) -> list[Look]:
    """A run's step times by the node of the job that told them; of jobs on one node, whose node is known."""
    where = {a.number: (a.node_type or a.partition, a.nodes[0]) for a in run.attempts if len(a.nodes) == 1}
    found: dict[tuple[str, str], list[Look]] = {}
    for event in events:
        step_time_s, number = event.data.get("step_time_s"), event.token.partition(".")[0]
        if event.kind != "progress" or not isinstance(step_time_s, (int, float)) or not 0 < step_time_s < float("inf"):
            continue
        if number.isdigit() and int(number) in where:
            kind, node = where[int(number)]
            found.setdefault((kind, node), []).append(Look(run.id, kind, node, float(step_time_s)))
    return [look for looks in found.values() for look in looks[-LOOKS_KEPT:]]


def slow_nodes(runs: Mapping[str, Run], events: Mapping[str, Iterable[Event]]) -> dict[str, tuple[Straggler, ...]]:
    """By run: the nodes that it should leave and keep off, and what says so."""
    found = stragglers(look for i, run in runs.items() for look in looks_of(run, events.get(i, ())))
    return {i: tuple(_evidence(found, i, node) for node in nodes) for i in runs if (nodes := avoided(found, i))}


def _evidence(found: Iterable[Straggler], run_id: str, node: str) -> Straggler:
    """What says that a node is slow: the run's own finding, else another's."""
    about = [s for s in found if s.node == node]
    return next((s for s in about if s.job == run_id), about[0])
