"""``isched plan``: options, ranked, before anything is submitted."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ischeduler.cli import output
from ischeduler.cli.common import Json, show_plans
from ischeduler.cli.invocation import session
from ischeduler.cli.workload_options import Source, takes_workload

app = typer.Typer(rich_markup_mode=None)

Goal = Annotated[str | None, typer.Option("--goal", help="soonest, cheapest, fewest-interruptions, deadline=12h, budget=2.50.")]
Clusters = Annotated[
    str | None, typer.Option("--clusters", metavar="NAMES", help="Clusters, comma-separated, or 'all'; default: the live one.")
]
Assume = Annotated[
    str | None, typer.Option("--assume", metavar="FILE", help="Take these declared figures in place of estimates.")
]
Account = Annotated[str | None, typer.Option("--account", help="Account to charge.")]
Qos = Annotated[str | None, typer.Option("--qos", help="Quality of service.")]
Partition = Annotated[str | None, typer.Option("--partition", metavar="NAMES", help="Only these partitions.")]


@app.command()
@takes_workload
def plan(
    workload: dict[str, Any],
    source: Source = None,
    goal: Goal = None,
    clusters: Clusters = None,
    partition: Partition = None,
    account: Account = None,
    qos: Qos = None,
    assume: Assume = None,
    everything: Annotated[bool, typer.Option("--all", help="Show hidden options, too.")] = False,
    as_json: Json = False,
) -> int:
    """List where a training could run, how, when it would be done and at what cost. Nothing is submitted.

    Exit code 1 when every option is refused.
    """
    here = session()
    request = here.request(
        here.workload(source, workload),
        goal=goal,
        clusters=_names(clusters),
        account=account,
        qos=qos,
        assume=assume,
        partitions=_names(partition),
    )
    plans = here.plan(request)
    if as_json:
        output.document("isched.plan/1", {k: v for k, v in plans.to_json().items() if k != "schema"})
    else:
        show_plans(plans, everything=everything)
    return 0 if len(plans) else 1


def _names(text: str | None) -> tuple[str, ...] | None:
    return tuple(n.strip() for n in text.split(",") if n.strip()) if text else None
