"""``isched agent``: acts for you on a login node, on behalf of a centre's service that cannot reach in."""

from __future__ import annotations

import signal
import threading
from typing import Annotated

import typer

from ischeduler.cli import output
from ischeduler.cli.common import Json
from ischeduler.cli.invocation import session

app = typer.Typer(
    rich_markup_mode=None, help="Act for you here, for a service that cannot reach this cluster.", invoke_without_command=True
)
Cluster = Annotated[
    str | None, typer.Option("--cluster", metavar="NAME", help="The cluster (default: the one at hand).", show_default=False)
]
RunsDir = Annotated[
    str | None,
    typer.Option("--runs-dir", metavar="DIR", help="Run directories are touched below this folder only.", show_default=False),
]


@app.callback()
def agent(
    ctx: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="For cron: do what waits, stay while more comes, then end.")] = False,
    idle_s: Annotated[
        float, typer.Option("--idle", metavar="S", help="With --once: end after this long without a request.")
    ] = 20.0,
    longest_s: Annotated[
        float, typer.Option("--longest", metavar="S", help="With --once: end after this long in any case.")
    ] = 290.0,
    cluster: Cluster = None,
    runs_dir: RunsDir = None,
    as_json: Json = False,
) -> int:
    """Fetch your runs' requests from the service and carry them out with your own Slurm commands, until interrupted."""
    if ctx.invoked_subcommand is not None:
        return 0
    from ischeduler.helper.agent import AnotherAgent, Stopped, make_agent

    stop = threading.Event()
    found = make_agent(session(), cluster=cluster, runs_dir=runs_dir)

    def end(*_: object) -> None:
        """A request in hand is brought to its end; waiting for one is not."""
        stop.set()
        if found.waiting:
            raise Stopped

    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, end)
    if not once:
        output.note(f"agent {found.name} is at work; end it with Ctrl-C: your runs' jobs go on")
    try:
        done = found.run(stop.is_set, output.note, idle_s=idle_s if once else None, at_most_s=longest_s if once else None)
    except AnotherAgent as error:
        if not once:
            raise
        output.note(str(error))
        return 0
    found.leave()
    if as_json:
        output.document("isched.agent/1", {"agent": found.name, "done": done})
    elif once:
        output.line(f"✓ {done} request(s) done")
    return 0


@app.command()
def install(
    scrontab: Annotated[
        bool, typer.Option("--scrontab", help="For Slurm's own crontab, where the login node allows no daemon.")
    ] = False,
    cluster: Cluster = None,
    runs_dir: RunsDir = None,
    as_json: Json = False,
) -> int:
    """Print the line that keeps an agent at work; add it with crontab -e or scrontab -e. Nothing is scheduled here."""
    from ischeduler.helper.agent import schedule_line

    here = session()
    options = [*(("--cluster", cluster) if cluster else ()), *(("--runs-dir", runs_dir) if runs_dir else ())]
    kind = "scrontab" if scrontab else "crontab"
    log = here.config.state_dir / "agent.log"
    log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    text = schedule_line(kind, tuple(options), here.config.as_environment(), log)
    if as_json:
        output.document("isched.agent-install/1", {"kind": kind, "text": text})
    else:
        output.line(text)
        output.note(f"add it with: {kind} -e")
    return 0
