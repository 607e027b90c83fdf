"""``isched provisioner``: train what decides when a segment's successor is queued, and look into a model file."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ischeduler.cli import output
from ischeduler.cli.common import Json
from ischeduler.cli.invocation import session
from ischeduler.cli.simulate import bar
from ischeduler.core.durations import human, parse_human
from ischeduler.core.errors import BadInput
from ischeduler.core.sizes import parse_size

if TYPE_CHECKING:
    from ischeduler.helper.provisioning.campaign import Task
    from ischeduler.helper.provisioning.collecting import Advance

app = typer.Typer(rich_markup_mode=None, help="Provisioners: train --trace FILE, show FILE.", no_args_is_help=True)


@app.command()
def train(
    trace: Annotated[list[Path], typer.Option("--trace", metavar="FILE", help="Jobs of the cluster, parquet or csv; may come several times.")],
    units: Annotated[list[int], typer.Option("--units", metavar="N", help="The machine's size in the trace's units; one for all traces, or one each.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE|FOLDER", help="The model file; a folder for several.")] = Path("provisioner.json"),
    nodes: Annotated[int, typer.Option("--nodes", metavar="N", help="Units of a segment.")] = 1,
    segment: Annotated[str, typer.Option("--segment", metavar="TIME", help="A segment's limit.")] = "48h",
    train_until: Annotated[str, typer.Option("--train-until", metavar="DATE|SHARE", help="What comes after it validates.")] = "0.7",
    protocol: Annotated[str, typer.Option("--protocol", help="corrected (from the true queue) or mirage (from an empty machine).")] = "corrected",
    training: Annotated[int, typer.Option("--training", metavar="N", help="Training episodes at most.")] = 200,
    episodes: Annotated[int, typer.Option("--episodes", metavar="N", help="Validation episodes at most.")] = 60,
    rolls: Annotated[int, typer.Option("--rolls", metavar="N", help="Roll-outs a forecast.")] = 64,
    method: Annotated[
        str, typer.Option("--method", metavar="NAME", help="blend, or a peer: random_forest, xgboost, transformer_value, mixture_policy, dqn, ppo, ...")
    ] = "blend",
    width: Annotated[int, typer.Option("--network-width", metavar="N", help="Embedding of a network (Mirage's is 512).")] = 64,
    decisions: Annotated[int, typer.Option("--network-decisions", metavar="N", help="Decisions dqn and ppo learn from.")] = 40_000,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Of the random numbers.")] = 0,
    seeds: Annotated[int, typer.Option("--seeds", metavar="N", help="So many trainings with seeds from --seed on.")] = 1,
    where: Annotated[str, typer.Option("--on", metavar="CLUSTER/PARTITION", help="Not here: as an array of batch jobs there.")] = "",
    time: Annotated[str, typer.Option("--time", metavar="TIME", help="With --on: each job's limit.")] = "1h",
    cpus: Annotated[int, typer.Option("--cpus", metavar="N", help="With --on: cores of each job.")] = 1,
    memory: Annotated[str, typer.Option("--memory", metavar="SIZE", help="With --on: memory of each job.")] = "4G",
    at_once: Annotated[int, typer.Option("--at-once", metavar="N", help="With --on: jobs side by side at most; 0: no limit.")] = 0,
    as_json: Json = False,
) -> None:
    """Train on a cluster's past jobs, judge on what came after. Stopped, the same command goes on where it was."""
    from ischeduler.helper.provisioning.campaign import tasks_of
    from ischeduler.helper.provisioning.methods import check

    common = {
        "nodes": nodes, "segment_s": round(parse_human(segment)), "train_until": train_until, "protocol": protocol,
        "training": training, "episodes": episodes, "rolls": rolls, "method": method, "width": width, "decisions": decisions,
    }  # fmt: skip
    check(method)
    if min(width, decisions) < 1:
        raise BadInput(f"--network-width {width} and --network-decisions {decisions} must be 1 or more.")
    if seeds < 1:
        raise BadInput(f"--seeds {seeds} cannot be; give 1 or more.")
    tasks = tasks_of(trace, units, range(seed, seed + seeds), **common)
    if len(tasks) == 1 and not where:
        _one(tasks[0], out, as_json)
        return
    if out.suffix == ".json":
        out = out.with_suffix("")
    with bar() as progress:
        _train_all(tasks, out, where, (time, cpus, memory, at_once), lambda what, done, of: progress(what, done / of if of else 0.0))
    _show_all(tasks, out, as_json)


def _one(task: Task, out: Path, as_json: bool) -> None:
    with bar() as progress:
        about = task.run_to(out, lambda what, done, of: progress(what, done / of if of else 0.0))
    if as_json:
        output.document("isched.provisioner/1", {"file": str(out), "about": about})
        return
    output.line(f"wrote {out}")
    _show(about)
    output.hints([("look again", f"isched provisioner show {out}")])


def _train_all(tasks: list[Task], out: Path, where: str, asked: tuple[str, int, str, int], advance: Advance) -> None:
    from ischeduler.helper.provisioning.campaign import Where, place_of, train_here, train_there

    if not where:
        train_here(tasks, out, advance)
        return
    time, cpus, memory, at_once = asked
    here = session()
    place = Where(
        *place_of(where), parse_human(time), cpus, parse_size(memory), here.config["plan.account"] or None, here.config["plan.qos"] or None,
        at_once,
    )  # fmt: skip
    train_there(here, tasks, out, place, advance)


def _show_all(tasks: list[Task], out: Path, as_json: bool) -> None:
    """Every model's saving below the better of reactive and average, and the middle one of each trace's seeds."""
    from ischeduler.helper.provisioning.model_file import read

    about = {t.name: dict(read(out / f"{t.name}.json").about) for t in tasks}
    if as_json:
        output.document("isched.provisioners/1", {"folder": str(out), "models": about})
        return
    rows = []
    for name, found in about.items():
        saved, deployed = found["validation"].get("reduction"), found["validation"]
        ours = next((v for k, v in deployed.items() if k not in ("reactive", "average", "oracle", "hand_over", "reduction")), None)
        words = f"{saved['value']:.0%} ({saved['low']:.0%} to {saved['high']:.0%})" if saved else "-"
        rows.append((name, str(found["training_episodes"]), f"{ours['sum_h']:.2f}" if ours else "-", words))
    output.table(("MODEL", "EPISODES", "SUM h", "BELOW REACTIVE AND AVERAGE"), rows, right=(1, 2))
    output.hints([("one of them", f"isched provisioner show {out}/{tasks[0].name}.json")])


@app.command()
def show(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A model file of isched provisioner train.")],
    as_json: Json = False,
) -> None:
    """What a model was trained on, by what code, and how good it was on what came after."""
    from ischeduler.helper.provisioning.model_file import read

    about = dict(read(file).about)
    if as_json:
        output.document("isched.provisioner/1", {"file": str(file), "about": about})
        return
    output.line(output.style(str(file), "bold"))
    _show(about)


def _show(about: Mapping[str, Any]) -> None:
    data = about["data"]
    facts = (
        ("trained on", f"{data['trace']}, {data['jobs']:,} jobs from {_day(data['first_s'])} until {_day(data['train_until_s'])}"),
        ("machine", f"{data['units']} units, {data['protocol']} protocol"),
        ("method", about.get("method", "blend")),
        ("segments", f"{about['segment_units']} units, {human(about['segment_s'])}"),
        ("by", f"{about['code']}, seed {about['seed']}, {about['training_episodes']} training episodes"),
        ("data", f"SHA-256 {data['sha256'][:16]}..."),
    )
    for what, words in facts:
        output.line(f"  {what:<12}{words}")
    rows = {k: v for k, v in about["validation"].items() if k != "reduction"}
    if not rows:
        output.note("Too few episodes lie after training's end to judge it: give a longer trace or an earlier --train-until.")
        return
    output.line()
    cells = [
        (
            name, *(f"{f[k]:.2f}" for k in ("interruption_h", "overlap_h", "sum_h")), f"{f['zero_share']:.0%}", f"{f['segment_h']:.1f}",
            f"{f.get('given_back', 0.0):.2f}",
        )
        for name, f in rows.items()
    ]  # fmt: skip
    output.table(("METHOD", "INTERRUPTION h", "OVERLAP h", "SUM h", "NONE", "SEGMENT h", "GIVEN BACK"), cells, right=(1, 2, 3, 4, 5, 6))
    saved = about["validation"]["reduction"]
    count = int(next(iter(rows.values()))["episodes"])
    output.line(
        f"  {saved['value']:.0%} below the better of reactive and average (95 %: {saved['low']:.0%} to {saved['high']:.0%}), "
        f"{count} episodes after training"
    )


def _day(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d")
