"""What is free on which node, now or at the end of jobs that run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from ischeduler.simulator.engine.jobs import Job, Shape
from ischeduler.simulator.engine.machine import Machine

_RUN = re.compile("1+")
_MEMBER = re.compile("1")


def members(mask: int) -> Iterator[int]:
    """The numbers of a set's nodes, lowest first."""
    return (m.start() for m in _MEMBER.finditer(bin(mask)[:1:-1]))


class View(Protocol):
    """What is free on each node at some moment."""

    def free_cores(self, i: int) -> int:
        """Cores of node ``i`` that no job has."""
        ...

    def free_gpus(self, i: int) -> Mapping[str, int]:
        """GPUs of node ``i`` that no job has, by type."""
        ...


class NodePool:
    """Free cores, memory and GPUs of every node. ``up`` are nodes in service, ``drained`` those that take no new job.

    ``occupied`` nodes have a job; ``packed`` ones have no core left. Never over-allocates: :meth:`take` asserts it.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.names = [n.name for n in machine.nodes]
        self.index = {name: i for i, name in enumerate(self.names)}
        self.cores = [n.cores for n in machine.nodes]
        self.memory = [n.memory_mb for n in machine.nodes]
        self.gpus = [dict(n.gpus) for n in machine.nodes]
        self.count = [0] * len(self.names)
        self.all = (1 << len(self.names)) - 1
        self.up, self.drained, self.occupied, self.packed = self.all, 0, 0, 0
        self.partition_masks = [sum(1 << self.index[n] for n in set(p.nodes)) for p in machine.partitions]
        weights = sorted({n.weight for n in machine.nodes})
        self._weight_masks = [sum(1 << i for i, n in enumerate(machine.nodes) if n.weight == w) for w in weights]
        kinds = {n.cores for n in machine.nodes}
        self._cores_each = kinds.pop() if len(kinds) == 1 else 0
        self._suited: dict[Shape, int] = {}

    @property
    def open(self) -> int:
        """Nodes that may take a job."""
        return self.up & ~self.drained

    def suited(self, shape: Shape) -> int:
        """Nodes of the partition that hold the shape when empty, with its features, not excluded."""
        if shape not in self._suited:
            mask = self.partition_masks[shape.partition]
            self._suited[shape] = sum(1 << i for i in members(mask) if self._suits(i, shape))
        return self._suited[shape]

    def _suits(self, i: int, shape: Shape) -> bool:
        node = self.machine.nodes[i]
        if node.name in shape.exclude or not set(shape.features) <= set(node.features):
            return False
        gpus = node.gpus.get(shape.gpu_type, 0) if shape.gpu_type else sum(node.gpus.values())
        return node.cores >= shape.cores and gpus >= shape.gpus and (not node.memory_mb or node.memory_mb >= shape.memory_mb)

    def fitting(self, shape: Shape, among: int) -> int:
        """Of ``among`` (already suited) the nodes on which the shape fits now."""
        if shape.whole:
            return among & ~self.occupied
        free = among & ~self.occupied
        for i in members(among & self.occupied & ~self.packed):
            if _fits(self.cores[i], self.memory[i] if self.machine.nodes[i].memory_mb else None, self.gpus[i], shape):
                free |= 1 << i
        return free

    def choose(self, mask: int, count: int, shape: Shape | None = None, view: View | None = None) -> int:
        """``count`` of these nodes as Slurm picks them: low weights first, then the run of neighbours that is enough and has the fewest
        free cores, and for a single node the one with the fewest free cores in it. A job with GPUs goes where most of them are free.

        0 when there are not so many. ``view`` says what is free (default: now); without ``shape`` all nodes count alike.
        Source: select/cons_tres, best fit of consecutive nodes (_eval_nodes).
        """
        if mask.bit_count() <= count:
            return mask if mask.bit_count() == count else 0
        alike = shape is None or (not shape.gpus and self._cores_each > 0 and (shape.whole or shape.cores == self._cores_each))
        seen = None if alike else view or self
        got = 0
        for weighted in self._weighted(mask, shape, seen):
            here, missing = mask & weighted, count - got.bit_count()
            if here.bit_count() >= missing:
                return got | (_tightest(here, missing, seen.free_cores) if seen else _consecutive(here, missing))
            got |= here
        return got

    def _weighted(self, mask: int, shape: Shape | None, view: View | None) -> list[int]:
        """Sets of nodes, those to be taken first in front."""
        if shape is None or view is None or not shape.gpus:
            return self._weight_masks
        sets: list[int] = []
        for weighted in self._weight_masks:
            free = {i: sum(view.free_gpus(i).values()) for i in members(mask & weighted)}
            sets += [sum(1 << i for i, n in free.items() if n == count) for count in sorted(set(free.values()), reverse=True)]
        return sets

    def free_cores(self, i: int) -> int:
        """Cores of node ``i`` that no job has."""
        return self.cores[i]

    def free_gpus(self, i: int) -> Mapping[str, int]:
        """GPUs of node ``i`` that no job has, by type."""
        return self.gpus[i]

    def take(self, job: Job, mask: int) -> None:
        """Allocate the job's share on each node of ``mask``; a job that takes whole nodes only occupies them."""
        shape, job.mask, job.gpus_taken = job.shape, mask, []
        assert not mask & (self.occupied if shape.whole else self.packed), f"job {job.job_id} would get nodes that are taken"
        self.occupied |= mask
        if shape.whole:
            self.packed |= mask
            return
        for i in members(mask):
            node = self.machine.nodes[i]
            self.cores[i] -= shape.cores
            self.memory[i] -= shape.memory_mb if node.memory_mb else 0
            self._take_gpus(job, i)
            self.count[i] += 1
            assert min(self.cores[i], self.memory[i]) >= 0, f"{node.name} is over-allocated"
            if self.cores[i] == 0:
                self.packed |= 1 << i

    def _take_gpus(self, job: Job, i: int) -> None:
        free, missing = self.gpus[i], job.shape.gpus
        for kind in [job.shape.gpu_type] if job.shape.gpu_type else list(free):
            got = min(missing, free.get(kind, 0))
            if got > 0:
                free[kind] -= got
                missing -= got
                job.gpus_taken.append((i, kind, got))
        assert missing <= 0, f"{self.names[i]} has not enough GPUs"

    def give(self, job: Job) -> None:
        """Take the job's share back."""
        shape, mask = job.shape, job.mask
        self.packed &= ~mask
        if shape.whole:
            self.occupied &= ~mask
            job.mask = 0
            return
        for i in members(mask):
            self.cores[i] += shape.cores
            self.memory[i] += shape.memory_mb if self.machine.nodes[i].memory_mb else 0
            self.count[i] -= 1
            if self.count[i] == 0:
                self.occupied &= ~(1 << i)
        for i, kind, number in job.gpus_taken:
            self.gpus[i][kind] += number
        job.gpus_taken, job.mask = [], 0


class Future:
    """The pool as it will be when some of its jobs have ended; the pool itself stays as it is."""

    def __init__(self, pool: NodePool) -> None:
        self._pool = pool
        self._left: dict[int, list[int]] = {}
        self._gpus: dict[int, dict[str, int]] = {}
        self.emptied = 0

    def remove(self, job: Job) -> None:
        """Let a running job end."""
        pool, shape = self._pool, job.shape
        if shape.whole:
            self.emptied |= job.mask
            return
        for i in members(job.mask):
            left = self._left.setdefault(i, [pool.cores[i], pool.memory[i], pool.count[i]])
            left[0] += shape.cores
            left[1] += shape.memory_mb if pool.machine.nodes[i].memory_mb else 0
            left[2] -= 1
            if left[2] == 0:
                self.emptied |= 1 << i
        for i, kind, number in job.gpus_taken:
            free = self._gpus.setdefault(i, dict(pool.gpus[i]))
            free[kind] += number

    def free_cores(self, i: int) -> int:
        """As :meth:`NodePool.free_cores`."""
        if self.emptied >> i & 1:
            return self._pool.machine.nodes[i].cores
        return self._left[i][0] if i in self._left else self._pool.cores[i]

    def free_gpus(self, i: int) -> Mapping[str, int]:
        """As :meth:`NodePool.free_gpus`."""
        return self._pool.machine.nodes[i].gpus if self.emptied >> i & 1 else self._gpus.get(i, self._pool.gpus[i])

    def fitting(self, shape: Shape, among: int) -> int:
        """As :meth:`NodePool.fitting`."""
        pool = self._pool
        found = pool.fitting(shape, among) | (among & self.emptied)
        if shape.whole:
            return found
        for i, left in self._left.items():
            bit = 1 << i
            if among & bit and not found & bit:
                memory = left[1] if pool.machine.nodes[i].memory_mb else None
                if _fits(left[0], memory, self._gpus.get(i, pool.gpus[i]), shape):
                    found |= bit
        return found


def _fits(cores: int, memory_mb: int | None, gpus: dict[str, int], shape: Shape) -> bool:
    if cores < shape.cores or (memory_mb is not None and memory_mb < shape.memory_mb):
        return False
    if not shape.gpus:
        return True
    return (gpus.get(shape.gpu_type, 0) if shape.gpu_type else sum(gpus.values())) >= shape.gpus


def _consecutive(mask: int, count: int) -> int:
    """Of more nodes than are needed: from the smallest run that is enough, else whole runs from the largest on."""
    runs = [(m.end() - m.start(), m.start()) for m in _RUN.finditer(bin(mask)[:1:-1])]
    got, missing = 0, count
    while missing:
        enough = [r for r in runs if r[0] >= missing]
        length, start = min(enough) if enough else max(runs, key=lambda r: (r[0], -r[1]))
        taken = min(length, missing)
        got |= ((1 << taken) - 1) << start
        missing -= taken
        runs.remove((length, start))
    return got


def _tightest(mask: int, count: int, free_cores: Callable[[int], int]) -> int:
    """As :func:`_consecutive`, where a run is as large as its free cores; of a run for one node the one with the fewest."""
    runs = [(sum(free_cores(i) for i in range(*m.span())), m.start(), m.end()) for m in _RUN.finditer(bin(mask)[:1:-1])]
    got, missing = 0, count
    while missing:
        enough = [r for r in runs if r[2] - r[1] >= missing]
        best = min(enough) if enough else max(runs, key=lambda r: (r[0], -r[1]))
        if missing == 1:
            return got | 1 << min(range(best[1], best[2]), key=lambda i: (free_cores(i), i))
        taken = min(best[2] - best[1], missing)
        got |= ((1 << taken) - 1) << best[1]
        missing -= taken
        runs.remove(best)
    return got
