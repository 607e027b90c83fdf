"""``isched report --estimators``: how right the estimates of this user's finished runs have been, and what was learnt lately."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ischeduler.core.errors import BatchUnavailable
from ischeduler.core.history import HistoryRecord
from ischeduler.core.run import Run
from ischeduler.estimators.learning import sacct
from ischeduler.estimators.learning.accuracy import Accuracy, accuracies
from ischeduler.estimators.learning.outcomes import outcomes
from ischeduler.estimators.learning.replay import replayed_waits

if TYPE_CHECKING:
    from ischeduler.helper.session import Session

MOST_RECORDS = 2000
LOOK_BACK_S = 30 * 86400.0
OVERLAP_S = 86400.0
"""Accounting lags behind, so the last day is asked for again; what is known already is not recorded twice."""


@dataclass(frozen=True, slots=True)
class EstimatorReport:
    """Records of estimators, from how many finished runs and jobs. ``learnt`` jobs of the accounting were new this time."""

    accuracies: tuple[Accuracy, ...]
    runs: int
    jobs: int
    learnt: int
    notes: tuple[str, ...]


def estimator_report(runs: Sequence[Run], history: Sequence[HistoryRecord], learnt: int = 0, notes: Sequence[str] = ()) -> EstimatorReport:
    """Pure: of runs and history as they are. Waits are replayed over jobs of all kinds, ours and the accounting's."""
    jobs = [r for r in history if r.kind == "attempt"]
    told = outcomes(runs)
    words = list(notes)
    moved = sum(1 for r in runs if r.state.ended and r.first_plan is not None and r.first_plan.where != r.plan.where)
    if moved:
        words.append(f"{moved} run{'s' if moved > 1 else ''} left out: moved to another place than was estimated")
    ended = sum(1 for r in runs if r.state.ended)
    return EstimatorReport(accuracies([*told, *replayed_waits(jobs)]), ended, len(jobs), learnt, tuple(words))


def report_estimators(session: Session) -> EstimatorReport:
    """This user's. Asks the accounting first where ``learning.accounting`` allows it; its silence is a note, not an error."""
    learnt, notes = 0, []
    if session.config["learning.accounting"]:
        learnt, notes = learn_from_accounting(session)
    store = session.services.store
    history = store.history(owner=session.owner, limit=MOST_RECORDS)
    return estimator_report(store.list_runs(owner=session.owner), history, learnt, notes)


def learn_from_accounting(session: Session) -> tuple[int, list[str]]:
    """Record the user's own ended jobs of the live Slurm, and say how many were new. iScheduler's own jobs are known already."""
    services = session.services
    if services.batch_kind != "slurm":
        return 0, ["learning.accounting is on, but there is no Slurm here to ask"]
    learnt = 0
    notes: list[str] = []
    for cluster in services.batches:
        kept = services.store.history(cluster=cluster, kind="attempt", owner=session.owner, limit=MOST_RECORDS)
        known = {r.run_id: r.finished_at for r in kept if r.run_id.startswith(sacct.key_of_job(cluster))}
        newest = max(known.values(), default=None)
        now = session.clock.now()
        since = now - LOOK_BACK_S if newest is None else max(now - LOOK_BACK_S, newest - OVERLAP_S)
        try:
            done = services.ask(sacct.question(session.owner, since))
        except BatchUnavailable as error:
            notes.append(f"the accounting of {cluster} could not be asked ({error})")
            continue
        if done.returncode:
            words = done.stderr.strip().splitlines()
            notes.append(f"the accounting of {cluster} does not answer ({words[-1] if words else 'no output'})")
            continue
        fresh = [r for r in sacct.records(done.stdout, cluster, _ours) if r.run_id not in known]
        for record in fresh:
            services.store.record(record)
        learnt += len(fresh)
    return learnt, notes


def _ours(name: str, comment: str) -> bool:
    from ischeduler.batch.names import key_of

    return key_of(name, comment) is not None
