"""``isched sandbox``: a real Slurm on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from ischeduler.cli import output
from ischeduler.cli.common import Json
from ischeduler.cli.invocation import session
from ischeduler.core.codec import to_plain

app = typer.Typer(rich_markup_mode=None, help="A real Slurm on this machine (root and apt's Slurm needed).", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="[NAME]", help="Several may be up at once.")]


@app.command()
def up(
    name: Name = "default",
    like: Annotated[
        str | None, typer.Option("--like", metavar="CLUSTER", help="Shape it after a known cluster, e.g. osc-pitzer.")
    ] = None,
    minutes_per_hour: Annotated[float, typer.Option("--minutes-per-hour", help="How long an hour of walltime is in it.")] = 1.0,
    as_json: Json = False,
) -> None:
    """Start it: partitions, node types, emulated GPUs, accounting, REST, several users."""
    from ischeduler.sandbox import sandbox as rooms
    from ischeduler.sandbox.shape import demo_spec, spec_from_cluster

    spec = spec_from_cluster(session().services.cluster(like), minutes_per_hour=minutes_per_hour) if like else demo_spec()
    _show(rooms.up(spec, name), as_json)
    if not as_json:
        output.hints([("use", f"export SLURM_CONF={rooms.status(name).slurm_conf}"), ("end", f"isched sandbox down {name}")])


@app.command()
def down(name: Name = "default", as_json: Json = False) -> None:
    """End it; nothing stays behind."""
    from ischeduler.sandbox import sandbox as rooms

    rooms.down(name)
    if as_json:
        output.document("isched.sandbox/1", {"name": name, "sandbox": None})
    else:
        output.line(f"✓ sandbox {name} is gone")


@app.command()
def status(name: Name = "default", as_json: Json = False) -> int:
    """How it is. Exit code 1 when a daemon is not running."""
    from ischeduler.sandbox import sandbox as rooms

    found = rooms.status(name)
    _show(found, as_json)
    return 0 if found.up else 1


def _show(found: object, as_json: bool) -> None:
    plain = to_plain(found)
    if as_json:
        output.document("isched.sandbox/1", {"name": plain["name"], "sandbox": plain})
        return
    output.line(
        f"sandbox {plain['name']}: cluster {plain['cluster']}, {'up' if plain['up'] else 'not all up'}, in {plain['root']}"
    )
    output.table(
        ("DAEMON", "STATE", "PID"), [(d["name"], d["state"], str(d["pid"] or "-")) for d in plain["daemons"]], indent="  "
    )
    if plain["nodes"]:
        output.table(("NODE", "STATE"), list(plain["nodes"].items()), indent="  ")
    output.line(f"users: {', '.join(plain['users'].values()) or 'none'}; SLURM_CONF={plain['slurm_conf']}")
