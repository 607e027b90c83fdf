"""``isched profile --scaled``: HARP's offline profiling, short trainings of several sizes carried by the plane, under a cap on their cost.

They are runs like any other, so their run times, start-ups and waits become history, and the 'scaling' estimator answers from them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ischeduler.core.errors import BadInput, NoFeasiblePlan, RunFailed
from ischeduler.core.estimate import Estimate
from ischeduler.core.plan import Plan
from ischeduler.core.run import Run, RunState
from ischeduler.core.workload import Workload
from ischeduler.estimators.walltime.scaled_down import scaled_down

if TYPE_CHECKING:
    from ischeduler.helper.handle import RunHandle
    from ischeduler.helper.session import Session

SHARE_OF_COST = 0.1
"""What the short runs may cost together, as a share of what the whole training is expected to cost there."""
UNKNOWN_S = 600.0
"""How long a short run may be while nothing at all is known of the training's speed."""


@dataclass(frozen=True, slots=True)
class ShortRun:
    """One short training: its size, what it took (seconds) and what it cost (the plan's cost unit)."""

    run_id: str
    samples: int
    epochs: int
    run_s: float | None
    cost: float


@dataclass(frozen=True, slots=True)
class ScaledProfile:
    """The short runs at one place, what they cost, and the whole training's run time there before and after them (None: unknown).

    ``left_out`` counts configurations that the cap did not allow.
    """

    where: str
    runs: tuple[ShortRun, ...]
    left_out: int
    cost: float
    cost_unit: str
    max_cost: float
    before: Estimate | None
    after: Estimate | None


def profile_scaled(
    here: Session, workload: Workload, where: str | None, max_cost: float | None, tell: Callable[[str], None],
    allow: Callable[[str], bool] = lambda words: True,
) -> ScaledProfile:
    """Run the scaled-down configurations of a training one after another where it would run, smallest first, as the cap allows.

    ``max_cost`` is in the place's cost unit; None: a tenth of the whole training's. ``allow`` is asked once, with what will be done.
    BadInput where the command takes no size, the training is too short or the answer is no; NoFeasiblePlan where the cap allows
    nothing; RunFailed with the reason where a short run failed: the later ones are not started then.
    """
    workload = workload.variants()[0]
    _check_command(workload)
    short = scaled_down(workload).runs
    whole = _plan(here, workload, where)
    first = whole or _plan_unknown(here, short[0], where)
    cap, unit = _cap(whole, max_cost), first.cost.unit
    if not allow(f"Up to {len(short)} short runs on {first.where}, {_money(cap, unit)} at most."):
        raise BadInput("nothing was submitted; --yes answers for you.")
    done, spent = list[ShortRun](), 0.0
    for one in short:
        plan = _plan(here, one, first.where) or _plan_unknown(here, one, first.where)
        if spent + plan.cost.p50 > cap:
            if not done:
                raise NoFeasiblePlan(
                    f"{_money(cap, unit)} allows not even the smallest short run, expected to cost {_money(plan.cost.p50, unit)}: raise --max-cost."
                )
            break
        run = _carry(here.submit(plan, caps={"max_cost": cap - spent}), plan, tell)
        spent += run.spent
        here.services.estimators().look_again()
        done.append(ShortRun(run.id, one.samples, one.epochs, _run_s(here, run), run.spent))
    after = _plan(here, workload, first.where)
    return ScaledProfile(
        first.where, tuple(done), len(short) - len(done), spent, unit, cap, whole.run if whole else None, after.run if after else None
    )


def _check_command(workload: Workload) -> None:
    if not any("{samples}" in word for word in workload.command):
        raise BadInput(
            "scaled-down runs need to tell the training how much data to use; put {samples} into its command, "
            'e.g. command = ["python", "train.py", "--samples", "{samples}"].'
        )


def _cap(whole: Plan | None, max_cost: float | None) -> float:
    if max_cost is not None:
        return max_cost
    if whole is None:
        raise BadInput("nothing is known yet of what this training costs; say what the short runs may cost in all: --max-cost.")
    return SHARE_OF_COST * whole.cost.p50


def _plan(here: Session, workload: Workload, where: str | None) -> Plan | None:
    """The best plan, or that of the named place; None where no estimator can say a run time."""
    request = here.request(workload)
    if not any(row.needs.run for row in here.estimates(request)):
        return None
    return here.plan(request, keep=False)[where or "goal"].plan


def _plan_unknown(here: Session, workload: Workload, where: str | None) -> Plan:
    """A plan of a training of unknown speed, by a declared limit."""
    with tempfile.TemporaryDirectory() as folder:
        declared = Path(folder) / "short-run.toml"
        declared.write_text(f"[[given]]\nrun = {UNKNOWN_S}\n")
        return here.plan(here.request(workload, assume=str(declared)), keep=False)[where or "goal"].plan


def _carry(handle: RunHandle, plan: Plan, tell: Callable[[str], None]) -> Run:
    tell(f"{handle.id}: {plan.workload.samples} samples, {plan.workload.epochs} epoch{'s' if plan.workload.epochs > 1 else ''} on {plan.where}")
    run = handle.wait()
    if run.state is not RunState.COMPLETED:
        raise RunFailed(
            f"the short run {run.id} {run.state.value}: {run.message or 'no reason was recorded'}; see isched logs {run.id}. "
            "What the others showed is kept."
        )
    return run


def _run_s(here: Session, run: Run) -> float | None:
    records = here.services.store.history(family=run.plan.workload.family, kind="run", owner=here.owner, limit=20)
    return next((r.run_s for r in records if r.run_id == run.id), None)


def _money(amount: float, unit: str) -> str:
    return f"${amount:.3g}" if unit == "usd" else f"{amount:.3g} {unit}"
