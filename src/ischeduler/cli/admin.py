"""``isched admin``: the service's people, from the machine that has its database."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ischeduler.cli import output
from ischeduler.cli.common import Json
from ischeduler.cli.invocation import config
from ischeduler.core.codec import to_plain

app = typer.Typer(rich_markup_mode=None, help="The service's people: key, users, projects, tokens, audit log.", no_args_is_help=True)
user_app = typer.Typer(rich_markup_mode=None, help="People: add, list, change, link.", no_args_is_help=True)
role_app = typer.Typer(rich_markup_mode=None, help="Roles of a person: set, list.", no_args_is_help=True)
project_app = typer.Typer(rich_markup_mode=None, help="Projects: add, list, member.", no_args_is_help=True)
token_app = typer.Typer(rich_markup_mode=None, help="Personal tokens: create, list, revoke.", no_args_is_help=True)
for name, group in (("user", user_app), ("role", role_app), ("project", project_app), ("token", token_app)):
    app.add_typer(group, name=name)

Name = Annotated[str, typer.Argument(metavar="USER", help="The user's name.")]
Roles = Annotated[list[str] | None, typer.Option("--role", metavar="ROLE", help="user, project_admin, centre_admin, estimator_developer.")]


def _office() -> Any:
    from ischeduler.helper.admin import Office

    return Office(config())


@app.command()
def key(file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="Default: serve.key_file.")] = None, as_json: Json = False) -> None:
    """Make the server's key in a new file of mode 600. Every token and session hangs on it: keep a copy."""
    from ischeduler.helper.serving import key_path
    from ischeduler.service.auth.secrets import make_key

    path = file or key_path(config())
    make_key(path)
    if as_json:
        output.document("isched.key/1", {"path": str(path)})
    else:
        output.line(f"{output.style('✓', 'green')} {path} holds the server's key; keep a copy, and never show it")


@user_app.command("add")
def add_user(
    name: Name, display_name: Annotated[str, typer.Option("--display-name", metavar="NAME")] = "",
    email: Annotated[str, typer.Option("--email", metavar="ADDRESS")] = "", roles: Roles = None, as_json: Json = False,
) -> None:  # fmt: skip
    """Add a person."""
    _say_users([_office().add_user(name, display_name, email, roles or ["user"])], as_json, one=True)


@user_app.command("list")
def list_users(as_json: Json = False) -> None:
    """Everybody."""
    _say_users(_office().users(), as_json)


@user_app.command("disable")
def disable(name: Name, as_json: Json = False) -> None:
    """Disable a person: their tokens and sessions are of no use from now on."""
    _say_users([_office().set_disabled(name, True)], as_json, one=True)


@user_app.command("enable")
def enable(name: Name, as_json: Json = False) -> None:
    """Let a disabled person in again."""
    _say_users([_office().set_disabled(name, False)], as_json, one=True)


@user_app.command("link")
def link(
    name: Name, issuer: Annotated[str, typer.Argument(metavar="ISSUER", help="The provider's issuer URL.")],
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="Who they are there (claim sub).")], as_json: Json = False,
) -> None:  # fmt: skip
    """Let somebody of an OIDC provider or Tapis tenant be this user."""
    _say_users([_office().link(name, issuer, subject)], as_json, one=True)


@role_app.command("set")
def set_roles(name: Name, roles: Annotated[list[str], typer.Argument(metavar="ROLE...")], as_json: Json = False) -> None:
    """Give a person these roles and no others."""
    _say_users([_office().set_roles(name, roles)], as_json, one=True)


@role_app.command("list")
def list_roles() -> None:
    """The roles there are."""
    from ischeduler.service.auth.principal import ROLES

    for role in ROLES:
        output.line(role)


@project_app.command("add")
def add_project(name: str, title: Annotated[str, typer.Option("--title")] = "", as_json: Json = False) -> None:
    """Add a project."""
    _say_projects(_office().add_project(name, title), as_json)


@project_app.command("list")
def list_projects(as_json: Json = False) -> None:
    """Every project with its members."""
    _say_projects(_office().projects(), as_json)


@project_app.command("member")
def member(
    project: str, user: str, admin: Annotated[bool, typer.Option("--admin", help="They administer the project.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="End the membership.")] = False, as_json: Json = False,
) -> None:  # fmt: skip
    """Make a user a member of a project, or end that."""
    _say_projects(_office().member(project, user, admin=admin, remove=remove), as_json)


@token_app.command("create")
def create_token(
    user: Name,
    scopes: Annotated[list[str] | None, typer.Option("--scope", metavar="SCOPE", help="read, write, admin (default: read and write).")] = None,
    days: Annotated[float, typer.Option("--days", metavar="N", help="How long it is good for.")] = 90.0,
    label: Annotated[str, typer.Option("--label", metavar="TEXT", help="What it is for.")] = "",
    file: Annotated[Path | None, typer.Option("--file", metavar="FILE", help="Write it there (mode 600) and not on the screen.")] = None,
    as_json: Json = False,
) -> None:
    """Make a personal token. Its text is told this once; only its digest is kept."""
    text, row = _office().create_token(user, scopes or ["read", "write"], days, label, file)
    if as_json:
        output.document("isched.token/1", {"token": to_plain(row), "secret": "" if file else text})
    elif file:
        output.line(f"{output.style('✓', 'green')} token {row.id} of {user} is in {file}, good for {days:g} days")
    else:
        output.note(f"Token {row.id} of {user}, good for {days:g} days; it is told this once:")
        output.line(text)


@token_app.command("list")
def list_tokens(user: Annotated[str | None, typer.Argument(metavar="[USER]")] = None, as_json: Json = False) -> None:
    """Tokens, newest first; never their text."""
    found = _office().tokens(user)
    if as_json:
        output.document("isched.tokens/1", {"tokens": [to_plain(t) for t in found]})
        return
    rows = [(t.id, t.user, ",".join(t.scopes), t.label or "-", _date(t.expires_at), "withdrawn" if t.revoked_at else "good") for t in found]
    output.table(("TOKEN", "USER", "SCOPES", "LABEL", "EXPIRES", "STATE"), rows)


@token_app.command("revoke")
def revoke_token(token_id: Annotated[str, typer.Argument(metavar="TOKEN")], as_json: Json = False) -> None:
    """Withdraw a token; it is of no use from now on."""
    row = _office().revoke_token(token_id)
    if as_json:
        output.document("isched.tokens/1", {"tokens": [to_plain(row)]})
    else:
        output.line(f"{output.style('✓', 'green')} token {row.id} of {row.user} is withdrawn")


@app.command()
def audit(
    user: Annotated[str | None, typer.Option("--user", metavar="USER", help="Only theirs.")] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N")] = 50, as_json: Json = False,
) -> None:  # fmt: skip
    """Who did what, when, from where: newest first."""
    lines = _office().audit(user, limit)
    if as_json:
        output.document("isched.audit/1", {"lines": [to_plain(a) for a in lines], "next": None})
        return
    rows = [(_date(a.at), a.who, a.origin, a.what, a.about, a.outcome) for a in lines]
    output.table(("WHEN", "WHO", "FROM", "WHAT", "ABOUT", "OUTCOME"), rows)


def _say_users(users: Sequence[Any], as_json: bool, *, one: bool = False) -> None:
    if as_json:
        if one:
            output.document("isched.user/1", {"user": to_plain(users[0])})
        else:
            output.document("isched.users/1", {"users": [to_plain(u) for u in users]})
        return
    rows = [
        (u.name, ",".join(u.roles), ",".join(f"{p}{'*' if a else ''}" for p, a in sorted(u.projects.items())) or "-",
         "disabled" if u.disabled else "good", _date(u.seen_at))
        for u in users
    ]  # fmt: skip
    output.table(("USER", "ROLES", "PROJECTS", "STATE", "SEEN"), rows)


def _say_projects(projects: Sequence[Any], as_json: bool) -> None:
    if as_json:
        output.document("isched.projects/1", {"projects": [to_plain(p) for p in projects]})
        return
    rows = [(p.name, p.title or "-", ",".join(f"{u}{'*' if a else ''}" for u, a in sorted(p.members.items())) or "-") for p in projects]
    output.table(("PROJECT", "TITLE", "MEMBERS (* ADMINISTERS)"), rows)


def _date(at: float | None) -> str:
    return "-" if at is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
