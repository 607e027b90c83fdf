"""``isched forecast``: when a job would start, partition by partition."""

from __future__ import annotations

import math
from typing import Annotated

import typer

from ischeduler.cli import output
from ischeduler.cli.common import Json
from ischeduler.cli.invocation import session
from ischeduler.core.codec import to_plain
from ischeduler.core.durations import human, parse_human
from ischeduler.core.errors import BadInput
from ischeduler.helper.forecast import PartitionForecast, Question, forecast_of_trace

app = typer.Typer(rich_markup_mode=None)
_COLUMNS = "▁▂▃▄▅▆▇█"
_SCALE = "1m 10m 30m 1h 2h 4h 8h 16h 1d 2d 4d more"


@app.command()
def forecast(
    partition: Annotated[str, typer.Option("--partition", "-p", metavar="NAMES", help="Only these, comma-separated.")] = "",
    gpus: Annotated[int | None, typer.Option("--gpus", metavar="N", help="GPUs a node (default: 1 where there are any).")] = None,
    nodes: Annotated[int, typer.Option("--nodes", metavar="N", help="Nodes.")] = 1,
    time: Annotated[str, typer.Option("--time", "-t", metavar="TIME", help="Walltime to ask for, e.g. 4h (default: 1h, or the limit).")] = "",
    cluster: Annotated[str, typer.Option("--cluster", metavar="NAME", help="The live cluster (default: the one here).")] = "",
    what_if: Annotated[bool, typer.Option("--what-if", help="Also: what if fewer GPUs, fewer nodes or less time were asked for?")] = False,
    rolls: Annotated[int, typer.Option("--rolls", metavar="N", help="How often the queue is run forward.")] = 200,
    trace: Annotated[str, typer.Option("--trace", metavar="FILE", help="Not the live queue: that of a job trace, --at an instant.")] = "",
    at: Annotated[str, typer.Option("--at", metavar="TIME", help="The trace's instant, e.g. 2023-03-10T12:00, or epoch seconds.")] = "",
    units: Annotated[int | None, typer.Option("--units", metavar="N", help="The size of the trace's machine (default: as used).")] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Of the random numbers.")] = 0,
    as_json: Json = False,
) -> int:
    """Say when a job would start, by running the live queue forward. Exit code 1 when no partition would take it."""
    question = Question(nodes, gpus, parse_human(time) if time else None, what_if, rolls, seed)
    names = [n.strip() for n in partition.split(",") if n.strip()]
    if bool(trace) != bool(at):
        raise BadInput("--trace and --at belong together: which instant of which trace?")
    found = forecast_of_trace(trace, at, units, question) if trace else session().forecasts(cluster, names, question)
    if as_json:
        output.document("isched.forecast/1", {"forecasts": [to_plain(f) for f in found]})
    else:
        _show(found)
    return 0 if any(f.wait is not None for f in found) else 1


def _show(found: list[PartitionForecast]) -> None:
    answered = [f for f in found if f.wait is not None]
    if answered:
        rows = [_row(f) for f in answered]
        output.table(("PARTITION", "ASKED FOR", "MEDIAN", "9 IN 10", "IN 10 MIN", "IN 1H", "RUN/WAIT", "WHEN"), rows, right=(2, 3, 4, 5, 6))
        output.line(f"  WHEN: columns up to {_SCALE}")
    for one in (f for f in found if f.wait is None):
        output.line(f"{one.partition}: {one.problem}")
    for one in answered:
        for hole in one.holes:
            length = "as long as you like" if hole.seconds is None else f"a job of up to {human(hole.seconds)}"
            output.line(f"{one.partition}: {hole.amount:g} {hole.unit}{'s' if hole.amount != 1 else ''} free now, for {length}")
        for v in one.what_if:
            sooner = f"{human(v.sooner_s)} sooner" if v.sooner_s >= 60 else "no sooner"
            output.line(f"{one.partition}: {v.words}: {sooner}, median {_time(v.wait.p50)}")
    for words in dict.fromkeys(f.wait.reason for f in answered if f.wait):
        output.note(f"Note: {words}.")


def _row(f: PartitionForecast) -> tuple[str, ...]:
    assert f.wait is not None
    asked = f"{f.nodes} x {f.gpus} GPU" if f.gpus else f"{f.nodes} node{'s' if f.nodes > 1 else ''}"
    chance = (f"{f.chances[s]:.0%}" for s in ("600", "3600"))
    return (
        f"{f.cluster}/{f.partition}", f"{asked}, {human(f.walltime_s)}", _time(f.wait.p50), _time(f.wait.p90), *chance,
        f"{f.running}/{f.waiting}", picture(f.picture),
    )  # fmt: skip


def picture(shares: tuple[float, ...]) -> str:
    """One column for each share, the highest full; a dot where there is nothing."""
    most = max(shares, default=0.0)
    return "".join("·" if s == 0 else _COLUMNS[min(7, round(s / most * 7))] for s in shares)


def _time(seconds: float) -> str:
    return "never" if math.isinf(seconds) else human(seconds)
