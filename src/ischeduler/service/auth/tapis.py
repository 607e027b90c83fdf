"""Tapis access tokens as credentials: a JWT of the configured tenant, verified with that tenant's public key (RS256)."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from typing import Any

from ischeduler.core.errors import ConfigError, StoreConflict
from ischeduler.service.auth.principal import NotSignedIn, check_user_name
from ischeduler.service.settings import TapisSettings
from ischeduler.store.identities import Identities

LEEWAY_S = 30
NEEDED = ["exp", "iss", "sub"]
_REMEMBERED = 4096


class TapisTokens:
    """Verifies tokens of one tenant. Claims ``tapis/tenant_id``, ``tapis/token_type`` and ``tapis/username`` are Tapis v3's."""

    def __init__(self, settings: TapisSettings, *, open_registration: bool = False) -> None:
        from cryptography.hazmat.primitives.serialization import load_pem_public_key

        try:
            self._key: Any = load_pem_public_key(settings.public_key.encode())
        except ValueError:
            raise ConfigError("serve.tapis_key_file holds no public key in PEM form; take it from the tenant's record (public_key).") from None
        self._settings, self._open = settings, open_registration
        self._lock = threading.Lock()
        self._verified: OrderedDict[str, tuple[float, str, str]] = OrderedDict()

    def user(self, identities: Identities, token: str) -> str:
        """The user of a token. NotSignedIn when it is not this tenant's, has expired, or names nobody here."""
        subject, username = self._claims(token)
        known = identities.of_identity(self._settings.issuer, subject)
        if known is not None:
            return known.name
        if not self._open:
            raise NotSignedIn(f"'{subject}' of Tapis is nobody here; ask the centre's administrators to link you.")
        name = check_user_name(username)
        try:
            identities.add_user(name)
        except StoreConflict:
            raise NotSignedIn(f"the name '{name}' is somebody's here already; ask the centre's administrators to link you.") from None
        identities.link(name, self._settings.issuer, subject)
        return name

    def _claims(self, token: str) -> tuple[str, str]:
        import time

        digest = hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
        with self._lock:
            kept = self._verified.get(digest)
        if kept is not None and kept[0] > time.time():
            return kept[1], kept[2]
        claims = self._verify(token)
        subject, username = str(claims["sub"]), str(claims.get("tapis/username", ""))
        with self._lock:
            self._verified[digest] = (float(claims["exp"]), subject, username)
            while len(self._verified) > _REMEMBERED:
                self._verified.popitem(last=False)
        return subject, username

    def _verify(self, token: str) -> dict[str, Any]:
        import jwt

        try:
            claims = jwt.decode(
                token, self._key, algorithms=["RS256"], issuer=self._settings.issuer, leeway=LEEWAY_S,
                options={"require": NEEDED, "verify_aud": False},
            )  # fmt: skip
        except jwt.PyJWTError:
            raise NotSignedIn("that Tapis token is not this tenant's, or has expired; get a new one.") from None
        tenant = self._settings.tenant
        if claims.get("tapis/token_type", "access") != "access" or (tenant and claims.get("tapis/tenant_id") != tenant):
            raise NotSignedIn("that Tapis token is no access token of this tenant.")
        return claims
