"""``isched calibrate``: ten seconds of micro-benchmarks, so that step times fit the computer at hand."""

from __future__ import annotations

from typing import Annotated

import typer

from ischeduler.cli import output
from ischeduler.cli.common import Json
from ischeduler.core.codec import to_plain

app = typer.Typer(rich_markup_mode=None)


@app.command()
def calibrate(
    seconds: Annotated[float, typer.Option("--seconds", metavar="S", help="About how long to measure.")] = 10.0,
    node_type: Annotated[str, typer.Option("--node-type", metavar="NAME", help="The cluster's node type that this is.")] = "",
    models: Annotated[bool, typer.Option("--models", help="Also train twelve models for some steps, so that the accelerator's memory is fitted, too.")] = False,
    minutes: Annotated[float, typer.Option("--minutes", metavar="M", help="How long --models may take.")] = 20.0,
    as_json: Json = False,
) -> None:
    """Measure this computer's processors and accelerator for ten seconds; estimates of step times use it."""
    from ischeduler.helper.calibrate import calibrate as measure

    if models:
        from ischeduler.helper.calibrate_models import calibrate_models, check

        check(minutes)
        found, whole = measure(seconds, node_type, say=output.note), calibrate_models(minutes, say=output.note)
    else:
        found, whole = measure(seconds, node_type, say=output.note), None
    if as_json:
        output.document("isched.calibrate/1", {"calibrations": [to_plain(c) for c in found], "models": None if whole is None else to_plain(whole)})
        return
    rows = [
        (c.device, f"{c.product_flops / 1e9:,.0f}", f"{c.convolution_flops / 1e9:,.0f}", f"{c.bandwidth_bytes_s / 1e9:,.1f}",
         f"{c.operation_s * 1e6:,.1f}")
        for c in found
    ]
    output.table(("DEVICE", "PRODUCTS GFLOP/S", "CONVOLUTIONS GFLOP/S", "TRAFFIC GB/S", "SMALLEST OP US"), rows, right=(1, 2, 3, 4))
    for one in found:
        output.line(f"kept in {one.path}")
    if whole is not None:
        for line in whole.lines():
            output.line(line)
