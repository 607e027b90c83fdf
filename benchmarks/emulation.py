"""``python -m benchmarks.emulation [--truth FILE] [--memory FILE] [--limit N] [--json]``: emulated trainings against the tables they emulate.

The truth is a table with GPEmu's columns: phase (forward, backward), gpu, model, Batch_Size, Time_In_SECONDS; the memory truth has
gpu, model, batch_size, peak (MiB). A seeded sample of (card, model, batch) is run as an ordinary torchvision training under
``isched emulate``, with the times of the table in GPEmu's own layout; its epoch is timed from outside the emulator. Transfers are given
no time, for the table has none. Then batches grow until torch's OutOfMemoryError comes; the truth says it comes at the first batch
whose peak no longer fits beside the context.

Peer: what GPEmu itself does without its patched PyTorch, sleeping the table's seconds in a loop with no training in it; it has
no memory model, and a table entry beyond the card's memory does not stop it.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.report import Bar, finish
from ischeduler.core.errors import IschedError
from ischeduler.core.sizes import MIB
from ischeduler.helper.emulation import CONTEXT_BYTES, Table, emulation_of, environment_of, find_accelerator

DATA = Path(__file__).resolve().parents[1].parent / "shared" / "data" / "gpemu"
COLUMNS = ("phase", "gpu", "model", "Batch_Size", "Time_In_SECONDS")
MEMORY_COLUMNS = ("gpu", "model", "batch_size", "peak")
BATCHES = (64, 128)
STEPS_S = 6.0
LARGEST_OOM_BATCH = 512
CHILD_S = 600.0
SEED = 3


class BadTruth(ValueError):
    """One sentence: what was wrong with a file."""


@dataclass(frozen=True)
class Cell:
    """One training to emulate. Times in seconds a step."""

    gpu: str
    accelerator: str
    model: str
    batch: int
    forward_s: float
    backward_s: float


def read(path: Path, columns: Sequence[str]) -> Any:
    """A table as a pandas frame. BadTruth with one sentence otherwise."""
    import pandas

    try:
        frame = pandas.read_parquet(path) if path.suffix == ".parquet" else pandas.read_csv(path)
    except (OSError, ValueError) as error:
        raise BadTruth(f"{path} cannot be read as a table ({error}); give GPEmu's columns as parquet or csv.") from None
    missing = [c for c in columns if c not in frame.columns]
    if missing:
        raise BadTruth(f"{path} has no column {', '.join(missing)}; expected {', '.join(columns)}.")
    return frame


def known_cards(names: Sequence[str]) -> dict[str, str]:
    """The table's cards whose datasheet is known; the others are said and left out."""
    known: dict[str, str] = {}
    for name in sorted(set(names)):
        try:
            known[name] = find_accelerator(name).name
        except IschedError:
            print(f"{name}: no datasheet, left out", file=sys.stderr)
    return known


def cells(frame: Any, memory: Any, limit: int) -> list[Cell]:
    """A seeded sample, no model twice before each was taken once; ``memory`` (or None) leaves out what never fitted its card."""
    cards = known_cards(frame["gpu"].tolist())
    wanted = frame[frame["gpu"].isin(cards) & frame["Batch_Size"].isin(BATCHES)]
    times: dict[tuple[str, str, int], dict[str, float]] = {}
    for phase, gpu, model, batch, seconds in wanted[list(COLUMNS)].itertuples(index=False):
        times.setdefault((gpu, model, int(batch)), {})[phase] = float(seconds)
    found = [
        Cell(gpu, cards[gpu], model, batch, t["forward"], t["backward"])
        for (gpu, model, batch), t in sorted(times.items()) if {"forward", "backward"} <= t.keys()
    ]  # fmt: skip
    dice = random.Random(SEED)
    dice.shuffle(found)
    first = {cell.model: cell for cell in reversed(found)}
    ordered = [*first.values(), *(c for c in found if first[c.model] is not c)]
    return [c for c in ordered if memory is None or fits(c, memory)][:limit]


def fits(cell: Cell, memory: Any) -> bool:
    """Whether the truth's peak leaves room for the context; times beyond that are the authors' extrapolations."""
    own = memory[(memory["gpu"] == cell.gpu) & (memory["model"] == cell.model) & (memory["batch_size"] == cell.batch)]
    return not any(peak * MIB > find_accelerator(cell.accelerator).memory_bytes - CONTEXT_BYTES for peak in own["peak"])


def emulated(cell: Cell, arguments: Sequence[str], folder: Path) -> Mapping[str, Any]:
    """Run the child under the emulation and read its line. RuntimeError with its last words otherwise."""
    layout(cell, folder)
    spec = emulation_of(cell.accelerator, table=Table(str(folder), cell.gpu, cell.model))
    command = [sys.executable, "-m", "benchmarks.emulation_child", *arguments]
    done = subprocess.run(command, env=environment_of(spec), capture_output=True, text=True, timeout=CHILD_S, check=False)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("isched emulate:")]
        raise RuntimeError(f"{cell.model} at batch {cell.batch} on {cell.gpu}: {said[-1] if said else 'no word'}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def layout(cell: Cell, folder: Path) -> None:
    """The cell's times as GPEmu keeps them; a transfer takes none."""
    for part, seconds in (("compute/forward", cell.forward_s), ("compute/backward", cell.backward_s), ("transfer", 0.0)):
        name = "time_by_batch_size.csv" if part != "transfer" else "data_transfer_time_by_batch_size.csv"
        path = folder / "time" / part / cell.gpu / cell.model / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"Batch_Size,Time_In_SECONDS\n{cell.batch},{seconds}\n")


def time_errors(chosen: Sequence[Cell], folder: Path) -> list[tuple[Cell, float, float]]:
    """(cell, error of the emulated epoch, error of sleeping alone) as shares of the table's time."""
    rows: list[tuple[Cell, float, float]] = []
    for cell in chosen:
        step_s = cell.forward_s + cell.backward_s
        steps = max(5, round(STEPS_S / step_s))
        took_s = emulated(cell, [cell.model, str(cell.batch), str(steps)], folder)["epoch_s"]
        began = time.perf_counter()
        for _ in range(steps):
            time.sleep(cell.forward_s)
            time.sleep(cell.backward_s)
        slept_s = time.perf_counter() - began
        rows.append((cell, took_s / (steps * step_s) - 1, slept_s / (steps * step_s) - 1))
    return rows


def oom_errors(chosen: Sequence[Cell], memory: Any, folder: Path) -> list[tuple[Cell, int, int]]:
    """(cell, batch at which the emulated card is full, batch at which the truth says so)."""
    rows: list[tuple[Cell, int, int]] = []
    for cell in chosen:
        own = memory[(memory["gpu"] == cell.gpu) & (memory["model"] == cell.model)].sort_values("batch_size")
        room = find_accelerator(cell.accelerator).memory_bytes - CONTEXT_BYTES
        full = [int(b) for b, peak in zip(own["batch_size"], own["peak"], strict=True) if peak * MIB > room]
        if not full or full[0] > LARGEST_OOM_BATCH or full[0] % 16:
            continue
        start = max(16, full[0] - 64)
        rows.append((cell, int(emulated(cell, [cell.model, str(start), "0"], folder)["oom_batch"]), full[0]))
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; the exit code."""
    parser = argparse.ArgumentParser(prog="benchmarks.emulation")
    parser.add_argument("--truth", type=Path, default=DATA / "compute_time.parquet")
    parser.add_argument("--memory", type=Path, default=DATA / "memory.parquet")
    parser.add_argument("--limit", type=int, default=8, help="trainings to emulate")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    try:
        memory = read(options.memory, MEMORY_COLUMNS) if options.memory.exists() else None
        chosen = cells(read(options.truth, COLUMNS), memory, options.limit)
    except BadTruth as error:
        print(f"benchmarks.emulation: {error}", file=sys.stderr)
        return 2
    if not chosen:
        print(f"benchmarks.emulation: {options.truth} has no known card at batch {BATCHES}; nothing can be compared.", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="isched-emulation-") as folder:
        times = time_errors(chosen, Path(folder))
        fills = oom_errors(chosen, memory, Path(folder)) if memory is not None else []
    return _told(times, fills, as_json=options.json)


def _told(times: list[tuple[Cell, float, float]], fills: list[tuple[Cell, int, int]], *, as_json: bool) -> int:
    if not as_json:
        for cell, ours, slept in times:
            print(f"{cell.gpu:<24} {cell.model:<20} b{cell.batch:<4} step {cell.forward_s + cell.backward_s:7.4f} s"
                  f"   emulated {ours:+7.2%}   sleeping alone {slept:+7.2%}")
        for cell, ours, truth in fills:
            print(f"{cell.gpu:<24} {cell.model:<20} out of memory at batch {ours}, truth {truth}")
    errors = [abs(e) for _, e, _ in times]
    metrics: dict[str, Any] = {
        "trainings": len(times), "epoch_error_max": max(errors), "epoch_error_median": median(errors),
        "sleeping_error_max": max(abs(s) for _, _, s in times),
    }  # fmt: skip
    bars = [Bar("epoch_error_max", 0.05)]
    if fills:
        off = [abs(ours - truth) / truth for _, ours, truth in fills]
        metrics |= {"oom_compared": len(fills), "oom_exact": sum(o == 0 for o in off), "oom_batch_error_max": max(off)}
        bars.append(Bar("oom_batch_error_max", 0.05))
    return finish("emulation", metrics, bars, as_json=as_json)


if __name__ == "__main__":
    sys.exit(main())
