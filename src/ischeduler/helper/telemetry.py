"""What the configuration says of metrics, traces, logs and the submit-time guard, for the service and for plane workers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ischeduler.helper.config import Config

if TYPE_CHECKING:
    from ischeduler.service.guard.routes import GuardSettings
    from ischeduler.service.telemetry import TelemetrySettings


def telemetry_settings(config: Config, service: str, *, secrets: Iterable[str] = ()) -> TelemetrySettings:
    """Settings of this process's telemetry; ``secrets`` and the database's password are hidden in every log line.

    ConfigError when the metrics' token file is missing or open to others.
    """
    from sqlalchemy.engine import make_url

    from ischeduler.helper.serving import read_secret
    from ischeduler.service.telemetry import TelemetrySettings

    token, url = read_secret(config["serve.metrics_token_file"], "serve.metrics_token_file"), config.database_url
    password = make_url(url).password if "://" in url else None
    hidden = [s for s in (*secrets, token, str(password or "")) if s]
    return TelemetrySettings(
        service=service,
        metrics_host=str(config["serve.metrics_host"]),
        metrics_port=int(config["serve.metrics_port"]),
        metrics_token=token,
        trace_endpoint=str(config["serve.trace_endpoint"]),
        log_form=str(config["serve.log_format"]),
        log_level=str(config["serve.log_level"]),
        secrets=tuple(hidden),
    )


def guard_settings(config: Config) -> GuardSettings:
    """Settings of the guard: its munged, and whose account is whose."""
    from ischeduler.service.guard.routes import GuardSettings

    accounts: Mapping[str, str] = config["serve.accounts"]
    return GuardSettings(str(config["serve.guard_munge_socket"]), {account: user for user, account in accounts.items()})
