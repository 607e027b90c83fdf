"""Trainings that may run on another number of accelerators from one job to the next: what batch, accumulation and learning rate become. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ischeduler.core.errors import BadInput

if TYPE_CHECKING:
    from ischeduler.core.workload import Workload

BATCH_RULES = ("keep", "scale")
RATE_RULES = ("none", "linear", "sqrt")


@dataclass(frozen=True, slots=True)
class Elastic:
    """What its owner allows. ``world_sizes``: numbers of accelerators besides the workload's own.

    ``batch`` 'keep': a step sees the same number of samples on any number of accelerators (the default); 'scale': each device keeps its batch,
    so a step sees more with more devices, and the learning rate follows by ``rate``: 'linear' (Goyal et al. 2017), 'sqrt' (Krizhevsky
    2014) or 'none'. ``base`` is what the workload was declared with: (accelerators, batch a device, accumulation); None while it still is.
    """

    world_sizes: tuple[int, ...] = ()
    batch: str = "keep"
    rate: str = "none"
    base: tuple[int, int, int] | None = None

    def __post_init__(self) -> None:
        if any(n < 1 for n in self.world_sizes):
            raise BadInput(f"a training cannot run on {min(self.world_sizes)} accelerators; give whole numbers from 1.")
        if self.batch not in BATCH_RULES:
            raise BadInput(f"'{self.batch}' is no rule for the batch; expected {' or '.join(BATCH_RULES)}.")
        if self.rate not in RATE_RULES:
            raise BadInput(f"'{self.rate}' is no rule for the learning rate; expected one of {', '.join(RATE_RULES)}.")
        if self.batch == "keep" and self.rate != "none":
            raise BadInput(f"the learning rate follows the batch ('{self.rate}'), and the batch is kept; say batch = 'scale' too, or leave the rate.")


@dataclass(frozen=True, slots=True)
class Share:
    """One world size's figures: batch a device and forward pass, batches accumulated a step, samples a step, and the factor of the learning rate."""

    world_size: int
    batch_size: int
    grad_accum: int
    global_batch: int
    lr_scale: float


def share_of(workload: Workload, world_size: int) -> Share:
    """What a workload becomes on ``world_size`` accelerators. BadInput, one sentence, where its owner or arithmetic forbids it.

    Kept batch: the fewest accumulated batches such that a device's batch is a whole number and no larger than declared (its memory was
    judged for that), so that ``batch * accumulation * world_size`` is exactly what it was.
    """
    elastic = workload.elastic or Elastic()
    world, batch, accum = elastic.base or (workload.devices, workload.batch, workload.grad_accum)
    if world_size != world and world_size not in elastic.world_sizes:
        allowed = ", ".join(map(str, sorted({world, *elastic.world_sizes})))
        raise BadInput(f"this training may run on {allowed} accelerators, not on {world_size}; see its field elastic.")
    whole = world * batch * accum
    if elastic.batch == "scale":
        grown = whole // world * world_size
        factor = {"none": 1.0, "linear": grown / whole, "sqrt": math.sqrt(grown / whole)}[elastic.rate]
        return Share(world_size, batch, accum, grown, factor)
    each, left = divmod(whole, world_size)
    if left:
        raise BadInput(f"{whole} samples a step cannot be shared by {world_size} accelerators; choose a world size that divides {whole}.")
    passes = next(a for a in range(-(-each // batch), each + 1) if each % a == 0)
    return Share(world_size, each // passes, passes, whole, 1.0)


def resized(workload: Workload, world_size: int) -> Workload:
    """The workload on another number of accelerators of one node; what it was declared with is remembered. BadInput as :func:`share_of`."""
    if workload.nodes > 1:
        raise BadInput(f"this training asks for {workload.nodes} nodes; only trainings on one node change their number of accelerators.")
    elastic, share = workload.elastic or Elastic(), share_of(workload, world_size)
    base = elastic.base or (workload.devices, workload.batch, workload.grad_accum)
    return replace(workload, gpus=world_size, batch_size=share.batch_size, grad_accum=share.grad_accum, elastic=replace(elastic, base=base))
