"""The law of alike jobs with learned weights: the same Kaplan-Meier estimate, what each past job counts fitted on public traces.

The logarithm of a past job's weight is a sum of pieces, each a fitted number times what is told of the pair (:data:`TOLD`), its hinge
beyond a knot, or a product of two such things, among them what is known of the job asked about (:data:`CONTEXT`). One of the things told
is the weight by hand (:mod:`.alike`), so the numbers say what to correct in it. They were fitted to the continuous ranked probability score
of the estimate, pooled over the training spans of several traces (``python -m benchmarks.likeness``), and are the same for every site.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numba
import numpy as np

from ischeduler.core.errors import BadInput
from ischeduler.estimators.jobruntime.alike import BURST_S, FULL, LEVELS, LIKENESS, columns, kaplan_meier, past, room
from ischeduler.estimators.jobruntime.history import elapsed_s

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ischeduler.estimators.jobruntime.table import JobTable

NUMBERS = Path(__file__).with_name("learned.json")
OWN, OTHERS = 112, 32
"""Past jobs that are weighed: those with most weight by hand, of the user and of everybody."""
PLACES = OWN + OTHERS
TOLD = (
    "limit_apart", "units_apart", "same_limit", "same_units", "same_name", "age", "ended_ago", "submitted_apart", "burst", "submitted_later",
    "rank", "alike_rank", "started_apart", "running", "full", "used", "used_to_elapsed", "same_queue", "at_once", "outlived", "by_hand",
)  # fmt: skip
"""Of a past job beside the one asked about; logarithms of ratios, hours, ranks, or yes (1) and no (0)."""
CONTEXT = ("elapsed_share", "left", "waiting", "seen", "weight")
"""Of the job asked about: standardised with the file's means and spreads."""
SIDES = ("own", "others")
_BASE = (*TOLD, *CONTEXT, "one")
LEAST, MOST = -28.0, 12.0
"""A logarithm of a weight below the first counts as nothing, above the second as the second."""


@dataclass(frozen=True)
class Weights:
    """``pieces``: names like ``age``, ``age>0.4`` (its hinge) and ``age*left``; ``own``, ``others``: their numbers for jobs of the same user and
    of others. ``mean``, ``spread`` of :data:`CONTEXT`. Raises BadInput for pieces of unknown things."""

    pieces: tuple[str, ...]
    own: tuple[float, ...]
    others: tuple[float, ...]
    mean: tuple[float, ...]
    spread: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.own) != len(self.pieces) or len(self.others) != len(self.pieces):
            raise BadInput("a learned law of run times has not one number for each of its pieces: train the provisioner again")
        if len(self.mean) != len(CONTEXT) or len(self.spread) != len(CONTEXT):
            raise BadInput(f"a learned law of run times is to have means and spreads of {', '.join(CONTEXT)}: train the provisioner again")
        if not np.isfinite([*self.own, *self.others, *self.mean, *self.spread]).all() or min(self.spread) <= 0:
            raise BadInput("a learned law of run times has numbers that are not finite, or spreads that are not above 0: train the provisioner again")
        self.parts()

    def parts(self) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
        """Of each piece what is told (a place in things told, context, one), the knot of its hinge (-inf: none), and what it is multiplied by."""
        found = [_part(piece) for piece in self.pieces]
        return np.array([f[0] for f in found], np.int64), np.array([f[1] for f in found]), np.array([f[2] for f in found], np.int64)

    def as_data(self) -> dict[str, Any]:
        """For a file: the numbers by the names of their pieces."""
        return {
            **{side: dict(zip(self.pieces, getattr(self, side), strict=True)) for side in SIDES},
            "mean": dict(zip(CONTEXT, self.mean, strict=True)), "spread": dict(zip(CONTEXT, self.spread, strict=True)),
        }  # fmt: skip

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Weights:
        """The weights of :meth:`as_data`."""
        own = data["own"]
        sides = ([float(data[side][piece]) for piece in own] for side in SIDES)
        scales = ([float(data[kind][name]) for name in CONTEXT] for kind in ("mean", "spread"))
        return cls(tuple(own), *map(tuple, sides), *map(tuple, scales))


@cache
def shipped() -> Weights:
    """The weights that come with the package."""
    return Weights.from_data(json.loads(NUMBERS.read_text()))


def remaining_deciles(table: JobTable, rows: NDArray[np.int64], at_s: NDArray[np.int64], weights: Weights | None = None) -> NDArray[np.float64]:
    """Deciles of the remaining run time in seconds, shape (rows, 9); the limit where nothing like it was ever seen."""
    rows, at_s = np.asarray(rows, np.int64), np.asarray(at_s, np.int64)
    of = weights or shipped()
    gone = elapsed_s(table, rows, at_s)
    out = np.repeat((table.limit_s[rows] - gone).astype(float)[:, None], len(LEVELS), axis=1)
    numbers, scales = np.array([of.own, of.others]), np.array([of.mean, of.spread])
    _deciles(rows, at_s, gone, columns(table), np.array(astuple(LIKENESS)), of.parts(), numbers, scales, out)
    return out


@dataclass(frozen=True)
class Described:
    """What :func:`remaining_deciles` weighs: ``told`` of shape (rows, places, :data:`TOLD`), ``context`` (rows, :data:`CONTEXT`) as it is (not
    standardised), ``share`` used of what is left of the limit and whether ``over`` (rows, places), and how many places are taken by the user's and by all."""

    told: NDArray[np.float32]
    context: NDArray[np.float32]
    share: NDArray[np.float64]
    over: NDArray[np.bool_]
    own: NDArray[np.int64]
    count: NDArray[np.int64]


def described(table: JobTable, rows: NDArray[np.int64], at_s: NDArray[np.int64]) -> Described:
    """The past jobs of each row, for fitting weights."""
    rows, at_s = np.asarray(rows, np.int64), np.asarray(at_s, np.int64)
    size = len(rows), PLACES
    of = Described(
        np.zeros((*size, len(TOLD)), np.float32), np.zeros((len(rows), len(CONTEXT)), np.float32), np.zeros(size), np.zeros(size, np.bool_),
        np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64),
    )  # fmt: skip
    likeness = np.array(astuple(LIKENESS))
    _describe(rows, at_s, elapsed_s(table, rows, at_s), columns(table), likeness, of.told, of.context, of.share, of.over, of.own, of.count)
    return of


def _part(piece: str) -> tuple[int, float, int]:
    head, _, factor = piece.partition("*")
    name, _, knot = head.partition(">")
    try:
        return _BASE.index(name), float(knot) if knot else -np.inf, _BASE.index(factor or "one")
    except ValueError:
        raise BadInput(f"a learned law of run times has a piece '{piece}', which this version does not know: train the provisioner again") from None


@numba.njit(cache=True, nogil=True)
def _deciles(rows, at_s, gone, jobs, like, parts, numbers, scales, out):  # type: ignore[no-untyped-def]
    limit = jobs[10]
    space = room()
    told, context, chosen = np.zeros((PLACES, len(_BASE))), np.empty(len(CONTEXT)), np.empty(PLACES, np.int64)
    share, over, weight = np.empty(PLACES), np.empty(PLACES, np.bool_), np.empty(PLACES)
    for r in range(len(rows)):
        j, beyond = rows[r], gone[r] / limit[rows[r]]
        own, count = _row(j, at_s[r], gone[r], beyond, jobs, like, space, chosen, told, context, share, over)
        for c in range(len(context)):
            context[c] = max(-3.0, min(3.0, (context[c] - scales[0, c]) / scales[1, c]))
        kept = 0
        for p in range(count):
            told[p, len(TOLD) : len(TOLD) + len(CONTEXT)] = context
            told[p, len(_BASE) - 1] = 1.0
            log = _log_weight(told[p], parts, numbers[0 if p < own else 1])
            if log > LEAST:
                share[kept], over[kept], weight[kept] = share[p], over[p], np.exp(min(log, MOST))
                kept += 1
        kaplan_meier(share[:kept], weight[:kept], over[:kept], 0.0, limit[j] - gone[r], out[r])


@numba.njit(cache=True, nogil=True)
def _describe(rows, at_s, gone, jobs, like, told, context, share, over, own, count):  # type: ignore[no-untyped-def]
    space, chosen = room(), np.empty(PLACES, np.int64)
    for r in range(len(rows)):
        beyond = gone[r] / jobs[10][rows[r]]
        own[r], count[r] = _row(rows[r], at_s[r], gone[r], beyond, jobs, like, space, chosen, told[r], context[r], share[r], over[r])


@numba.njit(cache=True, nogil=True)
def _log_weight(told, parts, numbers):  # type: ignore[no-untyped-def]
    which, knots, factors = parts
    total = 0.0
    for i in range(len(which)):
        value = told[which[i]]
        if knots[i] > -np.inf:
            value = max(value - knots[i], 0.0)
        total += numbers[i] * value * told[factors[i]]
    return total


@numba.njit(cache=True, nogil=True)
def _row(j, at, gone, beyond, jobs, like, space, chosen, told, context, share, over):  # type: ignore[no-untyped-def]
    """Describe the past jobs of a row: (how many places the user's take, how many are taken)."""
    who, rank, ended, values = space
    _, _, _, _, _, _, _, submit, start, run, limit, units, name, queue = jobs
    used, weight, newer = values
    first, total = past(j, at, beyond, jobs, like, who, rank, ended, values)
    own = _heaviest(weight[:first], rank[:first], 0, min(OWN, first), 0.0, chosen)
    count = own + _heaviest(weight[first:total], rank[first:total], first, min(OTHERS, total - first), 0.001, chosen[own:])
    kept = 0.0
    for p in range(own, count):
        kept += weight[chosen[p]]
    lost = np.log(weight[first:total].sum() / kept) if kept > 0.0 else 0.0
    every = 0.0
    for p in range(count):
        c = chosen[p]
        k = who[c]
        share[p], over[p] = (used[c] - beyond) / max(1.0 - beyond, 1e-9), ended[c]
        by_hand = np.log(weight[c] + 1e-300) + (0.0 if p < own else lost)
        every += np.exp(by_hand)
        apart = submit[k] - submit[j]
        started = start[k] - start[j] if start[j] <= at else 0
        told[p, 0], told[p, 1] = min(3.0, abs(np.log(limit[k] / limit[j]))), min(3.0, abs(np.log(units[k] / units[j])))
        told[p, 2], told[p, 3], told[p, 4] = limit[k] == limit[j], units[k] == units[j], name[k] == name[j]
        told[p, 5] = np.log1p((at - start[k]) / 3600.0) / 4
        told[p, 6] = np.log1p((at - start[k] - run[k]) / 3600.0) / 4 if ended[c] else 0.0
        told[p, 7], told[p, 8], told[p, 9] = np.log1p(abs(apart) / 600.0) / 4, abs(apart) <= BURST_S, np.sign(apart)
        told[p, 10], told[p, 11] = np.log1p(rank[c]) / 3, np.log1p(newer[c]) / 3
        told[p, 12] = np.sign(started) * np.log1p(abs(started) / 600.0) / 4
        told[p, 13], told[p, 14], told[p, 15] = not ended[c], used[c] >= FULL, used[c]
        told[p, 16] = np.log(used[c] / max(beyond, 0.003)) / 3
        told[p, 17], told[p, 18] = queue[k] == queue[j], abs(apart) <= 5
        told[p, 19] = run[k] > gone if ended[c] else at - start[k] > gone
        told[p, 20] = max(by_hand, -27.6)
    context[0], context[1], context[2] = beyond, np.log1p(limit[j] - gone), start[j] > at
    context[3], context[4] = np.log1p(count) / 2, np.log(every + 1e-6) / 3
    return own, count


@numba.njit(cache=True, nogil=True)
def _heaviest(weight, rank, offset, wanted, newest, chosen):  # type: ignore[no-untyped-def]
    """Write the places of the ``wanted`` heaviest, the newest of equal ones (``newest``: what a rank costs); how many."""
    if wanted == 0:
        return 0
    key = -weight / (1.0 + newest * rank)
    chosen[:wanted] = np.argsort(key, kind="mergesort")[:wanted] + offset
    return wanted
