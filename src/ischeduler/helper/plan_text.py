"""A plan set as lines of text: the table of options, refusals with their fix, who estimated, and the goal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ischeduler.core.cluster import Cluster
from ischeduler.core.plan import Plan, PlanSet, Refusal
from ischeduler.planning.cells import done_in, how, memory_cell, money, span, tags

SHOWN_PLANS, SHOWN_REFUSALS, SHOWN_NOTES = 8, 6, 4
MISFITS = ("gpu_memory", "host_memory", "cores", "gres", "walltime", "nodes")


def plan_lines(planset: PlanSet, clusters: Mapping[str, Cluster] | None = None, *, everything: bool = False) -> list[str]:
    """The whole page, as ``isched plan`` shows it."""
    plans = planset.plans if everything else _shown(planset.plans)
    groups = _grouped(planset.refusals)
    shown = groups if everything else groups[:SHOWN_REFUSALS]
    lines = [workload_line(planset)]
    if plans:
        lines += option_table(plans, clusters or {})
    batches = len(planset.workload.variants())
    lines += [
        text for group in shown for text in refusal_lines(group[0], [r.batch_size for r in group] if len(group) < batches else [])
    ]
    hidden = len(planset.plans) - len(plans) + len(groups) - len(shown)
    if planset.estimators:
        lines.append("Estimators: " + ", ".join(f"{what}={who}" for what, who in planset.estimators.items()))
    others = "|".join(
        g for g in ("soonest", "cheapest", "fewest-interruptions", "deadline=...", "budget=...") if g != planset.goal
    )
    lines.append(f"Goal: {planset.goal} (--goal {others}).{f' {hidden} hidden: isched plan --all' if hidden else ''}")
    return lines + _notes(planset.warnings, everything)


def _notes(warnings: Sequence[str], everything: bool) -> list[str]:
    """The first few notes; the rest on request."""
    shown = warnings if everything or len(warnings) <= SHOWN_NOTES else warnings[: SHOWN_NOTES - 1]
    more = [f"Note: {len(warnings) - len(shown)} more: isched plan --all"] if len(shown) < len(warnings) else []
    return [f"Note: {w}" for w in shown] + more


def _grouped(refusals: Sequence[Refusal]) -> list[list[Refusal]]:
    """Refusals of one place for the same reasons together, whatever the batch size."""
    groups: dict[tuple[object, ...], list[Refusal]] = {}
    for refusal in refusals:
        groups.setdefault((refusal.where, refusal.node_type, refusal.blockers), []).append(refusal)
    return list(groups.values())


def workload_line(planset: PlanSet) -> str:
    """``Workload  resnet50 · batch 32, 64 · 50 epochs · checkpoints: yes``."""
    w = planset.workload
    if w.service is not None:
        probe = w.service.ready_url or ("its port" if w.service.ready_port is not None else w.service.ready_file or "its process runs")
        return f"Workload  {w.name or w.family} · a service, ready by: {probe}"
    sizes = w.batch_size if isinstance(w.batch_size, tuple) else (w.batch_size,)
    parts = [w.name or w.family, f"batch {', '.join(map(str, sizes))}", f"{w.epochs} epochs"]
    if w.samples:
        parts.append(f"{w.samples:,} samples")
    parts.append(f"checkpoints: {'yes' if w.checkpoints else 'no, every interruption starts anew'}")
    return "Workload  " + " · ".join(parts)


def option_table(plans: Sequence[Plan], clusters: Mapping[str, Cluster]) -> list[str]:
    """Header and one row a plan."""
    several = len({p.workload.batch_size for p in plans}) > 1
    types: dict[str, set[str]] = {}
    for plan in plans:
        types.setdefault(plan.where, set()).add(plan.node_type)
    header = [
        "#",
        "WHERE",
        *(["BATCH"] if several else []),
        "MEMORY",
        "RUN (p50–p90)",
        "WAIT (p50–p90)",
        "DONE IN",
        "COST",
        "HOW",
        "",
    ]
    rows = [
        [
            str(p.number),
            p.where + (f" ({p.node_type})" if len(types[p.where]) > 1 else ""),
            *([_batch(p)] if several else []),
            memory_cell(p, clusters),
            span(p.run),
            span(p.wait),
            done_in(p.finish),
            money(p.cost),
            how(p),
            tags(p),
        ]
        for p in plans
    ]
    return aligned([header, *rows])


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns two blanks apart; the first is right-aligned (numbers)."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        " " + "  ".join(c.rjust(widths[i]) if i == 0 else c.ljust(widths[i]) for i, c in enumerate(row)).rstrip() for row in rows
    ]


def refusal_lines(refusal: Refusal, batches: Sequence[int] = ()) -> list[str]:
    """What is refused (for which batch sizes, where not for all) and why; each fix on a line of its own."""
    where = refusal.where + (f" (batch {', '.join(map(str, batches))})" if batches else "")
    lines = []
    for blocker in refusal.blockers:
        verb = "does not fit" if blocker.kind in MISFITS else "refused"
        need = f"needs {blocker.need}, {blocker.have}" if blocker.need else blocker.have
        lines.append(f"    {where}  {verb}: {need}")
        if blocker.fix:
            lines.append(f"    {' ' * len(where)}  → {blocker.fix}")
    return lines


def _batch(plan: Plan) -> str:
    accum = plan.workload.grad_accum
    return f"{plan.workload.batch_size}{f' x{accum}' if accum > 1 else ''}"


def _shown(plans: Sequence[Plan]) -> Sequence[Plan]:
    """The first few that nothing else beats in every respect, and every tagged one."""
    return [p for i, p in enumerate(plans) if p.tags or (i < SHOWN_PLANS and not p.hidden)]
