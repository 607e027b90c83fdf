"""``isched watch``: a run, live."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from ischeduler.cli import output
from ischeduler.cli.common import AnyRun, Json, checkpoint_words, next_steps, progress_words, spent_words, state_word
from ischeduler.cli.invocation import session
from ischeduler.core.codec import to_plain
from ischeduler.core.durations import human
from ischeduler.core.run import Run
from ischeduler.core.sizes import human_size
from ischeduler.helper.handle import RunHandle

app = typer.Typer(rich_markup_mode=None)

BLOCKS = "▁▂▃▄▅▆▇█"


@app.command()
def watch(
    run: AnyRun = None,
    interval: Annotated[float, typer.Option("--interval", metavar="S", help="Seconds between two looks.")] = 2.0,
    as_json: Json = False,
) -> int:
    """Follow a run until it ends. Leaving (Ctrl-C) does not touch it. Piped: one line a change. Exit code 1 when it failed."""
    here = session()
    handle = here.run(run)
    if as_json:
        last = _plain(handle, interval, lambda r: output.document("isched.run/1", {"run": to_plain(r)}))
    elif sys.stdout.isatty():
        last = _live(handle, interval)
    else:
        last = _plain(handle, interval, lambda r: output.line(one_line(r, here.clock.now())))
    if not as_json:
        output.hints(next_steps(last))
    return 1 if last.state.value == "failed" else 0


def _states(handle: RunHandle, interval: float) -> Iterator[Run]:
    while True:
        run = handle.status()
        yield run
        if run.state.ended:
            return
        time.sleep(max(0.2, interval))


def _plain(handle: RunHandle, interval: float, show: Any) -> Run:
    """One document or line whenever something a person cares for has changed."""
    before: tuple[Any, ...] = ()
    last = None
    for last in _states(handle, interval):
        key = (last.state, last.progress.epochs_done, len(last.attempts), last.message)
        if key != before:
            show(last)
            output.flush()
            before = key
    assert last is not None
    return last


def one_line(run: Run, now: float) -> str:
    """``r-7f3 RUNNING job 2 on gpudbg: epoch 27/50 ...``."""
    attempt = run.attempt
    where = f" attempt {attempt.number} on {attempt.cluster}/{attempt.partition} (job {attempt.job_id or '-'})" if attempt else ""
    return f"{run.id} {run.state.value.upper()}{where}: {progress_words(run, now)}{f'; {run.message}' if run.message else ''}"


def _live(handle: RunHandle, interval: float) -> Run:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    last = None
    losses: list[float] = []
    with Live(console=Console(highlight=False), refresh_per_second=4) as live:
        for last in _states(handle, interval):
            if last.progress.loss is not None and (not losses or losses[-1] != last.progress.loss):
                losses.append(last.progress.loss)
            live.update(Text.from_ansi("\n".join(live_lines(last, losses, time.time()))))
    assert last is not None
    return last


def live_lines(run: Run, losses: list[float], now: float) -> list[str]:
    """The page that ``watch`` repaints."""
    attempt, plan = run.attempt, run.plan
    number = attempt.number if attempt else 0
    head = f"{run.id}  job {number} of about {max(number, len(plan.segments))}  {state_word(run)}"
    done, epochs = run.progress.epochs_done, run.progress.epochs or plan.workload.epochs
    lines = [f"{head}  epoch {done}/{epochs} {bar(done / max(1, epochs))} {done / max(1, epochs):.0%}"]
    if losses:
        lines[0] += f"  loss {losses[-1]:.4g} {spark(losses)}"
    details = []
    if run.progress.peak_gpu_bytes:
        wanted = plan.needs.gpu_memory
        details.append(
            f"gpu memory {human_size(run.progress.peak_gpu_bytes)}"
            + (f" of {human_size(wanted.p50)} predicted" if wanted else "")
        )
    if run.progress.peak_rss_bytes:
        details.append(f"memory {human_size(run.progress.peak_rss_bytes)}")
    if attempt and attempt.started_at is not None and not attempt.state.ended:
        details.append(f"limit in {human(max(0.0, attempt.started_at + attempt.resources.walltime_s - now))}")
    eta = eta_s(run)
    if eta:
        details.append(f"{human(eta)} of training left")
    lines.append("  " + " · ".join([*checkpoint_words(run, now), *details, spent_words(run)]))
    if run.message:
        lines.append(f"  {run.message}")
    return lines


def eta_s(run: Run) -> float | None:
    """Training time left by the median of observed epochs; None before the first."""
    times = sorted(run.progress.epoch_times_s)
    if not times or run.state.ended:
        return None
    left = (run.progress.epochs or run.plan.workload.epochs) - run.progress.epochs_done
    return max(0, left) * times[len(times) // 2]


def bar(share: float, width: int = 24) -> str:
    """A progress bar of that width."""
    full = round(max(0.0, min(1.0, share)) * width)
    return "━" * full + "─" * (width - full)


def spark(values: list[float], width: int = 12) -> str:
    """The last values as little columns."""
    shown = values[-width:]
    low, high = min(shown), max(shown)
    return "".join(BLOCKS[round((v - low) / (high - low) * (len(BLOCKS) - 1)) if high > low else 3] for v in shown)
