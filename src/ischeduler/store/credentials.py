"""Digests of tokens and sessions, and things that may be used once. Secrets themselves never come here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, delete, insert, select, update

from ischeduler.core.errors import NotFound
from ischeduler.store.centre_tables import ONE_TIME, SESSIONS, TOKENS
from ischeduler.store.engine import WRITE, reading

USED_EVERY_S = 300.0


@dataclass(frozen=True, slots=True)
class TokenRow:
    """What is known of a token. ``run_id`` is set for a job's."""

    id: str
    kind: str
    user: str
    run_id: str | None
    digest: str
    scopes: tuple[str, ...]
    label: str
    created_at: float
    expires_at: float
    used_at: float | None = None
    revoked_at: float | None = None


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A browser's session."""

    digest: str
    user: str
    scopes: tuple[str, ...]
    created_at: float
    expires_at: float


class Credentials:
    """Tokens, sessions and one-time values in the database."""

    def __init__(self, engine: Engine, *, clock: Callable[[], float] = time.time) -> None:
        self._engine, self._writing, self._clock = reading(engine), engine.execution_options(**WRITE), clock

    def add_token(self, token: TokenRow) -> None:
        """Keep a new token."""
        values = {name: getattr(token, name) for name in TokenRow.__slots__} | {"scopes": list(token.scopes)}
        with self._writing.begin() as connection:
            connection.execute(insert(TOKENS).values(values))

    def token(self, token_id: str) -> TokenRow | None:
        """By its id; None when there is none."""
        with self._engine.connect() as connection:
            row = connection.execute(select(TOKENS).where(TOKENS.c.id == token_id)).first()
        return None if row is None else _token(row)

    def tokens_of(self, token_ids: Iterable[str]) -> Mapping[str, TokenRow]:
        """By their ids, those there are, in few questions."""
        wanted, found = sorted(set(token_ids)), dict[str, TokenRow]()
        with self._engine.connect() as connection:
            for start in range(0, len(wanted), 500):
                query = select(TOKENS).where(TOKENS.c.id.in_(wanted[start : start + 500]))
                found |= {row.id: _token(row) for row in connection.execute(query)}
        return found

    def tokens(self, user: str | None = None, kind: str = "personal") -> Sequence[TokenRow]:
        """A user's tokens (None: everybody's), newest first."""
        query = select(TOKENS).where(TOKENS.c.kind == kind).order_by(TOKENS.c.created_at.desc(), TOKENS.c.id)
        if user is not None:
            query = query.where(TOKENS.c.user == user)
        with self._engine.connect() as connection:
            return [_token(row) for row in connection.execute(query)]

    def used(self, token: TokenRow) -> None:
        """Note that a token was used; at most every five minutes."""
        now = self._clock()
        if token.used_at is None or now - token.used_at > USED_EVERY_S:
            with self._writing.begin() as connection:
                connection.execute(update(TOKENS).where(TOKENS.c.id == token.id).values(used_at=now))

    def revoke(self, token_id: str, user: str | None = None) -> TokenRow:
        """End a token (of that user, where given). NotFound when there is none."""
        mine = TOKENS.c.id == token_id
        if user is not None:
            mine &= TOKENS.c.user == user
        with self._writing.begin() as connection:
            done = connection.execute(update(TOKENS).where(mine, TOKENS.c.revoked_at.is_(None)).values(revoked_at=self._clock()))
            row = connection.execute(select(TOKENS).where(mine)).first()
        if row is None or (done.rowcount == 0 and row.revoked_at is None):
            raise NotFound(f"there is no token '{token_id}'.")
        return _token(row)

    def revoke_of_run(self, run_id: str) -> int:
        """End all tokens of a run's jobs; how many."""
        with self._writing.begin() as connection:
            mine = (TOKENS.c.run_id == run_id) & TOKENS.c.revoked_at.is_(None)
            return connection.execute(update(TOKENS).where(mine).values(revoked_at=self._clock())).rowcount

    def add_session(self, session: SessionRow) -> None:
        """Keep a new session, and forget those that have expired."""
        values = {name: getattr(session, name) for name in SessionRow.__slots__} | {"scopes": list(session.scopes)}
        with self._writing.begin() as connection:
            connection.execute(delete(SESSIONS).where(SESSIONS.c.expires_at < self._clock()))
            connection.execute(insert(SESSIONS).values(values))

    def session(self, digest: str) -> SessionRow | None:
        """A session that has not expired; None otherwise."""
        query = select(SESSIONS).where(SESSIONS.c.digest == digest, SESSIONS.c.expires_at > self._clock())
        with self._engine.connect() as connection:
            row = connection.execute(query).first()
        return None if row is None else SessionRow(row.digest, row.user, tuple(row.scopes), row.created_at, row.expires_at)

    def end_sessions(self, *, digest: str | None = None, user: str | None = None) -> None:
        """End one session, or all of a user's."""
        wanted = SESSIONS.c.digest == digest if digest is not None else SESSIONS.c.user == user
        with self._writing.begin() as connection:
            connection.execute(delete(SESSIONS).where(wanted))

    def put_once(self, digest: str, purpose: str, doc: Mapping[str, Any], ttl_s: float) -> None:
        """Keep something that :meth:`take_once` gives out one time only, and forget what has expired."""
        now = self._clock()
        with self._writing.begin() as connection:
            connection.execute(delete(ONE_TIME).where(ONE_TIME.c.expires_at < now))
            connection.execute(insert(ONE_TIME).values(digest=digest, purpose=purpose, doc=dict(doc), expires_at=now + ttl_s))

    def take_once(self, digest: str, purpose: str) -> Mapping[str, Any] | None:
        """What was kept, the first time it is asked for and before it expires; None ever after."""
        mine = (ONE_TIME.c.digest == digest) & (ONE_TIME.c.purpose == purpose) & (ONE_TIME.c.expires_at > self._clock())
        with self._writing.begin() as connection:
            row = connection.execute(select(ONE_TIME.c.doc).where(mine)).first()
            taken = connection.execute(delete(ONE_TIME).where(mine)).rowcount
        return row.doc if row is not None and taken == 1 else None


def _token(row: Any) -> TokenRow:
    return TokenRow(
        row.id, row.kind, row.user, row.run_id, row.digest, tuple(row.scopes), row.label, row.created_at, row.expires_at,
        row.used_at, row.revoked_at,
    )
