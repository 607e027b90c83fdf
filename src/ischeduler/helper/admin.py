"""What an administrator does to the service's people with the database at hand. Every deed is written to the audit log."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from ischeduler.core.errors import ConfigError
from ischeduler.helper.config import Config
from ischeduler.helper.serving import key_path
from ischeduler.service.api.people import Project, Token, shown
from ischeduler.service.auth.principal import check_roles, check_user_name
from ischeduler.service.auth.secrets import Derived, read_key
from ischeduler.service.auth.tokens import Tokens
from ischeduler.store.audit import AuditLine, AuditLog
from ischeduler.store.credentials import Credentials
from ischeduler.store.identities import Identities, User
from ischeduler.wiring import wire

DAY_S = 86400.0


class Office:
    """Over one configuration. Whoever may read the database and the key may do all of this."""

    def __init__(self, config: Config) -> None:
        self._config, self._services = config, wire(config)

    @cached_property
    def _people(self) -> Identities:
        return Identities(self._services.engine)

    @cached_property
    def _credentials(self) -> Credentials:
        return Credentials(self._services.engine)

    def _note(self, what: str, about: str) -> None:
        AuditLog(self._services.engine).add(AuditLine(getpass.getuser(), what, about, origin=f"cli:{socket.gethostname()}"[:64]))

    def add_user(self, name: str, display_name: str, email: str, roles: Sequence[str]) -> User:
        """Add a person."""
        found = self._people.add_user(
            check_user_name(name), display_name=display_name, email=email, roles=check_roles(tuple(roles))
        )
        self._note("user.add", name)
        return found

    def users(self) -> Sequence[User]:
        """Everybody."""
        return self._people.users()

    def set_disabled(self, name: str, disabled: bool) -> User:
        """Disable a person, or let them in again."""
        found = self._people.change_user(name, disabled=disabled)
        if disabled:
            self._credentials.end_sessions(user=name)
        self._note("user.disable" if disabled else "user.enable", name)
        return found

    def set_roles(self, name: str, roles: Sequence[str]) -> User:
        """Give a person these roles and no others."""
        found = self._people.change_user(name, roles=list(check_roles(tuple(roles))))
        self._note("user.roles", f"{name} {','.join(roles)}")
        return found

    def link(self, name: str, issuer: str, subject: str) -> User:
        """Let an issuer's subject be this user."""
        self._people.link(name, issuer.rstrip("/"), subject)
        self._note("user.link", f"{name} {issuer}")
        return self._people.user(name)

    def add_project(self, name: str, title: str) -> Sequence[Project]:
        """Add a project."""
        self._people.add_project(name, title)
        self._note("project.add", name)
        return [p for p in self.projects() if p.name == name]

    def projects(self) -> Sequence[Project]:
        """Every project with its members."""
        return [Project(*p) for p in self._people.projects()]

    def member(self, project: str, user: str, *, admin: bool, remove: bool) -> Sequence[Project]:
        """Set or end a membership."""
        if remove:
            self._people.remove_member(project, user)
        else:
            self._people.set_member(project, user, admin=admin)
        self._note("project.member", f"{project} {user}")
        return [p for p in self.projects() if p.name == project]

    def create_token(self, user: str, scopes: Sequence[str], days: float, label: str, file: Path | None) -> tuple[str, Token]:
        """A personal token, written to a new file of mode 600 where one is named."""
        self._people.user(user)
        tokens = Tokens(self._credentials, Derived(read_key(key_path(self._config))), self._services.clock)
        handle = _new_private(file) if file else None
        text, row = tokens.make(user, scopes=scopes, ttl_s=days * DAY_S, label=label)
        if handle is not None:
            with open(handle, "w", encoding="ascii") as out:
                out.write(text + "\n")
        self._note("token.create", f"{user} {row.id}")
        return text, shown(row)

    def tokens(self, user: str | None) -> Sequence[Token]:
        """A user's tokens, or everybody's."""
        return [shown(t) for t in self._credentials.tokens(user)]

    def revoke_token(self, token_id: str) -> Token:
        """Withdraw a token."""
        row = self._credentials.revoke(token_id)
        self._note("token.revoke", f"{row.user} {row.id}")
        return shown(row)

    def audit(self, user: str | None, limit: int) -> Sequence[AuditLine]:
        """The newest lines of the log."""
        return AuditLog(self._services.engine).lines(who=user, limit=limit)


def _new_private(path: Path) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(f"{path} cannot be made: {error.strerror}; name a file that does not exist yet.") from None
