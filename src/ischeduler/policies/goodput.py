"""Goodput: how much training a configuration gets done, not how many samples it reads (Pollux, Qiao et al., OSDI 2021).

goodput = throughput * efficiency. Throughput from a model of a step's time on n accelerators over some nodes; efficiency from the gradient's
noise: with noise scale phi (samples) a step on a batch M does as much as (phi + M0) / (phi + M) of its samples would at the batch M0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ischeduler.core.errors import BadInput
from ischeduler.policies.problem import Floats, Ints


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of a step: gradients alpha_c + beta_c * local batch; synchronisation alpha + beta * max(n - 2, 0), with one pair of
    constants within a node (``_r``) and one between nodes (``_n``); the two overlap as the ``gamma``-norm (1: none, 10: nearly all).
    """

    alpha_c: float
    beta_c: float
    alpha_n: float = 0.0
    beta_n: float = 0.0
    alpha_r: float = 0.0
    beta_r: float = 0.0
    gamma: float = 1.0

    def seconds(self, nodes: Ints, replicas: Ints, local_batch: Floats, accumulations: Ints) -> Floats:
        """Arrays of one shape; ``accumulations``: steps without synchronisation before each one with it."""
        compute = self.alpha_c + self.beta_c * local_batch
        more = np.maximum(np.asarray(replicas) - 2, 0)
        between, within = self.alpha_n + self.beta_n * more, self.alpha_r + self.beta_r * more
        sync = np.where(np.asarray(nodes) > 1, between, np.where(np.asarray(replicas) > 1, within, 0.0))
        top = np.maximum(compute, sync)
        norm = top * ((compute / top) ** self.gamma + (sync / top) ** self.gamma) ** (1.0 / self.gamma)
        return accumulations * compute + norm


@dataclass(frozen=True, slots=True)
class Batches:
    """What batches a job may use: it was tuned at ``base``; at most ``largest`` in all and ``largest_local`` on one accelerator."""

    base: float
    largest: float
    largest_local: float
    smallest_local: float = 1.0


def efficiency(batch: Floats, base: float, noise_scale: float) -> Floats:
    """The worth of a sample at ``batch`` against one at ``base``; ``noise_scale`` phi >= 0 in samples (variance / squared norm * base)."""
    return (noise_scale + base) / (noise_scale + np.asarray(batch, dtype=np.float64))


def best_goodput(
    step: StepTime, batches: Batches, noise_scale: float, nodes: Ints, replicas: Ints, *, candidates: int = 50,
) -> tuple[Floats, Floats, Ints]:
    """For every (nodes, replicas): (goodput in base samples/s, local batch, accumulations) at the best of ``candidates`` batches; 0 where none fits.

    One replica that goes beyond the base batch accumulates at least once (its noise cannot be measured otherwise), as in Pollux.
    """
    if not 0 < batches.base <= batches.largest:
        raise BadInput(f"The base batch {batches.base:g} must be above zero and at most the largest, {batches.largest:g}.")
    replicas, nodes = np.asarray(replicas), np.asarray(nodes)
    low = np.maximum(batches.base, batches.smallest_local * replicas)
    total = np.geomspace(np.minimum(low, batches.largest), np.full(replicas.shape, batches.largest), candidates)
    local = total / replicas
    accumulations = np.ceil(local / batches.largest_local - 1e-8).astype(np.int64) - 1
    accumulations = np.where((replicas == 1) & (local > batches.base + 1e-8), np.maximum(accumulations, 1), accumulations)
    local = np.ceil(local / (accumulations + 1) - 1e-8)
    batch = replicas * local * (accumulations + 1)
    good = batch / step.seconds(nodes, replicas, local, accumulations) * efficiency(batch.astype(np.float64), batches.base, noise_scale)
    fits = (local >= batches.smallest_local) & (local <= batches.largest_local) & (low <= batches.largest)
    good = np.where(fits, good, 0.0)
    row = good.argmax(axis=0)
    at = (row, np.arange(len(replicas)))
    return good[at], local[at], accumulations[at]
