"""A centre's batch systems behind a network: everybody is served with their own rights, and looked at in as few questions as can be."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ischeduler.batch import reached
from ischeduler.batch.agent import AgentBatch
from ischeduler.batch.fan_out import ByOwner
from ischeduler.core.errors import ConfigError
from ischeduler.ports import BatchDirectory, BatchSystem
from ischeduler.wiring import Services


class RestBatches:
    """slurmrestd: one observer for the jobs of all, and each user's own token to act with."""

    def __init__(self, services: Services) -> None:
        self._settings, self._clock = services.settings, services.clock
        self._cluster = reached.cluster_name(self._settings)
        self._tokens = reached.rest_tokens(self._settings, self._clock)
        observer = str(self._settings["slurmrest.observer"]) or reached.account_of(self._settings, services.owner)
        self._observer = reached.rest_batch(self._settings, observer, self._clock, everyone=True, tokens=self._tokens)
        self._users: dict[str, BatchSystem] = {}

    def observer(self, cluster: str) -> BatchSystem | None:
        """What sees all jobs that the observer's account may see."""
        return self._observer if cluster == self._cluster else None

    def of(self, owner: str) -> Mapping[str, BatchSystem]:
        """The cluster as ``owner``; the connection's back-off and version are kept for the next time."""
        if owner not in self._users:
            account = reached.account_of(self._settings, owner)
            self._users[owner] = reached.rest_batch(self._settings, account, self._clock, tokens=self._tokens)
        return {self._cluster: self._users[owner]}


class AgentBatches:
    """Each user's own agent; jobs are looked at agent by agent, side by side."""

    def __init__(self, services: Services) -> None:
        self._mailbox, self._clock = services.mailbox, services.clock
        self._cluster = reached.cluster_name(services.settings)
        first = [o for o in (str(services.settings["agent.observer"]), services.owner) if o]
        self._observer = ByOwner(self._cluster, self._owners, lambda owner: self.of(owner)[self._cluster], self._clock, first)

    def observer(self, cluster: str) -> BatchSystem | None:
        """What asks every owner's agent about that owner's jobs."""
        return self._observer if cluster == self._cluster else None

    def of(self, owner: str) -> Mapping[str, BatchSystem]:
        """The cluster by the hands of ``owner``'s agent."""
        return {self._cluster: AgentBatch(self._mailbox, owner, self._cluster, self._clock)}

    def _owners(self, keys: Collection[str]) -> Mapping[str, str]:
        """Whose jobs these are: a key begins with its run's id."""
        runs = {key: key.rpartition("-")[0] for key in keys}
        owners = self._mailbox.owners(set(runs.values()))
        return {key: owners[run] for key, run in runs.items() if run in owners}


def reached_batches(services: Services) -> BatchDirectory:
    """The directory of a centre whose batch system is reached over a network. ConfigError where the settings are not enough."""
    if services.batch_kind == "slurmrest":
        return RestBatches(services)
    if services.batch_kind == "agent":
        return AgentBatches(services)
    raise ConfigError(f"batch.kind = '{services.batch_kind}' is not there yet.")
