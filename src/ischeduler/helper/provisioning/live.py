"""A trained provisioner looks at a live queue: the same features, the same law and the same roll-outs as in its training."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ischeduler.core.errors import BadInput
from ischeduler.core.run import Attempt
from ischeduler.core.snapshot import FinishedJob, QueuedJob, QueueSnapshot
from ischeduler.estimators.jobruntime.history import elapsed_s
from ischeduler.estimators.jobruntime.sampling import draw_remaining_s, uniforms
from ischeduler.estimators.jobruntime.table import NEVER, JobTable, job_table
from ischeduler.helper.provisioning.evidence import FAR_H, LEVELS, Evidence
from ischeduler.helper.provisioning.model_file import TrainedProvisioner
from ischeduler.helper.provisioning.networks.history import BACK_S
from ischeduler.helper.provisioning.state import full_state
from ischeduler.plane.provisioners import Forecast
from ischeduler.simulator.chain import OWN, Episode, QueueAt, World
from ischeduler.simulator.live import ASSUMED_LIMIT_S, HELD
from ischeduler.simulator.rollouts import start_waits_s

COLUMNS = ("submit_s", "start_s", "run_s", "req_units", "req_walltime_s", "user", "name")
TOGETHER, ROLLS = 0.3, 64
LEFT_LEAST_S = 60


@dataclass(frozen=True)
class _Queue:
    """Jobs that run, by start, then jobs that wait; ``table`` holds them behind the finished ones, sorted by submission."""

    jobs: tuple[QueuedJob, ...]
    running: int
    table: JobTable
    place: NDArray[np.int64]


class _Shown(World):
    """A world whose starts are those that the queue shows: who waits has none."""

    @cached_property
    def start_s(self) -> NDArray[np.int64]:
        """The fixed ones."""
        return self.fixed_start_s


@dataclass(frozen=True)
class Look:
    """What an earlier look of the same segment saw: a network sees the last day of them."""

    at_s: int
    remaining_h: float
    state: NDArray[np.float32]


def forecast(
    model: TrainedProvisioner, snapshot: QueueSnapshot, finished: Sequence[FinishedJob], attempt: Attempt, now: float,
    past: list[Look] | None = None,
) -> Forecast:
    """The wait of a successor of ``attempt`` that is queued now, at the model's levels.

    ``past``: earlier looks of this segment, oldest first; this one is added, and what is older than a day is dropped.
    BadInput when the model was trained for segments of another size or on another machine's measure.
    """
    gpus = _counts_gpus(model, attempt)
    queue = _queue(snapshot, finished, attempt, gpus=gpus)
    of, at = _scene(model, queue, attempt, round(now), gpus=gpus)
    begun = sorted((j for j in finished if j.partition == attempt.partition), key=lambda j: j.start_s)[-100:]
    waits_h = np.array([max(0.0, j.start_s - j.submit_s) / 3600 for j in begun])
    looks = [] if past is None else past
    looks.append(Look(at.now_s, (of.end_s - at.now_s) / 3600, full_state(of, at, waits_h)))
    while looks[0].at_s < at.now_s - BACK_S:
        del looks[0]
    found = model.forecaster.forecast(_evidence(model, of, at, queue, looks))[-1]
    levels = tuple(float(x) for x in model.forecaster.levels)
    waits_s = np.maximum.accumulate(np.maximum(found, 0.0)) * 3600.0
    mean = float(waits_h.mean()) * 3600 if len(waits_h) else None
    return Forecast(now, levels, tuple(float(w) for w in waits_s), mean, source="trained provisioner")


def _counts_gpus(model: TrainedProvisioner, attempt: Attempt) -> bool:
    """Whether the model's units are GPUs: by the segment that it was trained for."""
    wanted, r = int(model.about["segment_units"]), attempt.resources
    if wanted == r.nodes:
        return False
    if wanted == r.nodes * r.gpus_per_node:
        return True
    raise BadInput(
        f"the provisioner was trained for segments of {wanted} units, the run asks for {r.nodes} nodes and {r.nodes * r.gpus_per_node} GPUs: "
        f"train one with --nodes {r.nodes}"
    )


def _queue(snapshot: QueueSnapshot, finished: Sequence[FinishedJob], attempt: Attempt, *, gpus: bool) -> _Queue:
    here = [j for j in snapshot.jobs if j.partition == attempt.partition and (j.gpus if gpus else j.nodes) > 0]
    running = sorted((j for j in here if j.state == "RUNNING" and j.start_s is not None), key=lambda j: j.start_s or 0.0)
    waiting = sorted(
        (j for j in here if j.state == "PENDING" and not j.reason.startswith(HELD)), key=lambda j: (-(j.priority or 0), j.submit_s or 0.0)
    )
    taken = snapshot.taken_at
    over = [j for j in finished if j.partition == attempt.partition and j.end_s <= taken and (j.gpus if gpus else j.nodes) > 0]
    rows = [(j.submit_s, j.start_s, j.end_s - j.start_s, j.gpus if gpus else j.nodes, max(1.0, j.limit_s), j.user, j.name) for j in over]
    rows += [_row(j, taken, gpus=gpus) for j in (*running, *waiting)]
    order = np.argsort([row[0] for row in rows], kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    columns = zip(COLUMNS, zip(*rows, strict=True), strict=True)
    table = job_table({name: np.array(values, object if name in ("user", "name") else float) for name, values in columns})
    return _Queue((*running, *waiting), len(running), table, place[len(over) :])


def _row(job: QueuedJob, taken_at: float, *, gpus: bool) -> tuple[float, float, float, int, float, str, str]:
    """A job alive: it is only known to end by its limit. One past its limit ends soon."""
    limit_s = float(job.limit_s or ASSUMED_LIMIT_S)
    if job.start_s is not None:
        limit_s = max(limit_s, taken_at - job.start_s + LEFT_LEAST_S)
    submit_s = job.submit_s if job.submit_s is not None else job.start_s if job.start_s is not None else taken_at
    start_s = float(NEVER) if job.start_s is None else job.start_s
    return submit_s, start_s, limit_s, job.gpus if gpus else job.nodes, limit_s, job.user, job.name


def _scene(model: TrainedProvisioner, queue: _Queue, attempt: Attempt, now_s: int, *, gpus: bool) -> tuple[Episode, QueueAt]:
    """The live queue as a world, and the running segment in it. As in the training's episodes, nobody has waited since before it was queued."""
    table, place, count = queue.table, queue.place, queue.running
    own = next((i for i, j in enumerate(queue.jobs[:count]) if j.job_id == attempt.job_id), None)
    if own is None:
        raise BadInput(f"job {attempt.job_id} does not run in the queue as it is shown; the next look may know more")
    start = np.where(np.arange(len(place)) < count, table.start_s[place], -1)
    row = np.arange(len(place), dtype=np.int64)
    row[own] = OWN
    capacity = max(int(model.about["data"]["units"]), int(table.units[place[:count]].sum()))
    queued = int(table.submit_s[place[own]])
    submit = np.where(start >= 0, start, np.maximum(table.submit_s[place], queued))
    submit[own] = queued
    world = _Shown(capacity, submit, table.units[place], table.run_s[place], table.limit_s[place], start, row)
    end = int(start[own] + table.limit_s[place[own]])
    units = attempt.resources.nodes * (attempt.resources.gpus_per_node if gpus else 1)
    of = Episode(world, own, units, np.array([now_s, max(end, now_s + 1)], np.int64))
    return of, QueueAt(now_s, np.arange(count), np.arange(count, len(place)))


def _evidence(model: TrainedProvisioner, of: Episode, at: QueueAt, queue: _Queue, looks: Sequence[Look]) -> Evidence:
    """All looks so far, as an episode's; only the last has the twin's quantiles, and only its forecast is asked for."""
    count = len(looks)
    times, remaining = np.array([*(k.at_s for k in looks), of.looks_s[-1]]), np.array([*(k.remaining_h for k in looks), 0.0])
    twin = np.zeros((count, len(LEVELS)))
    if not model.segments_own:
        twin[-1] = _twin(model, of, at, queue)
    return Evidence(
        at.now_s, of.units, times, remaining, np.full(count + 1, np.nan), np.arange(count), np.stack([k.state for k in looks]), np.zeros(count),
        twin, np.full(count, np.nan),
    )  # fmt: skip


def _twin(model: TrainedProvisioner, of: Episode, at: QueueAt, queue: _Queue) -> NDArray[np.float64]:
    """Quantiles of the wait in hours at :data:`LEVELS`, over roll-outs with run times drawn from the law."""
    world, place = of.world, queue.place
    others = np.flatnonzero(world.row != OWN)
    rows, now = place[others], np.full(len(others), at.now_s)
    gone = elapsed_s(queue.table, rows, now)
    left = np.maximum(queue.table.limit_s[rows] - gone, LEFT_LEAST_S)
    alike = (queue.table.user[rows] * 1_000_003 + queue.table.limit_s[rows]) * 8191 + queue.table.units[rows]
    named = np.array([zlib.crc32(queue.jobs[i].job_id.encode()) for i in others], np.int64)
    noise = uniforms(alike, ROLLS, seed=int(model.about["seed"]), together=TOGETHER, jobs=named)
    run = np.repeat(world.run_s[:, None], ROLLS, axis=1)
    run[others] = gone[:, None] + draw_remaining_s(model.law.remaining_deciles(queue.table, rows, now), left, noise)
    found = start_waits_s(world, at, run.T, of.units, of.segment_s) / 3600
    return np.quantile(np.minimum(found, FAR_H), LEVELS)
