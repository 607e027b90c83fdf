"""The door: from a request's credential to a principal, and the record of what principals did."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

from ischeduler.core.errors import NotFound
from ischeduler.service.auth.limits import Buckets
from ischeduler.service.auth.principal import Forbidden, NotSignedIn, Principal
from ischeduler.service.auth.secrets import Derived
from ischeduler.service.auth.sessions import SAFE_METHODS, check_csrf, session_of
from ischeduler.service.auth.tapis import TapisTokens
from ischeduler.service.auth.tokens import Tokens, is_ours
from ischeduler.service.backend import Backend
from ischeduler.service.settings import ServiceSettings
from ischeduler.store.audit import AuditLine, AuditLog
from ischeduler.store.credentials import Credentials
from ischeduler.store.identities import Identities, User

_HOW = "sign in, or send a token: Authorization: Bearer isc_..."


class Gate:
    """Everything about who is asking, for one service. Kept as ``app.state.gate``."""

    def __init__(self, backend: Backend, settings: ServiceSettings) -> None:
        self.settings, self.clock = settings, backend.clock
        self.derived = Derived(settings.key)
        now = backend.clock.now
        self.identities = Identities(backend.engine, clock=now)
        self.credentials = Credentials(backend.engine, clock=now)
        self.log = AuditLog(backend.engine, clock=now)
        self.tokens = Tokens(self.credentials, self.derived, backend.clock)
        self.known = Buckets(settings.rate, settings.burst)
        self.strangers = Buckets(settings.stranger_rate, settings.stranger_burst)
        self._proxies = [ipaddress.ip_network(given, strict=False) for given in settings.trusted_proxies]
        self.tapis = TapisTokens(settings.tapis, open_registration=settings.open_registration) if settings.tapis else None

    def principal(self, request: Request) -> Principal:
        """Who asks. NotSignedIn without a valid credential; Forbidden for a form without its CSRF token; TooMany."""
        found = getattr(request.state, "principal", None)
        if found is None:
            try:
                found = self.identify(request)
            except NotSignedIn:
                self.strangers.take(self.origin(request), self.clock.now())
                raise
            self.known.take(found.user if found.run_id is None else found.run_id, self.clock.now())
            request.state.principal = found
        return found

    def identify(self, request: Request) -> Principal:
        """Who asks, read anew. NotSignedIn, Forbidden."""
        bearer = _bearer(request)
        if bearer is None:
            return self._of_session(request)
        if is_ours(bearer):
            row = self.tokens.recognise(bearer)
            if row.kind == "job":
                return Principal(row.user, scope=frozenset(row.scopes), token_id=row.id, run_id=row.run_id, by="job")
            return self.of_user(row.user, frozenset(row.scopes), token_id=row.id, by="token")
        if self.tapis is None:
            raise NotSignedIn(f"that bearer token is none of this service's; {_HOW}")
        user = self.tapis.user(self.identities, bearer)
        return self.of_user(user, frozenset({"read", "write"}), token_id="tapis", by="tapis")

    def _of_session(self, request: Request) -> Principal:
        session = session_of(request)
        if session is None:
            raise NotSignedIn(f"nobody is signed in; {_HOW}")
        if request.method not in SAFE_METHODS:
            self._check_origin(request)
            if not _is_form(request):
                check_csrf(request)  # a form's own field is checked by the page that reads it
        return self.of_user(session.user, frozenset(session.scopes), token_id=session.digest[:16], by="session")

    def _check_origin(self, request: Request) -> None:
        """A browser says where a form came from; another origin's is refused even with a token."""
        origin = request.headers.get("origin")
        ours = {self.settings.public_url.rstrip("/"), f"{request.url.scheme}://{request.url.netloc}"}
        if origin is not None and origin not in ours and origin not in self.settings.origins:
            raise Forbidden("that form was sent from another site.")

    def of_user(self, name: str, scope: frozenset[str], *, token_id: str = "", by: str = "token") -> Principal:
        """The principal of a user's credential. NotSignedIn when the user is gone or disabled."""
        user = self._user(name)
        self.identities.seen(user)
        administered = frozenset(p for p, admin in user.projects.items() if admin)
        roles = frozenset(user.roles) | ({"project_admin"} if administered else frozenset())
        return Principal(
            user.name, roles, frozenset(user.projects), administered, scope, token_id=token_id, by=by
        )

    def _user(self, name: str) -> User:
        try:
            user = self.identities.user(name)
        except NotFound:
            raise NotSignedIn(f"the account of this credential is gone; {_HOW}") from None
        if user.disabled:
            raise NotSignedIn("this account is disabled; ask the centre's administrators.")
        return user

    def origin(self, request: Request) -> str:
        """The address a request came from; a proxy's word is taken where the proxy is trusted."""
        peer = request.client.host if request.client else "unknown"
        forwarded = request.headers.get("x-forwarded-for", "")
        if forwarded and self._is_proxy(peer):
            last = forwarded.split(",")[-1].strip()
            try:
                return str(ipaddress.ip_address(last))
            except ValueError:
                return peer
        return peer

    def _is_proxy(self, peer: str) -> bool:
        try:
            address = ipaddress.ip_address(peer)
        except ValueError:
            return False
        return any(address in network for network in self._proxies)

    def audit(
        self, request: Request, who: str, what: str, about: str = "", *, outcome: str = "done", detail: Mapping[str, Any] | None = None
    ) -> None:
        """Write down what somebody did."""
        principal: Principal | None = getattr(request.state, "principal", None)
        token_id = principal.token_id if principal else ""
        self.log.add(AuditLine(who, what, about, self.origin(request), token_id, outcome, detail or {}))


def _bearer(request: Request) -> str | None:
    header = request.headers.get("authorization")
    if header is None:
        return request.headers.get("x-tapis-token")
    kind, _, value = header.partition(" ")
    if kind.lower() != "bearer" or not value.strip() or len(value) > 8192:
        raise NotSignedIn(f"the Authorization header is none we know; {_HOW}")
    return value.strip()


def _is_form(request: Request) -> bool:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return not request.url.path.startswith("/v1") and kind in ("application/x-www-form-urlencoded", "multipart/form-data")
