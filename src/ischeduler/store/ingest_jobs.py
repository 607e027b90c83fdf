"""Whose job a batch system's id is, for messages that name nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from sqlalchemy import Connection, Engine, text

from ischeduler.core.run import RunState

_ENDED = ", ".join(f"'{s.value}'" for s in RunState if s.ended)
_QUERIES = {
    "postgresql": (
        "SELECT r.id, a.value->>'job_id', a.value->>'number', a.value->>'restarts'"
        f" FROM runs r, json_array_elements(r.doc->'attempts') a WHERE r.state NOT IN ({_ENDED})"
    ),
    "sqlite": (
        "SELECT r.id, json_extract(a.value, '$.job_id'), json_extract(a.value, '$.number'), json_extract(a.value, '$.restarts')"
        f" FROM runs r, json_each(r.doc, '$.attempts') a WHERE r.state NOT IN ({_ENDED})"
    ),
}


class JobNamesOfStore:
    """Job ids of the runs under way, read again when an unknown one is asked for, at most every ``every_s`` seconds."""

    def __init__(self, engine: Engine, *, every_s: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine, self._every_s, self._clock = engine, every_s, clock
        self._known: Mapping[str, tuple[str, str]] = {}
        self._read_at: float | None = None

    def find(self, jobs: Iterable[str]) -> Mapping[str, tuple[str, str]]:
        """Run and token of each job; one that two runs have (on two clusters) is missing. A run's own id stands for its newest job."""
        wanted = set(jobs)
        now = self._clock()
        if wanted - self._known.keys() and (self._read_at is None or now - self._read_at >= self._every_s):
            with self._engine.connect() as connection:
                self._known = _read(connection)
            self._read_at = now
        return {job: self._known[job] for job in wanted if job in self._known}


def _read(connection: Connection) -> dict[str, tuple[str, str]]:
    rows: Sequence[tuple[str, str | None, int, int]] = [
        (str(run), None if job is None else str(job), int(number), int(restarts or 0))
        for run, job, number, restarts in connection.execute(text(_QUERIES[connection.dialect.name]))
    ]
    found: dict[str, tuple[str, str]] = {}
    double: set[str] = set()
    for run, job, number, restarts in sorted(rows, key=lambda r: (r[0], r[2])):
        if job is not None:
            if job in found and found[job][0] != run:
                double.add(job)
            found[job] = (run, f"{number}.{restarts}")
        found[run] = (run, f"{number}.{restarts}")
    return {name: where for name, where in found.items() if name not in double}
