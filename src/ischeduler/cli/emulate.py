"""``isched emulate``: run a training on this machine as if it had a given accelerator."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from ischeduler.core.durations import parse_human
from ischeduler.core.errors import BadInput
from ischeduler.core.sizes import parse_size

app = typer.Typer(rich_markup_mode=None)


def _fetch_tables(folder: str) -> None:
    """Download the tables and end."""
    if not folder:
        return
    from pathlib import Path

    from ischeduler.cli import output
    from ischeduler.cli.simulate import bar
    from ischeduler.core.sizes import human_size
    from ischeduler.helper.emulation import fetch_tables

    with bar() as progress:
        done = fetch_tables(Path(folder), progress=lambda got, total: progress(human_size(got), got / total if total else 0.0))
    output.line(f"✓ {done.folder}  {done.files:,} tables of {', '.join(done.gpus)}")
    output.line("  measured by GPEmu's authors (SOURCE.json); no licence is stated, so use them and do not pass them on")
    output.hints([("use", f"isched emulate --accelerator v100-32g --table {done.folder} --table-gpu NAME --table-model resnet50 -- python train.py")])
    raise typer.Exit


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def emulate(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="The training, unchanged.")],
    accelerator: Annotated[str, typer.Option("--accelerator", help="v100-32g, a GRES type, or auto: what this Slurm job asked for.")],
    count: Annotated[int, typer.Option("--count", help="Cards in this machine.")] = 1,
    memory: Annotated[str, typer.Option("--card-memory", metavar="SIZE", help="A card's memory, where it is not the datasheet's.")] = "",
    precision: Annotated[str, typer.Option("--precision", help="fp32, or tf32 where matrix products may use it.")] = "fp32",
    table: Annotated[str, typer.Option("--table", metavar="FOLDER", help="Measured times in GPEmu's layout (profiled_data).")] = "",
    gpu: Annotated[str, typer.Option("--table-gpu", help="The card's name in the table.")] = "",
    model: Annotated[str, typer.Option("--table-model", help="The model's name in the table.")] = "",
    shared: Annotated[str, typer.Option("--shared", metavar="FOLDER", help="Where processes on one card meet.")] = "",
    preprocess: Annotated[str, typer.Option("--preprocess", metavar="TIME", help="Time to prepare one sample, e.g. 2ms.")] = "",
    report: Annotated[str, typer.Option("--report", metavar="FILE", help="Append what was emulated, one JSON line a process.")] = "",
    fetch: Annotated[str, typer.Option(
        "--fetch-tables", metavar="FOLDER", help="Only download GPEmu's measured times into a new folder.", is_eager=True, callback=_fetch_tables,
    )] = "",
) -> int:
    """Run a PyTorch training unchanged, as if this machine had the accelerator: its times, its memory, its out-of-memory errors.

    Nothing is computed: losses are zeros. Exit code: the training's own; 2 when it could not be started.
    """
    from ischeduler.helper.emulation import Table, emulation_of, environment_of

    if precision not in ("fp32", "tf32"):
        raise BadInput(f"--precision must be fp32 or tf32, got '{precision}'; half precision comes from the script's own autocast.")
    if bool(table) != bool(gpu and model):
        raise BadInput("--table, --table-gpu and --table-model belong together; give all three or none.")
    spec = emulation_of(
        accelerator, count=count, precision=precision, memory_bytes=parse_size(memory) if memory else None, shared=shared, report=report,
        table=Table(table, gpu, model) if table else None, preprocess_s=_seconds(preprocess) if preprocess else 0.0,
    )  # fmt: skip
    try:
        os.execvpe(command[0], command, environment_of(spec))
    except OSError as error:
        raise BadInput(f"'{command[0]}' cannot be started ({error.strerror}); give the training after --.") from None


def _seconds(text: str) -> float:
    """``2ms``, ``0.5s`` or any duration."""
    if text.endswith("ms"):
        try:
            return float(text[:-2]) / 1e3
        except ValueError:
            raise BadInput(f"--preprocess cannot be '{text}'; expected a time such as 2ms.") from None
    return parse_human(text)
