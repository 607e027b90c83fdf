"""``isched init``: the first command on a new cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from ischeduler.cli import output
from ischeduler.cli.common import Json
from ischeduler.cli.invocation import session
from ischeduler.core.durations import human

app = typer.Typer(rich_markup_mode=None)


@app.command()
def init(
    force: Annotated[bool, typer.Option("--force", help="Replace an ischeduler.toml.")] = False, as_json: Json = False
) -> None:
    """Read the cluster at hand and write ischeduler.toml in this folder."""
    from ischeduler.helper.initialise import initialise

    here = session()
    done = initialise(here, force=force)
    cluster = done.cluster
    if as_json:
        body = {
            "kind": done.kind,
            "cluster": cluster.name,
            "partitions": [p.name for p in cluster.partitions],
            "path": str(done.path),
            "written": done.written is not None,
        }
        output.document("isched.init/1", body)
        return
    good, bad = output.style("✓", "green"), output.style("✗", "red")
    kind = f"Slurm {cluster.version or ''}".rstrip() if done.kind == "slurm" else "local batch system"
    output.line(f"{good} {kind} on {cluster.name}")
    asked = [p for p in cluster.partitions if p.access is not None]
    taken = [p for p in asked if p.access and p.access.allowed]
    words = (
        f"; {len(taken)} accept your account (asked with sbatch --test-only, {_ago(cluster, here.clock.now())})" if asked else ""
    )
    output.line(f"{good} {len(cluster.partitions)} partition{'' if len(cluster.partitions) == 1 else 's'} read{words}")
    for partition in asked:
        if partition.access and not partition.access.allowed:
            output.line(f"  {bad} {partition.name}  {partition.access.reason}")
    output.line(f"{'Wrote' if done.written else 'Kept'} {done.path}")
    output.hints(
        [
            ("review", f"isched clusters {cluster.name}"),
            ("prices", f"isched clusters edit {cluster.name}"),
            ("plan", "isched plan train.py"),
        ]
    )


def _ago(cluster: object, now: float) -> str:
    as_of = getattr(cluster, "as_of", None)
    return f"{human(max(0.0, now - as_of))} ago" if as_of else "just now"
