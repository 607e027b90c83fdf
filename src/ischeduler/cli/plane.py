"""``isched plane``: the Intelligence Plane by hand, as a daemon, or from cron."""

from __future__ import annotations

from typing import Annotated

import typer

from ischeduler.cli import output
from ischeduler.cli.common import Json
from ischeduler.cli.invocation import session
from ischeduler.core.codec import to_plain
from ischeduler.core.durations import human

app = typer.Typer(
    rich_markup_mode=None, help="The Intelligence Plane: submits, watches, cascades and reschedules.", no_args_is_help=True
)


@app.command()
def run(until_idle: Annotated[bool, typer.Option("--until-idle", help="End after a while without runs.")] = False) -> None:
    """Carry your runs until interrupted (daemon). Ending it loses nothing: the next one reads where it was."""
    from ischeduler.helper.plane_loop import carry

    carry(session(), until_idle=until_idle)


@app.command()
def worker(until_idle: Annotated[bool, typer.Option("--until-idle", help="End after a while without runs that are due.")] = False) -> None:
    """Carry everybody's runs, beside other workers on the same database (a centre's service). Killing it loses nothing."""
    from ischeduler.helper.centre_workers import carry

    carry(session(), until_idle=until_idle)


@app.command()
def tick(as_json: Json = False) -> int:
    """One look, as cron would call it. Does nothing where another plane is at work."""
    report = session().services.tick()
    if as_json:
        output.document("isched.tick/1", {"tick": to_plain(report)})
    elif not report.held:
        output.line("another plane is at work; nothing was done")
    else:
        output.line(f"✓ {report.runs} run(s) looked at, {len(report.changed)} changed, {report.actions} action(s)")
    for problem in report.problems:
        output.note(problem)
    return 0


@app.command()
def status(as_json: Json = False) -> int:
    """Is a plane alive on this host? Exit code 1 when runs are under way and none is."""
    from ischeduler.helper import daemon
    from ischeduler.plane.transitions import LIVE

    here = session()
    found = daemon.alive(here.config.state_dir)
    waiting = len(here.services.store.list_runs(owner=here.owner, states=LIVE))
    if as_json:
        output.document(
            "isched.plane/1", {"alive": found is not None, "daemon": to_plain(found) if found else None, "live_runs": waiting}
        )
    elif found is None:
        output.line(
            f"no plane is alive here; {waiting} run(s) under way" + (": start one with isched plane run" if waiting else "")
        )
    else:
        last = f", last look {human(max(0.0, here.clock.now() - found.last_tick_at))} ago" if found.last_tick_at else ""
        output.line(f"alive: pid {found.pid} on {found.host}{last}; {waiting} run(s) under way")
    return 1 if found is None and waiting else 0
