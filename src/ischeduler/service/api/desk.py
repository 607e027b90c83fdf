"""What endpoints reach for: the backend, the gate and the service's own tables, from the request."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from fastapi import Depends, Request

from ischeduler.service.auth.gate import Gate
from ischeduler.service.backend import Backend, Busy
from ischeduler.service.settings import ServiceSettings
from ischeduler.store.requests import SavedWorkloads
from ischeduler.store.run_pages import RunPages
from ischeduler.store.webhooks import Webhooks


class Desk:
    """One for a service, kept as ``app.state.desk``. Planning takes one of a few slots, so that it cannot starve the rest."""

    def __init__(self, backend: Backend, gate: Gate, settings: ServiceSettings) -> None:
        self.backend, self.gate, self.settings = backend, gate, settings
        self.pages = RunPages(backend.engine)
        self.workloads = SavedWorkloads(backend.engine, clock=backend.clock.now)
        self.webhooks = Webhooks(backend.engine, clock=backend.clock.now)
        self._slots = threading.BoundedSemaphore(settings.plan_slots)

    @contextmanager
    def slot(self, wait_s: float = 10.0) -> Iterator[None]:
        """Hold one of the slots for heavy work. Busy when none becomes free."""
        if not self._slots.acquire(timeout=wait_s):
            raise Busy("the service plans for others at the moment; try again in some seconds.")
        try:
            yield
        finally:
            self._slots.release()


def desk_of(request: Request) -> Desk:
    """Dependency: the service's desk."""
    return request.app.state.desk


ADesk = Annotated[Desk, Depends(desk_of)]
