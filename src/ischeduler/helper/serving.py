"""``isched serve``: the service's settings from the configuration, and its processes."""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ischeduler.core.errors import ConfigError
from ischeduler.helper.config import Config, load_config

if TYPE_CHECKING:
    from fastapi import FastAPI

    from ischeduler.helper.centre import Centre
    from ischeduler.service.settings import OidcSettings, ServiceSettings, TapisSettings

FACTORY = "ischeduler.helper.serving:app_of_environment"
GRACE_S = 20


def key_path(config: Config) -> Path:
    """Where the server's key is."""
    return Path(config["serve.key_file"]).expanduser() if config["serve.key_file"] else config.state_dir / "server.key"


def service_settings(config: Config) -> ServiceSettings:
    """The service's settings. ConfigError names the key or the file that is wrong."""
    from ischeduler.service.auth.secrets import read_key
    from ischeduler.service.settings import ServiceSettings

    oidc = _oidc(config)
    return ServiceSettings(
        key=read_key(key_path(config)), public_url=public_url(config), oidc=oidc, tapis=_tapis(config),
        origins=tuple(config["serve.origins"]), open_registration=config["serve.open_registration"], rate=config["serve.rate"] or 0.0,
        burst=config["serve.burst"] or 1.0, plan_age_s=config["plan.max_age"], webhook_hosts=tuple(config["serve.webhook_hosts"]),
        trusted_proxies=_proxies(config), extra=_extras(config, (oidc.client_secret,) if oidc else ()),
    )  # fmt: skip


def _proxies(config: Config) -> tuple[str, ...]:
    for given in config["serve.trusted_proxies"]:
        try:
            ipaddress.ip_network(given, strict=False)
        except ValueError:
            raise ConfigError(f"serve.trusted_proxies takes addresses and networks such as 10.89.0.0/24, got '{given[:60]}'.") from None
    return tuple(config["serve.trusted_proxies"])


def _extras(config: Config, secrets: tuple[str, ...]) -> dict[str, object]:
    """What other rooms of the service are told."""
    from ischeduler.helper.telemetry import guard_settings, telemetry_settings

    return {"telemetry": telemetry_settings(config, "ischeduler-service", secrets=secrets), "guard": guard_settings(config)}


def public_url(config: Config) -> str:
    """How the service is reached from elsewhere."""
    url = config["serve.public_url"] or f"http://{config['serve.host']}:{config['serve.port']}"
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"serve.public_url must begin with https:// or http://, got '{url[:60]}'.")
    return url.rstrip("/")


def _oidc(config: Config) -> OidcSettings | None:
    from ischeduler.service.settings import OidcSettings

    issuer = config["serve.oidc_issuer"]
    if not issuer:
        return None
    if not config["serve.oidc_client_id"]:
        raise ConfigError("serve.oidc_issuer is set but serve.oidc_client_id is not; register the service with the provider and set both.")
    secret = read_secret(config["serve.oidc_secret_file"], "serve.oidc_secret_file")
    return OidcSettings(issuer.rstrip("/"), config["serve.oidc_client_id"], secret, config["serve.oidc_claim"])


def _tapis(config: Config) -> TapisSettings | None:
    from ischeduler.service.settings import TapisSettings

    issuer, file = config["serve.tapis_issuer"], config["serve.tapis_key_file"]
    if not issuer:
        return None
    if not file:
        raise ConfigError("serve.tapis_issuer is set but serve.tapis_key_file is not; store the tenant's public key (PEM) and name its file.")
    try:
        return TapisSettings(issuer, Path(file).expanduser().read_text(encoding="ascii"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"serve.tapis_key_file {file} cannot be read: {error}.") from None


def read_secret(file: str, key: str) -> str:
    """A secret from a file of mode 600; '' where none is named."""
    if not file:
        return ""
    from ischeduler.training.push import read_push_token

    try:
        return read_push_token(Path(file).expanduser())
    except OSError as error:
        raise ConfigError(f"{key}: {error}") from None


def centre_of(config: Config) -> Centre:
    """The backend of a configuration."""
    from ischeduler.helper.centre import Centre
    from ischeduler.helper.centre_batches import directory_of
    from ischeduler.wiring import wire

    services = wire(config)
    return Centre(services, directory_of(services))


def app_of(config: Config) -> FastAPI:
    """The application of a configuration."""
    from ischeduler.service.app import create_app

    return create_app(centre_of(config), service_settings(config))


def description() -> dict[str, Any]:
    """The API's description (OpenAPI 3.1): of an application over an empty database of its own, so that no setting is needed."""
    from tempfile import TemporaryDirectory

    from ischeduler.service.app import create_app
    from ischeduler.service.settings import ServiceSettings

    with TemporaryDirectory(prefix="isched-openapi-") as folder:
        places = {"ISCHED_PATHS_STATE": folder, "ISCHED_PATHS_DATA": folder, "ISCHED_BATCH_KIND": "local", "ISCHED_SYSTEM_CONFIG": "/dev/null"}
        centre = centre_of(load_config(directory=Path(folder), environment={**places, "XDG_CONFIG_HOME": folder}))
        found = create_app(centre, ServiceSettings(key=b"\0" * 32)).openapi()
        centre.engine.dispose()
    return found


def app_of_environment() -> FastAPI:
    """The application in a web process of its own, which has its settings from ``ISCHED_*`` variables."""
    return app_of(load_config())


def share_metrics() -> None:
    """Let web processes write their figures where the first one reads them; to be called before anything counts."""
    import atexit
    import shutil
    import tempfile

    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = tempfile.mkdtemp(prefix="isched-metrics-")
        atexit.register(shutil.rmtree, os.environ["PROMETHEUS_MULTIPROC_DIR"], ignore_errors=True)


def serve(config: Config) -> None:
    """Listen until SIGTERM or Ctrl-C; requests under way are finished first."""
    try:
        import uvicorn
    except ImportError:
        raise ConfigError("the service's libraries are not installed; install them: pip install 'ischeduler[service]'.") from None

    if config["serve.workers"] > 1:
        share_metrics()
    app = app_of(config)  # what is wrong with the settings is said before anything listens
    options = {
        "host": config["serve.host"], "port": config["serve.port"], "log_level": "info", "server_header": False,
        "timeout_graceful_shutdown": GRACE_S, "forwarded_allow_ips": "", "proxy_headers": False, "access_log": False, "log_config": None,
    }  # fmt: skip
    if config["serve.workers"] <= 1:
        uvicorn.run(app, **options)
        return
    os.environ.update({**config.as_environment(), "ISCHED_SERVE_METRICS_PORT": "0"})  # this process offers them for all
    uvicorn.run(FACTORY, factory=True, workers=config["serve.workers"], **options)
