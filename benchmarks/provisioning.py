"""``python -m benchmarks.provisioning --trace FILE --units N [...]``: when to queue a segment's successor, against Mirage's methods.

``--protocol mirage`` is the released protocol of Mirage (SC'23): an empty machine, five days of jobs, a segment of 48 hours queued
after two, a look every ten minutes. ``--protocol corrected`` starts from the true running and waiting jobs and arrivals never stop.
Training ends at ``--train-until``; every figure is of episodes that start after it. ``--runtime-model`` judges the run-time law of jobs
alive alone. The file needs the columns submit_s, start_s, run_s, req_units, req_walltime_s; user, name and queue where known.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.provisioning_report import Table, bars, print_curves, print_table, summary
from benchmarks.provisioning_runtime import runtime_model
from benchmarks.report import count, finish
from ischeduler.core.errors import IschedError
from ischeduler.helper.provisioning import methods
from ischeduler.helper.provisioning.collecting import collect, fit_laws
from ischeduler.helper.provisioning.evidence import Evidence, Sight
from ischeduler.helper.provisioning.judge import Record, record
from ischeduler.helper.provisioning.setting import Setting, read_setting
from ischeduler.plane.provisioners import Prices

TRACES = Path(__file__).resolve().parents[1].parent / "shared" / "data" / "traces"
TRACE = TRACES / "mirage_ls6_a100.parquet"
CHECKPOINT_S = 180
BOUNDS = {
    "twin_told_run_times": methods.told_outcomes, "told_in_hindsight": methods.told_in_hindsight, "oracle": methods.oracle_outcomes,
}  # fmt: skip
PRICES = ((1, 4), (1, 3), (2, 5), (1, 2), (1, 1), (2, 1), (4, 1), (9, 1), (19, 1))


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 when every bar is met, 1 when one is missed, 2 on bad input."""
    asked = _parser().parse_args(arguments)
    try:
        if asked.floor:
            from benchmarks.provisioning_floor import floors

            found = floors(asked.trace or [TRACE, *_others()], asked.train_until, seed=asked.seed, json=asked.json)
            print(json.dumps({"benchmark": "provisioning", "metrics": found, "bars": {}}))
            return 0
        if asked.runtime_model:
            metrics, limits = runtime_model(asked.trace or [TRACE, *_others()], asked.train_until, seed=asked.seed, json=asked.json)
            return finish("provisioning", metrics, limits, as_json=asked.json)
        return _experiment(asked)
    except IschedError as error:
        print(f"provisioning: {error}", file=sys.stderr)
        return 2


def _others() -> list[Path]:
    return [TRACES / "kth_sp2_original.parquet", TRACES / "alcf_theta_2022.parquet"]


def _experiment(asked: Any) -> int:
    path = asked.trace[0] if asked.trace else TRACE
    setting = read_setting(path, units=asked.units, train_until=asked.train_until, protocol=asked.protocol)
    laws = fit_laws(setting, seed=asked.seed, advance=_progress(asked.json))
    metrics: dict[str, Any] = {"trace": setting.source, "protocol": setting.protocol}
    limits = []
    for units in asked.nodes:
        train, test = _episodes(asked, setting, laws, units)
        if asked.limit:
            train, test = train[: 4 * asked.limit], test[: asked.limit]
        if asked.held_out:
            from benchmarks.provisioning_held_out import held_out_costs

            say = (lambda words: None) if asked.json else print
            metrics |= held_out_costs(train, test, units, seed=asked.seed, probes=_probes(setting), told=say)
            continue
        table = experiment(train, test, setting, seed=asked.seed, effort=_effort(asked), told=_line(asked.json))
        if not asked.json:
            print_table(table, units, setting)
            print_curves(table)
        if asked.plots:
            from benchmarks.provisioning_plots import plot

            plot(table, units, setting, asked.plots)
        metrics |= summary(table, units)
        limits += bars(table, units, setting.protocol, absolute=_lonestar(path))
        if asked.chain:
            from benchmarks.provisioning_chains import chains

            told = _progress(asked.json)
            metrics |= chains(setting, laws, table.chosen, units, asked.chain, seed=asked.seed, quiet=asked.json, told=told)
    return finish("provisioning", metrics, limits, as_json=asked.json)


def _episodes(asked: Any, setting: Setting, laws: Any, units: int) -> tuple[list[Evidence], list[Evidence]]:
    sight = Sight(stride=asked.stride, rolls=asked.rolls, seed=asked.seed)
    found = []
    for name, starts, most in (
        ("training", setting.training_starts(), asked.training), ("validation", setting.validation_starts(), asked.episodes),
    ):  # fmt: skip
        chosen = starts if not most or most >= len(starts) else starts[np.linspace(0, len(starts) - 1, most).round().astype(int)]
        found.append(collect(
            setting, laws, chosen, units, sight, keep=asked.keep, advance=_progress(asked.json), what=f"{name}, {units} units",
        ))  # fmt: skip
    train, test = found
    if len(train) < 20 or len(test) < 4:
        raise IschedError(
            f"{len(train)} training and {len(test)} validation episodes are too few: give a longer trace or another --train-until"
        )
    return train, test


def experiment(
    train: Sequence[Evidence], test: Sequence[Evidence], setting: Setting, *, seed: int = 0, effort: Any = None,
    told: Callable[[str], None] = lambda words: None,
) -> Table:
    """Fit everything on the training episodes and judge it on the others. ``effort``: of the networks' training; None leaves them out."""
    ours = methods.newsvendors(train, seed, probes=_probes(setting))
    peers = methods.mirage_trees(train, seed)
    more: list[Record] = []
    if effort is not None:
        from benchmarks.provisioning_networks import network_records

        more = network_records(train, test, setting, seed, effort, told)
    hours = setting.segment_s / 3600
    best = next(m for m in ours if m.name == methods.DEPLOYED)
    records = [record(m.name, m.outcomes(test), hours) for m in (*methods.baselines(), *peers)] + more
    records += [record(m.name, m.outcomes(test, setting=setting), hours) for m in ours]
    curves = {(i, o): record(f"{i}:{o}", best.outcomes(test, Prices(i, o), setting=setting), hours) for i, o in PRICES}
    trained = {(i, o): record(f"{i}:{o}", best.training_outcomes(train, Prices(i, o)), hours) for i, o in PRICES}
    return Table(
        records, best, best.name, record("hand_over", best.outcomes(test, handover=True), hours, CHECKPOINT_S),
        [record(n, of(test), hours) for n, of in BOUNDS.items()],
        [*(m.name for m in peers), *(r.method for r in more)], curves,
        trained, record("reactive", methods.baselines()[0].outcomes(train), hours),
    )  # fmt: skip


def _probes(setting: Setting) -> int:
    return 7 if setting.protocol == "mirage" else 13


def _effort(asked: Any) -> Any:
    """How the networks are trained; None without ``--networks``."""
    if not asked.networks:
        return None
    from benchmarks.provisioning_networks import Effort

    return Effort(asked.network_width, asked.network_epochs, asked.network_decisions, asked.network_seeds)


def _lonestar(path: Path) -> bool:
    """Whether the file has the columns of the Lonestar6 dump, for which the bars in hours were set."""
    if path.suffix == ".csv":
        import pandas as pd

        return "tl_min" in pd.read_csv(path, nrows=1)
    import pyarrow.parquet as parquet

    return "tl_min" in parquet.read_schema(path).names


def _progress(quiet: bool) -> Any:
    """A progress bar on the terminal; nothing with ``--json`` or in a pipe."""
    from tqdm import tqdm

    state: dict[str, Any] = {}

    def advance(what: str, done: int, of: int) -> None:
        if quiet or not sys.stderr.isatty():
            return
        if what not in state:
            state[what] = tqdm(total=of, desc=what, leave=False)
        state[what].update(done - state[what].n)

    return advance


def _line(quiet: bool) -> Callable[[str], None]:
    """Lines on standard error while networks are trained; nothing with ``--json``."""
    return (lambda words: None) if quiet else (lambda words: print(words, file=sys.stderr, flush=True))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.provisioning", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--trace", type=Path, action="append", help="jobs (parquet or csv); more than one with --runtime-model")
    parser.add_argument("--units", type=int, default=76, help="the machine's size in the trace's units")
    parser.add_argument("--nodes", type=_sizes, default=[1, 8], help="sizes of the segments, like 1,8")
    parser.add_argument("--protocol", default="mirage", help="mirage or corrected")
    parser.add_argument("--train-until", default="0.7", help="a date or a fraction of the trace")
    parser.add_argument("--episodes", type=int, default=0, help="validation episodes; default all, every four hours")
    parser.add_argument("--training", type=int, default=0, help="training episodes; default all")
    parser.add_argument("--limit", type=int, default=0, help="only the first so many episodes")
    parser.add_argument("--networks", action="store_true", help="train Mirage's Transformers and the reinforcement learners too (slow)")
    parser.add_argument("--network-width", type=count, default=64, help="of the networks' embedding (Mirage's is 512)")
    parser.add_argument("--network-epochs", type=count, default=30, help="passes over the training episodes at most")
    parser.add_argument("--network-decisions", type=count, default=40_000, help="decisions DQN and PPO learn from")
    parser.add_argument("--network-seeds", type=count, default=1, help="trainings of each network, from --seed on")
    parser.add_argument("--chain", type=int, default=0, help="also judge chains of eight segments, so many of them")
    parser.add_argument("--runtime-model", action="store_true", help="judge the run-time law of jobs alive")
    parser.add_argument("--held-out", action="store_true", help="what the training episodes alone say of the methods, week by week; no bars")
    parser.add_argument("--floor", action="store_true", help="what a run-time law can hope for: laws told of the jobs to come, chance, training")
    parser.add_argument("--stride", type=int, default=6, help="looks between two forecasts")
    parser.add_argument("--rolls", type=int, default=64, help="roll-outs a forecast")
    parser.add_argument("--keep", type=Path, help="a directory for gathered episodes, to go on from")
    parser.add_argument("--plots", type=Path, metavar="DIR", help="write an SVG for each size of segment there")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="the closing JSON line alone")
    return parser


def _sizes(text: str) -> list[int]:
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is no list of sizes like 1,8")
    return found


if __name__ == "__main__":
    raise SystemExit(main())
