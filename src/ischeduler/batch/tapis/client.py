"""A tenant through tapipy: tokens kept fresh, every call bounded, answers as plain JSON, errors as the house's.

tapipy is asked to retry nothing by itself: a submission that is repeated unseen would be a second job.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ischeduler.batch.slurm_rest_tokens import expiry
from ischeduler.core.errors import BatchUnavailable, ConfigError, SubmitRefused
from ischeduler.ports import Clock

_TIMEOUT_S = 60.0
_EARLY_S = 60.0


@dataclass(frozen=True, slots=True)
class Login:
    """How one gets tokens: a password (or an access token alone), and, to refresh them, a client of the tenant. Never shown."""

    user: str
    password: str = field(default="", repr=False)
    client_id: str = ""
    client_key: str = field(default="", repr=False)
    access_token: str = field(default="", repr=False)


class Unsure(BatchUnavailable):
    """The conversation broke after the request may have arrived."""


class Missing(BatchUnavailable):
    """What was asked for does not exist."""


class TapisClient:
    """One user at one tenant. ``calls`` counts operations. ``dress`` may change the HTTP session (certificates, tests)."""

    def __init__(self, url: str, tenant: str, login: Login, clock: Clock, *, dress: Callable[[Any], None] | None = None) -> None:
        if not url.startswith(("http://", "https://")) or not tenant:
            raise ConfigError("Tapis needs tapis.url (https://TENANT.tapis.io) and tapis.tenant.")
        self.url, self.login = url.rstrip("/"), login
        self._tenant, self._clock, self._dress = tenant, clock, dress
        self._tapis: Any = None
        self._expires_at: float | None = None
        self._lock = threading.RLock()
        self.calls: Counter[str] = Counter()

    def call(self, operation: str, **arguments: Any) -> Any:
        """The ``result`` of an operation such as ``jobs.submitJob``. SubmitRefused (4xx), Missing (404), Unsure, BatchUnavailable.

        A token that was refused is replaced once: the request did nothing then.
        """
        with self._lock:
            try:
                return self._call(operation, arguments)
            except _Unauthorized:
                self._expires_at = float("-inf")
                try:
                    return self._call(operation, arguments)
                except _Unauthorized as error:
                    raise BatchUnavailable(f"Tapis refuses the token of {self.login.user} ({error}); sign in again.") from None

    def content(self, operation: str, **arguments: Any) -> bytes:
        """The bytes that an operation answers with."""
        return self.call(operation, _raw=True, **arguments)

    def _call(self, operation: str, arguments: Mapping[str, Any]) -> Any:
        from tapipy import errors

        self.calls[operation] += 1
        given = dict(arguments)
        raw = given.pop("_raw", False)
        tapis = self._signed_in()
        resource, name = operation.split(".")
        try:
            _, debug = getattr(getattr(tapis, resource), name)(_tapis_debug=True, **given)
        except errors.UnauthorizedError as error:
            raise _Unauthorized(_said(error)) from None
        except errors.NotFoundError as error:
            raise Missing(f"Tapis knows nothing of it ({operation}): {_said(error)}") from None
        except (errors.BadRequestError, errors.ForbiddenError) as error:
            raise SubmitRefused(f"Tapis refused {operation}: {_said(error)}") from None
        except errors.InvalidInputError as error:
            raise SubmitRefused(f"tapipy refused {operation}: {_said(error)}") from None
        except errors.BaseTapyException as error:
            raise _broken(operation, error) from None
        response = debug.response
        return response.content if raw else _result(operation, response)

    def _signed_in(self) -> Any:
        """tapipy's client with a token that holds for a while."""
        if self._tapis is None:
            from tapipy.tapis import Tapis

            self._tapis = Tapis(
                base_url=self.url, tenant_id=self._tenant, username=self.login.user, password=self.login.password or None,
                client_id=self.login.client_id or None, client_key=self.login.client_key or None,
            )  # fmt: skip
            _bound(self._tapis.requests_session)
            if self._dress is not None:
                self._dress(self._tapis.requests_session)
        if self._expires_at is None or self._clock.now() >= self._expires_at - _EARLY_S:
            self._renew(self._tapis)
        return self._tapis

    def _renew(self, tapis: Any) -> None:
        """A token by the refresh token where there is one and a client to use it, else by the password."""
        from tapipy import errors

        login = self.login
        if not login.password:
            if not login.access_token:
                raise ConfigError("Tapis needs tapis.password_file or tapis.token_file (mode 600).")
            tapis.access_token, tapis.jwt = None, login.access_token
            self._expires_at = expiry(login.access_token) or float("inf")
            if self._clock.now() >= self._expires_at:
                raise BatchUnavailable(f"the Tapis token of {login.user} has expired; sign in again.")
            return
        self.calls["token"] += 1
        tapis.access_token = None
        try:
            if getattr(tapis, "refresh_token", None) and login.client_id and self._expires_at not in (None, float("-inf")):
                tapis.refresh_tokens()
            else:
                tapis.get_tokens()
        except (errors.UnauthorizedError, errors.BadRequestError, errors.ForbiddenError):
            tapis.refresh_token = None
            raise BatchUnavailable(f"Tapis does not sign {login.user} in; check the password file and the tenant.") from None
        except errors.BaseTapyException as error:
            raise BatchUnavailable(f"Tapis gives no token now: {_said(error)}") from None
        found = tapis.get_access_jwt()
        if not found:
            raise BatchUnavailable("Tapis answered the sign-in without a token.")
        self._expires_at = expiry(found) or self._clock.now() + 600.0


class _Unauthorized(Exception):
    """The token was refused."""


def _bound(session: Any) -> None:
    """Every request with a time limit: requests has none by itself."""
    plain = session.send

    def send(request: Any, **options: Any) -> Any:
        return plain(request, **{"timeout": _TIMEOUT_S, **options})

    session.send = send


def _broken(operation: str, error: Any) -> BatchUnavailable:
    """tapipy wraps every failure of the connection in its base error, the cause only in its text."""
    text = _said(error)
    refused = getattr(error, "response", None) is None and ("Connection refused" in text or "NewConnectionError" in text)
    if refused or "503" in text or type(error).__name__ == "ServiceUnavailableError":
        return BatchUnavailable(f"Tapis cannot be reached ({operation}); try again later.")
    return Unsure(f"Tapis broke off ({operation}: {text}).")


def _said(error: Any) -> str:
    return str(getattr(error, "message", "") or getattr(error, "msg", "") or error).replace("\n", " ")[:300]


def _result(operation: str, response: Any) -> Any:
    try:
        found = response.json()
    except ValueError:
        raise Unsure(f"Tapis gave no JSON to {operation}.") from None
    return found.get("result") if isinstance(found, Mapping) else found
