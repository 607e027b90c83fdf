"""What an experiment is about: the trace, the machine, the protocol, and where training ends."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ischeduler.core.errors import BadInput
from ischeduler.estimators.jobruntime.table import JobTable, job_table
from ischeduler.simulator.chain import Episode, World, cold_world, episode, warm_world

if TYPE_CHECKING:
    from numpy.typing import NDArray

DAY_S = 86400
PROTOCOLS = ("mirage", "corrected")


@dataclass(frozen=True)
class Setting:
    """``capacity`` in the trace's units. Times in seconds.

    ``mirage``: an empty machine, the jobs of five days, the predecessor queued after two of them. ``corrected``: the true running
    and waiting jobs at the start, arrivals that never stop, the predecessor queued at once.
    """

    table: JobTable
    capacity: int
    train_until_s: int
    protocol: str = "corrected"
    source: str = ""
    segment_s: int = 2 * DAY_S
    look_s: int = 600
    every_s: int = 4 * 3600
    warm_up_s: int = 2 * DAY_S
    span_s: int = 5 * DAY_S
    horizon_s: int = field(default=21 * DAY_S)

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise BadInput(f"there is no protocol '{self.protocol}': choose {' or '.join(PROTOCOLS)}")
        if self.capacity < 1:
            raise BadInput(f"a machine of {self.capacity} units runs nothing: give --units of at least 1")

    @cached_property
    def trace(self) -> World:
        """The whole trace as a world."""
        t = self.table
        return World(
            self.capacity, t.submit_s, t.units, t.run_s, t.limit_s, np.full(len(t), -1, np.int64), np.arange(len(t), dtype=np.int64)
        )

    def training_starts(self) -> NDArray[np.int64]:
        """A start every ``every_s``, as long as the whole episode lies before training ends."""
        first = _day_after(int(np.quantile(self.table.submit_s, 0.002)))
        last = self.train_until_s - DAY_S - (self.span_s if self.protocol == "mirage" else 2 * self.segment_s)
        return np.arange(first, max(first, last), self.every_s, dtype=np.int64)

    def validation_starts(self) -> NDArray[np.int64]:
        """A start every ``every_s`` from the end of training, as long as the trace holds the whole episode."""
        last = int(self.table.submit_s[-1]) - self.span_s + 1
        return np.arange(self.train_until_s, max(last, self.train_until_s), self.every_s, dtype=np.int64)

    def episode(self, start_s: int, units: int) -> Episode | None:
        """The episode of a start; None when the predecessor never starts in it."""
        if self.protocol == "mirage":
            world = cold_world(self.trace, start_s, self.span_s)
            return episode(world, start_s + self.warm_up_s, units, self.segment_s, self.look_s)
        world = warm_world(self.trace, self.table.start_s, start_s, self.horizon_s)
        return episode(world, start_s, units, self.segment_s, self.look_s)


def read_setting(path: Path, *, units: int, train_until: str, protocol: str, segment_s: int = 2 * DAY_S) -> Setting:
    """A setting from a parquet or csv file of jobs. Raises BadInput with one sentence."""
    import pandas as pd

    if not path.is_file():
        raise BadInput(f"{path} is not here: give a table of jobs (parquet or csv) with --trace")
    try:
        frame = pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)
    except (ValueError, OSError) as error:
        raise BadInput(f"{path} cannot be read as a table of jobs: {error}") from None
    table = job_table(frame)
    if len(table) < 500:
        raise BadInput(f"{path} holds {len(table)} usable jobs: give a trace of at least 500")
    return Setting(table, units, training_end_s(table, train_until), protocol, source=path.name, segment_s=segment_s)


def training_end_s(table: JobTable, text: str) -> int:
    """The end of training from a date (2023-03-01) or a fraction of the trace's time (0.7)."""
    low, high = int(table.submit_s[0]), int(table.submit_s[-1])
    try:
        share = float(text)
        if not 0.0 < share < 1.0:
            raise BadInput(f"--train-until {text} is no share of the trace: give one between 0 and 1, or a date like 2023-03-01")
        return _day_after(int(np.quantile(table.submit_s, 0.002) + share * (high - np.quantile(table.submit_s, 0.002))))
    except ValueError:
        pass
    try:
        found = int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())
    except ValueError:
        raise BadInput(f"--train-until '{text}' is neither a date like 2023-03-01 nor a fraction like 0.7") from None
    if not low < found < high:
        raise BadInput(f"--train-until {text} lies outside the trace: give a date within it, or a fraction like 0.7")
    return found


def _day_after(time_s: int) -> int:
    """The next midnight."""
    return -(-time_s // DAY_S) * DAY_S
