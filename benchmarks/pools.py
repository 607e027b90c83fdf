"""Pools: Gavel's simulator reproduced, its published tables, our own rounds beside it, and how quick it is.

``python -m benchmarks.pools [--reference DIR] [--only PATTERN] [--rates R,...] [--skip-published] [--skip-own] [--pairs] [--json]``; DIR holds
``runs/*.json`` and ``jobs/*.jsonl``. PATTERN picks runs by a part of their name, and cells of the published tables as
``published_POLICY_RATE``.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # matrices of four rows: threads only get in each other's way

from benchmarks.pools_own import own_runs
from benchmarks.pools_reference import (
    DOCUMENTED_ALLOX_S,
    EXACT,
    FINISH_TIME,
    LINEAR,
    MAKESPAN,
    Reference,
    Replayed,
    documented_allox,
    published,
    read_references,
    replay,
)  # fmt: skip
from benchmarks.report import AtLeast, Bar, finish
from ischeduler.core.errors import BadInput, IschedError
from ischeduler.policies.problem import Throughputs
from ischeduler.simulator.pools.readers import read_throughputs

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
LONG_CPU_S = 5.0


def main(argv: list[str] | None = None) -> int:
    """Exit code 0, 1 when a bar is missed, 2 on bad input."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pools", description=__doc__)
    parser.add_argument("--reference", type=Path, default=DATA / "gavel_reference", metavar="DIR", help="a folder with runs/ and jobs/")
    parser.add_argument("--throughputs", type=Path, default=DATA / "gavel" / "simulation_throughputs.json", metavar="FILE")
    parser.add_argument("--traces", type=Path, default=DATA / "gavel", metavar="DIR", help="where the traces are that runs name")
    parser.add_argument("--only", default="", metavar="PATTERN", help="only runs whose name holds this")
    parser.add_argument("--rates", default="", metavar="R,...", help="only these jobs an hour of the published table (default: all of it)")
    parser.add_argument("--skip-published", action="store_true", help="leave out the published table (the longest part)")
    parser.add_argument("--skip-own", action="store_true", help="leave out our own rounds")
    parser.add_argument("--pairs", action="store_true", help="our rounds with space sharing, too (some minutes)")
    parser.add_argument("--json", action="store_true", help="only the closing line")
    args = parser.parse_args(argv)
    say = (lambda words: None) if args.json else print
    try:
        metrics, bars = measure(args, say)
    except IschedError as error:
        print(error, file=sys.stderr)
        return 2
    if not metrics:
        print(f"Nothing matches --only {args.only}; run without it to see the names.", file=sys.stderr)
        return 2
    return finish("pools", metrics, bars, as_json=args.json)


def measure(args: argparse.Namespace, say: Any) -> tuple[dict[str, Any], list[Bar]]:
    """Everything that was asked for."""
    throughputs = read_throughputs(args.throughputs)
    references = read_references(args.reference, args.traces, throughputs, args.only)
    metrics: dict[str, Any] = {}
    bars: list[Bar] = []
    if references:
        _warm(references, throughputs)
        _against([_said(replay(r, throughputs), say) for r in references], metrics, bars)
    if not args.only or args.only in "allox_documented":
        metrics["allox_documented_off_s"] = abs(documented_allox(throughputs) - DOCUMENTED_ALLOX_S)
        bars.append(Bar("allox_documented_off_s", 1e-6))
    if not args.skip_published:
        _published(args, throughputs, metrics, bars, say)
    if not args.skip_own and references:
        more, judged = own_runs(references, throughputs, say, pairs=args.pairs)
        metrics |= more
        bars += judged
    return metrics, bars


def _warm(references: list[Reference], throughputs: Throughputs) -> None:
    """Compile before anything is timed: the shortest run of each policy kind once."""
    seen: set[str] = set()
    for r in sorted(references, key=lambda r: float(r.says["cpu_s"])):
        if r.policy not in seen:
            seen.add(r.policy)
            if float(r.says["cpu_s"]) < LONG_CPU_S or len(seen) == 1:
                replay(r, throughputs)


def _said(done: Replayed, say: Any) -> Replayed:
    says = done.reference.says
    quick = float(says["cpu_s"]) / max(done.cpu_s, 1e-9)
    say(f"{done.reference.name:<60} Gavel {says['average_jct_s']:>14,.6f} s  ours {done.outcome.mean_jct_s:>14,.6f} s  {done.off_percent:+8.4f} %  "
        f"end {done.makespan_off_percent:+8.4f} %  CPU {float(says['cpu_s']):7.2f} / {done.cpu_s:6.2f} s = {quick:4.0f}x")  # fmt: skip
    return done


def _against(done: list[Replayed], metrics: dict[str, Any], bars: list[Bar]) -> None:
    def of(policies: tuple[str, ...]) -> list[Replayed]:
        return [d for d in done if d.reference.policy in policies]

    metrics["runs"] = len(done)
    if of(EXACT):
        metrics["fifo_allox_mean_jct_off_s"] = max(abs(d.off_s) for d in of(EXACT))
        bars.append(Bar("fifo_allox_mean_jct_off_s", 1e-6))
    if of(LINEAR):
        metrics["linear_mean_jct_off_percent"] = max(abs(d.off_percent) for d in of(LINEAR))
        bars.append(Bar("linear_mean_jct_off_percent", 1.0))
    if of(MAKESPAN):
        metrics["makespan_off_percent"] = max(d.makespan_off_percent for d in of(MAKESPAN))
        bars.append(Bar("makespan_off_percent", 1.0))
    if of(FINISH_TIME):
        long = [d for d in of(FINISH_TIME) if d.outcome.rounds >= 100] or of(FINISH_TIME)
        metrics["finish_time_mean_jct_off_percent"] = max(abs(d.off_percent) for d in long)
        metrics["finish_time_short_runs_off_percent"] = max(abs(d.off_percent) for d in of(FINISH_TIME))
        bars.append(Bar("finish_time_mean_jct_off_percent", 1.0))
    others = [d for d in done if d.reference.policy not in EXACT + LINEAR + MAKESPAN + FINISH_TIME]
    if others:
        metrics["others_mean_jct_off_percent"] = max(abs(d.off_percent) for d in others)
    timed = [d for d in done if float(d.reference.says["cpu_s"]) >= LONG_CPU_S]
    if timed:
        metrics["speedup"] = sum(float(d.reference.says["cpu_s"]) for d in timed) / sum(d.cpu_s for d in timed)
        metrics["speedup_least"] = min(float(d.reference.says["cpu_s"]) / d.cpu_s for d in timed)
        bars.append(AtLeast("speedup", 50.0))


def _published(args: argparse.Namespace, throughputs: Throughputs, metrics: dict[str, Any], bars: list[Bar], say: Any) -> None:
    if args.only and not args.only.startswith("published"):
        return
    rates = _rates(args.rates)
    near: Counter[str] = Counter()
    worst, cells = 0.0, 0
    for policy, rate, theirs, ours in published(args.reference / "published_tables.json", throughputs, rates, args.only):
        off = 100 * (ours / theirs - 1)
        say(f"published {policy:<28} {rate:>4} jobs/h  Gavel {theirs:7.2f} h  ours {ours:7.2f} h  {off:+6.2f} %")
        near[policy] += abs(off) <= 3.0
        worst, cells = max(worst, abs(off)), cells + 1
    if cells:
        whole = sum(n >= 5 for n in near.values())
        metrics |= {"published_cells": cells, "published_cells_within_3_percent": sum(near.values()), "published_worst_percent": worst,
                    "published_policies_with_5_rates": whole}  # fmt: skip
        if not args.only:
            bars.append(AtLeast("published_policies_with_5_rates", 6))


def _rates(text: str) -> list[float]:
    try:
        return [float(r) for r in text.split(",") if r.strip()]
    except ValueError:
        raise BadInput(f"--rates '{text}' are no numbers; give jobs an hour, such as 2.4,4.8.") from None


if __name__ == "__main__":
    sys.exit(main())
