"""The batch system's own estimates of starts against the truth, where both were written down (``sbatch --test-only`` and the like).

Such files say when a job was expected to start and when it did, not when it was handed in: waits cannot be had from them, errors can.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.report import Bar

NEEDED = ("true_start_time", "estimate_start_time")


def is_estimates(columns: list[str]) -> bool:
    """Whether a table is one of estimates, by its columns."""
    return all(c in columns for c in NEEDED)


def judge_estimates(table: Any, name: str, *, quiet: bool = False) -> tuple[dict[str, Any], list[Bar]]:
    """Errors in seconds; ``late`` is the share that started later than the batch system had said."""
    import pandas as pd

    truth, said = (pd.to_datetime(table[c]) for c in NEEDED)
    off = (truth - said).dt.total_seconds().to_numpy()
    size = np.abs(off)
    stem = name.split("_")[0]
    found = {
        f"{stem}_slurm_estimates": len(off), f"{stem}_slurm_median_error_s": float(np.median(size)), f"{stem}_slurm_p90_error_s": float(np.quantile(size, 0.9)),
        f"{stem}_slurm_mean_log10_error_s": float(np.log10(np.maximum(1.0, size)).mean()), f"{stem}_slurm_late": float((off > 0).mean()),
    }  # fmt: skip
    if not quiet:
        print(f"{name}: {len(off)} starts as Slurm foretold them: half are off by more than {np.median(size) / 60:.0f} min, a tenth by more than "
              f"{np.quantile(size, 0.9) / 3600:.1f} h, {np.mean(off > 0):.0%} come later than it said\n")  # fmt: skip
    return found, []
