"""What ``isc.plan`` answers: options to look up by tag, number or place, and every refusal with its fix."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ischeduler.core.blocker import Blocker
from ischeduler.core.codec import to_plain
from ischeduler.core.errors import NoFeasiblePlan, NotFound
from ischeduler.core.plan import Plan, PlanSet, Refusal
from ischeduler.helper.plan_cache import PlanRequest
from ischeduler.helper.suggest import did_you_mean

if TYPE_CHECKING:
    from ischeduler.helper.handle import RunHandle
    from ischeduler.helper.session import Session


class Option:
    """One plan that can be turned into a script or delegated. Attributes of the plan read through: ``option.finish.p50``."""

    def __init__(self, plan: Plan, request: PlanRequest, session: Session) -> None:
        self.plan = plan
        self._request = request
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plan, name)

    def __repr__(self) -> str:
        return f"<Option {self.plan.number} {self.plan.where} {' '.join(self.plan.tags)}>"

    def script(self, *, segment: int = 1) -> str:
        """A plain batch script of this plan."""
        return self._session.script(self.plan)

    def submit(self, **caps: Any) -> RunHandle:
        """Delegate to the Intelligence Plane. ``caps`` are fields of :class:`ischeduler.core.run.Caps`."""
        return self._session.submit(self.plan, caps=caps)


class Plans:
    """All options, best for the goal first. ``plans["soonest"]``, ``plans[2]``, ``plans["pitzer/gpu"]``."""

    def __init__(self, planset: PlanSet, request: PlanRequest, session: Session) -> None:
        self.planset = planset
        self.request = request
        self._session = session

    def __len__(self) -> int:
        return len(self.planset.plans)

    def __iter__(self) -> Iterator[Option]:
        return (self._option(p) for p in self.planset.plans)

    def __getitem__(self, key: str | int) -> Option:
        """The option of a tag, number or place. NoFeasiblePlan when that was refused, NotFound when the key fits nothing."""
        return self._option(find_plan(self.planset, str(key)))

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """What cannot be, and why."""
        return self.planset.refusals

    def table(self, *, everything: bool = False) -> str:
        """The table that ``isched plan`` prints."""
        return "\n".join(self.lines(everything=everything))

    def lines(self, *, everything: bool = False) -> list[str]:
        """The same, line by line."""
        from ischeduler.helper.plan_text import plan_lines

        known = {p.cluster for p in self.planset.plans}
        clusters = {c.name: c for c in self._session.clusters() if c.name in known}
        return plan_lines(self.planset, clusters, everything=everything)

    def to_json(self) -> dict[str, Any]:
        """The document that ``isched plan --json`` prints."""
        return {"schema": "isched.plan/1", **to_plain(self.planset)}

    def _option(self, plan: Plan) -> Option:
        return Option(plan, self.request, self._session)

    def __repr__(self) -> str:
        return self.table()


def find_plan(planset: PlanSet, key: str) -> Plan:
    """The plan a person means by ``soonest``, ``2``, ``pitzer/gpu`` or ``gpu``."""
    if not planset.plans:
        raise NoFeasiblePlan(f"nothing fits: {_why_not(planset)}")
    for plan in planset.plans:
        if key in plan.tags or key == str(plan.number):
            return plan
    for plan in planset.plans:
        if key in (plan.where, plan.partition):
            return plan
    refused = next((r for r in planset.refusals if key in (r.where, r.partition)), None)
    if refused:
        raise NoFeasiblePlan(f"{refused.where} is refused: {_sentences(refused.blockers)}.")
    known = [t for p in planset.plans for t in (*p.tags, p.where)]
    raise NotFound(f"there is no option '{key}'{did_you_mean(key, dict.fromkeys(known))}.")


def _why_not(planset: PlanSet) -> str:
    if not planset.refusals:
        return "there is no partition to run on; name clusters with --clusters, or run isched clusters sync."
    first = planset.refusals[0]
    more = f" (and {len(planset.refusals) - 1} more: isched plan --all)" if len(planset.refusals) > 1 else ""
    return f"{first.where} {_sentences(first.blockers)}{more}"


def _sentences(blockers: tuple[Blocker, ...]) -> str:
    return "; ".join(b.sentence() for b in blockers)
