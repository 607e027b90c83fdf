"""For trainings whose number of processes changes from job to job: the figures of this job, and batches that no sample escapes or meets twice.

    figures = elastic()
    loader = DataLoader(data, batch_sampler=ElasticBatches(len(data), rank=rank, figures=figures))
    for group in optimizer.param_groups:
        group["lr"] = base_lr * figures.lr_scale
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ischeduler.training.context import number


@dataclass(frozen=True, slots=True)
class Figures:
    """What this job's processes are to do: batch a process and forward pass, passes a step, samples a step over all, learning rate's factor."""

    world_size: int
    batch_size: int
    grad_accum: int
    global_batch: int
    lr_scale: float = 1.0


def elastic(environ: Mapping[str, str] | None = None, *, batch_size: int = 32, grad_accum: int = 1) -> Figures:
    """The figures that the job was submitted with; outside a job, those given for one process (or as many as WORLD_SIZE says)."""
    env = os.environ if environ is None else environ
    world = int(number(env, "ISCHED_WORLD_SIZE") or number(env, "WORLD_SIZE") or 1)
    batch = int(number(env, "ISCHED_BATCH_SIZE") or batch_size)
    passes = int(number(env, "ISCHED_GRAD_ACCUM") or grad_accum)
    return Figures(world, batch, passes, batch * passes * world, number(env, "ISCHED_LR_SCALE") or 1.0)


class ElasticBatches:
    """A batch sampler: each step's samples are the same set whatever the number of processes, shared out among them.

    The order is drawn anew each epoch from ``seed`` alone (``shuffle``), so that every process and every world size agrees on it. The last,
    incomplete step of an epoch is left out. :meth:`resume_at` begins within an epoch, after so many samples: ``checkpointing`` calls it.
    """

    def __init__(self, samples: int, *, rank: int, figures: Figures, seed: int = 0, shuffle: bool = True) -> None:
        if not 0 <= rank < figures.world_size:
            raise ValueError(f"rank {rank} is not one of {figures.world_size} processes")
        self._samples, self._rank, self._figures, self._seed, self._shuffle = samples, rank, figures, seed, shuffle
        self._epoch = self._done = 0

    @property
    def figures(self) -> Figures:
        """Those of this job."""
        return self._figures

    def set_epoch(self, epoch: int) -> None:
        """Begin that epoch, from its first sample."""
        self._epoch, self._done = epoch, 0

    def resume_at(self, samples: int) -> None:
        """Begin this epoch after that many samples, in its order, over all processes."""
        self._done = samples

    def __len__(self) -> int:
        return max(0, self._samples - self._done) // self._figures.global_batch * self._figures.grad_accum

    def __iter__(self) -> Iterator[list[int]]:
        f, order = self._figures, self._order()
        for first in range(self._done, self._samples - f.global_batch + 1, f.global_batch):
            for turn in range(f.grad_accum):
                begin = first + (turn * f.world_size + self._rank) * f.batch_size
                yield order[begin : begin + f.batch_size]

    def _order(self) -> list[int]:
        order = list(range(self._samples))
        if self._shuffle:
            random.Random(f"{self._seed}:{self._epoch}").shuffle(order)
        return order
