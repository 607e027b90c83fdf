"""Batch systems that are reached over a network, made from the configuration: slurmrestd here; Tapis and agents beside it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ischeduler.core.errors import ConfigError
from ischeduler.ports import Clock

if TYPE_CHECKING:
    from ischeduler.batch.slurm_rest import SlurmRest
    from ischeduler.batch.slurm_rest_tokens import TokenSource
    from ischeduler.batch.tapis.batch import TapisBatch
    from ischeduler.batch.tapis.estimator_jobs import EstimatorJobs


class Settings(Protocol):
    """The configuration."""

    def __getitem__(self, key: str) -> Any:
        """A setting's value."""
        ...


def cluster_name(settings: Settings) -> str:
    """``batch.cluster``, which nothing on the other side tells. ConfigError when it is not set."""
    name = str(settings["batch.cluster"])
    if not name:
        raise ConfigError(
            f"batch.kind = '{settings['batch.kind']}' needs batch.cluster: the name of the cluster that is reached."
        )
    return name


def account_of(settings: Settings, user: str) -> str:
    """What the cluster calls a user of the service."""
    return str(dict(settings["serve.accounts"]).get(user, user))


def check_per_user(settings: Settings, *keys: str) -> None:
    """ConfigError where a service would act for everybody with one person's secret."""
    for key in keys:
        if settings[key] and "{user}" not in str(settings[key]):
            raise ConfigError(f"{key} of a service must have {{user}} in its name: each user is acted for with their own.")


def rest_tokens(settings: Settings, clock: Clock) -> TokenSource:
    """Where the configuration says that Slurm tokens come from. ConfigError where it does not say."""
    from ischeduler.batch.slurm_rest_tokens import CommandTokens, FileTokens

    command, file = tuple(settings["slurmrest.token_command"]), str(settings["slurmrest.token_file"])
    if command:
        return CommandTokens(command, clock, lifespan_s=round(settings["slurmrest.token_lifespan"]))
    if not file:
        raise ConfigError(
            "batch.kind = 'slurmrest' needs slurmrest.token_file (mode 600, from: scontrol token) or slurmrest.token_command."
        )
    return FileTokens(str(Path(file).expanduser()))


def rest_batch(
    settings: Settings, account: str, clock: Clock, *, everyone: bool = False, tokens: TokenSource | None = None
) -> SlurmRest:
    """slurmrestd as the cluster's user ``account``. ConfigError for a configuration that cannot work."""
    from ischeduler.batch.slurm_rest import SlurmRest

    url = str(settings["slurmrest.url"])
    if not url:
        raise ConfigError(
            "batch.kind = 'slurmrest' needs slurmrest.url: the address of slurmrestd, e.g. https://slurm.example.org:6820."
        )
    return SlurmRest(cluster_name(settings), url, account, tokens or rest_tokens(settings, clock), clock, everyone=everyone)


def tapis_batch(settings: Settings, account: str, clock: Clock, *, webhook: str = "") -> TapisBatch:
    """Tapis as its user ``account``. ConfigError for a configuration that cannot work."""
    from ischeduler.batch.tapis.batch import TapisBatch
    from ischeduler.batch.tapis.client import Login, TapisClient
    from ischeduler.batch.tapis.job import Site

    name, system = cluster_name(settings), str(settings["tapis.system"])
    if not system:
        raise ConfigError("batch.kind = 'tapis' needs tapis.system: the id of the Tapis system that stands for the cluster.")
    if not settings["tapis.scripts"]:
        raise ConfigError(
            "batch.kind = 'tapis' needs tapis.scripts: a folder on the system that you may write, e.g. scratch/alice/isched."
        )
    login = Login(
        account, _secret(settings, "tapis.password_file", account), str(settings["tapis.client_id"]),
        _secret(settings, "tapis.client_key_file", account), _secret(settings, "tapis.token_file", account),
    )  # fmt: skip
    gpus = str(settings["tapis.gpus"])
    site = Site.of(
        system, name, app=settings["tapis.app"], app_version=settings["tapis.app_version"], profile=settings["tapis.profile"],
        gpus="" if gpus == "auto" else gpus, options=tuple(settings["tapis.options"]),
    )  # fmt: skip
    client = TapisClient(str(settings["tapis.url"]), str(settings["tapis.tenant"]), login, clock)
    return TapisBatch(
        name,
        client,
        site,
        clock,
        scripts=str(settings["tapis.scripts"]),
        webhook=webhook,
        push=bool(settings["tapis.send_events"]),
    )


def _secret(settings: Settings, key: str, user: str) -> str:
    """What the file of a setting holds, for this user; '' where none is named. ConfigError when it is missing or open to others."""
    from ischeduler.batch.slurm_rest_tokens import checked_user
    from ischeduler.training.push import read_push_token

    named = str(settings[key])
    if not named:
        return ""
    try:
        return read_push_token(Path(named.replace("{user}", checked_user(user))).expanduser())
    except OSError as error:
        raise ConfigError(f"{key}: {error}") from None


def tapis_estimators(settings: Settings, account: str, clock: Clock) -> EstimatorJobs:
    """Where estimators that are Tapis apps run: the same tenant and system. ConfigError where none is configured."""
    from ischeduler.batch.tapis.estimator_jobs import EstimatorJobs

    batch = tapis_batch(settings, account, clock)
    return EstimatorJobs(
        batch.client, batch.site.system, f"{str(settings['tapis.scripts']).replace('{user}', account)}/estimators"
    )
