"""A made-up trace for tests of provisioners."""

from __future__ import annotations

import numpy as np

from ischeduler.estimators.jobruntime.table import job_table
from ischeduler.helper.provisioning.setting import Setting

HOUR, DAY = 3600, 86400


def even_load(seed: int) -> Setting:
    """Twelve nodes, 1,500 jobs over sixty days, segments of twelve hours."""
    rng = np.random.default_rng(seed)
    count = 1500
    submit = np.sort(rng.integers(0, 60 * DAY, count))
    limit = rng.choice([2 * HOUR, 8 * HOUR, 16 * HOUR], count)
    table = job_table({
        "submit_s": submit, "start_s": submit + rng.integers(0, 2 * HOUR, count), "run_s": limit * rng.uniform(0.1, 1, count),
        "req_units": rng.integers(1, 4, count), "req_walltime_s": limit, "user": rng.integers(0, 9, count).astype(str),
    })  # fmt: skip
    return Setting(table, 12, 42 * DAY, segment_s=12 * HOUR, span_s=3 * DAY, horizon_s=4 * DAY, source="made up")
