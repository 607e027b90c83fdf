"""``python -m benchmarks.likeness [--trace FILE ...] [--leave-out] [--out FILE]``: fit and judge the learned weights of past jobs.

The numbers of ``estimators/jobruntime/learned.json``: fitted (with PyTorch) to the continuous ranked probability score of the weighted
Kaplan-Meier estimate, pooled over the training spans of several traces, each counted by its plain per-user law's loss. Judged on
forward cuts of those spans: numbers and law from what lies before, the next fifth told. ``--leave-out`` judges each trace by
numbers of the others. Nothing after a trace's training span is read. The files need the columns of ``benchmarks.provisioning``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.provisioning import TRACES
from benchmarks.provisioning_floor import losses
from benchmarks.report import Bar, count, finish
from ischeduler.core.errors import BadInput, IschedError
from ischeduler.estimators.jobruntime import empirical, learned
from ischeduler.estimators.jobruntime.history import elapsed_s
from ischeduler.estimators.jobruntime.instants import Rows, instants, running_rows, settled, submitted_rows
from ischeduler.estimators.jobruntime.learned import CONTEXT, TOLD, Weights, described
from ischeduler.estimators.jobruntime.model import fit
from ischeduler.estimators.jobruntime.table import JobTable
from ischeduler.helper.provisioning.setting import read_setting

PUBLIC = (
    ("mirage_ls6_a100", "2023-03-01"), ("kth_sp2_original", "0.7"), ("alcf_theta_2022", "0.7"), ("sdsc_sp2_pyss_easy", "0.7"),
    ("sdsc_blue_pyss_easy", "0.7"), ("metacentrum_wagap_2013", "0.7"), ("cea_curie_pyss_easy", "0.7"), ("mit_supercloud_subset", "0.7"),
)  # fmt: skip
CUTS, NEXT = (0.4, 0.6, 0.8), 0.2
ROWS, LOOKS_MOST, JOBS_MANY = 16_000, 3000, 60_000
KNOTS = {
    "limit_apart": (0.05, 0.3, 1.0), "units_apart": (0.05, 0.3, 1.0), "age": (0.4, 0.8, 1.3, 1.6), "ended_ago": (0.4, 0.8, 1.3),
    "submitted_apart": (0.17, 0.5, 1.0), "rank": (0.8, 1.3), "alike_rank": (0.5, 1.0, 1.5), "started_apart": (0.0,),
    "used": (0.1, 0.3, 0.6, 0.9), "used_to_elapsed": (0.2, 0.6, 1.0),
}  # fmt: skip
PAIRS = (
    "same_limit*same_units", "same_limit*same_name", "same_units*same_name", "same_limit*burst", "same_name*burst", "running*burst",
    "running*same_limit",
)  # fmt: skip
BY_CONTEXT = ("same_limit", "same_units", "same_name", "age", "burst", "alike_rank", "running", "one")
PIECES = (
    *TOLD, "one", *(f"{name}>{knot}" for name, knots in KNOTS.items() for knot in knots), *PAIRS,
    *(f"{name}*{of}" for name in BY_CONTEXT for of in CONTEXT),
)  # fmt: skip
TEMPER = 0.7
BATCH, DROPPED = 512, 0.2


@dataclass(frozen=True)
class Effort:
    """How numbers are fitted."""

    epochs: int
    rate: float
    decay: float
    seed: int


@dataclass(frozen=True)
class Span:
    """A trace's training span, ``low_s`` to ``until_s``, with rows sampled from it and what is told of them."""

    name: str
    table: JobTable
    low_s: float
    until_s: float
    rows: Rows

    @cached_property
    def told(self) -> learned.Described:
        return described(self.table, *self.rows)

    @cached_property
    def left_s(self) -> NDArray[np.float64]:
        job, at = self.rows
        return np.maximum(self.table.limit_s[job] - elapsed_s(self.table, job, at), 1).astype(float)

    @cached_property
    def remaining_s(self) -> NDArray[np.float64]:
        job, at = self.rows
        return (self.table.run_s[job] - elapsed_s(self.table, job, at)).astype(float)

    @cached_property
    def plain_loss(self) -> NDArray[np.float64]:
        """Of the plain per-user law, seconds."""
        return losses(self.remaining_s, empirical.remaining_deciles(self.table, *self.rows))

    @cached_property
    def running(self) -> NDArray[np.bool_]:
        return self.table.start_s[self.rows[0]] <= self.rows[1]

    def second(self, share: float) -> float:
        """The instant at a share of the span."""
        return self.low_s + share * (self.until_s - self.low_s)

    def settled_by(self, until_s: float) -> NDArray[np.int64]:
        """Rows whose outcome is known by then whatever it is."""
        job, at = self.rows
        return np.flatnonzero(np.maximum(at, self.table.start_s[job]) + self.left_s <= until_s)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 when the numbers make the law better, 1 when not, 2 on bad input."""
    asked = _parser().parse_args(arguments)
    effort = Effort(asked.epochs, asked.rate, asked.decay, asked.seed)
    try:
        traces = _traces(asked)
        spans = [read_span(path, until, asked.seed) for path, until in traces]
        if asked.out:
            weights = fitted([(s, s.settled_by(s.until_s)) for s in spans], effort)
            about = {"traces": {path.stem: until for path, until in traces}, "effort": vars(effort)}
            asked.out.write_text(json.dumps({"about": about, **weights.as_data()}, indent=1) + "\n")
            return 0
        found = left_out(spans, effort, quiet=asked.json) if asked.leave_out else forward(spans, asked.cuts, effort, quiet=asked.json)
    except (IschedError, OSError) as error:
        print(f"likeness: {error}", file=sys.stderr)
        return 2
    return finish("likeness", found, [Bar("ratio", 1.0)], as_json=asked.json)


def read_span(path: Path, until: str, seed: int) -> Span:
    """The training span of a file, and up to 16,000 jobs running at random instants in it, with an eighth as many at submission."""
    setting = read_setting(path, units=1, train_until=until, protocol="corrected")
    table, until_s = setting.table, float(setting.train_until_s)
    low = float(np.quantile(table.submit_s[table.submit_s < until_s], 0.02))
    dice = np.random.default_rng(11 + seed)
    each = max(1.0, len(running_rows(table, instants(low, until_s, 60, dice))[0]) / 60)
    running = settled(table, running_rows(table, instants(low, until_s, int(np.clip(ROWS / each, 150, LOOKS_MOST)), dice)), until_s)
    if len(running[0]) > ROWS:
        kept = np.sort(dice.choice(len(running[0]), ROWS, replace=False))
        running = running[0][kept], running[1][kept]
    waiting = settled(table, submitted_rows(table, low, until_s, ROWS // 8, dice), until_s)
    return Span(path.stem, table, low, until_s, (np.concatenate([running[0], waiting[0]]), np.concatenate([running[1], waiting[1]])))


def forward(spans: Sequence[Span], cuts: Sequence[float], effort: Effort, *, quiet: bool) -> dict[str, Any]:
    """Numbers of all spans up to each cut, judged on the fifth of each that follows."""
    found = {}
    for cut in cuts:
        weights = fitted([(s, s.settled_by(s.second(cut))) for s in spans], effort)
        for s in spans:
            found[f"{s.name} {cut:g}"] = _shares(s, weights, cut, cut + NEXT)
        _say(found, f" {cut:g}", quiet)
    return _ratios(found, quiet)


def left_out(spans: Sequence[Span], effort: Effort, *, quiet: bool) -> dict[str, Any]:
    """Each span judged on its last two fifths, by numbers of all the others."""
    found = {}
    for s in spans:
        weights = fitted([(o, o.settled_by(o.until_s)) for o in spans if o is not s], effort)
        found[f"{s.name} 0.6"] = _shares(s, weights, 0.6, 1.0)
    _say(found, " 0.6", quiet)
    return _ratios(found, quiet)


def _shares(of: Span, weights: Weights, cut: float, end: float) -> dict[str, float]:
    """Losses of running jobs between the cut and the end, as shares of the plain law's."""
    job, at = of.rows
    rows = np.flatnonzero((at >= of.second(cut)) & (at < of.second(end)) & of.running)
    if not len(rows):
        raise BadInput(f"{of.name} has no running job between {cut:g} and {end:g} of its training span: give a longer trace or other --cuts")
    law = fit(of.table, until_s=of.second(cut), looks=150 if len(of.table) > JOBS_MANY else 600, seed=0, weights=weights)
    told = {
        "weighed": learned.remaining_deciles(of.table, job[rows], at[rows], weights),
        "without": replace(law, weights=None).remaining_deciles(of.table, job[rows], at[rows]),
        "law": law.remaining_deciles(of.table, job[rows], at[rows]),
    }
    plain = of.plain_loss[rows].mean()
    return {name: float(losses(of.remaining_s[rows], deciles).mean() / plain) for name, deciles in told.items()}


def _say(found: dict[str, dict[str, float]], ending: str, quiet: bool) -> None:
    if quiet:
        return
    print(f"{'shares of the plain law, cut' + ending:<34}{'weighed alone':>15}{'law without':>13}{'law':>8}{'ratio':>8}")
    for name, shares in found.items():
        if name.endswith(ending):
            print(f"{name:<34}{shares['weighed']:>15.3f}{shares['without']:>13.3f}{shares['law']:>8.3f}{shares['law'] / shares['without']:>8.3f}", flush=True)


def _ratios(found: dict[str, dict[str, float]], quiet: bool) -> dict[str, Any]:
    """The geometric mean of what the law loses with the weights to what it loses without, and on how many it is better."""
    ratios = np.array([shares["law"] / shares["without"] for shares in found.values()])
    ratio, better = float(np.exp(np.log(ratios).mean())), int((ratios < 1).sum())
    if not quiet:
        print(f"geometric mean of the ratios {ratio:.4f}, better on {better} of {len(ratios)}")
    return {"ratio": ratio, "better": better, "of": len(ratios), **{f"{name} {k}": v for name, shares in found.items() for k, v in shares.items()}}


def fitted(parts: Sequence[tuple[Span, NDArray[np.int64]]], effort: Effort) -> Weights:
    """Weights of these rows of these spans: AdamW from the weights by hand, a share of the past jobs dropped at random in each batch."""
    torch = _torch()
    if (seen := sum(len(rows) for _, rows in parts)) < BATCH:
        raise BadInput(f"there are {seen} observations to fit weights to, and {BATCH} are needed: give longer traces")
    torch.set_num_threads(1)
    torch.manual_seed(effort.seed)
    context = np.concatenate([s.told.context[rows] for s, rows in parts])
    mean, spread = context.mean(axis=0), context.std(axis=0) + 1e-6
    inputs = [_inputs(s, rows, mean, spread) for s, rows in parts]
    data = {k: torch.from_numpy(np.concatenate([one[k] for one in inputs])) for k in inputs[0]}
    none = (0.0,) * len(PIECES)
    of = Weights(PIECES, none, none, tuple(map(float, mean)), tuple(map(float, spread)))
    batches: Any = ()
    numbers = torch.zeros(2, len(PIECES))
    numbers[:, PIECES.index("by_hand")] = TEMPER
    numbers.requires_grad_(True)
    optimizer = torch.optim.AdamW([numbers], lr=effort.rate, weight_decay=effort.decay)
    each = len(data["y"]) // BATCH
    for step in range(effort.epochs * each):
        if step % each == 0:
            batches = torch.randperm(len(data["y"]))[: each * BATCH].view(each, BATCH)
        b = batches[step % each]
        for group in optimizer.param_groups:
            group["lr"] = effort.rate * min(1.0, (step + 1) / 30) * max(0.02, 1 - step / (effort.epochs * each))
        kept = data["taken"][b] & (torch.rand(BATCH, 1) * 2 * DROPPED < torch.rand(data["taken"][b].shape))
        weight = torch.exp(log_weights(torch, data["told"][b], data["own"][b], numbers, of).clamp(learned.LEAST, learned.MOST)) * kept
        place = data["place"][b].long()
        loss = (crps(torch, torch.gather(weight, 1, place), data["x"][b], data["over"][b], data["y"][b]) * data["weight"][b]).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_([numbers], 1.0)
        optimizer.step()
    own, others = (tuple(round(float(x), 5) for x in side) for side in numbers.detach().numpy())
    return replace(of, own=own, others=others)


def log_weights(torch: Any, told: Any, own: Any, numbers: Any, of: Weights) -> Any:
    """Logarithms of weights, shape (rows, places), as ``learned`` computes them. ``told`` has context and one beside :data:`TOLD`."""
    which, knots, factors = (torch.from_numpy(part) for part in of.parts())
    value = told[..., which]
    value = torch.where(knots > -np.inf, torch.relu(value - knots.clamp(min=-1e9).to(value.dtype)), value) * told[..., factors]
    return torch.where(own, value @ numbers[0], value @ numbers[1])


def crps(torch: Any, weight: Any, x: Any, over: Any, y: Any) -> Any:
    """The integral of (F - 1{u >= y})^2 over [0, 1] of each row's weighted Kaplan-Meier step function F; places in order of ``x``."""
    risk = weight.flip(1).cumsum(1).flip(1)
    hazard = (weight * over / (risk + 1e-12)).clamp(max=1 - 1e-6)
    f = 1 - torch.exp(torch.log1p(-hazard).cumsum(1))
    edge = torch.zeros_like(x[:, :1])
    low, high, f = torch.cat([edge, x], 1), torch.cat([x, edge + 1], 1), torch.cat([edge, f], 1)
    before = (torch.minimum(high, y[:, None]) - low).clamp(min=0)
    after = (high - torch.maximum(low, y[:, None])).clamp(min=0)
    return (f * f * before + (1 - f) ** 2 * after).sum(1)


def _inputs(of: Span, rows: NDArray[np.int64], mean: NDArray[Any], spread: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Arrays of a span's rows; ``place`` sorts the past jobs by the share they used, those that have ended first."""
    told = of.told
    places = np.arange(learned.PLACES)
    taken = places < told.count[rows][:, None]
    context = np.clip((told.context[rows] - mean) / spread, -3, 3)[:, None].repeat(learned.PLACES, axis=1)
    share = np.where(taken, told.share[rows], 1.0)
    place = np.argsort(share + np.where(told.over[rows], 0.0, 1e-6) + np.where(taken, 0.0, 1.0), axis=1, kind="stable")
    left = of.left_s[rows]
    running = rows[of.running[rows]]
    return {
        "told": np.concatenate([told.told[rows], context, np.ones((*taken.shape, 1))], axis=2).astype(np.float32), "place": place.astype(np.int16),
        "x": np.minimum(np.take_along_axis(share, place, axis=1), 1.0).astype(np.float32),
        "over": np.take_along_axis(told.over[rows] & taken, place, axis=1).astype(np.float32),
        "y": np.clip(of.remaining_s[rows] / left, 0, 1).astype(np.float32), "own": places < told.own[rows][:, None], "taken": taken,
        "weight": (left / of.plain_loss[running].mean()).astype(np.float32),
    }  # fmt: skip


def _traces(asked: Any) -> list[tuple[Path, str]]:
    if asked.trace:
        return [(path, asked.train_until) for path in asked.trace]
    found = [(TRACES / f"{name}.parquet", until) for name, until in PUBLIC]
    if not all(path.exists() for path, _ in found):
        raise BadInput("the public traces are not here: give files with --trace")
    return found


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise BadInput("fitting weights needs PyTorch: pip install 'ischeduler[reinforcement]'") from None
    return torch


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.likeness", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--trace", type=Path, action="append", help="jobs (parquet or csv); default: eight public traces")
    parser.add_argument("--train-until", default="0.7", help="a date or a fraction of each --trace")
    parser.add_argument("--cuts", type=_cuts, default=list(CUTS), help="shares of the training span, like 0.4,0.6")
    parser.add_argument("--leave-out", action="store_true", help="judge each trace by numbers of the others")
    parser.add_argument("--out", type=Path, help="fit on the whole training spans and write the numbers there; judge nothing")
    parser.add_argument("--epochs", type=count, default=3, help="passes over the observations")
    parser.add_argument("--rate", type=float, default=2e-2, help="of learning")
    parser.add_argument("--decay", type=float, default=1e-2, help="of weights")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="the closing JSON line alone")
    return parser


def _cuts(text: str) -> list[float]:
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 < cut < 1 for cut in found):
        raise argparse.ArgumentTypeError(f"'{text}' is no list of shares between 0 and 1 like 0.4,0.6")
    return found


if __name__ == "__main__":
    raise SystemExit(main())
