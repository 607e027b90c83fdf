"""The cells of a plan's row, the same in the terminal, on a page and in a log line: spans, costs, memory, how."""

from __future__ import annotations

from collections.abc import Mapping

from ischeduler.core.cluster import Cluster
from ischeduler.core.durations import human
from ischeduler.core.estimate import Estimate
from ischeduler.core.plan import Plan
from ischeduler.core.sizes import human_size


def span(estimate: Estimate) -> str:
    """``2h00–2h30``, or one figure where both are alike."""
    low, high = human(estimate.p50), human(estimate.p90)
    return low if low == high else f"{low}–{high}"


def done_in(finish: Estimate) -> str:
    """``9h00``; ``~10h00`` where the interval is wider than a fifth of it."""
    wide = finish.p90 - finish.p10 > 0.2 * max(finish.p50, 1.0)
    return f"{'~' if wide else ''}{human(finish.p50)}"


def money(cost: Estimate) -> str:
    """``$0.348``, ``12.5 SU``, ``free``."""
    if cost.unit == "usd":
        return f"${cost.p50:,.3f}" if cost.p50 < 1 else f"${cost.p50:,.2f}"
    return f"{cost.p50:.3g} {cost.unit}"


def memory_cell(plan: Plan, clusters: Mapping[str, Cluster]) -> str:
    """Need over capacity: ``24/32 GB gpu`` or ``21/192 GB``."""
    node = None
    if plan.cluster in clusters:
        node = next((n for n in clusters[plan.cluster].node_types if n.name == plan.node_type), None)
    if plan.resources.gpus_per_node and plan.needs.gpu_memory:
        have = node.accelerator.memory_bytes if node and node.accelerator else None
        return f"{_of(plan.needs.gpu_memory.p50, have)} gpu"
    if plan.needs.host_memory:
        return _of(plan.needs.host_memory.p50, plan.node_memory_bytes or (node.memory_bytes if node else None))
    return "?"


def _of(need: float, have: int | None) -> str:
    shown = human_size(need)
    if have is None:
        return shown
    capacity = human_size(have)
    number, unit = shown.split()
    return f"{number}/{capacity}" if capacity.endswith(unit) else f"{shown}/{capacity}"


def how(plan: Plan) -> str:
    """``1 job``, ``3 x 1h00 cascade``."""
    count = len(plan.segments)
    return "1 job" if count == 1 else f"{count} x {human(plan.segments[0].walltime_s)} cascade"


def tags(plan: Plan) -> str:
    """``✔ soonest, ideal``: the mark is on the goal's best."""
    words = ", ".join(t for t in plan.tags if t != "goal")
    return f"✔ {words}".rstrip() if "goal" in plan.tags else words


def most_cost(plan: Plan) -> float:
    """What the requested jobs are charged when every one of them runs to its limit."""
    rate = plan.cost.p50 / plan.run.p50 if plan.run.p50 > 0 else 0.0
    return max(plan.cost.p90, rate * sum(s.walltime_s for s in plan.segments))


def request_words(plan: Plan, max_cost: float | None = None) -> str:
    """``Requesting 3 x 1h00 on gpudbg, SIGUSR2 120 s before each limit. At most $0.45.``"""
    count, limit = len(plan.segments), human(plan.segments[0].walltime_s)
    size = limit if count == 1 else f"{count} x {limit}"
    each = "the limit" if count == 1 else "each limit"
    most = max_cost if max_cost is not None else most_cost(plan)
    cost = (
        f"${most:.2f}"
        if plan.cost.unit == "usd" and most >= 0.01
        else f"${most:.4f}"
        if plan.cost.unit == "usd"
        else f"{most:.3g} {plan.cost.unit}"
    )
    charged = f", from account {plan.account}" if plan.account else ""
    return f"Requesting {size} on {plan.partition}, SIGUSR2 {plan.signal_lead_s} s before {each}. At most {cost}{charged}."
