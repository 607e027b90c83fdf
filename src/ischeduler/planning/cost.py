"""What a course of jobs costs under the cluster's charging rule, as an interval."""

from __future__ import annotations

from collections import Counter

from ischeduler.core.charging import Charged, charge_units
from ischeduler.core.durations import human
from ischeduler.core.estimate import Estimate
from ischeduler.core.jobs import Resources
from ischeduler.planning.candidates import Candidate
from ischeduler.planning.course import Course

USD = "usd"


def cost_of(c: Candidate, resources: Resources, course: Course) -> Estimate:
    """US dollars where the centre publishes a price, else its own unit. BadInput when the charging rule is unknown.

    Charged is the time each job really takes, not the walltime it asks for.
    """
    policy = c.cluster.charge
    rate = 1.0 if policy.usd_per_unit is None else policy.usd_per_unit
    low, middle, high = (rate * _units(c, resources, used) for used in course.used_s)
    price = "" if policy.usd_per_unit is None else f" at ${policy.usd_per_unit:g} a {policy.unit}"
    reason = f"{_share(resources)} for {human(course.run.p50)}{price}"
    unit = policy.unit if policy.usd_per_unit is None else USD
    return Estimate(
        low, middle, high, unit, f"charging:{policy.rule}", basis=course.run.basis, as_of=c.cluster.as_of, reason=reason,
    )


def _units(c: Candidate, resources: Resources, used_s: tuple[float, ...]) -> float:
    """The centre's units of several jobs; those of equal length are charged once and multiplied."""
    each = Counter(used_s).items()
    return sum(n * charge_units(c.cluster.charge, Charged(c.partition, c.node_type, resources, length_s)) for length_s, n in each)


def cost_words(cost: float, unit: str) -> str:
    """``$0.348``, ``$12.50``, ``3.4 SU``."""
    if unit == USD:
        return f"${cost:,.3f}" if cost < 1 else f"${cost:,.2f}"
    return f"{cost:.3g} {unit}"


def _share(resources: Resources) -> str:
    share = f"{resources.cpus_per_node} cores"
    if resources.gpus_per_node:
        share += f" and {resources.gpus_per_node} GPU{'s' if resources.gpus_per_node > 1 else ''}"
    return share if resources.nodes == 1 else f"{resources.nodes} nodes of {share}"
