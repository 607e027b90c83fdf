"""A centre's batch systems behind a network: everybody is served with their own rights, and looked at in as few questions as can be."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from ischeduler.batch import reached
from ischeduler.batch.agent import AgentBatch
from ischeduler.batch.fan_out import ByOwner
from ischeduler.ports import BatchDirectory, BatchSystem
from ischeduler.wiring import Services


class RestBatches:
    """slurmrestd: one observer for the jobs of all, and each user's own token to act with."""

    def __init__(self, services: Services) -> None:
        self._settings, self._clock = services.settings, services.clock
        self._cluster = reached.cluster_name(self._settings)
        if not self._settings["slurmrest.token_command"]:
            reached.check_per_user(self._settings, "slurmrest.token_file")
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


class EachTheirOwn:
    """Agents and Tapis show each user only their own jobs; they are looked at user by user, side by side."""

    def __init__(self, services: Services, make: Callable[[str], BatchSystem], first: Sequence[str]) -> None:
        self._make, self._mailbox, self._clock = make, services.mailbox, services.clock
        self._cluster = reached.cluster_name(services.settings)
        self._observer = ByOwner(self._cluster, self._owners, lambda owner: self.of(owner)[self._cluster], self._clock, first)

    def observer(self, cluster: str) -> BatchSystem | None:
        """What asks about each owner's jobs as that owner."""
        return self._observer if cluster == self._cluster else None

    def of(self, owner: str) -> Mapping[str, BatchSystem]:
        """The cluster as ``owner``. IschedError where that cannot be now."""
        return {self._cluster: self._make(owner)}

    def _owners(self, keys: Collection[str]) -> Mapping[str, str]:
        """Whose jobs these are: a key begins with its run's id."""
        runs = {key: key.rpartition("-")[0] for key in keys}
        owners = self._mailbox.owners(set(runs.values()))
        return {key: owners[run] for key, run in runs.items() if run in owners}


def reached_batches(services: Services) -> BatchDirectory:
    """The directory of a centre whose batch system is reached over a network. ConfigError where the settings are not enough."""
    if services.batch_kind == "slurmrest":
        return RestBatches(services)
    if services.batch_kind == "tapis":
        reached.check_per_user(services.settings, "tapis.password_file", "tapis.token_file")
        services.tapis_webhook = _webhooks(services)
        return EachTheirOwn(services, services.tapis_of, [services.owner])
    cluster = reached.cluster_name(services.settings)
    believed = [o for o in (str(services.settings["agent.observer"]), services.owner) if o]
    return EachTheirOwn(services, lambda owner: AgentBatch(services.mailbox, owner, cluster, services.clock), believed)


def _webhooks(services: Services) -> Callable[[str], str]:
    """Where Tapis shall tell news of each user's jobs; nowhere while the service has no address or key that others know."""
    settings = services.settings
    url = str(settings["serve.public_url"]).rstrip("/")
    file = Path(str(settings["serve.key_file"])).expanduser() if settings["serve.key_file"] else settings.state_dir / "server.key"
    if not url or not file.exists():
        return lambda owner: ""
    from ischeduler.service.auth.secrets import Derived, read_key
    from ischeduler.service.tapis_hooks import hook_path

    derived = Derived(read_key(file))
    return lambda owner: url + hook_path(derived, owner)
