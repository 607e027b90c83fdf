"""``isched profile``: measure a few steps where the training would run."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ischeduler.cli import output
from ischeduler.cli.common import Json
from ischeduler.cli.invocation import session
from ischeduler.cli.workload_options import Source, takes_workload
from ischeduler.core.codec import to_plain
from ischeduler.core.durations import human
from ischeduler.core.history import HistoryRecord
from ischeduler.core.sizes import human_size
from ischeduler.core.workload import Workload
from ischeduler.helper.session import Session

app = typer.Typer(rich_markup_mode=None)


@app.command()
@takes_workload
def profile(
    workload: dict[str, Any],
    source: Source = None,
    steps: Annotated[int, typer.Option("--steps", metavar="N", help="Steps to measure.")] = 20,
    where: Annotated[str | None, typer.Option("--on", metavar="CLUSTER/PARTITION", help="Where; default: an idle node.")] = None,
    last: Annotated[bool, typer.Option("--last", help="Show the newest profile; measure nothing.")] = False,
    scaled: Annotated[
        bool, typer.Option("--scaled", help="Several short trainings of growing size instead; the command takes {samples}.")
    ] = False,
    max_cost: Annotated[
        float | None, typer.Option("--max-cost", metavar="AMOUNT", help="With --scaled: in all (default: a tenth of the training's).")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --scaled: do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Measure a few steps of a training in a short job; later estimates trust it more than a trace."""
    from ischeduler.helper import profiling

    here = session()
    wanted = here.workload(source, workload)
    if scaled:
        _scaled(here, wanted, where, max_cost, yes, as_json)
        return
    record = profiling.last_profile(here, wanted) if last else profiling.profile_there(here, wanted, where, steps, output.note)
    epoch_s = profiling.epoch_time_s(record, wanted)
    if as_json:
        output.document("isched.profile/1", {"profile": to_plain(record), "epoch_time_s": epoch_s})
        return
    output.line(_words(record, wanted, epoch_s))


def _scaled(here: Session, wanted: Workload, where: str | None, max_cost: float | None, yes: bool, as_json: bool) -> None:
    from ischeduler.helper.scaled_profile import profile_scaled

    found = profile_scaled(here, wanted, where, max_cost, output.note, lambda words: yes or output.confirm(f"{words} Submit?"))
    if as_json:
        output.document("isched.profile-scaled/1", {"profile": to_plain(found)})
        return
    rows = [(r.run_id, str(r.samples), str(r.epochs), human(r.run_s) if r.run_s is not None else "-", f"{r.cost:.3g}") for r in found.runs]
    output.table(("RUN", "SAMPLES", "EPOCHS", "TOOK", f"COST ({found.cost_unit})"), rows)
    for name, value in (("before", found.before), ("now", found.after)):
        words = f"{human(value.p50)} ({human(value.p10)}–{human(value.p90)}): {value.reason}" if value else "unknown"
        output.line(f"{wanted.name} on {found.where}, {name}: {words}")
    if found.left_out:
        output.note(f"{found.left_out} larger configurations were left out: {found.max_cost:.3g} {found.cost_unit} is the cap")


def _words(record: HistoryRecord, workload: Workload, epoch_s: float | None) -> str:
    parts = [f"step {record.step_time_s * 1000:.3g} ms" if record.step_time_s else "no step time"]
    if epoch_s is not None:
        parts.append(f"epoch {epoch_s:.3g} s" if epoch_s < 100 else f"epoch {human(epoch_s)}")
    if record.startup_s is not None:
        parts.append(f"start-up {record.startup_s:.1f} s")
    if record.host_memory_bytes:
        parts.append(f"memory {human_size(record.host_memory_bytes)}")
    if record.gpu_memory_bytes:
        parts.append(f"gpu memory {human_size(record.gpu_memory_bytes)}")
    where = f"{record.cluster}/{record.partition} ({record.node_type})"
    return f"{workload.name} on {where}, batch {record.batch_size}: {', '.join(parts)}"
