"""Signing in through an OpenID Connect provider: authorization code with PKCE (RFC 7636), state and nonce used once.

Everything between the two requests lies in the database under the digest of ``state``, which a cookie binds to the browser.
"""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from typing import Any
from urllib.parse import urlsplit

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from ischeduler.core.errors import IschedError, NotFound, StoreConflict
from ischeduler.service.auth.gate import Gate
from ischeduler.service.auth.principal import NotSignedIn, check_user_name
from ischeduler.service.auth.sessions import open_session
from ischeduler.service.settings import OidcSettings
from ischeduler.store.identities import User

router = APIRouter(prefix="/auth", include_in_schema=False)
START = "/auth/start"
CALLBACK = "/auth/callback"
STATE_COOKIE = "isched_state"
STATE_S = 600.0
METADATA_S = 3600.0
TIMEOUT_S = 10.0
ALGORITHMS = ["RS256", "ES256", "PS256", "EdDSA"]


class ProviderAway(IschedError):
    """The provider does not answer, or answers nonsense."""


class Provider:
    """A provider's endpoints and keys, by discovery, read anew each hour (and when a token names a key that is not known)."""

    def __init__(self, settings: OidcSettings) -> None:
        self.settings = settings
        self._lock = threading.Lock()
        self._read_at, self._metadata, self._keys = 0.0, dict[str, Any](), dict[str, Any]()

    def metadata(self) -> dict[str, Any]:
        """The discovery document. ProviderAway; also when it is another issuer's (OpenID Connect Discovery 4.3)."""
        self._fresh()
        return self._metadata

    def _fresh(self, *, anew: bool = False) -> None:
        with self._lock:
            if self._metadata and not anew and time.monotonic() - self._read_at < METADATA_S:
                return
            found = self._get(f"{self.settings.issuer}/.well-known/openid-configuration")
            if str(found.get("issuer", "")).rstrip("/") != self.settings.issuer:
                raise ProviderAway(f"the sign-in provider says it is another issuer than {self.settings.issuer}.")
            for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
                if not str(found.get(name, "")).startswith(("https://", "http://")):
                    raise ProviderAway(f"the sign-in provider names no {name}.")
            self._keys = self._get(found["jwks_uri"])
            self._metadata, self._read_at = found, time.monotonic()

    def _get(self, url: str) -> dict[str, Any]:
        import httpx2 as httpx

        try:
            answer = httpx.get(url, timeout=TIMEOUT_S, follow_redirects=False)
            found = answer.raise_for_status().json()
        except (httpx.HTTPError, ValueError) as error:
            raise ProviderAway(f"the sign-in provider does not answer ({type(error).__name__}); try again later.") from None
        if not isinstance(found, dict):
            raise ProviderAway("the sign-in provider answers nonsense.")
        return found

    def client(self, redirect_uri: str) -> Any:
        """Authlib's client, with PKCE."""
        from authlib.integrations.requests_client import OAuth2Session

        return OAuth2Session(
            self.settings.client_id, self.settings.client_secret or None, scope=self.settings.scopes, redirect_uri=redirect_uri,
            code_challenge_method="S256", default_timeout=TIMEOUT_S,
            token_endpoint_auth_method="client_secret_basic" if self.settings.client_secret else "none",
        )  # fmt: skip

    def claims(self, id_token: str, nonce: str) -> dict[str, Any]:
        """The verified claims of an identity token. NotSignedIn otherwise."""
        for anew in (False, True):
            try:
                return self._verified(id_token, nonce)
            except KeyError:
                if anew:
                    raise NotSignedIn("the sign-in provider signed with a key that it does not publish.") from None
                self._fresh(anew=True)
        raise NotSignedIn("the sign-in failed.")

    def _verified(self, id_token: str, nonce: str) -> dict[str, Any]:
        """KeyError when the key it names is not known."""
        import jwt

        try:
            wanted = jwt.get_unverified_header(id_token).get("kid")
            keys = [k for k in jwt.PyJWKSet.from_dict(self._keys).keys if wanted is None or k.key_id == wanted]
            if not keys:
                raise KeyError(wanted)
            claims = jwt.decode(
                id_token, keys[0], algorithms=ALGORITHMS, audience=self.settings.client_id, issuer=self.metadata()["issuer"], leeway=30,
                options={"require": ["exp", "iat", "iss", "aud", "sub"]},
            )  # fmt: skip
        except jwt.PyJWTError:
            raise NotSignedIn("the sign-in provider's answer is not valid; sign in again.") from None
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
            raise NotSignedIn("the sign-in provider's answer is to another question; sign in again.")
        if isinstance(claims["aud"], list) and len(claims["aud"]) > 1 and claims.get("azp") != self.settings.client_id:
            raise NotSignedIn("the sign-in provider's answer is for somebody else.")
        return claims


def _provider(request: Request) -> Provider:
    provider: Provider | None = request.app.state.oidc
    if provider is None:
        raise NotFound("no sign-in provider is configured here; sign in with a token.")
    return provider


def _cookie(gate: Gate) -> str:
    return f"__Host-{STATE_COOKIE}" if gate.settings.secure else STATE_COOKIE


@router.get("/start", name="auth.start")
def start(request: Request, next: str = "/") -> Response:
    """Send the browser to the provider."""
    provider, gate = _provider(request), request.app.state.gate
    gate.strangers.take(f"start:{gate.origin(request)}", gate.clock.now())
    state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
    client = provider.client(f"{gate.settings.public_url}{CALLBACK}")
    url, _ = client.create_authorization_url(
        provider.metadata()["authorization_endpoint"], state=state, nonce=nonce, code_verifier=verifier
    )
    kept = {"nonce": nonce, "verifier": verifier, "next": safe_path(next)}
    gate.credentials.put_once(gate.derived.digest("state", state), "oidc", kept, STATE_S)
    answer = RedirectResponse(url, status_code=303)
    answer.set_cookie(_cookie(gate), state, max_age=int(STATE_S), httponly=True, samesite="lax", secure=gate.settings.secure, path="/")
    return answer


@router.get("/callback", name="auth.callback")
def callback(request: Request, code: str = "", state: str = "", error: str = "") -> Response:
    """Take the provider's answer: once, from the browser that asked, within ten minutes."""
    provider, gate = _provider(request), request.app.state.gate
    gate.strangers.take(f"callback:{gate.origin(request)}", gate.clock.now())
    mine = request.cookies.get(_cookie(gate), "")
    if error or not code or not state or not hmac.compare_digest(mine.encode(), state.encode()):
        raise NotSignedIn("the sign-in was not finished; begin it again.")
    kept = gate.credentials.take_once(gate.derived.digest("state", state), "oidc")
    if kept is None:
        raise NotSignedIn("that sign-in is too old or was used already; begin it again.")
    claims = provider.claims(_exchange(provider, gate, code, kept["verifier"]), kept["nonce"])
    user = user_of(gate, provider.settings, claims)
    answer = RedirectResponse(kept["next"], status_code=303)
    answer.delete_cookie(_cookie(gate), path="/", httponly=True, samesite="lax", secure=gate.settings.secure)
    open_session(request, answer, user.name)
    return answer


def _exchange(provider: Provider, gate: Gate, code: str, verifier: str) -> str:
    from authlib.common.errors import AuthlibBaseError
    from requests import RequestException

    client = provider.client(f"{gate.settings.public_url}{CALLBACK}")
    try:
        token = client.fetch_token(provider.metadata()["token_endpoint"], code=code, code_verifier=verifier)
        return str(token["id_token"])
    except (AuthlibBaseError, KeyError) as error:
        raise NotSignedIn(f"the sign-in provider gave no identity ({type(error).__name__}); sign in again.") from None
    except (RequestException, ValueError) as error:
        raise ProviderAway(f"the sign-in provider does not answer ({type(error).__name__}); try again later.") from None
    finally:
        client.close()


def user_of(gate: Gate, settings: OidcSettings, claims: dict[str, Any]) -> User:
    """Who the claims are here: a linked user, or a new one where registration is open. NotSignedIn otherwise."""
    known = gate.identities.of_identity(settings.issuer, str(claims["sub"]))
    if known is None:
        if not gate.settings.open_registration:
            raise NotSignedIn("you are nobody here yet; ask the centre's administrators to add and link you.")
        name = check_user_name(str(claims.get(settings.claim, "")).partition("@")[0].lower())
        try:
            known = gate.identities.add_user(name, display_name=str(claims.get("name", "")), email=str(claims.get("email", "")))
        except StoreConflict:
            raise NotSignedIn(f"the name '{name}' is somebody's here already; ask the centre's administrators to link you.") from None
        gate.identities.link(name, settings.issuer, str(claims["sub"]))
    if known.disabled:
        raise NotSignedIn("this account is disabled; ask the centre's administrators.")
    return known


def safe_path(text: str) -> str:
    """A path of this service to go to afterwards; anything else is the first page: no open redirect."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return "/"
    plain = text.isascii() and text.isprintable() and "\\" not in text and len(text) < 500
    return text if plain and text.startswith("/") and not text.startswith("//") and not parts.scheme and not parts.netloc else "/"
