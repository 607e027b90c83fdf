"""Replay a trace on a simulated cluster, and get traces: what ``isched simulate`` and ``isched traces`` do."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ischeduler.core.errors import BadInput
from ischeduler.helper.suggest import did_you_mean
from ischeduler.simulator import catalogue
from ischeduler.simulator.catalogue import Fetched, PublicTrace
from ischeduler.simulator.figures import Summary

if TYPE_CHECKING:
    from ischeduler.simulator.engine.options import SchedulerOptions
    from ischeduler.simulator.trace import Trace

Progress = Callable[[str, float], None]
"""Told what is being done and the share of it that is done, in [0, 1]."""
Solver = Callable[["Trace", int, Callable[[float], None]], Any]
"""Start seconds of a trace's jobs on a machine of so many units; tells the share that is done."""
PICTURES, TABLES = (".png", ".svg", ".html"), (".parquet", ".csv")


@dataclass(frozen=True, slots=True)
class Simulation:
    """A replay: its figures, the files written, remarks, and how long reading, scheduling and writing took (seconds)."""

    summary: Summary
    files: tuple[str, ...]
    notes: tuple[str, ...]
    read_s: float
    schedule_s: float
    write_s: float


@dataclass(frozen=True, slots=True)
class TraceFacts:
    """What a trace file holds: jobs, users and queues (0: it names none), first and last submission, medians (seconds), widths, remarks."""

    path: str
    jobs: int
    users: int
    queues: int
    first_submit_s: int
    last_submit_s: int
    widest_job_units: int
    peak_units: int
    capacity: int | None
    run_p50_s: float
    limit_p50_s: float
    wait_p50_s: float | None
    notes: tuple[str, ...]


def _kernel(scheduler: str) -> Solver:
    def solve(trace: Trace, nodes: int, watch: Callable[[float], None]) -> Any:
        from ischeduler.simulator.kernel import starts

        return starts(trace.submit_s, trace.units, trace.run_s, trace.limit_s, nodes, scheduler=scheduler, watch=watch)

    return solve


def _slurm(conf: Path | None) -> Solver:
    """Slurm's own schedulers, with the options of a slurm.conf or Slurm's defaults, on equal nodes of one unit."""

    def solve(trace: Trace, nodes: int, watch: Callable[[float], None]) -> Any:
        import numpy as np

        from ischeduler.simulator.engine.trace import run_trace

        columns = {
            "submit_s": trace.submit_s, "run_s": trace.run_s, "req_units": trace.units, "req_walltime_s": trace.limit_s, "user": trace.user,
        }  # fmt: skip
        options = _slurm_options(conf)
        found = run_trace(columns, nodes, options, progress=lambda done, jobs: watch(done / jobs))
        return np.ceil(found).astype(np.int64)

    return solve


def _slurm_options(conf: Path | None) -> SchedulerOptions:
    """What ``conf`` says; limits hold to the second, as in the other schedulers."""
    from ischeduler.simulator.engine.options import SchedulerOptions
    from ischeduler.simulator.engine.slurm_conf import read_options

    if conf is None:
        return SchedulerOptions()
    try:
        return replace(read_options(conf.read_text("utf-8", "replace")), timeout_poll_s=0.0)
    except OSError as error:
        raise BadInput(f"--slurm-conf {conf} cannot be read ({error.strerror}); give the path of a slurm.conf.") from None
    except BadInput as error:
        raise BadInput(f"--slurm-conf {conf}: {error}") from None


KERNEL_SCHEDULERS = ("fcfs", "easy", "conservative")
SCHEDULERS = (*KERNEL_SCHEDULERS, "slurm")


def simulate(
    file: Path, nodes: int | None = None, scheduler: str = "easy", out: Sequence[Path] = (), *, units: str = "", first: int | None = None,
    slurm_conf: Path | None = None, progress: Progress = lambda what, share: None,
) -> Simulation:  # fmt: skip
    """Replay the trace in ``file`` on ``nodes`` units (default: what the file says) and write each of ``out`` by its suffix.

    ``.parquet`` and ``.csv``: what became of each job; ``.png``, ``.svg`` and ``.html``: utilisation, queue depth and waits.
    ``units``: the column that counts a job's units; ``first``: only so many jobs; ``slurm_conf``: whose options the scheduler slurm has.
    BadInput, one sentence, when that cannot be.
    """
    _check(scheduler, out, first)
    if any(path.exists() and file.exists() and path.samefile(file) for path in out):
        raise BadInput(f"--out {file} is the trace itself; give another name.")
    solve = _solver(scheduler, slurm_conf)
    began = time.perf_counter()
    progress("reading", 0.0)
    trace = load(file, units, first)
    nodes = _machine(trace, nodes)
    read = time.perf_counter()
    start = solve(trace, nodes, lambda share: progress("scheduling", share))
    solved = time.perf_counter()
    summary = _write(trace, start, nodes, scheduler, out, progress)
    return Simulation(
        summary, tuple(str(p) for p in out), (*trace.notes, *_remarks(trace, summary)), read - began, solved - read,
        time.perf_counter() - solved,
    )  # fmt: skip


def load(file: Path, units: str = "", first: int | None = None) -> Trace:
    """The trace in a file, or its first jobs."""
    _needs_numpy()
    from ischeduler.simulator.readers import read_trace

    trace = read_trace(file, units=units)
    return trace if first is None else trace.head(first)


def show(file: Path, units: str = "") -> TraceFacts:
    """What a trace file holds."""
    import numpy as np

    trace = load(file, units)
    known = trace.start_s >= 0
    return TraceFacts(
        str(file), len(trace), _named(trace.user, trace.users), _named(trace.queue, trace.queues), int(trace.submit_s[0]), int(trace.submit_s[-1]),
        int(trace.units.max()), trace.peak_units(), trace.capacity, float(np.median(trace.run_s)), float(np.median(trace.limit_s)),
        float(np.median(trace.wait_s[known])) if known.any() else None, trace.notes,
    )  # fmt: skip


def _named(codes: Any, names: Sequence[str]) -> int:
    """How many names occur; the empty one, where the file has none, does not count."""
    return sum(1 for code in set(codes.tolist()) if names[code])


def public_traces() -> tuple[PublicTrace, ...]:
    """The public traces whose addresses are known."""
    return catalogue.PUBLIC


def fetch(name: str, to: Path | None = None, *, sha256: str = "", progress: Callable[[int, int | None], None] = lambda a, b: None) -> Fetched:
    """Download a public trace by name, or any by its address, to the file or folder ``to`` (default: here)."""
    if name.startswith(("http://", "https://")):
        url, filename = name, name.rstrip("/").rsplit("/", 1)[-1]
    else:
        trace = catalogue.public_trace(name)
        url, filename = trace.url, trace.filename
    path = Path(filename) if to is None else to / filename if to.is_dir() else to
    if path.exists():
        raise BadInput(f"{path} exists; remove it or give another name with --to.")
    return catalogue.fetch(url, path, sha256=sha256, progress=progress)


def _check(scheduler: str, out: Sequence[Path], first: int | None) -> None:
    if scheduler not in SCHEDULERS:
        raise BadInput(f"there is no scheduler '{scheduler}'{did_you_mean(scheduler, SCHEDULERS)}; choose {', '.join(SCHEDULERS)}.")
    for path in out:
        if path.suffix.lower() not in (*PICTURES, *TABLES):
            raise BadInput(f"--out {path}: the suffix says what is written; expected one of {', '.join((*TABLES, *PICTURES))}.")
        if not path.absolute().parent.is_dir():
            raise BadInput(f"--out {path}: there is no folder {path.parent}; make it first.")
    if first is not None and first < 1:
        raise BadInput(f"--limit {first} leaves no job; give 1 or more.")


def _solver(scheduler: str, slurm_conf: Path | None) -> Solver:
    if scheduler == "slurm":
        _slurm_options(slurm_conf)
        return _slurm(slurm_conf)
    if slurm_conf is not None:
        raise BadInput(f"--slurm-conf goes with --scheduler slurm; the scheduler {scheduler} has no options.")
    return _kernel(scheduler)


def _needs_numpy() -> None:
    try:
        import numpy  # noqa: F401
    except ImportError:
        raise BadInput("The simulator needs numpy; pip install 'ischeduler[simulator]'.") from None


def _machine(trace: Trace, nodes: int | None) -> int:
    """The machine's size: asked for, or what the file says."""
    size = nodes if nodes is not None else trace.capacity
    if size is None:
        raise BadInput(f"{trace.name} does not say how large its machine was; give --nodes (at most {trace.peak_units():,} were in use at once).")
    if size < 1:
        raise BadInput(f"--nodes {size} is no machine; give 1 or more.")
    return size


def _write(trace: Trace, start: Any, nodes: int, scheduler: str, out: Sequence[Path], progress: Progress) -> Summary:
    from ischeduler.simulator.plots import write_plot
    from ischeduler.simulator.results import write_results
    from ischeduler.simulator.summary import summarise

    summary, curves = summarise(trace, start, nodes, scheduler)
    for number, path in enumerate(out):
        progress("writing", number / len(out))
        try:
            write_results(path, trace, start) if path.suffix.lower() in TABLES else write_plot(path, summary, curves)
        except OSError as error:
            words = error.strerror or " ".join(str(error).split())
            raise BadInput(f"--out {path} cannot be written ({words}); give a file in a folder with room that you may write to.") from None
    progress("writing", 1.0)
    return summary


def _remarks(trace: Trace, summary: Summary) -> tuple[str, ...]:
    from ischeduler.simulator.kernel import SLOW, machine_code

    said = []
    wide = int((trace.units > summary.nodes).sum())
    if wide:
        who = f"{wide:,} jobs are wider than {summary.nodes:,} units and never start"
        said.append(who if wide > 1 else f"one job is wider than {summary.nodes:,} units and never starts")
    if summary.scheduler in KERNEL_SCHEDULERS and machine_code() is None:
        said.append(SLOW)
    return tuple(said)
