"""``isched estimate``: what a training will need, place by place."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ischeduler.cli import output
from ischeduler.cli.common import Json
from ischeduler.cli.invocation import session
from ischeduler.cli.workload_options import Source, takes_workload
from ischeduler.core.codec import to_plain
from ischeduler.core.durations import human
from ischeduler.core.estimate import Estimate
from ischeduler.core.sizes import human_size
from ischeduler.helper.options import EstimateRow

app = typer.Typer(rich_markup_mode=None)


@app.command()
@takes_workload
def estimate(
    workload: dict[str, Any],
    source: Source = None,
    clusters: Annotated[
        str | None, typer.Option("--clusters", metavar="NAMES", help="Clusters, comma-separated, or 'all'.")
    ] = None,
    partition: Annotated[str | None, typer.Option("--partition", metavar="NAMES", help="Only these partitions.")] = None,
    assume: Annotated[str | None, typer.Option("--assume", metavar="FILE", help="Take these declared figures first.")] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say for each figure where it comes from and how sure it is.")
    ] = False,
    memory_parts: Annotated[
        bool, typer.Option("--memory-parts", help="Card memory part by part, the largest batch, and what would make it fit.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Say what a training will need: memory, time, queue wait. Each figure is p50-p90. Exit code 1 when nothing could answer."""
    here = session()
    request = here.request(
        here.workload(source, workload), clusters=_names(clusters), partitions=_names(partition), assume=assume
    )
    rows = here.estimates(request)
    details, unsaid = here.memory_details(request) if memory_parts else ([], [])
    known = any(r.needs.run or r.needs.step_time or r.needs.gpu_memory or r.needs.host_memory for r in rows)
    if as_json:
        answer = {"estimates": [to_plain(r) for r in rows], "memory": [to_plain(d) for d in details]}
        output.document("isched.estimate/1", {"workload": to_plain(request.workload), **answer})
        return 0 if known else 1
    header = ("WHERE", "NODE", "BATCH", "STEP", "RUN", "GPU MEMORY", "MEMORY", "WAIT", "HOW KNOWN")
    output.table(header, [_row(r) for r in rows])
    if explain:
        for row in rows:
            output.line()
            output.line(f"{row.cluster}/{row.partition} {row.node_type} batch {row.batch_size}")
            for name, value in _parts(row).items():
                if value is not None:
                    output.line(f"  {name}: {value.source}, {value.basis}. {value.reason}")
    for detail in details:
        output.line()
        for text in detail.lines():
            output.line(text)
    for words in dict.fromkeys([*(n for r in rows for n in r.needs.notes), *unsaid]):
        output.note(f"Note: {words}")
    return 0 if known else 1


def _parts(row: EstimateRow) -> dict[str, Estimate | None]:
    n = row.needs
    return {
        "step time": n.step_time,
        "start-up": n.startup,
        "run": n.run,
        "gpu memory": n.gpu_memory,
        "memory": n.host_memory,
        "checkpoint": n.checkpoint,
        "wait": n.wait,
    }


def _row(row: EstimateRow) -> tuple[str, ...]:
    n = row.needs
    bases = list(dict.fromkeys(e.source for e in (n.run, n.gpu_memory or n.host_memory, n.wait) if e))
    return (
        f"{row.cluster}/{row.partition}",
        row.node_type,
        str(row.batch_size),
        _step(n.step_time),
        _span(n.run),
        _size(n.gpu_memory),
        _size(n.host_memory),
        _span(n.wait),
        ", ".join(bases) or "-",
    )


def _span(value: Estimate | None) -> str:
    if value is None:
        return "?"
    low, high = human(value.p50), human(value.p90)
    return low if low == high else f"{low}–{high}"


def _step(value: Estimate | None) -> str:
    return "?" if value is None else f"{value.p50 * 1000:.3g} ms" if value.p50 < 1 else f"{value.p50:.3g} s"


def _size(value: Estimate | None) -> str:
    return "-" if value is None else f"{human_size(value.p50)}–{human_size(value.p90)}"


def _names(text: str | None) -> tuple[str, ...] | None:
    return tuple(n.strip() for n in text.split(",") if n.strip()) if text else None
