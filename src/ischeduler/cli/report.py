"""``isched report``: predicted against actual, and what to ask for next time."""

from __future__ import annotations

from typing import Annotated

import typer

from ischeduler.cli import output
from ischeduler.cli.common import AnyRun, Json
from ischeduler.cli.invocation import session
from ischeduler.core.codec import to_plain
from ischeduler.core.durations import human
from ischeduler.core.errors import BadInput
from ischeduler.core.sizes import human_size
from ischeduler.helper.report import Line
from ischeduler.plane.availability import Availability

app = typer.Typer(rich_markup_mode=None)


Estimators = Annotated[
    bool, typer.Option("--estimators", help="How right each estimator has been, by place, model and month, over all your runs.")
]


@app.command()
def report(run: AnyRun = None, estimators: Estimators = False, as_json: Json = False) -> int:
    """Compare what was predicted with what happened. Exit code 1 for a run that did not complete."""
    if estimators:
        if run is not None:
            raise BadInput("--estimators is about all your runs; leave the run's id out.")
        from ischeduler.cli.estimator_accuracy import show_accuracy

        return show_accuracy(as_json=as_json)
    handle = session().run(run)
    found = handle.report()
    code = 1 if found.state in ("failed", "cancelled") else 0
    if as_json:
        body = to_plain(found)
        for plain, line in zip(body["lines"], found.lines, strict=True):
            plain |= {"inside": line.inside, "error": line.error}
        if found.service is not None:
            body["service"] |= {"up_share": found.service.up_share, "interrupted_s": found.service.interrupted_s}
        output.document("isched.report/1", {"report": body})
        return code
    output.line(f"{output.style(found.run_id, 'bold')}  {found.state}, {found.attempts} job{'' if found.attempts == 1 else 's'}")
    rows = [(ln.name, _predicted(ln), _actual(ln), _error(ln)) for ln in found.lines]
    output.table(("", "PREDICTED", "ACTUAL", "ERROR"), rows)
    for words in _service_words(found.service):
        output.line(words)
    for words in found.notes:
        output.line(f"Note: {words}.")
    if found.next_time:
        output.line(f"Next time: {' '.join(found.next_time)}.")
    plural = "" if found.similar == 1 else "s"
    output.line(f"Recorded: history now {found.similar} similar run{plural}.")
    return code


def _service_words(service: Availability | None) -> list[str]:
    """``Up 99.8 % of 3h00 ...`` and each interruption; nothing of a training."""
    if service is None:
        return []
    if service.up_share is None:
        return ["Service: never ready so far."]
    count = len(service.interruptions)
    told = f"{count} interruption{'' if count == 1 else 's'}" + (f" of {service.interrupted_s:.1f} s in all" if count else "")
    lines = [
        f"Service: up {service.up_share:.2%} of {human(service.span_s)}, {told}; {service.handovers} hand-over(s), "
        f"{service.restarts} restart(s)" + (f"; now at {service.endpoint}" if service.endpoint else "") + "."
    ]
    return [*lines, *(f"  {i.length_s:.1f} s: {i.why}" for i in service.interruptions[-10:])]


def _amount(value: float, unit: str) -> str:
    if unit == "s":
        return human(value)
    if unit == "bytes":
        return human_size(value)
    return f"${value:.3f}" if unit == "usd" else f"{value:.3g} {unit}"


def _predicted(line: Line) -> str:
    if line.predicted is None:
        return "-"
    low, high = _amount(line.predicted.p10, line.unit), _amount(line.predicted.p90, line.unit)
    return low if low == high else f"{low}–{high}"


def _actual(line: Line) -> str:
    return "not observed" if line.actual is None else _amount(line.actual, line.unit)


def _error(line: Line) -> str:
    words = []
    if line.inside:
        words.append("inside")
    if line.error is not None:
        words.append(f"{line.error:+.0%}".replace("-", "−"))
    return "  ".join(words) or "-"
