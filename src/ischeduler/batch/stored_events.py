"""Events from inside jobs as the ingest stored them: the EventSource of a centre, for many runs in one question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from ischeduler.core.event import Event
from ischeduler.core.run import Run
from ischeduler.ports import EventSource

_Answer = tuple[Sequence[Event], Mapping[str, int]]


class Archive(Protocol):
    """Where stored events are read: :class:`ischeduler.store.ingest_read.EventArchive`."""

    def news(self, wanted: Mapping[str, Mapping[str, int]]) -> Mapping[str, tuple[Sequence[Event], Mapping[str, int]]]:
        """By run id: events beyond the given offsets, and the offsets that changed."""
        ...


class StoredEvents:
    """The ManyEvents of the database. Offsets are positions of lanes, kept with the run beside those of other sources."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive

    def read(self, run: Run) -> tuple[Sequence[Event], Mapping[str, int]]:
        """New events of a run, older incarnations first; a late one comes as soon as it is stored, whatever came before it."""
        return self.read_many([run]).get(run.id, ((), run.spool_offsets))

    def read_many(self, runs: Sequence[Run]) -> Mapping[str, tuple[Sequence[Event], Mapping[str, int]]]:
        """As :meth:`read`, by run id; a run without news is left out. Raises StoreUnavailable."""
        offsets = {run.id: run.spool_offsets for run in runs}
        news = self._archive.news(offsets)
        return {run: (events, {**offsets[run], **changed}) for run, (events, changed) in news.items()}


class EventsOfAll:
    """Several sources as one. What two of them bring alike is given once: the same token and number is the same event.

    A source that cannot be read now is passed over while another answers; its offsets stay, so nothing of it is missed.
    """

    def __init__(self, *sources: EventSource) -> None:
        self._sources = sources

    def read(self, run: Run) -> tuple[Sequence[Event], Mapping[str, int]]:
        """New events of all sources. Raises what the last source raised when none could be read."""
        answers: list[_Answer] = []
        failure: OSError | None = None
        for source in self._sources:
            try:
                answers.append(source.read(run))
            except OSError as error:
                failure = error
        if failure is not None and not answers:
            raise failure
        return _merged(run, answers)

    def read_many(self, runs: Sequence[Run]) -> Mapping[str, tuple[Sequence[Event], Mapping[str, int]]]:
        """As :meth:`read`, by run id. A source that cannot answer for a run is passed over for that run."""
        answers: dict[str, list[_Answer]] = {run.id: [] for run in runs}
        for source in self._sources:
            for run_id, answer in _ask(source, runs).items():
                answers[run_id].append(answer)
        return {run.id: _merged(run, answers[run.id]) for run in runs if answers[run.id]}


def _ask(source: EventSource, runs: Sequence[Run]) -> Mapping[str, _Answer]:
    many = getattr(source, "read_many", None)
    if many is not None:
        return many(runs)
    found: dict[str, _Answer] = {}
    for run in runs:
        try:
            found[run.id] = source.read(run)
        except OSError:
            continue  # its offsets stay: the next look reads it
    return found


def _merged(run: Run, answers: Sequence[_Answer]) -> _Answer:
    events: dict[tuple[str, int, int], Event] = {}
    offsets = dict(run.spool_offsets)
    for found, changed in answers:
        offsets |= {name: at for name, at in changed.items() if at != run.spool_offsets.get(name)}
        for event in found:
            events.setdefault((event.token, event.seq, 0 if event.seq else len(events)), event)
    return list(events.values()), offsets
