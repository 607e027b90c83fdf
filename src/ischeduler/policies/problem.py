"""The shared formulation: jobs by row, accelerator types by column, and what a policy gives back.

Everything is a column of numbers, so that a policy is a few array lines and 30,000 jobs cost no objects. Sizes below:
J jobs, K accelerator types, C job classes, E entities, P pairs of jobs that share accelerators.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from ischeduler.core.errors import BadInput

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


def _floats(values: Any) -> Floats:
    return np.ascontiguousarray(values, dtype=np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class Accelerators:
    """What there is to share out: ``count`` accelerators of each type, ``per_node`` of them in a node, at ``price_per_h`` each.

    ``whole``, where given: the counts of the cluster this is a slice of; jobs that fit into that run here, for part of the time.
    """

    types: tuple[str, ...]
    count: Floats
    per_node: Ints
    price_per_h: Floats
    whole: Floats | None = None

    @classmethod
    def of(
        cls, count: Mapping[str, float], *, per_node: Mapping[str, int] | int = 1, price_per_h: Mapping[str, float] | float = 0.0,
    ) -> Accelerators:
        """From counts by type, in their order. BadInput when nothing is there."""
        if not count or not any(n > 0 for n in count.values()):
            raise BadInput("The cluster has no accelerators; give at least one type with a count above zero, as in v100=8.")
        for name, n in count.items():
            if not np.isfinite(n) or n < 0:
                raise BadInput(f"The cluster has {n:g} accelerators of type '{name}'; give a count of zero or more.")
        nodes = dict.fromkeys(count, per_node) if isinstance(per_node, int) else per_node
        price = dict.fromkeys(count, price_per_h) if isinstance(price_per_h, int | float) else price_per_h
        per = np.array([max(1, nodes.get(t, 1)) for t in count], dtype=np.int64)
        return cls(tuple(count), _floats(list(count.values())), per, _floats([price.get(t, 0.0) for t in count]))


@dataclass(frozen=True, slots=True, eq=False)
class Throughputs:
    """Steps per second of every job class (a job type at a number of accelerators) on every type; 0: does not run there.

    ``rate`` (C, K) with the job's accelerators on as few nodes as can be, ``spread`` (C, K) scattered over nodes (``rate`` where it was
    not measured). ``shared`` (C, C, K), where measured: steps/s of class c on the accelerators it shares with class d; 0: not together.
    """

    types: tuple[str, ...]
    classes: tuple[str, ...]
    rate: Floats
    spread: Floats
    shared: Floats | None = None

    @classmethod
    def of(
        cls, rate: Mapping[str, Mapping[str, float]], types: Sequence[str], *, spread: Mapping[str, Mapping[str, float]] | None = None,
    ) -> Throughputs:
        """From steps/s by class and type name; a type that is missing for a class does not run it."""
        table = _floats([[row.get(t, 0.0) for t in types] for row in rate.values()]).reshape(len(rate), len(types))
        loose = table if spread is None else _floats([
            [spread.get(c, row).get(t, row.get(t, 0.0)) for t in types] for c, row in rate.items()
        ]).reshape(table.shape)
        for values in (table, loose):
            if not np.all(np.isfinite(values)) or np.any(values < 0):
                bad = int(np.argmax(~np.isfinite(values).all(axis=1) | (values < 0).any(axis=1)))
                raise BadInput(f"A throughput of '{list(rate)[bad]}' is not a number of zero or more steps per second; correct it.")
        return cls(tuple(types), tuple(rate), table, loose)

    @property
    def knows_pairs(self) -> bool:
        """Whether any two classes were ever measured together."""
        return self.shared is not None and bool((self.shared > 0).any())

    def kept(self, *, aware: bool = True) -> Floats:
        """The part (C, C, K) of its rate alone that class c keeps on accelerators shared with class d; 0: not together. BadInput: none known.

        Not ``aware``: the mean over the types on which the two were measured together stands on each of these.
        """
        if self.shared is None or not self.knows_pairs:
            raise BadInput(
                "This policy shares accelerators between jobs, but no throughput of a pair is known; measure pairs or choose one without sharing.")
        alone = self.rate[:, None, :]
        both = (self.shared > 0) & (self.shared.transpose(1, 0, 2) > 0) & (alone > 0) & (self.rate[None, :, :] > 0)
        part = np.where(both, self.shared / np.where(alone > 0, alone, 1.0), 0.0)
        if aware:
            return part
        return np.where(both, part.sum(axis=2, keepdims=True) / np.maximum(both.sum(axis=2, keepdims=True), 1), 0.0)

    def index(self, name: str) -> int:
        """The row of a class. BadInput with the nearest names."""
        if name in self.classes:
            return self.classes.index(name)
        import difflib

        near = difflib.get_close_matches(name, self.classes, 3)
        hint = f"did you mean {' or '.join(repr(n) for n in near)}?" if near else "give its throughput on at least one type."
        raise BadInput(f"Nobody measured the job type '{name}'; {hint}")

    def on(self, accelerators: Accelerators) -> Throughputs:
        """With the columns in the cluster's order; types the cluster lacks fall away, unknown ones run nothing."""
        if self.types == accelerators.types:
            return self
        column = {t: k for k, t in enumerate(self.types)}

        def take(table: Floats) -> Floats:
            nothing = np.zeros(table.shape[:-1])
            return np.ascontiguousarray(np.stack([table[..., column[t]] if t in column else nothing for t in accelerators.types], axis=-1))

        return Throughputs(accelerators.types, self.classes, take(self.rate), take(self.spread),
                           None if self.shared is None else take(self.shared))


@dataclass(frozen=True, slots=True)
class Job:
    """One job, for people and small callers; :class:`Jobs` holds many by column.

    ``job_class``: its name in the throughputs. ``attained_s``: time it has held accelerators; ``time_on_s``: the same by type.
    ``isolated_s``: what its work so far would have taken on its fair slice. ``on``: the type it held last round, '' for none.
    ``accelerators``: what it runs on; an elastic job takes ``min_accelerators`` to ``max_accelerators``.
    """

    id: str
    job_class: str
    steps_left: float
    total_steps: float | None = None
    accelerators: int = 1
    weight: float = 1.0
    arrived_s: float = 0.0
    attained_s: float = 0.0
    time_on_s: Mapping[str, float] = field(default_factory=dict[str, float])
    isolated_s: float = 0.0
    deadline_s: float = float("inf")
    budget: float = float("inf")
    entity: str = ""
    on: str = ""
    preemptible: bool = True
    min_accelerators: int = 0
    max_accelerators: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Jobs:
    """J jobs by column; the fields are those of :class:`Job`. ``on`` is a column of the cluster's types, -1 for none."""

    ids: tuple[str, ...]
    job_class: Ints
    accelerators: Ints
    weight: Floats
    steps_left: Floats
    total_steps: Floats
    arrived_s: Floats
    attained_s: Floats
    time_on_s: Floats
    isolated_s: Floats
    deadline_s: Floats
    budget: Floats
    on: Ints
    preemptible: Flags
    min_accelerators: Ints
    max_accelerators: Ints
    entity: Ints
    entities: tuple[str, ...] = ("",)
    entity_weight: Floats = field(default_factory=lambda: np.ones(1))

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def of(
        cls, jobs: Iterable[Job], throughputs: Throughputs, accelerators: Accelerators, entity_weight: Mapping[str, float] | None = None,
    ) -> Jobs:
        """Columns from rows. BadInput names the first job that cannot be scheduled as it stands, and what is wrong with it."""
        rows = list(jobs)
        entities = tuple(dict.fromkeys(j.entity for j in rows)) or ("",)
        place = {e: i for i, e in enumerate(entities)}
        column = {t: k for k, t in enumerate(accelerators.types)}
        known = {c: i for i, c in enumerate(throughputs.classes)}
        seen: set[str] = set()
        for j in rows:
            _check_job(j)
            if j.id in seen:
                raise BadInput(f"Two jobs are called '{j.id}'; give every job its own id.")
            seen.add(j.id)
        wanted = entity_weight or {}
        by_entity = _floats([wanted.get(e, 1.0) for e in entities])
        if not np.all(by_entity > 0) or not np.all(np.isfinite(by_entity)):
            bad = entities[int(np.argmin(np.where(np.isfinite(by_entity), by_entity, -1.0)))]
            raise BadInput(f"The weight of entity '{bad}' is not above zero; give every entity a positive weight.")
        return cls(
            ids=tuple(j.id for j in rows),
            job_class=np.array([known[j.job_class] if j.job_class in known else throughputs.index(j.job_class) for j in rows], dtype=np.int64),
            accelerators=np.array([j.accelerators for j in rows], dtype=np.int64),
            weight=_floats([j.weight for j in rows]),
            steps_left=_floats([j.steps_left for j in rows]),
            total_steps=_floats([j.steps_left if j.total_steps is None else j.total_steps for j in rows]),
            arrived_s=_floats([j.arrived_s for j in rows]),
            attained_s=_floats([j.attained_s for j in rows]),
            time_on_s=_floats([[j.time_on_s.get(t, 0.0) for t in accelerators.types] for j in rows]).reshape(len(rows), len(column)),
            isolated_s=_floats([j.isolated_s for j in rows]),
            deadline_s=_floats([j.deadline_s for j in rows]),
            budget=_floats([j.budget for j in rows]),
            on=np.array([column.get(j.on, -1) for j in rows], dtype=np.int64),
            preemptible=np.array([j.preemptible for j in rows], dtype=np.bool_),
            min_accelerators=np.array([j.min_accelerators or j.accelerators for j in rows], dtype=np.int64),
            max_accelerators=np.array([j.max_accelerators or j.accelerators for j in rows], dtype=np.int64),
            entity=np.array([place[j.entity] for j in rows], dtype=np.int64),
            entities=entities, entity_weight=by_entity,
        )

    def take(self, rows: Ints) -> Jobs:
        """The jobs of these rows, in this order."""
        return Jobs(
            ids=tuple(self.ids[int(r)] for r in rows), job_class=self.job_class[rows], accelerators=self.accelerators[rows],
            weight=self.weight[rows], steps_left=self.steps_left[rows], total_steps=self.total_steps[rows], arrived_s=self.arrived_s[rows],
            attained_s=self.attained_s[rows], time_on_s=self.time_on_s[rows], isolated_s=self.isolated_s[rows],
            deadline_s=self.deadline_s[rows], budget=self.budget[rows], on=self.on[rows], preemptible=self.preemptible[rows],
            min_accelerators=self.min_accelerators[rows], max_accelerators=self.max_accelerators[rows], entity=self.entity[rows],
            entities=self.entities, entity_weight=self.entity_weight,
        )


def _check_job(job: Job) -> None:
    if not (np.isfinite(job.weight) and job.weight > 0):
        raise BadInput(f"Job '{job.id}' has the weight {job.weight:g}; weights are above zero (leave it out for 1).")
    if job.accelerators < 1:
        raise BadInput(f"Job '{job.id}' asks for {job.accelerators} accelerators; ask for at least one.")
    if not (np.isfinite(job.steps_left) and job.steps_left >= 0):
        raise BadInput(f"Job '{job.id}' has {job.steps_left:g} steps left; give a number of zero or more.")
    low, high = job.min_accelerators or job.accelerators, job.max_accelerators or job.accelerators
    if not 1 <= low <= high:
        raise BadInput(f"Job '{job.id}' is elastic from {low} to {high} accelerators; the least must not exceed the most.")


@dataclass(frozen=True, slots=True)
class Objective:
    """What to optimise, and how much the policy may know.

    ``aware``: whether it knows that types differ in speed (else every type a job runs on counts the same). ``sharing``: whether two
    jobs may share accelerators where that was measured. ``placement``: which throughput a job on several accelerators is promised:
    'packed' (as few nodes as can be), 'spread', or 'auto' (packed where a node or whole nodes hold it, else spread).
    ``options``: what one policy alone understands, by name (see its docstring). ``seed``: for the policies that draw lots.
    """

    name: str
    aware: bool = True
    sharing: bool = False
    placement: str = "packed"
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, eq=False)
class Allocation:
    """Shares of time: ``share`` (J, K) of each job alone on a type; ``pair_share`` (P, K) of the pairs ``pairs`` (P, 2, rows of jobs).

    A job's shares, its pairs' included, sum to at most 1; on a type, accelerators times shares sum to at most its count (a pair counts
    once). ``value`` is the objective's value, ``score`` (J,) what the objective gives each job, in its own unit, larger is better off;
    ``priority`` (J,), where given, is the order in which the round mechanism serves jobs of equal standing (larger first).
    ``accelerators`` (J,) is set by elastic policies. ``memory`` is the policy's own: give the allocation back as ``previous``.
    """

    ids: tuple[str, ...]
    types: tuple[str, ...]
    share: Floats
    pairs: Ints = field(default_factory=lambda: np.zeros((0, 2), dtype=np.int64))
    pair_share: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    value: float = float("nan")
    score: Floats | None = None
    priority: Floats | None = None
    accelerators: Ints | None = None
    memory: Any = None

    def as_mapping(self) -> dict[str, dict[str, float]]:
        """Job id -> type -> share of time, pairs added to both of theirs; shares of zero are left out."""
        total = self.share.copy()
        for (a, b), row in zip(self.pairs, self.pair_share, strict=True):
            total[a] += row
            total[b] += row
        return {i: {t: float(x) for t, x in zip(self.types, row, strict=True) if x > 0} for i, row in zip(self.ids, total, strict=True)}


class AllocationPolicy(Protocol):
    """Which of many jobs gets which accelerator type for what share of time. Pure: same arguments, same answer."""

    def __call__(
        self, jobs: Jobs, throughputs: Throughputs, accelerators: Accelerators, objective: Objective, now: float,
        previous: Allocation | None = None,
    ) -> Allocation:
        """Shares that fit; ``previous`` carries the policy's memory. Raises IschedError with one sentence."""
        ...


def memory_by_name(previous: Allocation | None) -> Mapping[str, Any]:
    """The memory of a policy that remembers something by name; empty where there is none."""
    found = cast("object", None if previous is None else previous.memory)
    return cast("Mapping[str, Any]", found) if isinstance(found, Mapping) else {}


def rates(jobs: Jobs, throughputs: Throughputs, accelerators: Accelerators, objective: Objective) -> Floats:
    """Steps/s (J, K) of every job on every type as the objective may know them; 0 where it cannot run or too few are there.

    BadInput when a job runs nowhere. With ``aware`` off, every type a job can run on counts as fast as its best.
    """
    table = throughputs.on(accelerators)
    size = jobs.accelerators[:, None]
    rate = table.rate[jobs.job_class]
    if objective.placement != "packed":
        node = accelerators.per_node[None, :]
        loose = (size > node) & (size % node != 0) if objective.placement == "auto" else size > 1
        rate = np.where(loose, table.spread[jobs.job_class], rate)
    there = accelerators.count if accelerators.whole is None else accelerators.whole
    rate = np.where(size <= there[None, :], rate, 0.0)
    stuck = ~(rate > 0).any(axis=1)
    if stuck.any():
        row = int(np.argmax(stuck))
        raise BadInput(
            f"Job '{jobs.ids[row]}' ({throughputs.classes[int(jobs.job_class[row])]}, {int(jobs.accelerators[row])} accelerators) makes no "
            f"progress on any type of this cluster ({', '.join(accelerators.types)}); measure it there, make it smaller, or leave it out.")
    return rate if objective.aware else np.where(rate > 0, rate.max(axis=1, keepdims=True), 0.0)


def paces(found: Allocation, jobs: Jobs, throughputs: Throughputs, rate: Floats, *, aware: bool = True) -> Floats:
    """Steps/s (J,) that an allocation comes to at ``rate`` (J, K) alone, pairs at the part of it that they keep."""
    made = (rate * found.share).sum(axis=1)
    if len(found.pairs):
        one, other = found.pairs.T
        kept, a, b = throughputs.kept(aware=aware), jobs.job_class[one], jobs.job_class[other]
        np.add.at(made, one, (found.pair_share * rate[one] * kept[a, b]).sum(axis=1))
        np.add.at(made, other, (found.pair_share * rate[other] * kept[b, a]).sum(axis=1))
    return made


def even_rates(rate: Floats, accelerators: Accelerators) -> Floats:
    """What a job would make (J,) with its time spread over the types in proportion to their counts: the yardstick of fairness."""
    return rate @ (accelerators.count / accelerators.count.sum())


def isolated_shares(jobs: Jobs, accelerators: Accelerators) -> Floats:
    """The shares (J, K) if every job had its slice of each type by weight to itself, and time for no more than one at once."""
    slice_ = jobs.weight / max(float(jobs.weight.sum()), 1e-300)
    share = slice_[:, None] * accelerators.count[None, :] / jobs.accelerators[:, None]
    return share / np.maximum(share.sum(axis=1, keepdims=True), 1.0)


def allocation(jobs: Jobs, accelerators: Accelerators, share: Floats, /, **more: Any) -> Allocation:
    """An allocation without pairs."""
    return Allocation(jobs.ids, accelerators.types, share, pair_share=np.zeros((0, len(accelerators.types))), **more)
