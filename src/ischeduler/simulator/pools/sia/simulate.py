"""Sia's rounds: every minute jobs train, then one integer programme gives each a configuration or none.

Source: Jayaram Subramanya et al., SOSP 2023; its simulator's behaviour (placement, restarts, what a job knows of types it has not seen).
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ischeduler.core.errors import BadInput
from ischeduler.policies.problem import Accelerators, Floats, Ints
from ischeduler.policies.sia import Configurations, assign, configurations, costs
from ischeduler.simulator.pools.sia.applications import Placement, read_application
from ischeduler.simulator.pools.sia.job import ElasticJob, Seen

ROUND_S = 60.0
COLUMNS = ("name", "time", "application", "num_replicas", "batch_size")
CLUSTER = {"aws": (6, 4), "dgx-ext": (2, 8), "rtx": (3, 8)}
"""Sia's 64 accelerators: nodes, and accelerators in each."""


class Problem(NamedTuple):
    """What a round's programme is about: costs (J, C; inf where impossible), configurations, accelerators of each type."""

    cost: Floats
    configs: Configurations
    there: Floats
    unserved: float


Chooser = Callable[[Problem], Ints]
"""Gives each job a configuration's column, or -1."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The objective: power of the goodput, the cost of serving nobody, decimals to which costs are rounded (None: not at all).

    What the policy knows: ``shared``: what one job saw (steps' times, the gradient's first noise) helps all later ones of its application;
    ``measured_restarts``: what a restart costs, not what Sia takes it to cost.
    """

    power: float = -0.5
    unserved: float = 1.1
    decimals: int | None = 2
    round_s: float = ROUND_S
    shared: bool = False
    measured_restarts: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """Completion times by job (seconds after submission), the last end, restarts by job, and the number of rounds."""

    jct_s: dict[str, float]
    makespan_s: float
    restarts: dict[str, int]
    rounds: int


def by_solver(problem: Problem) -> Ints:
    """The integer programme to a relative gap of 1e-4, Sia's own."""
    return assign(problem.cost, problem.configs, problem.there, unserved=problem.unserved, gap=1e-4).chosen


def accelerators_of(cluster: Mapping[str, tuple[int, int]]) -> Accelerators:
    """A cluster from (nodes, accelerators in each) by type."""
    return Accelerators.of({t: n * per for t, (n, per) in cluster.items()}, per_node={t: per for t, (_, per) in cluster.items()})


def read_workload(path: Path, traces: Path, types: Sequence[str]) -> list[ElasticJob]:
    """The jobs of a workload file, in its order. BadInput says what is lacking."""
    try:
        rows = list(csv.DictReader(path.read_text("utf-8").splitlines()))
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read ({error}); give a csv with the columns {', '.join(COLUMNS)}.") from None
    lacking = [c for c in COLUMNS if not rows or c not in rows[0]]
    if lacking:
        raise BadInput(f"{path} has no column {', '.join(lacking)}; a workload has {', '.join(COLUMNS)}.")
    known = sorted(p.name for p in traces.iterdir() if p.is_dir()) if traces.is_dir() else []
    jobs: list[ElasticJob] = []
    for number, row in enumerate(rows):
        name = str(row["application"])
        if name not in known:
            raise BadInput(f"{path}, job {number + 1}: nobody measured the application '{name}'; {traces} has {', '.join(known) or 'none'}.")
        apps = {t: read_application(traces / name, t) for t in types}
        try:
            jobs.append(ElasticJob(row["name"], apps, float(row["time"]), int(float(row["batch_size"])) if name != "ncf" else 32768))
        except ValueError as error:
            raise BadInput(f"{path}, job {number + 1}: {error}; correct that number.") from None
    return jobs


@dataclass(eq=False)
class Simulation:
    """One run; ``watch`` sees every round's programme and what was chosen (to judge the solver)."""

    jobs: list[ElasticJob]
    cluster: Mapping[str, tuple[int, int]]
    rules: Rules = field(default_factory=Rules)
    chooser: Chooser = by_solver
    watch: Callable[[Problem, Ints], None] = lambda problem, chosen: None

    def __post_init__(self) -> None:
        self.types = tuple(self.cluster)
        self.accelerators = accelerators_of(self.cluster)
        self.configs = configurations(self.accelerators)
        self.held: dict[str, int] = {}
        self.given: dict[str, tuple[str | None, tuple[int, ...]]] = {}
        self.rows: dict[str, tuple[tuple[int, int], Floats]] = {}
        self.now = 0.0
        if self.rules.shared:
            common: dict[str, Seen] = {}
            for job in self.jobs:
                job.seen = common.setdefault(job.application, Seen())

    def run(self) -> Result:
        """Until every job is done. BadInput when the programme serves nobody for ever."""
        rounds, idle = 0, 0
        while any(j.completed_s is None for j in self.jobs):
            for job in self.jobs:
                job.step(self.rules.round_s)
            self.now += self.rules.round_s
            active = [j for j in self.jobs if j.completed_s is None and j.submitted_s <= self.now]
            if active:
                self._decide(active)
            idle = idle + 1 if active and not any(j.placement for j in active) else 0
            if idle > 10_000:
                raise BadInput("No job is ever served; raise the cost of serving nobody (it must exceed 1).")
            rounds += 1
        done = {j.name: float(j.completed_s or 0.0) - j.submitted_s for j in self.jobs}
        return Result(done, max(float(j.completed_s or 0.0) for j in self.jobs), {j.name: j.restarts for j in self.jobs}, rounds)

    def _decide(self, active: list[ElasticJob]) -> None:
        """Jobs in the middle of a restart keep what they have; the programme is about the others."""
        chosen = {j.name: self.held[j.name] for j in active if j.waiting_s > 0 and self.held.get(j.name, -1) >= 0}
        count = self.accelerators.count.copy()
        for column in chosen.values():
            count[self.configs.kind[column]] -= self.configs.accelerators[column]
        free = [j for j in active if j.name not in chosen]
        if free:
            goodput = np.stack([self._row(j) for j in free])
            held = np.array([self.held.get(j.name, -1) for j in free], np.int64)
            restart_s = [j.measured_restart_s if self.rules.measured_restarts else j.expected_restart_s for j in free]
            cost = costs(
                goodput, held, np.array([self.now - j.submitted_s for j in free]), np.array([float(j.restarts) for j in free]), np.array(restart_s),
                power=self.rules.power, decimals=self.rules.decimals,
            )  # fmt: skip
            problem = Problem(cost, self.configs, count, self.rules.unserved)
            found = self.chooser(problem)
            self.watch(problem, found)
            chosen.update({j.name: int(c) for j, c in zip(free, found, strict=True)})
        self.held = {j.name: chosen[j.name] for j in active}
        self._place(active)

    def _row(self, job: ElasticJob) -> Floats:
        """Goodput of a job in every configuration; types it has not seen in proportion to one accelerator's speed there; 1 where it knows none."""
        key = (job.revision, job.most_replicas())
        if job.name in self.rows and self.rows[job.name][0] == key:
            return self.rows[job.name][1]
        good = np.zeros(len(self.configs))
        seen = [t for t in self.types if t in job.seen.models and job.known_noise is not None]
        for k, kind in enumerate(self.types):
            at = np.flatnonzero((self.configs.kind == k) & (self.configs.accelerators <= key[1]))
            size = self.configs.accelerators[at]
            if not seen:
                good[at[size == 1]] = 1.0
                continue
            source = kind if kind in seen else seen[0]
            nodes = self.configs.nodes[at] if source == kind else -(-size // self.cluster[source][1])
            found = job.goodputs(source, nodes, size)
            if found is not None:
                good[at] = found * (1.0 if source == kind else job.apps[kind].samples_per_s() / job.apps[source].samples_per_s())
        self.rows[job.name] = (key, good)
        return good

    def _place(self, active: list[ElasticJob]) -> None:
        """Accelerators on nodes, the largest job first; a job whose nodes change is told so."""
        given: dict[str, tuple[str | None, tuple[int, ...]]] = {j.name: (None, ()) for j in active}
        for k, kind in enumerate(self.types):
            wanted = [(j.name, int(self.configs.accelerators[self.held[j.name]])) for j in active
                      if self.held[j.name] >= 0 and self.configs.kind[self.held[j.name]] == k]  # fmt: skip
            for name, nodes in packed(wanted, *self.cluster[kind]).items():
                given[name] = (kind, nodes)
        for job in active:
            if given[job.name] != self.given.get(job.name, (None, ())):
                kind, nodes = given[job.name]
                job.move(kind, runs(nodes))
        self.given = given


def packed(wanted: Sequence[tuple[str, int]], nodes: int, per_node: int) -> dict[str, tuple[int, ...]]:
    """The node of every accelerator: the largest jobs first, whole nodes where they fill some, else one node after the other."""
    room = [per_node] * nodes
    pointer = 0
    placed: dict[str, tuple[int, ...]] = {}
    for name, size in sorted(wanted, key=lambda item: -item[1]):
        at, left, whole = pointer, size, size // per_node
        mine: list[int] = []
        looked = 0
        while whole > 0 and looked < nodes:
            if room[at] == per_node:
                room[at] = 0
                mine += [at] * per_node
                left -= per_node
                whole -= 1
            at = (at + 1) % nodes
            looked += 1
        while left > 0:
            take = min(left, room[at])
            room[at] -= take
            mine += [at] * take
            left -= take
            at = (at + 1) % nodes
        placed[name] = tuple(mine)
        pointer = at
    return placed


def runs(nodes: Sequence[int]) -> Placement:
    """Accelerators on each node in turn."""
    counts: list[int] = []
    for i, node in enumerate(nodes):
        if i and node == nodes[i - 1]:
            counts[-1] += 1
        else:
            counts.append(1)
    return tuple(counts)


def mean_jct_s(result: Result) -> float:
    """The mean completion time."""
    return float(np.mean(list(result.jct_s.values())))


