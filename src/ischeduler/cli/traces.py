"""``isched traces``: public job traces: where they are, fetch one, look into one."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from ischeduler.cli import output
from ischeduler.cli.common import Json
from ischeduler.cli.simulate import bar
from ischeduler.core.codec import to_plain
from ischeduler.core.durations import human
from ischeduler.core.sizes import human_size

app = typer.Typer(rich_markup_mode=None, help="Job traces: list public ones, fetch NAME, show FILE.", no_args_is_help=True)


@app.command("list")
def list_traces(as_json: Json = False) -> None:
    """Public traces and their addresses."""
    from ischeduler.helper.simulation import public_traces

    found = public_traces()
    if as_json:
        output.document("isched.traces/1", {"traces": [to_plain(t) for t in found]})
        return
    output.table(("NAME", "UNITS", "WHAT", "ADDRESS"), [(t.name, f"{t.units:,}" if t.units else "-", t.description, t.url) for t in found], right=(1,))
    output.hints([("fetch", f"isched traces fetch {found[0].name}"), ("replay", f"isched simulate --trace {found[0].filename}")])


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name of the list, or an address.")],
    to: Annotated[Path | None, typer.Option("--to", metavar="PATH", help="File or folder; default: here.")] = None,
    sha256: Annotated[str, typer.Option("--sha256", metavar="HEX", help="Refuse a file with another checksum.")] = "",
    as_json: Json = False,
) -> None:
    """Download a trace. What was interrupted goes on where it stopped."""
    from ischeduler.helper.simulation import fetch as download

    with bar() as progress:
        done = download(name, to, sha256=sha256, progress=lambda got, total: progress(f"{human_size(got)}", got / total if total else 0.0))
    if as_json:
        output.document("isched.trace-fetch/1", {"fetched": to_plain(done)})
        return
    went_on = f", {human_size(done.received_bytes)} of it now" if done.resumed else ""
    output.line(f"✓ {done.path}  {human_size(done.size_bytes)} ({done.size_bytes:,} bytes{went_on})")
    output.line(f"  SHA-256 {done.sha256}{' as expected' if sha256 else ''}")
    output.hints([("look", f"isched traces show {done.path}"), ("replay", f"isched simulate --trace {done.path}")])


@app.command()
def show(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="SWF, sacct -P, parquet or csv.")],
    units: Annotated[str, typer.Option("--units", metavar="COLUMN", help="The column that counts a job's units.")] = "",
    as_json: Json = False,
) -> None:
    """What a trace file holds."""
    from ischeduler.helper.simulation import show as look

    t = look(file, units)
    if as_json:
        output.document("isched.trace/1", {"trace": to_plain(t)})
        return
    of = f" of {_count(t.users, 'user')}" if t.users else ""
    inside = f" in {_count(t.queues, 'queue')}" if t.queues else ""
    output.line(f"{output.style(t.path, 'bold')}  {_count(t.jobs, 'job')}{of}{inside}")
    output.line(f"  submitted     {_day(t.first_submit_s)} to {_day(t.last_submit_s)} ({human(t.last_submit_s - t.first_submit_s)})")
    machine = f"{t.capacity:,} by the file" if t.capacity else "not in the file"
    output.line(f"  units         machine {machine}; at most {t.peak_units:,} in use at once, widest job {t.widest_job_units:,}")
    wait = "unknown" if t.wait_p50_s is None else human(t.wait_p50_s)
    output.line(f"  medians       run {human(t.run_p50_s)}, requested {human(t.limit_p50_s)}, wait {wait}")
    for words in t.notes:
        output.line(f"  note          {words}")


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _day(epoch_s: int) -> str:
    """A date, or seconds where the trace has no calendar."""
    return time.strftime("%Y-%m-%d", time.gmtime(epoch_s)) if epoch_s > 10**8 else f"second {epoch_s:,}"
