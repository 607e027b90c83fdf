"""Users, their names elsewhere, projects and memberships: short transactions, no policy."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from ischeduler.core.errors import NotFound, StoreConflict
from ischeduler.store.centre_tables import IDENTITIES, MEMBERSHIPS, PROJECTS, USERS
from ischeduler.store.engine import WRITE, reading

SEEN_EVERY_S = 300.0


@dataclass(frozen=True, slots=True)
class User:
    """A person. ``projects`` maps a project to whether they administer it."""

    name: str
    display_name: str
    email: str
    roles: tuple[str, ...]
    disabled: bool
    created_at: float
    seen_at: float | None
    projects: dict[str, bool]


class Identities:
    """People of a centre in the database."""

    def __init__(self, engine: Engine, *, clock: Callable[[], float] = time.time) -> None:
        self._engine, self._writing, self._clock = reading(engine), engine.execution_options(**WRITE), clock

    def add_user(self, name: str, *, display_name: str = "", email: str = "", roles: Sequence[str] = ("user",)) -> User:
        """StoreConflict when there is one of that name."""
        row = {
            "name": name, "display_name": display_name[:200], "email": email[:320], "roles": list(roles), "disabled": False,
            "created_at": self._clock(),
        }  # fmt: skip
        try:
            with self._writing.begin() as connection:
                connection.execute(insert(USERS).values(row))
        except IntegrityError:
            raise StoreConflict(f"there is a user '{name}' already.") from None
        return self.user(name)

    def user(self, name: str) -> User:
        """NotFound when there is none."""
        with self._engine.connect() as connection:
            row = connection.execute(select(USERS).where(USERS.c.name == name)).first()
            if row is None:
                raise NotFound(f"there is no user '{name}'; isched admin user list shows them.")
            return _user(row, _projects(connection, name))

    def users(self) -> Sequence[User]:
        """By name."""
        with self._engine.connect() as connection:
            rows = connection.execute(select(USERS).order_by(USERS.c.name)).all()
            members = connection.execute(select(MEMBERSHIPS)).all()
        by_user: dict[str, dict[str, bool]] = {}
        for m in members:
            by_user.setdefault(m.user, {})[m.project] = bool(m.admin)
        return [_user(row, by_user.get(row.name, {})) for row in rows]

    def change_user(self, name: str, **values: Any) -> User:
        """Set columns of a user: roles, disabled, display_name, email."""
        with self._writing.begin() as connection:
            if connection.execute(update(USERS).where(USERS.c.name == name).values(**values)).rowcount == 0:
                raise NotFound(f"there is no user '{name}'; isched admin user list shows them.")
        return self.user(name)

    def seen(self, user: User) -> None:
        """Note that a user was here; at most every five minutes."""
        now = self._clock()
        if user.seen_at is None or now - user.seen_at > SEEN_EVERY_S:
            with self._writing.begin() as connection:
                connection.execute(update(USERS).where(USERS.c.name == user.name).values(seen_at=now))

    def of_identity(self, issuer: str, subject: str) -> User | None:
        """Who an issuer's subject is here; None when nobody."""
        query = select(IDENTITIES.c.user).where(IDENTITIES.c.issuer == issuer, IDENTITIES.c.subject == subject)
        with self._engine.connect() as connection:
            name = connection.execute(query).scalar()
        return None if name is None else self.user(name)

    def link(self, name: str, issuer: str, subject: str) -> None:
        """Let an issuer's subject be this user. StoreConflict when it is somebody's already."""
        row = {"issuer": issuer, "subject": subject, "user": name, "created_at": self._clock()}
        try:
            with self._writing.begin() as connection:
                connection.execute(insert(IDENTITIES).values(row))
        except IntegrityError:
            raise StoreConflict(f"'{subject}' of {issuer} is linked already, or there is no user '{name}'.") from None

    def identities(self, name: str) -> Sequence[tuple[str, str]]:
        """Issuer and subject of each link of a user."""
        query = select(IDENTITIES.c.issuer, IDENTITIES.c.subject).where(IDENTITIES.c.user == name)
        with self._engine.connect() as connection:
            return [(i, s) for i, s in connection.execute(query)]

    def add_project(self, name: str, title: str = "") -> None:
        """StoreConflict when there is one of that name."""
        try:
            with self._writing.begin() as connection:
                connection.execute(insert(PROJECTS).values(name=name, title=title[:200], created_at=self._clock()))
        except IntegrityError:
            raise StoreConflict(f"there is a project '{name}' already.") from None

    def projects(self) -> Sequence[tuple[str, str, dict[str, bool]]]:
        """Name, title and members (whether each administers it), by name."""
        with self._engine.connect() as connection:
            rows = connection.execute(select(PROJECTS).order_by(PROJECTS.c.name)).all()
            members = connection.execute(select(MEMBERSHIPS)).all()
        return [(r.name, r.title, {m.user: bool(m.admin) for m in members if m.project == r.name}) for r in rows]

    def set_member(self, project: str, user: str, *, admin: bool = False) -> None:
        """Make a user a member, or change whether they administer the project. NotFound when one of both is unknown."""
        self.user(user)
        with self._writing.begin() as connection:
            if connection.execute(select(PROJECTS.c.name).where(PROJECTS.c.name == project)).first() is None:
                raise NotFound(f"there is no project '{project}'; isched admin project list shows them.")
            mine = (MEMBERSHIPS.c.project == project) & (MEMBERSHIPS.c.user == user)
            if connection.execute(update(MEMBERSHIPS).where(mine).values(admin=admin)).rowcount == 0:
                connection.execute(insert(MEMBERSHIPS).values(project=project, user=user, admin=admin))

    def remove_member(self, project: str, user: str) -> None:
        """NotFound when they are none."""
        with self._writing.begin() as connection:
            mine = (MEMBERSHIPS.c.project == project) & (MEMBERSHIPS.c.user == user)
            if connection.execute(delete(MEMBERSHIPS).where(mine)).rowcount == 0:
                raise NotFound(f"'{user}' is no member of '{project}'.")


def _projects(connection: Any, name: str) -> dict[str, bool]:
    query = select(MEMBERSHIPS.c.project, MEMBERSHIPS.c.admin).where(MEMBERSHIPS.c.user == name)
    return {project: bool(admin) for project, admin in connection.execute(query)}


def _user(row: Any, projects: dict[str, bool]) -> User:
    return User(
        row.name, row.display_name, row.email, tuple(row.roles), bool(row.disabled), row.created_at, row.seen_at, projects
    )
