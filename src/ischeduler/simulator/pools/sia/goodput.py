"""Pollux' model of a step's time, fitted to what a job has seen, and the batch that makes the most of it.

Source: Qiao et al., OSDI 2021, sections 3 and 4.1: time of a step = (compute^gamma + network^gamma)^(1/gamma), compute linear in the local
batch, network linear in the number of accelerators beyond two, with other constants between nodes than within one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ischeduler.policies.problem import Floats, Ints

LEAST = 1e-8
CANDIDATES = 50
PENALTY_GAMMA, PENALTY_GROWTH = 1e-3, 1e-2
Observed = Mapping[tuple[int, int, int], tuple[float, float]]
"""(nodes, accelerators, local batch) -> (step, synchronisation) seconds."""


class Model(NamedTuple):
    """Compute alpha_c + beta_c b; network alpha + beta max(n - 2, 0), between nodes (n) or within one (r); gamma in [1, 10]."""

    alpha_c: float
    beta_c: float
    alpha_n: float
    beta_n: float
    alpha_r: float
    beta_r: float
    gamma: float

    def seconds(self, nodes: Any, replicas: Any, local: Any, accumulations: Any) -> Floats:
        """Seconds of an update: ``accumulations`` steps without synchronisation and one with it."""
        compute = self.alpha_c + self.beta_c * local
        more = np.maximum(replicas - 2, LEAST)
        network = np.where(nodes > 1, self.alpha_n + self.beta_n * more, np.where(replicas > 1, self.alpha_r + self.beta_r * more, LEAST + LEAST * more))
        top = np.maximum(compute, network)
        norm = top * ((compute / top) ** self.gamma + (network / top) ** self.gamma) ** (1.0 / self.gamma)
        return accumulations * compute + norm


class Data(NamedTuple):
    """Observations as columns, ready for the fit."""

    nodes: Any
    replicas: Any
    local: Any
    compute_log: Any
    step_log: Any


def fit(observed: Observed) -> Model:
    """Least root-mean-square error of the logarithms of compute and step times, with mild penalties; L-BFGS-B from Pollux' start."""
    from scipy.optimize import minimize

    keys = np.array(list(observed), np.float64)
    times = np.array(list(observed.values()), np.float64)
    compute = times[:, 0] - times[:, 1]
    data = Data(keys[:, 0], keys[:, 1], keys[:, 2], np.log(compute), np.log(times[:, 0]))
    start = np.array([1e-1, 1e-2] * 3 + [1.0 + 1e-3])
    low, high = np.array([LEAST] * 6 + [1.0]), np.array([np.inf] * 6 + [10.0])

    def hold(at: int, value: float) -> None:
        start[at] = low[at] = high[at] = value

    if len(np.unique(data.local)) == 1:
        hold(0, float(compute.mean()) / 2)
    if not (data.nodes > 1).any():
        hold(2, LEAST)
        hold(3, LEAST)
    if not ((data.nodes == 1) & (data.replicas > 1)).any():
        hold(4, LEAST)
        hold(5, LEAST)
    if not (data.replicas > 2).any():
        hold(3, LEAST)
        hold(5, LEAST)
    found = minimize(_error, start, args=(data,), jac=True, bounds=list(zip(low, high, strict=True)), tol=1e-5, method="L-BFGS-B").x
    if not (data.nodes > 1).any():
        found[2], found[3] = max(found[2], found[4] * 1.1), max(found[3], found[5] * 1.1)
    return Model(*map(float, found))


def _error(p: Floats, data: Data) -> tuple[float, Floats]:
    """The objective and its gradient."""
    between, within = data.nodes > 1, (data.nodes <= 1) & (data.replicas > 1)
    more = np.maximum(data.replicas - 2, LEAST)
    compute = p[0] + p[1] * data.local
    network = np.where(between, p[2] + p[3] * more, np.where(within, p[4] + p[5] * more, LEAST + LEAST * more))
    gamma = p[6]
    log_c, log_n = np.log(compute), np.log(network)
    high = np.maximum(log_c, log_n)
    weight_c, weight_n = np.exp(gamma * (log_c - high)), np.exp(gamma * (log_n - high))
    total = weight_c + weight_n
    log_step = high + np.log(total) / gamma
    off_c, off_s = log_c - data.compute_log, log_step - data.step_log
    rms_c, rms_s = np.sqrt((off_c**2).mean()), np.sqrt((off_s**2).mean())
    n = len(off_c)
    slope_c = off_c / (n * rms_c) if rms_c > 0 else np.zeros(n)
    slope_s = off_s / (n * rms_s) if rms_s > 0 else np.zeros(n)
    by_c, by_n = weight_c / total / compute, weight_n / total / network
    pull_c = slope_c / compute + slope_s * by_c
    pull_n = slope_s * by_n
    by_gamma = (weight_c * log_c + weight_n * log_n) / total / gamma - log_step / gamma
    grown_n, grown_r = p[3] / p[2], p[5] / p[4]
    value = rms_c + rms_s + PENALTY_GAMMA * (gamma - 1) ** 2 + PENALTY_GROWTH * (grown_n**2 + grown_r**2)
    gradient = np.array([
        pull_c.sum(), (pull_c * data.local).sum(),
        pull_n[between].sum() - 2 * PENALTY_GROWTH * grown_n**2 / p[2], (pull_n * more)[between].sum() + 2 * PENALTY_GROWTH * grown_n / p[2],
        pull_n[within].sum() - 2 * PENALTY_GROWTH * grown_r**2 / p[4], (pull_n * more)[within].sum() + 2 * PENALTY_GROWTH * grown_r / p[4],
        (slope_s * by_gamma).sum() + 2 * PENALTY_GAMMA * (gamma - 1),
    ])  # fmt: skip
    return float(value), gradient


class Best(NamedTuple):
    """Per configuration: goodput (samples of the base batch per second), local batch, accumulations."""

    goodput: Floats
    local: Ints
    accumulations: Ints


def best(
    model: Model, sqr: float, var: float, base: int, largest: float, local_range: tuple[int, int], nodes: Ints, replicas: Ints,
) -> Best:  # fmt: skip
    """The best of 50 batches between the base and ``largest`` for each (nodes, replicas), as Pollux picks it; 0 where none is possible.

    A single accelerator beyond the base batch accumulates at least once. Where even the least local batch exceeds ``largest``, Sia still
    considers it.
    """
    least, most = local_range
    low = np.maximum(float(base), least * replicas.astype(np.float64))
    batch = np.geomspace(low, np.full(len(low), float(largest)), CANDIDATES)
    local = batch / replicas
    accumulations = np.ceil(local / most - 1e-8) - 1
    accumulations = np.where((replicas == 1) & (local > base + 1e-8), np.maximum(accumulations, 1), accumulations)
    local = np.ceil(local / (accumulations + 1) - 1e-8)
    batch = replicas * local * (accumulations + 1)
    scale = batch / base
    below = var / scale + sqr
    gain = np.where(below > 0, (var + sqr) / np.where(below > 0, below, 1.0), 1.0)
    good = batch / model.seconds(nodes, replicas, local, accumulations) * gain / scale
    good = np.where((local >= least) & (local <= most), good, 0.0)
    row = good.argmax(axis=0)
    at = (row, np.arange(len(low)))
    return Best(good[at], local[at].astype(np.int64), accumulations[at].astype(np.int64))
