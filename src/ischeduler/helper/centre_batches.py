"""Whose hands the service submits with: the batch systems of a centre's users, picked from the configuration."""

from __future__ import annotations

from collections.abc import Mapping

from ischeduler.ports import BatchDirectory, BatchSystem
from ischeduler.wiring import REACHED, Services


class OwnBatches:
    """This process's own batch systems. Everybody's on the embedded ``local`` one; on Slurm by commands only its own user's,
    since a command submits as whoever runs it."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def observer(self, cluster: str) -> BatchSystem | None:
        """What sees all jobs of the users here."""
        return self._services.batches.get(cluster)

    def of(self, owner: str) -> Mapping[str, BatchSystem]:
        """What acts as ``owner``; nothing for somebody else than this process's user where acting is by command."""
        if self._services.batch_kind == "local" or owner == self._services.owner:
            return self._services.batches
        return {}


def directory_of(services: Services) -> BatchDirectory:
    """The directory that the configuration asks for."""
    if services.batch_kind in REACHED:
        from ischeduler.helper.reached_batches import reached_batches

        return reached_batches(services)
    return OwnBatches(services)
