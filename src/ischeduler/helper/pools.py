"""Pools, simulated: what ``isched pool simulate`` does."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ischeduler.core.errors import BadInput
from ischeduler.simulator.pools.figures import PoolSummary, PoolWhy

if TYPE_CHECKING:
    from ischeduler.policies.problem import Accelerators, Floats
    from ischeduler.simulator.pools.results import PoolRun

PICTURES = (".png", ".svg", ".html")


@dataclass(frozen=True, slots=True)
class PoolComparison:
    """Figures by policy, explanations of the job asked about (one a policy), files written, remarks."""

    summaries: tuple[PoolSummary, ...]
    why: tuple[PoolWhy, ...]
    files: tuple[str, ...]
    notes: tuple[str, ...]


def cluster_of(spec: str, per_node: int = 8, prices: str = "") -> Accelerators:
    """Accelerators from ``v100=36,p100=36``; ``prices`` in the same form, per accelerator hour. BadInput shows the form."""
    needs_numpy()
    from ischeduler.policies.problem import Accelerators

    if per_node < 1:
        raise BadInput(f"--per-node {per_node} is no node; give 1 or more accelerators.")
    return Accelerators.of(number_pairs(spec, "--cluster", whole=True), per_node=per_node, price_per_h=number_pairs(prices, "--price") if prices else 0.0)


def number_pairs(spec: str, option: str, *, whole: bool = False) -> dict[str, float]:
    """Numbers by name from ``v100=36,p100=36``. BadInput shows the form."""
    found: dict[str, float] = {}
    for part in spec.split(","):
        name, sign, number = part.strip().partition("=")
        try:
            value = float(number)
        except ValueError:
            value = float("nan")
        if not name or not sign or value != value or value < 0 or (whole and value != int(value)):
            raise BadInput(f"{option} {spec}: '{part.strip()}' is not TYPE=NUMBER; write it as in v100=36,p100=36,k80=36.")
        if name in found:
            raise BadInput(f"{option} {spec} names {name} twice; give each type once.")
        found[name] = value
    return found


def simulate_pools(
    jobs: Path, throughputs: Path, accelerators: Accelerators, policies: Sequence[str], *, mode: str = "own", round_s: float = 360.0,
    restart_s: float = 30.0, seed: int = 0, window: tuple[int, int] | None = None, first: int | None = None, job: str = "",
    out: Sequence[Path] = (), fairness: bool = True, progress: Callable[[str, float], None] = lambda what, share: None,
) -> PoolComparison:  # fmt: skip
    """Simulate the pool under each policy and write each of ``out`` (.png, .svg, .html).

    ``window``: judge only these jobs, first to last + 1 in order of arrival; ``first``: only so many jobs; ``job``: explain this one.
    ``fairness``: also run equal slices, to measure fairness against. BadInput, one sentence, when that cannot be.
    """
    from ischeduler.simulator.pools.compare import Setting, isolated_jct_s, simulate_pool
    from ischeduler.simulator.pools.readers import read_jobs, read_throughputs
    from ischeduler.simulator.pools.results import summarise

    _check_files(out)
    if not policies:
        raise BadInput("No policy is given; give --policy with one or more names.")
    setting = Setting(mode, round_s, restart_s, seed, window)
    progress("reading", 0.0)
    table = read_throughputs(throughputs)
    _check_types(accelerators, table.types, throughputs)
    workload = read_jobs(jobs, table)
    if first is not None:
        workload = workload.head(first)
    runs: list[PoolRun] = []
    for number, name in enumerate(policies):
        progress(f"simulating {name}", number / len(policies))
        runs.append(simulate_pool(name, workload, table, accelerators, setting))
    isolated = isolated_jct_s(workload, table, accelerators, setting) if fairness else None
    summaries = tuple(summarise(run, accelerators, isolated) for run in runs)
    said: tuple[PoolWhy, ...] = ()
    if job:
        from ischeduler.simulator.pools.why import why

        rate = table.on(accelerators).rate[workload.job_class]
        said = tuple(why(job, run, workload, rate, accelerators) for run in runs)
    if out:
        _draw(out, runs, summaries, accelerators, isolated)
    progress("done", 1.0)
    return PoolComparison(summaries, said, tuple(map(str, out)), _remarks(summaries))


def needs_numpy() -> None:
    """BadInput where numpy, scipy or numba is missing."""
    # The matrices have a handful of rows: threads would only get in each other's way.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        import numba  # noqa: F401
        import scipy  # noqa: F401
    except ImportError:
        raise BadInput("Pools are simulated with numpy, scipy and numba; pip install 'ischeduler[policies,simulator]'.") from None


def _check_files(out: Sequence[Path]) -> None:
    for path in out:
        if path.suffix.lower() not in PICTURES:
            raise BadInput(f"--out {path}: the suffix says what is written; expected one of {', '.join(PICTURES)}.")
        if not path.absolute().parent.is_dir():
            raise BadInput(f"--out {path}: there is no folder {path.parent}; make it first.")


def _check_types(accelerators: Accelerators, known: Sequence[str], path: Path) -> None:
    unknown = [t for t in accelerators.types if t not in known]
    if unknown:
        raise BadInput(f"--cluster has {', '.join(unknown)}, which {path} does not know; it has {', '.join(known)}.")


def _draw(
    out: Sequence[Path], runs: Sequence[PoolRun], summaries: Sequence[PoolSummary], accelerators: Accelerators, isolated: Floats | None,
) -> None:  # fmt: skip
    from ischeduler.simulator.pools.plots import write_pool_plot

    for path in out:
        try:
            write_pool_plot(path, runs, summaries, accelerators, isolated)
        except OSError as error:
            raise BadInput(f"--out {path} cannot be written ({error.strerror}); give a file in a folder that you may write to.") from None


def _remarks(summaries: Sequence[PoolSummary]) -> tuple[str, ...]:
    return tuple(f"{s.jobs - s.done:,} of {s.jobs:,} jobs never ended under {s.policy}" for s in summaries if s.done < s.jobs)
