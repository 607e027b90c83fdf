"""Events from inside jobs, read from the append-only spools in a run's directory: no server is needed for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ischeduler.core.event import Event
from ischeduler.core.run import Run
from ischeduler.training.spool import read_events


class SpoolEvents:
    """The EventSource of the shared file system. Offsets are bytes read of each spool file."""

    def read(self, run: Run) -> tuple[Sequence[Event], Mapping[str, int]]:
        """New events of all incarnations of a run; a torn last line is left for the next time."""
        found, offsets = read_events(Path(run.directory), run.spool_offsets)
        events = [Event(run.id, e.kind, e.t, source="job", token=str(e.token), seq=e.seq, data=e.data) for e in found]
        return events, offsets
