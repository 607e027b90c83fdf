"""``isched provisioner``: train what decides when a segment's successor is queued, and look into a model file."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from ischeduler.cli import output
from ischeduler.cli.common import Json
from ischeduler.cli.simulate import bar
from ischeduler.core.durations import human, parse_human

app = typer.Typer(rich_markup_mode=None, help="Provisioners: train --trace FILE, show FILE.", no_args_is_help=True)


@app.command()
def train(
    trace: Annotated[Path, typer.Option("--trace", metavar="FILE", help="Jobs of the cluster, parquet or csv.")],
    units: Annotated[int, typer.Option("--units", metavar="N", help="The machine's size in the trace's units.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The model file.")] = Path("provisioner.json"),
    nodes: Annotated[int, typer.Option("--nodes", metavar="N", help="Units of a segment.")] = 1,
    segment: Annotated[str, typer.Option("--segment", metavar="TIME", help="A segment's limit.")] = "48h",
    train_until: Annotated[str, typer.Option("--train-until", metavar="DATE|SHARE", help="What comes after it validates.")] = "0.7",
    protocol: Annotated[str, typer.Option("--protocol", help="corrected (from the true queue) or mirage (from an empty machine).")] = "corrected",
    training: Annotated[int, typer.Option("--training", metavar="N", help="Training episodes at most.")] = 200,
    episodes: Annotated[int, typer.Option("--episodes", metavar="N", help="Validation episodes at most.")] = 60,
    rolls: Annotated[int, typer.Option("--rolls", metavar="N", help="Roll-outs a forecast.")] = 64,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Of the random numbers.")] = 0,
    as_json: Json = False,
) -> None:
    """Train on a cluster's past jobs, judge on what came after. Stopped, the same command goes on where it was."""
    from ischeduler.helper.provisioning.setting import read_setting
    from ischeduler.helper.provisioning.training import Order
    from ischeduler.helper.provisioning.training import train as fit

    setting = read_setting(trace, units=units, train_until=train_until, protocol=protocol, segment_s=round(parse_human(segment)))
    order = Order(units=nodes, training=training, validation=episodes, seed=seed, rolls=rolls)
    with bar() as progress:
        about = fit(setting, order, out, advance=lambda what, done, of: progress(what, done / of if of else 0.0))
    if as_json:
        output.document("isched.provisioner/1", {"file": str(out), "about": about})
        return
    output.line(f"wrote {out}")
    _show(about)
    output.hints([("look again", f"isched provisioner show {out}")])


@app.command()
def show(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A model file of isched provisioner train.")],
    as_json: Json = False,
) -> None:
    """What a model was trained on, by what code, and how good it was on what came after."""
    from ischeduler.helper.provisioning.training import read

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
        (name, *(f"{f[k]:.2f}" for k in ("interruption_h", "overlap_h", "sum_h")), f"{f['zero_share']:.0%}", f"{f['segment_h']:.1f}")
        for name, f in rows.items()
    ]
    output.table(("METHOD", "INTERRUPTION h", "OVERLAP h", "SUM h", "NONE", "SEGMENT h"), cells, right=(1, 2, 3, 4, 5))
    saved = about["validation"]["reduction"]
    count = int(next(iter(rows.values()))["episodes"])
    output.line(
        f"  {saved['value']:.0%} below the better of reactive and average (95 %: {saved['low']:.0%} to {saved['high']:.0%}), "
        f"{count} episodes after training"
    )


def _day(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d")
