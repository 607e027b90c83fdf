"""Oneself and one's tokens; for the centre's administrators everybody, projects and the audit log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response

from ischeduler.core.errors import BadInput
from ischeduler.service.api.bodies import LinkBody, MemberBody, ProjectBody, TokenBody, UserBody, UserChangeBody
from ischeduler.service.api.desk import ADesk
from ischeduler.service.api.documents import answers, document
from ischeduler.service.api.house_route import SECRET, HouseRoute
from ischeduler.service.api.runs import Key
from ischeduler.service.auth.principal import Forbidden, check_roles, check_user_name
from ischeduler.service.auth.require import CentreAdmin, Reader, Writer
from ischeduler.store.credentials import TokenRow

router = APIRouter(prefix="/v1", route_class=HouseRoute)
TokenId = Annotated[str, Path(pattern=r"^[0-9a-f]{16}$", examples=["0123456789abcdef"])]
UserName = Annotated[str, Path(pattern=r"^[a-z_][a-z0-9_.-]{0,31}$", examples=["alice"])]
ProjectName = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", examples=["vision"])]
DAY_S = 86400.0


@dataclass(frozen=True, slots=True)
class Token:
    """A token as it may be shown: never its text, which is told once when it is made, nor its digest."""

    id: str
    user: str
    scopes: tuple[str, ...]
    label: str
    created_at: float
    expires_at: float
    used_at: float | None
    revoked_at: float | None


@dataclass(frozen=True, slots=True)
class Me:
    """Oneself, as this credential lets one act."""

    user: str
    roles: tuple[str, ...]
    projects: Mapping[str, bool]
    scope: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Project:
    """A project and its members; whether each administers it."""

    name: str
    title: str
    members: Mapping[str, bool]


def shown(row: TokenRow) -> Token:
    """A token as it may be shown."""
    return Token(row.id, row.user, row.scopes, row.label, row.created_at, row.expires_at, row.used_at, row.revoked_at)


@router.get("/me", responses=answers("me"), name="me.get", tags=["people"])
def me(who: Reader) -> Response:
    """Who you are here."""
    projects = {p: p in who.administered for p in sorted(who.projects)}
    return document("me", {"me": Me(who.user, tuple(sorted(who.roles)), projects, tuple(sorted(who.scope)))})


@router.get("/tokens", responses=answers("tokens"), name="token.list", tags=["people"])
def list_tokens(desk: ADesk, who: Reader) -> Response:
    """Your personal tokens, newest first."""
    return document("tokens", {"tokens": [shown(t) for t in desk.gate.credentials.tokens(who.user)]})


@router.post("/tokens", status_code=201, responses=answers("token", 413, status=201), name="token.create", tags=["people"], openapi_extra={SECRET: True})
def make_token(desk: ADesk, who: Writer, body: TokenBody) -> Response:
    """A personal token; its text is told this once. It can do no more than the credential that makes it."""
    beyond = set(body.scopes) - who.scope
    if beyond & {"read", "write", "admin"}:
        raise Forbidden(f"your own credential has no scope '{min(beyond)}' to give.")
    text, row = desk.gate.tokens.make(who.user, scopes=body.scopes, ttl_s=body.days * DAY_S, label=body.label)
    return document("token", {"token": shown(row), "secret": text}, status=201, headers={"Cache-Control": "no-store"})


@router.delete(
    "/tokens/{token_id}", status_code=204, responses=answers(None, 404, status=204, words="Withdrawn."), name="token.revoke", tags=["people"]
)
def revoke_token(desk: ADesk, who: Writer, token_id: TokenId) -> Response:
    """Withdraw a personal token of yours; it is of no use from now on."""
    desk.gate.credentials.revoke(token_id, who.user)
    return Response(status_code=204)


@router.get("/admin/users", responses=answers("users"), name="user.list", tags=["administration"])
def list_users(desk: ADesk, who: CentreAdmin) -> Response:
    """Everybody."""
    return document("users", {"users": desk.gate.identities.users()})


@router.post("/admin/users", status_code=201, responses=answers("user", 409, 413, status=201), name="user.add", tags=["administration"])
def add_user(desk: ADesk, who: CentreAdmin, body: UserBody, idempotency_key: Key = None) -> Response:
    """Add a person."""
    name, roles = check_user_name(body.name), check_roles(body.roles)
    user = desk.gate.identities.add_user(name, display_name=body.display_name, email=body.email, roles=roles)
    return document("user", {"user": user}, status=201)


@router.patch("/admin/users/{user}", responses=answers("user", 404, 413), name="user.change", tags=["administration"])
def change_user(desk: ADesk, who: CentreAdmin, user: UserName, body: UserChangeBody) -> Response:
    """Change a person's roles, or disable them: their tokens and sessions are of no use from then on."""
    changes: dict[str, Any] = body.model_dump(exclude_none=True)
    if not changes:
        raise BadInput("nothing to change was given; give roles, disabled, display_name or email.")
    if "roles" in changes:
        changes["roles"] = list(check_roles(tuple(changes["roles"])))
    if user == who.user and (changes.get("disabled") or "centre_admin" not in changes.get("roles", ["centre_admin"])):
        raise BadInput("you would lock yourself out; let another administrator do that.")
    after = desk.gate.identities.change_user(user, **changes)
    if after.disabled:
        desk.gate.credentials.end_sessions(user=user)
    return document("user", {"user": after})


@router.post("/admin/users/{user}/identities", status_code=201, responses=answers("user", 404, 409, 413, status=201), name="user.link", tags=["administration"])
def link(desk: ADesk, who: CentreAdmin, user: UserName, body: LinkBody) -> Response:
    """Let an issuer's subject (of OIDC or Tapis) be this user."""
    found = desk.gate.identities.user(user)
    desk.gate.identities.link(user, body.issuer, body.subject)
    return document("user", {"user": found}, status=201)


@router.get("/admin/projects", responses=answers("projects"), name="project.list", tags=["administration"])
def list_projects(desk: ADesk, who: CentreAdmin) -> Response:
    """Every project with its members."""
    return document("projects", {"projects": [Project(*p) for p in desk.gate.identities.projects()]})


@router.post("/admin/projects", status_code=201, responses=answers("projects", 409, 413, status=201), name="project.add", tags=["administration"])
def add_project(desk: ADesk, who: CentreAdmin, body: ProjectBody, idempotency_key: Key = None) -> Response:
    """Add a project."""
    desk.gate.identities.add_project(body.name, body.title)
    return document("projects", {"projects": [Project(body.name, body.title, {})]}, status=201)


@router.put(
    "/admin/projects/{project}/members/{user}", status_code=204, responses=answers(None, 404, 413, status=204, words="Done."),
    name="project.member", tags=["administration"],
)  # fmt: skip
def set_member(desk: ADesk, who: CentreAdmin, project: ProjectName, user: UserName, body: MemberBody) -> Response:
    """Make a user a member, or change whether they administer the project."""
    desk.gate.identities.set_member(project, user, admin=body.admin)
    return Response(status_code=204)


@router.delete(
    "/admin/projects/{project}/members/{user}", status_code=204, responses=answers(None, 404, status=204, words="Done."),
    name="project.remove_member", tags=["administration"],
)  # fmt: skip
def remove_member(desk: ADesk, who: CentreAdmin, project: ProjectName, user: UserName) -> Response:
    """End a membership."""
    desk.gate.identities.remove_member(project, user)
    return Response(status_code=204)


@router.get("/admin/tokens", responses=answers("tokens"), name="token.list_all", tags=["administration"])
def all_tokens(desk: ADesk, who: CentreAdmin) -> Response:
    """Everybody's personal tokens (never their text)."""
    return document("tokens", {"tokens": [shown(t) for t in desk.gate.credentials.tokens()]})


@router.delete(
    "/admin/tokens/{token_id}", status_code=204, responses=answers(None, 404, status=204, words="Withdrawn."), name="token.revoke_any",
    tags=["administration"],
)  # fmt: skip
def revoke_any(desk: ADesk, who: CentreAdmin, token_id: TokenId) -> Response:
    """Withdraw anybody's token."""
    desk.gate.credentials.revoke(token_id)
    return Response(status_code=204)


@router.get("/admin/audit", responses=answers("audit"), name="audit.list", tags=["administration"])
def audit(
    desk: ADesk, who: CentreAdmin, user: Annotated[str | None, Query(max_length=64)] = None,
    before: Annotated[int | None, Query(ge=1, le=2**62)] = None, limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:  # fmt: skip
    """Who did what, when, from where: newest first."""
    lines = desk.gate.log.lines(who=user, before=before, limit=limit)
    return document("audit", {"lines": lines, "next": lines[-1].row if len(lines) == limit else None})
