"""Which short runs to make so that a long one can be foretold: HARP's scaled-down configurations. Pure.

HARP (Vallabhajosyula and Ramnath, "Towards Practical, Generalizable Machine-Learning Training Pipelines to build Regression
Models for Predicting Application Resource Needs on HPC Systems", PEARC 2022) generates many small runs over all parameters. A
law of a fixed part and a rate needs fewer: a few sizes, each twice the one before, of one and of two epochs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ischeduler.core.errors import BadInput
from ischeduler.core.workload import Workload

SIZES = 4
EPOCHS = (1, 2)
LARGEST_SHARE = 1 / 16
MIN_STEPS = 8
"""A run of fewer steps is all warm-up."""


@dataclass(frozen=True, slots=True)
class ScaledDown:
    """The short runs, smallest first, and what they cost together as a share of the whole training's samples."""

    runs: tuple[Workload, ...]
    share: float

    def seconds(self, step_time_s: float, startup_s: float) -> float:
        """What they will take one after another, by a step time and start-up known roughly."""
        return sum(w.steps * step_time_s + startup_s for w in self.runs)


def scaled_down(
    workload: Workload, *, sizes: int = SIZES, epochs: tuple[int, ...] = EPOCHS, largest_share: float = LARGEST_SHARE,
) -> ScaledDown:
    """Scaled-down configurations of one workload (one batch size).

    The largest has ``largest_share`` of its samples, each other half of the next; none is shorter than :data:`MIN_STEPS` steps
    and none larger than the workload. Evaluation and checkpoints are left out. BadInput without samples, for a share that is no
    share, or where the training is so short that running it is the quickest way to know.
    """
    if not workload.samples:
        raise BadInput("scaled-down runs need to know how many samples the training has; give --samples.")
    if not 0 < largest_share <= 1 or sizes < 2 or not epochs or min(epochs) < 1:
        raise BadInput("scaled-down runs need a share above 0 and up to 1, at least two sizes, and epochs of at least 1.")
    least = workload.batch * workload.grad_accum * workload.devices * MIN_STEPS
    largest = min(workload.samples, max(math.ceil(workload.samples * largest_share), least * 2 ** (sizes - 1)))
    chosen = sorted({round(largest / 2**i) for i in range(sizes) if largest / 2**i >= least})
    runs = tuple(_short(workload, samples, e) for samples in chosen for e in epochs if e <= workload.epochs)
    share = sum(w.samples * w.epochs for w in runs) / (workload.samples * workload.epochs)
    if len(chosen) < 2 or share >= 1:
        raise BadInput("this training is too short to be foretold by shorter ones; run it.")
    return ScaledDown(runs, share)


def _short(workload: Workload, samples: int, epochs: int) -> Workload:
    return replace(workload, samples=samples, epochs=epochs, eval_samples=0, checkpoints=False)
