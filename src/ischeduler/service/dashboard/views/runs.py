"""A run as a row: where it is, how far, how long still, what it has cost. The list page and ``isched top`` share it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from ischeduler.core.durations import human
from ischeduler.core.jobs import JobState
from ischeduler.core.run import Run, RunState
from ischeduler.plane.attempts import spent
from ischeduler.planning.cost import cost_words
from ischeduler.service.dashboard.words import ago

TONES: dict[RunState, str] = {
    RunState.RUNNING: "live", RunState.CHECKPOINTING: "live", RunState.HANDING_OVER: "live", RunState.COMPLETED: "good",
    RunState.FAILED: "bad", RunState.STALLED: "bad", RunState.UNKNOWN: "warn", RunState.CANCELLED: "warn",
}  # fmt: skip
"""How much attention a state wants: live, good, bad, warn; the others wait quietly ('idle')."""


@dataclass(frozen=True, slots=True)
class Money:
    """Spent beside what was planned and what is allowed. ``share`` is of the bound (0 to 1 and beyond), None where nothing costs.

    ``bound`` is the cap where one is set, else the plan's p90; ``over`` says that it is passed.
    """

    spent: float
    planned: float
    cap: float | None
    unit: str
    share: float | None
    over: bool

    @property
    def words(self) -> str:
        """``$0.21 of about $0.36, at most $0.45``."""
        most = f", at most {cost_words(self.cap, self.unit)}" if self.cap is not None else ""
        return f"{cost_words(self.spent, self.unit)} of about {cost_words(self.planned, self.unit)}{most}"


@dataclass(frozen=True, slots=True)
class RunRow:
    """One line of the list. Words are ready to be shown (escaping is the page's), figures are kept for bars and sorting."""

    id: str
    name: str
    owner: str
    state: str
    tone: str
    ended: bool
    where: str
    share: float
    progress: str
    loss: float | None
    left_s: float | None
    left: str
    money: Money
    message: str
    made: str
    created_at: float
    jobs: int


def run_row(run: Run, now: float) -> RunRow:
    """The row of one run."""
    return RunRow(
        id=run.id, name=run.plan.workload.name or run.plan.workload.family, owner=run.owner, state=state_words(run.state),
        tone=TONES.get(run.state, "idle"), ended=run.state.ended, where=run.plan.where, share=share_done(run),
        progress=progress_words(run), loss=run.progress.loss, left_s=left_s(run), left=left_words(run, now), money=money_of(run),
        message=run.message, made=ago(run.created_at, now), created_at=run.created_at, jobs=len(run.attempts),
    )  # fmt: skip


def run_rows(runs: Sequence[Run], now: float) -> tuple[tuple[RunRow, ...], tuple[RunRow, ...]]:
    """Rows of runs under way, those that want attention first, and of ended ones; each newest first."""
    rows = [run_row(r, now) for r in runs]
    order = {"bad": 0, "warn": 1}
    going = sorted((r for r in rows if not r.ended), key=lambda r: (order.get(r.tone, 2), -r.created_at))
    return tuple(going), tuple(sorted((r for r in rows if r.ended), key=lambda r: -r.created_at))


def state_words(state: RunState) -> str:
    """``between segments``."""
    return state.value.replace("_", " ")


def share_done(run: Run) -> float:
    """0 to 1: by steps where they are counted, else by epochs."""
    p = run.progress
    if run.state is RunState.COMPLETED:
        return 1.0
    if p.steps > 0:
        return min(1.0, p.step / p.steps)
    return min(1.0, p.epochs_done / max(1, p.epochs or run.plan.workload.epochs))


def progress_words(run: Run) -> str:
    """``epoch 27/50``."""
    return f"epoch {run.progress.epochs_done}/{run.progress.epochs or run.plan.workload.epochs}"


def left_s(run: Run) -> float | None:
    """Training time left: the median of observed epochs, before the first the plan's run time. None for an ended run."""
    if run.state.ended:
        return None
    if run.progress.epoch_times_s:
        epochs = run.progress.epochs or run.plan.workload.epochs
        return max(0, epochs - run.progress.epochs_done) * median(run.progress.epoch_times_s)
    return run.plan.run.p50 * (1.0 - share_done(run))


def left_words(run: Run, now: float) -> str:
    """``58m of training left``; for a waiting job when it may start; for an ended run how long it took."""
    if run.state.ended:
        return f"took {human(run.ended_at - run.created_at)}" if run.ended_at is not None else ""
    training = left_s(run)
    words = f"{human(training)} of training left" if training is not None else ""
    attempt = run.attempt
    if attempt is not None and attempt.state is JobState.PENDING and attempt.expected_start_s is not None:
        return f"starts in about {human(max(0.0, attempt.expected_start_s - now))}, {words}"
    return words


def money_of(run: Run) -> Money:
    """What it has cost so far, of what."""
    cost = (run.first_plan or run.plan).cost
    used, cap = spent(run), run.caps.max_cost
    bound = cap if cap is not None else cost.p90
    return Money(used, cost.p50, cap, cost.unit, used / bound if bound > 0 else None, bound > 0 and used > bound)
