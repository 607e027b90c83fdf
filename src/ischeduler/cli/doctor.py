"""``isched doctor``: check everything, each with the fix."""

from __future__ import annotations

from typing import Annotated

import typer

from ischeduler.cli import output
from ischeduler.cli.common import Json
from ischeduler.cli.invocation import session
from ischeduler.core.codec import to_plain

app = typer.Typer(rich_markup_mode=None)


@app.command()
def doctor(
    server: Annotated[bool, typer.Option("--server", help="Check what a centre's service needs instead.")] = False, as_json: Json = False
) -> int:
    """Check everything iScheduler needs, with the fix. Exit code 1 when something is bad."""
    if server:
        from ischeduler.helper.doctor_server import examine_server as examine
    else:
        from ischeduler.helper.doctor import examine

    checks = examine(session())
    bad = sum(c.level == "bad" for c in checks)
    if as_json:
        output.document("isched.doctor/1", {"healthy": not bad, "checks": [to_plain(c) for c in checks]})
        return 1 if bad else 0
    marks = {"ok": output.style("✓", "green"), "warn": output.style("!", "yellow"), "bad": output.style("✗", "red")}
    width = max(len(c.name) for c in checks)
    for check in checks:
        output.line(f"{marks[check.level]} {check.name.ljust(width)}  {check.text}")
        if check.fix:
            output.line(f"  {' ' * width}  → {check.fix}")
    warned = sum(c.level == "warn" for c in checks)
    output.line("All is well." if not bad and not warned else f"{bad} bad, {warned} to know about.")
    return 1 if bad else 0
