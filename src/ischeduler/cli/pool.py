"""``isched pool``: many runs over several types of accelerators, by an explicit policy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ischeduler.cli import output, pool_live
from ischeduler.cli.common import Json
from ischeduler.core.codec import to_plain
from ischeduler.core.durations import human

if TYPE_CHECKING:
    from ischeduler.helper.pools import PoolComparison

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)


@app.callback()
def pool() -> None:
    """Pools: many runs over several types of accelerators, by an explicit policy."""


pool_live.register(app)


@app.command()
def simulate(
    jobs: Annotated[Path, typer.Option("--jobs", metavar="FILE", help="Jobs: JSON lines, csv, parquet, or one of Gavel's traces.")],
    throughputs: Annotated[Path, typer.Option("--throughputs", metavar="FILE", help="Steps per second by type and job type, in Gavel's JSON.")],
    cluster: Annotated[str, typer.Option("--cluster", metavar="TYPE=N,...", help="Accelerators by type, as in v100=36,p100=36,k80=36.")],
    policy: Annotated[str, typer.Option("--policy", metavar="NAME,...", help="One policy, or several to compare.")] = "max_min_fairness_perf",
    mode: Annotated[str, typer.Option("--mode", help="own, or gavel: its simulator with all its quirks.")] = "own",
    round_s: Annotated[float, typer.Option("--round", metavar="SECONDS", help="Length of a round.")] = 360.0,
    restart_s: Annotated[float, typer.Option("--restart", metavar="SECONDS", help="What a start or a move costs a job (mode own).")] = 30.0,
    per_node: Annotated[int, typer.Option("--per-node", metavar="N", help="Accelerators in a node; larger jobs are scattered (mode own).")] = 8,
    price: Annotated[str, typer.Option("--price", metavar="TYPE=P,...", help="Price of an accelerator hour by type.")] = "",
    window: Annotated[str, typer.Option("--window", metavar="FIRST:END", help="Judge only these jobs, by order of arrival.")] = "",
    first: Annotated[int | None, typer.Option("--limit", metavar="N", help="Only the first N jobs.")] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="For policies that draw lots.")] = 0,
    job: Annotated[str, typer.Option("--why", metavar="JOB", help="Say what this job was promised, what it got and who went ahead.")] = "",
    out: Annotated[list[Path] | None, typer.Option("--out", metavar="FILE", help="A picture (.png, .svg, .html). Several may be given.")] = None,
    no_fairness: Annotated[bool, typer.Option("--no-fairness", help="Do not also run equal slices to measure fairness against.")] = False,
    as_json: Json = False,
) -> None:
    """Simulate a pool under one or several policies: completion times, fairness, use, cost."""
    from ischeduler.cli.simulate import bar
    from ischeduler.helper import pools

    names = [name.strip() for name in policy.split(",") if name.strip()]
    accelerators = pools.cluster_of(cluster, per_node, price)
    with bar() as progress:
        done = pools.simulate_pools(
            jobs, throughputs, accelerators, names, mode=mode, round_s=round_s, restart_s=restart_s, seed=seed, window=_window(window),
            first=first, job=job, out=out or (), fairness=not no_fairness, progress=progress,
        )  # fmt: skip
    if as_json:
        output.document("isched.pool-simulation/1", {"simulation": to_plain(done)})
        return
    _show(done, cluster, mode)


def _window(text: str) -> tuple[int, int] | None:
    if not text:
        return None
    from ischeduler.core.errors import BadInput

    first, _, end = text.partition(":")
    if not first.isdigit() or not end.isdigit() or int(first) >= int(end):
        raise BadInput(f"--window {text} is no window; write it as in 4000:5000, the first job and the one after the last.")
    return int(first), int(end)


def _show(done: PoolComparison, cluster: str, mode: str) -> None:
    for words in done.notes:
        output.note(words)
    output.line(f"{output.style(cluster, 'bold')}  mode {mode}")
    head = ("policy", "done", "mean", "median", "p99", "makespan", "use", "unfairest", "cost", "restarts")
    rows = [
        (
            s.policy, f"{s.done:,}/{s.jobs:,}", human(s.jct_mean_s), human(s.jct_p50_s), human(s.jct_p99_s), human(s.makespan_s),
            f"{100 * s.utilisation:.0f} %", "-" if s.fairness_worst is None else f"{s.fairness_worst:.2f}", f"{s.cost:,.0f}",
            "-" if s.restarts_mean is None else f"{s.restarts_mean:.1f}",
        )
        for s in done.summaries
    ]  # fmt: skip
    wide = [max(len(row[c]) for row in (head, *rows)) for c in range(len(head))]
    for row in (head, *rows):
        output.line("  ".join(cell.ljust(wide[0]) if c == 0 else cell.rjust(wide[c]) for c, cell in enumerate(row)))
    for answer in done.why:
        output.line(answer.words)
    for path in done.files:
        output.line(f"wrote {path}")
