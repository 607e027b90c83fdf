"""Who is asking. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ischeduler.core.errors import BadInput, IschedError

ROLES = ("user", "project_admin", "centre_admin", "estimator_developer")
SCOPES = ("read", "write", "admin", "events")
"""read: look; write: plan, submit, cancel; admin: what the user's roles allow beyond their own things; events: a job's own words."""
PERSONAL_SCOPES = ("read", "write", "admin")
_NAME = re.compile(r"[a-z_][a-z0-9_.-]{0,31}")


class NotSignedIn(IschedError):
    """Nobody is known to be asking: no credential, or one that is wrong, expired or withdrawn."""


class Forbidden(IschedError):
    """The one who asks may not do this."""


@dataclass(frozen=True, slots=True)
class Principal:
    """A user as this request knows them. ``projects`` are theirs, ``administered`` those they administer.

    ``run_id`` is set for a job's token, which speaks for that run alone. ``by`` is 'token', 'job', 'session' or 'tapis'.
    """

    user: str
    roles: frozenset[str] = frozenset({"user"})
    projects: frozenset[str] = frozenset()
    administered: frozenset[str] = frozenset()
    scope: frozenset[str] = frozenset()
    token_id: str = ""
    run_id: str | None = None
    by: str = "token"

    @property
    def centre_admin(self) -> bool:
        """Administers the centre, and this credential may be used for it."""
        return "centre_admin" in self.roles and "admin" in self.scope

    @property
    def seen_projects(self) -> frozenset[str]:
        """Projects of which every run may be seen: those administered, where the credential may be used for it."""
        return self.administered if "admin" in self.scope else frozenset()

    def may_see(self, owner: str, project: str) -> bool:
        """Whether a row of that owner and project exists for this principal."""
        return owner == self.user or (project != "" and project in self.seen_projects) or self.centre_admin


def check_user_name(name: str) -> str:
    """The name, where it is one that file systems, Slurm and URLs carry unharmed. BadInput otherwise."""
    if not _NAME.fullmatch(name) or name.endswith("."):
        raise BadInput(f"'{name[:40]}' is no user name; expected up to 32 of a-z, 0-9, '_', '.', '-', beginning with a letter or '_'.")
    return name


def check_roles(roles: tuple[str, ...]) -> tuple[str, ...]:
    """Roles there are. BadInput names one that is none."""
    for role in roles:
        if role not in ROLES:
            raise BadInput(f"'{role}' is no role; expected one of {', '.join(ROLES)}.")
    return tuple(dict.fromkeys(roles))


def check_scopes(scopes: tuple[str, ...]) -> tuple[str, ...]:
    """Scopes a personal token may have. BadInput names one that is none."""
    for scope in scopes:
        if scope not in PERSONAL_SCOPES:
            raise BadInput(f"'{scope}' is no scope of a personal token; expected one of {', '.join(PERSONAL_SCOPES)}.")
    if not scopes:
        raise BadInput(f"a token needs a scope: one or more of {', '.join(PERSONAL_SCOPES)}.")
    return tuple(dict.fromkeys(scopes))
