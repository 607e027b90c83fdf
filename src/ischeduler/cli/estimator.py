"""``isched estimator``: who estimates, and whether a plug-in keeps the contract."""

from __future__ import annotations

from typing import Annotated

import typer

from ischeduler.cli import output
from ischeduler.cli.common import Json
from ischeduler.cli.invocation import session
from ischeduler.core.codec import to_plain

app = typer.Typer(rich_markup_mode=None, help="List estimators; check one against the contract.", no_args_is_help=True)


@app.command("list")
def list_estimators(as_json: Json = False) -> None:
    """List estimators in the order of trust."""
    registry = session().services.estimators().registry
    infos = [e.info for e in registry]
    if as_json:
        output.document("isched.estimators/1", {"estimators": [to_plain(i) for i in infos], "problems": list(registry.problems)})
        return
    output.table(
        ("NAME", "VERSION", "BASIS", "ANSWERS", "HOW"),
        [(i.name, i.version, i.basis, ", ".join(i.quantities), i.description) for i in infos],
    )
    for problem in registry.problems:
        output.note(problem)


@app.command()
def check(
    name: Annotated[str, typer.Argument(metavar="NAME", help="An estimator of isched estimator list.")], as_json: Json = False
) -> int:
    """Check an estimator against the contract. Exit code 1 when it breaks it."""
    from ischeduler.estimators import conformance

    findings = conformance.check(session().services.estimators().registry.get(name))
    broken = conformance.broken(findings)
    if as_json:
        output.document(
            "isched.estimator-check/1", {"name": name, "conforms": not broken, "findings": [to_plain(f) for f in findings]}
        )
    else:
        marks = {"ok": output.style("✓", "green"), "note": "·", "broken": output.style("✗", "red")}
        for finding in findings:
            output.line(f"{marks[finding.level]} {finding.check}: {finding.text}")
        output.line(f"{name} {'conforms' if not broken else f'breaks the contract in {len(broken)} point(s)'}.")
    return 1 if broken else 0
