"""Who changed lately: one look at the database a second for all open streams of a process, however many there are."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from starlette.concurrency import run_in_threadpool

from ischeduler.core.errors import IschedError
from ischeduler.ports import Clock
from ischeduler.store.run_pages import RunPages

LOG = logging.getLogger("ischeduler.service")
EVERY_S = 1.0
OVERLAP_S = 15.0
"""Rows are dated by their writers: what a clock that lags, or a slow commit, dates a little earlier is still seen."""


@dataclass(eq=False, slots=True)
class Watch:
    """One open stream: whose runs it is about, and which of them changed since it last looked."""

    run_ids: frozenset[str] = frozenset()
    owners: frozenset[str] = frozenset()
    projects: frozenset[str] = frozenset()
    changed: dict[str, float] = field(default_factory=dict[str, float])
    woken: asyncio.Event = field(default_factory=asyncio.Event)

    def about(self, run_id: str, owner: str, project: str) -> bool:
        """Whether a run is one of this stream's."""
        return run_id in self.run_ids or owner in self.owners or (project != "" and project in self.projects)

    async def wait(self, timeout_s: float) -> dict[str, float]:
        """What changed, as soon as something did: run id to the time of its save; empty after ``timeout_s``."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.woken.wait(), timeout_s)
        self.woken.clear()
        found, self.changed = self.changed, {}
        return found


class Live:
    """Runs beside the requests (``app.state.beside``)."""

    def __init__(self, pages: RunPages, clock: Clock) -> None:
        self._pages, self._clock = pages, clock
        self._watches: set[Watch] = set()
        self._versions: dict[str, tuple[int, float]] = {}
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to look."""
        self._task = asyncio.create_task(self._loop(), name="isched-live")

    async def stop(self) -> None:
        """End; open streams end with the process."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    @contextlib.contextmanager
    def watching(self, watch: Watch) -> Iterator[Watch]:
        """Let a stream be told for as long as the block runs."""
        self._watches.add(watch)
        try:
            yield watch
        finally:
            self._watches.discard(watch)

    async def _loop(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            if not self._watches:
                self._versions.clear()
                continue
            try:
                await self._look()
            except IschedError as error:
                LOG.warning("streams: %s", error)

    async def _look(self) -> None:
        now = self._clock.now()
        watches = list(self._watches)
        found = await run_in_threadpool(
            self._pages.changed, now - OVERLAP_S, run_ids=_all(w.run_ids for w in watches), owners=_all(w.owners for w in watches),
            projects=_all(w.projects for w in watches),
        )  # fmt: skip
        for run_id, owner, project, version, at in found:
            if self._versions.get(run_id, (-1, 0.0))[0] == version:
                continue
            self._versions[run_id] = (version, now)
            for watch in watches:
                if watch.about(run_id, owner, project):
                    watch.changed[run_id] = at
                    watch.woken.set()
        self._versions = {k: v for k, v in self._versions.items() if now - v[1] < 4 * OVERLAP_S}


def _all(parts: Iterator[Collection[str]] | Collection[Collection[str]]) -> set[str]:
    return {item for part in parts for item in part}
