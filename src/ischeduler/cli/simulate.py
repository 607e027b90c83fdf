"""``isched simulate``: replay a job trace on a simulated cluster."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from ischeduler.cli import output
from ischeduler.cli.common import Json
from ischeduler.core.codec import to_plain
from ischeduler.core.durations import human

app = typer.Typer(rich_markup_mode=None)


@app.command()
def simulate(
    trace: Annotated[Path, typer.Option("--trace", metavar="FILE", help="SWF, sacct -P, parquet or csv; isched traces finds some.")],
    nodes: Annotated[int | None, typer.Option("--nodes", metavar="N", help="The machine's units; default: what the file says.")] = None,
    scheduler: Annotated[str, typer.Option("--scheduler", help="fcfs, easy, conservative, or slurm with Slurm's own rules.")] = "easy",
    out: Annotated[
        list[Path] | None,
        typer.Option("--out", metavar="FILE", help="Each job's fate (.parquet, .csv) or a picture (.png, .html). Several may be given."),
    ] = None,
    units: Annotated[str, typer.Option("--units", metavar="COLUMN", help="The column that counts a job's units, where there are several.")] = "",
    first: Annotated[int | None, typer.Option("--limit", metavar="N", help="Only the first N jobs.")] = None,
    slurm_conf: Annotated[Path | None, typer.Option("--slurm-conf", metavar="FILE", help="The slurm.conf whose options the scheduler slurm has.")] = None,
    as_json: Json = False,
) -> None:
    """Replay a job trace under a scheduler: waits, utilisation, queue depth."""
    from ischeduler.helper.simulation import simulate as replay

    with bar() as progress:
        done = replay(trace, nodes, scheduler, out or (), units=units, first=first, slurm_conf=slurm_conf, progress=progress)
    if as_json:
        output.document("isched.simulate/1", {"simulation": to_plain(done)})
        return
    s = done.summary
    for words in done.notes:
        output.note(words)
    output.line(f"{output.style(s.trace, 'bold')}  {s.scheduler} on {s.nodes:,} units")
    rows: list[tuple[str, ...]] = [
        ("jobs", f"{s.started:,} of {s.jobs:,} started, over {human(s.makespan_s)}"),
        ("utilisation", f"{100 * s.utilisation:.1f} %"),
        ("wait", f"mean {human(s.wait_mean_s)}, median {human(s.wait_p50_s)}, 90 % {human(s.wait_p90_s)}, longest {human(s.wait_max_s)}"),
        ("waited at all", f"{100 * s.waited_share:.1f} %"),
        ("slowdown", f"{s.bounded_slowdown_mean:.2f} on average (run times below 10 s count as 10 s)"),
        ("queue", f"{s.queue_depth_mean:.1f} jobs on average, {s.queue_depth_max:,} at most"),
    ]
    if s.recorded_wait_mean_s is not None:
        rows.append(("recorded wait", f"mean {human(s.recorded_wait_mean_s)}"))
    rows.append(("took", f"read {done.read_s:.2f} s, scheduled {done.schedule_s:.2f} s, wrote {done.write_s:.2f} s"))
    for what, words in rows:
        output.line(f"  {what:<14}{words}")
    for path in done.files:
        output.line(f"wrote {path}")


@contextmanager
def bar() -> Iterator[Callable[[str, float], None]]:
    """A progress bar on stderr when that is a terminal; else nothing is shown."""
    if not sys.stderr.isatty():
        yield lambda what, share: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as shown:
        task: Any = shown.add_task("", total=1.0)
        yield lambda what, share: shown.update(task, description=what, completed=share)
