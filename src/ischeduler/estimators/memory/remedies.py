"""What would make a workload fit a card: each change is traced or replayed, none is guessed. Pure beside the tracing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ischeduler.core.errors import IschedError
from ischeduler.core.sizes import human_size
from ischeduler.core.workload import Workload
from ischeduler.estimators.memory.report import MemoryReport, Setting, memory_report
from ischeduler.estimators.memory.spec import TraceReport
from ischeduler.estimators.models.optimizers import EIGHT_BIT

TraceOf = Callable[[Workload], TraceReport]
_HALF = ("bf16", "fp16")
_EIGHT_BIT_OF = {"adam": "adam8bit", "adamw": "adamw8bit", "sgd": "sgd8bit", "momentum": "sgd8bit", "rmsprop": "rmsprop8bit"}


@dataclass(frozen=True, slots=True)
class Remedy:
    """One change: its name, the changed workload, its report (None with the reason where it cannot be said), whether it fits."""

    name: str
    workload: Workload
    report: MemoryReport | None
    fits: bool
    reason: str

    def sentence(self) -> str:
        """In words."""
        if self.report is None:
            return f"{self.name}: {self.reason}"
        return f"{self.name}: {human_size(self.report.total.p50)} (p90 {human_size(self.report.total.p90)}), {self.reason}"


def remedies(trace: TraceOf, workload: Workload, memory_bytes: float, setting: Setting | None = None) -> tuple[Remedy, ...]:
    """Gradient accumulation, activation checkpointing, bf16 and an 8-bit optimizer, each alone, then all together."""
    changes = list(_changes(workload))
    tried = [_tried(trace, name, changed, memory_bytes, setting) for name, changed in changes]
    accumulated = _accumulated(trace, workload, memory_bytes, setting)
    together = workload
    for _, changed in changes:
        together = _merged(together, changed, workload)
    all_of_it = _tried(trace, "all of these", together, memory_bytes, setting)
    if not all_of_it.fits and (everything := _accumulated(trace, together, memory_bytes, setting)) is not None:
        all_of_it = replace(everything, name="all of these")
    first = [accumulated] if accumulated is not None else []
    return (*first, *tried, *([all_of_it] if len(changes) > 1 else []))


def _changes(workload: Workload) -> Iterator[tuple[str, Workload]]:
    if workload.options.get("checkpointing", "") != "true":
        yield "activation checkpointing", replace(workload, options={**workload.options, "checkpointing": "true"})
    if workload.precision not in _HALF:
        yield "bf16", replace(workload, precision="bf16")
    word = workload.optimizer.lower()
    keeps = word != "sgd" or float(workload.options.get("optimizer.momentum", 0) or 0) > 0
    if word in _EIGHT_BIT_OF and word not in EIGHT_BIT and keeps:
        options = {k: v for k, v in workload.options.items() if not k.startswith("optimizer.")}
        yield "8-bit optimizer", replace(workload, optimizer=_EIGHT_BIT_OF[word], options=options)


def _merged(base: Workload, changed: Workload, original: Workload) -> Workload:
    options = dict(base.options)
    for key in {*changed.options, *original.options}:
        if changed.options.get(key) != original.options.get(key):
            options.pop(key, None)
            if key in changed.options:
                options[key] = changed.options[key]
    precision = changed.precision if changed.precision != original.precision else base.precision
    optimizer = changed.optimizer if changed.optimizer != original.optimizer else base.optimizer
    return replace(base, options=options, precision=precision, optimizer=optimizer)


def _tried(trace: TraceOf, name: str, workload: Workload, memory_bytes: float, setting: Setting | None) -> Remedy:
    try:
        report = memory_report(trace(workload), devices=workload.devices, setting=setting)
    except IschedError as error:
        return Remedy(name, workload, None, False, str(error))
    fits = report.total.p90 <= memory_bytes
    return Remedy(name, workload, report, fits, "fits" if fits else f"more than {human_size(memory_bytes)}")


def _accumulated(trace: TraceOf, workload: Workload, memory_bytes: float, setting: Setting | None) -> Remedy | None:
    """The smallest power of two of micro-batches that fits, else the smallest possible one; None for a batch of one."""
    found: Remedy | None = None
    pieces = 2
    while pieces <= workload.batch:
        if workload.batch % pieces == 0:
            changed = replace(workload, batch_size=workload.batch // pieces, grad_accum=workload.grad_accum * pieces)
            found = _tried(trace, f"accumulation of {changed.grad_accum}", changed, memory_bytes, setting)
            if found.fits or found.report is None:
                return found
        pieces *= 2
    return found
