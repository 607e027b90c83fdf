"""Random small clusters, throughputs and jobs for the policies' property tests."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from scipy.optimize import linprog

from ischeduler.policies.problem import Accelerators, Job, Jobs, Throughputs

TYPES = ("v100", "p100", "k80")


@st.composite
def worlds(draw, most_jobs=12, sizes=(1, 1, 2, 4), weights=(1.0, 1.0, 5.0), holes=True, shared=False, entities=1, full=False):
    """(jobs, throughputs, accelerators). ``full``: at least as many jobs as accelerators, every size 1, so that slices are below 1."""
    kinds = draw(st.integers(1, 3))
    seed = draw(st.integers(0, 2**31))
    rng = np.random.default_rng(seed)
    count = rng.integers(1 if full else 4, 4 if full else 13, kinds)
    number = draw(st.integers(int(count.sum()), int(count.sum()) + most_jobs)) if full else draw(st.integers(1, most_jobs))
    return world(rng, number, count, sizes=(1,) if full else sizes, weights=weights, holes=holes, shared=shared, entities=entities)


def world(rng, number, count, *, sizes=(1,), weights=(1.0,), holes=False, shared=False, entities=1):
    kinds = len(count)
    classes = [f"model{i}|{s}" for i in range(4) for s in sorted(set(sizes))]
    rate = rng.uniform(0.2, 1.0, (len(classes), kinds)) * rng.lognormal(1.0, 1.0, (len(classes), 1)) * np.geomspace(1, 0.3, kinds)
    if holes and kinds > 1:
        rate[rng.random(rate.shape) < 0.15] = 0.0
        rate[:, 0] = np.maximum(rate[:, 0], 0.05)
    together = None
    if shared:
        together = rate[:, None, :] * rng.uniform(0.3, 0.9, (len(classes), len(classes), kinds))
    table = Throughputs(TYPES[:kinds], tuple(classes), rate, rate * 0.8, together)
    cluster = Accelerators.of(dict(zip(TYPES, (float(c) for c in count), strict=False)), per_node=2, price_per_h={"v100": 3.0, "p100": 2.0, "k80": 1.0})
    rows = []
    for j in range(number):
        c = int(rng.integers(len(classes)))
        size = int(classes[c].split("|")[1])
        steps = float(rate[c].max() * 10 ** rng.uniform(3, 5))
        rows.append(Job(
            f"j{j}", classes[c], steps * float(rng.uniform(0.1, 1)), steps, size, float(rng.choice(weights)), arrived_s=float(rng.integers(0, 50000)),
            attained_s=float(rng.uniform(0, 1e5)), entity=f"team{int(rng.integers(entities))}"))
    return Jobs.of(rows, table, cluster), table, cluster


def used(allocation, jobs):
    """Accelerators in use by type and time in use by job, pairs included."""
    time = allocation.share.sum(axis=1).copy()
    load = (allocation.share * jobs.accelerators[:, None]).sum(axis=0)
    for (a, b), row in zip(allocation.pairs, allocation.pair_share, strict=True):
        time[a] += row.sum()
        time[b] += row.sum()
        load = load + row * jobs.accelerators[a]
    return load, time


def best_level(speed, size, count, need=None, floor=None):
    """The max-min level by HiGHS, independently written: a dense programme."""
    jobs, kinds = speed.shape
    need = np.ones(jobs) if need is None else need
    floor = np.zeros(jobs) if floor is None else floor
    n = jobs * kinds
    rows, limit = [], []
    for j in range(jobs):
        row = np.zeros(n + 1)
        row[j * kinds:(j + 1) * kinds] = -speed[j]
        row[n] = need[j]
        rows.append(row)
        limit.append(-floor[j])
        row = np.zeros(n + 1)
        row[j * kinds:(j + 1) * kinds] = 1.0
        rows.append(row)
        limit.append(1.0)
    for k in range(kinds):
        row = np.zeros(n + 1)
        row[k:n:kinds] = size
        rows.append(row)
        limit.append(count[k])
    cost = np.zeros(n + 1)
    cost[n] = -1.0
    found = linprog(cost, A_ub=np.array(rows), b_ub=np.array(limit), bounds=[(0, None)] * n + [(None, None)], method="highs")
    return -found.fun if found.status == 0 else float("-inf")


def most_sum(gain, size, count, floor, speed):
    """The largest sum of gain x with speed . x >= floor, by HiGHS."""
    jobs, kinds = gain.shape
    n = jobs * kinds
    rows, limit = [], []
    for j in range(jobs):
        row = np.zeros(n)
        row[j * kinds:(j + 1) * kinds] = -speed[j]
        rows.append(row)
        limit.append(-floor[j])
        row = np.zeros(n)
        row[j * kinds:(j + 1) * kinds] = 1.0
        rows.append(row)
        limit.append(1.0)
    for k in range(kinds):
        row = np.zeros(n)
        row[k:n:kinds] = size
        rows.append(row)
        limit.append(count[k])
    found = linprog(-gain.ravel(), A_ub=np.array(rows), b_ub=np.array(limit), bounds=(0, None), method="highs")
    return -found.fun if found.status == 0 else float("-inf")


def most_sum_in_pairs(income, cost, jobs, table, cluster):
    """The largest income less cost when every pair of jobs of one size may share accelerators, by HiGHS: no groups, no pair left out."""
    count, kinds = income.shape
    pairs = [(a, b) for a in range(count) for b in range(a) if jobs.accelerators[a] == jobs.accelerators[b]]
    kept = table.on(cluster).kept()
    n = (count + len(pairs)) * kinds
    gain, time, room = np.zeros(n), np.zeros((count, n)), np.zeros((kinds, n))
    for j in range(count):
        at = slice(j * kinds, (j + 1) * kinds)
        gain[at] = income[j] - np.where(income[j] > 0, cost[j], 0.0)
        time[j, at] = 1.0
        room[:, at] = np.eye(kinds) * jobs.accelerators[j]
    for p, (a, b) in enumerate(pairs):
        at = slice((count + p) * kinds, (count + p + 1) * kinds)
        one, other = kept[jobs.job_class[a], jobs.job_class[b]], kept[jobs.job_class[b], jobs.job_class[a]]
        gain[at] = np.where((one > 0) & (income[a] > 0) & (income[b] > 0), income[a] * one + income[b] * other - cost[a], -1.0)
        time[a, at] = time[b, at] = 1.0
        room[:, at] = np.eye(kinds) * jobs.accelerators[a]
    found = linprog(-gain, A_ub=np.concatenate([time, room]), b_ub=np.concatenate([np.ones(count), cluster.count]), bounds=(0, None), method="highs")
    return -found.fun
