"""Options side by side: when each would be done, at what cost, how; and what was refused, with its fix. Pure."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from ischeduler.core.cluster import Cluster
from ischeduler.core.plan import Plan, PlanSet, Refusal
from ischeduler.core.workload import Workload
from ischeduler.planning.cells import done_in, how, memory_cell, money, request_words, span

MISFITS = ("gpu_memory", "host_memory", "cores", "gres", "walltime", "nodes")


@dataclass(frozen=True, slots=True)
class OptionRow:
    """One option. ``wait_share``, ``run_share`` and ``late_share`` are lengths on a common axis: median wait, median run, and
    from the median end to the p90 end."""

    number: int
    where: str
    node_type: str
    batch: int
    accumulation: int
    memory: str
    run: str
    wait: str
    done: str
    cost: str
    how: str
    tags: tuple[str, ...]
    goal: bool
    hidden: bool
    notes: tuple[str, ...]
    asks: str
    wait_share: float
    run_share: float
    late_share: float
    sources: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class RefusalRow:
    """A refused place: each blocker as (verb and reason, fix). ``batches`` are the sizes refused for this reason."""

    where: str
    node_type: str
    batches: tuple[int, ...]
    reasons: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Options:
    """The page of a plan set. ``axis_s`` is the length of the common axis."""

    title: str
    goal: str
    rows: tuple[OptionRow, ...]
    hidden: tuple[OptionRow, ...]
    refusals: tuple[RefusalRow, ...]
    warnings: tuple[str, ...]
    estimators: tuple[tuple[str, str], ...]
    axis_s: float
    made_at: float


def options(planset: PlanSet, clusters: Mapping[str, Cluster] | None = None) -> Options:
    """What there is to choose from. The axis is as long as the latest p90 end among the shown; what never ends is cut there."""
    shown = [p for p in planset.plans if not p.hidden] or list(planset.plans)
    ends = [p.finish.p90 for p in shown if math.isfinite(p.finish.p90)]
    axis = max(60.0, *ends) if ends else 60.0
    rows = [_row(p, clusters or {}, axis) for p in planset.plans]
    numbers = {p.number for p in shown}
    return Options(
        workload_words(planset), planset.goal, tuple(r for r in rows if r.number in numbers), tuple(r for r in rows if r.number not in numbers),
        tuple(_refusals(planset.refusals)), planset.warnings, tuple(planset.estimators.items()), axis, planset.made_at,
    )  # fmt: skip


def workload_words(planset: PlanSet) -> str:
    """``resnet50 · batch 32, 64 · 50 epochs · 20,000 samples``."""
    w = planset.workload
    sizes = ", ".join(str(v.batch) for v in w.variants())
    parts = [w.name or w.family, f"batch {sizes}", f"{w.epochs} epochs"]
    return " · ".join([*parts, *([f"{w.samples:,} samples"] if w.samples else [])])


def _row(p: Plan, clusters: Mapping[str, Cluster], axis: float) -> OptionRow:
    wait = min(p.wait.p50, axis)
    run = min(max(0.0, p.finish.p50 - p.wait.p50), axis - wait)
    late = min(max(0.0, p.finish.p90 - wait - run), axis - wait - run)
    return OptionRow(
        p.number, p.where, p.node_type, p.workload.batch, p.workload.grad_accum, memory_cell(p, clusters), span(p.run), span(p.wait),
        done_in(p.finish), money(p.cost), how(p), tuple(t for t in p.tags if t != "goal"), "goal" in p.tags, p.hidden, p.notes,
        request_words(p), wait / axis, run / axis, late / axis, _sources(p),
    )  # fmt: skip


def _sources(p: Plan) -> tuple[tuple[str, str], ...]:
    """Who said what, with the reason: (quantity, ``trace@1: ...``)."""
    found = (("memory", p.needs.gpu_memory or p.needs.host_memory), ("run", p.run), ("wait", p.wait), ("cost", p.cost))
    return tuple((name, f"{e.source}{f': {e.reason}' if e.reason else ''}") for name, e in found if e is not None)


def _refusals(refusals: Sequence[Refusal]) -> list[RefusalRow]:
    """Refusals of one place for the same reasons together, whatever the batch size."""
    groups: dict[tuple[object, ...], list[Refusal]] = {}
    for r in refusals:
        groups.setdefault((r.where, r.node_type, r.blockers), []).append(r)
    return [_refusal(group) for group in groups.values()]


def _refusal(group: Sequence[Refusal]) -> RefusalRow:
    first = group[0]
    reasons = []
    for b in first.blockers:
        verb = "does not fit" if b.kind in MISFITS else "refused"
        reasons.append((f"{verb}: {f'needs {b.need}, ' if b.need else ''}{b.have}", b.fix))
    return RefusalRow(first.where, first.node_type, tuple(sorted({r.batch_size for r in group})), tuple(reasons))


def form_address(workload: Workload, goal: str = "") -> str:
    """The query that fills the form with a workload."""
    w = workload
    sizes = ",".join(str(v.batch) for v in w.variants())
    values = {
        "model": w.model, "name": w.name, "command": _joined(w.command), "directory": w.directory, "samples": w.samples or "", "epochs": w.epochs,
        "batch_size": sizes, "precision": w.precision if w.precision != "fp32" else "", "gpus": "" if w.gpus is None else w.gpus,
        "nodes": w.nodes if w.nodes > 1 else "", "optimizer": w.optimizer if w.optimizer != "sgd" else "",
        "input_shape": ",".join(map(str, w.input_shape)), "goal": goal.partition("=")[0],
    }  # fmt: skip
    return "?" + urlencode({k: v for k, v in values.items() if v != ""})


def _joined(command: tuple[str, ...]) -> str:
    return shlex.join(command).replace("'{", "{").replace("}'", "}")
