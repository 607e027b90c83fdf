"""Tokens: made, shown once, recognised. ``isc_ID_SECRET`` speaks for a person, ``isj_ID_SECRET`` for one run's jobs."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Sequence

from ischeduler.core.errors import BadInput
from ischeduler.ports import Clock
from ischeduler.service.auth.principal import NotSignedIn, check_scopes
from ischeduler.service.auth.secrets import Derived
from ischeduler.store.credentials import Credentials, TokenRow

PREFIXES = {"isc": "personal", "isj": "job"}
MOST_TOKEN_S = 366 * 86400.0
_FORM = re.compile(r"(is[cj])_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")
_PURPOSE = "token"
_WRONG = "the token is unknown, expired or withdrawn; make one with: isched admin token create, or on the service's page."


class Tokens:
    """Over the database's digests and the server's key: whoever reads the database can show no token."""

    def __init__(self, credentials: Credentials, derived: Derived, clock: Clock) -> None:
        self._credentials, self._derived, self._clock = credentials, derived, clock

    def make(self, user: str, *, scopes: Sequence[str], ttl_s: float, label: str = "") -> tuple[str, TokenRow]:
        """A personal token, in clear this one time."""
        if not 60 <= ttl_s <= MOST_TOKEN_S:
            raise BadInput(f"a token lives from a minute to {MOST_TOKEN_S / 86400:.0f} days, not {ttl_s:.0f} s.")
        return self._make("isc", user, None, check_scopes(tuple(scopes)), ttl_s, label)

    def make_for_job(self, user: str, run_id: str, ttl_s: float) -> tuple[str, TokenRow]:
        """A token for the jobs of one run: to send that run's events and to read its control word, nothing else."""
        return self._make("isj", user, run_id, ("events",), ttl_s, "")

    def _make(
        self, prefix: str, user: str, run_id: str | None, scopes: tuple[str, ...], ttl_s: float, label: str
    ) -> tuple[str, TokenRow]:
        token_id, now = secrets.token_hex(8), self._clock.now()
        text = f"{prefix}_{token_id}_{secrets.token_urlsafe(32)}"
        row = TokenRow(
            token_id, PREFIXES[prefix], user, run_id, self._derived.digest(_PURPOSE, text), scopes, label[:200], now, now + ttl_s
        )
        self._credentials.add_token(row)
        return text, row

    def recognise(self, text: str) -> TokenRow:
        """The token of its text. NotSignedIn when it is none of ours, expired or withdrawn: which of these is not told."""
        form = _FORM.fullmatch(text)
        row = self._judge(text, form, self._credentials.token(form[2]) if form else None)
        self._credentials.used(row)
        return row

    def recognise_all(self, texts: Iterable[str]) -> dict[str, TokenRow]:
        """Those of many texts that are tokens of ours, alive; for streams, which do not note when a token was used."""
        forms = {text: form for text in texts if (form := _FORM.fullmatch(text))}
        rows = self._credentials.tokens_of(form[2] for form in forms.values())
        found: dict[str, TokenRow] = {}
        for text, form in forms.items():
            try:
                found[text] = self._judge(text, form, rows.get(form[2]))
            except NotSignedIn:
                continue
        return found

    def _judge(self, text: str, form: re.Match[str] | None, row: TokenRow | None) -> TokenRow:
        stored = row.digest if row else "0" * 64
        if not self._derived.matches(_PURPOSE, text, stored) or row is None or form is None or PREFIXES[form[1]] != row.kind:
            raise NotSignedIn(_WRONG)
        if row.revoked_at is not None or row.expires_at <= self._clock.now():
            raise NotSignedIn(_WRONG)
        return row


def is_ours(text: str) -> bool:
    """Whether a bearer credential looks like a token of this service (and not like somebody's JWT)."""
    return text.startswith(("isc_", "isj_"))
