"""What the service is told when it starts. The Helper fills this from the configuration; nothing here reads a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """An OpenID Connect provider that people sign in with. ``claim`` names the claim that becomes the user's name."""

    issuer: str
    client_id: str
    client_secret: str = field(default="", repr=False)
    claim: str = "preferred_username"
    scopes: str = "openid profile email"


@dataclass(frozen=True, slots=True)
class TapisSettings:
    """A Tapis tenant whose access tokens are accepted: the issuer they name, and the tenant's public key (PEM)."""

    issuer: str
    public_key: str
    tenant: str = ""


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """The service's own settings. Durations in seconds; rates in requests a second and principal.

    ``key`` is the server's secret (32 bytes or more) from which all others are derived. ``public_url`` is how browsers and jobs
    reach the service. ``origins`` are the web origins whose pages may call the API. ``open_registration`` makes a user at the
    first sign-in through OIDC or Tapis; without it an administrator adds people. ``webhook_hosts`` are inside names that a
    webhook may call although their addresses are private. ``trusted_proxies`` are addresses and networks (``10.89.0.0/24``).
    """

    key: bytes = field(repr=False)
    public_url: str = "http://127.0.0.1:8642"
    oidc: OidcSettings | None = None
    tapis: TapisSettings | None = None
    origins: tuple[str, ...] = ()
    open_registration: bool = False
    session_s: float = 12 * 3600.0
    token_s: float = 90 * 86400.0
    job_token_s: float = 2 * 86400.0
    rate: float = 20.0
    burst: float = 60.0
    stranger_rate: float = 5.0
    stranger_burst: float = 20.0
    body_bytes: int = 1 << 20
    plan_slots: int = 4
    plan_age_s: float = 900.0
    webhook_hosts: tuple[str, ...] = ()
    trusted_proxies: tuple[str, ...] = ()
    extra: Mapping[str, object] = field(default_factory=dict[str, object])

    @property
    def secure(self) -> bool:
        """Whether cookies may travel over https only."""
        return self.public_url.startswith("https://")
