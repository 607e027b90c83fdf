"""Evidence of many episodes, gathered with a progress bar and kept on disk, so that a training that was stopped goes on."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ischeduler.estimators.jobruntime.model import RuntimeLaw, fit
from ischeduler.helper.provisioning.evidence import Evidence, Sight, gather
from ischeduler.helper.provisioning.setting import Setting

LAW = 3
"""Counts the kinds of run-time law there have been: episodes kept with another are gathered again."""
Advance = Callable[[str, int, int], None]
"""Told (what, done, of how many)."""


def silent(what: str, done: int, of: int) -> None:
    """No progress bar."""


@dataclass(frozen=True)
class Laws:
    """Run-time laws: ``full`` for what comes after training; for training episodes one that was not fitted on their time."""

    full: RuntimeLaw
    early: RuntimeLaw
    late: RuntimeLaw
    middle_s: int

    def of(self, start_s: int, until_s: int) -> RuntimeLaw:
        """The law for an episode that starts then."""
        if start_s >= until_s:
            return self.full
        return self.early if start_s >= self.middle_s else self.late


def fit_laws(setting: Setting, *, seed: int = 0, looks: int = 400, advance: Advance = silent) -> Laws:
    """The full law from all training data, and one from each half of it: tuning on a law's own training data flatters it."""
    table, until = setting.table, setting.train_until_s
    middle = int(np.median(table.submit_s[table.submit_s < until]))
    spans = ((table, until, looks), (table, middle, looks // 2), (table.take(table.submit_s >= middle), until, looks // 2))
    laws = []
    for number, (jobs, until_s, count) in enumerate(spans):
        advance("run-time law", number, len(spans))
        laws.append(fit(jobs, until_s=until_s, looks=count, seed=seed))
    advance("run-time law", len(spans), len(spans))
    return Laws(laws[0], laws[1], laws[2], middle)


def collect(
    setting: Setting, laws: Laws, starts_s: Sequence[int] | NDArray[np.int64], units: int, sight: Sight, *, keep: Path | None = None,
    advance: Advance = silent, what: str = "episodes",
) -> list[Evidence]:
    """Evidence in order of the starts, without those whose predecessor never starts. ``keep``: a directory of finished ones."""
    found = []
    for number, start in enumerate(int(s) for s in starts_s):
        advance(what, number, len(starts_s))
        path = keep / f"{_key(setting, laws, start, units, sight)}.npz" if keep else None
        made = load(path) if path and path.exists() else None
        if made is None:
            made = next(iter(gather(setting, laws.of(start, setting.train_until_s), [start], units, sight)))
            if made is not None and path:
                save(made, path)
        if made is not None:
            found.append(made)
    advance(what, len(starts_s), len(starts_s))
    return found


def save(of: Evidence, path: Path) -> None:
    """Atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_suffix(f".{os.getpid()}.part")
    with half.open("wb") as file:
        columns: dict[str, Any] = {f.name: np.asarray(getattr(of, f.name)) for f in fields(of)}
        np.savez_compressed(file, **columns)
    half.replace(path)


def load(path: Path) -> Evidence | None:
    """None when it cannot be read: then it is made again."""
    try:
        with np.load(path) as data:
            values = {f.name: data[f.name] for f in fields(Evidence)}
    except (OSError, ValueError, KeyError):
        return None
    return Evidence(**{**values, "start_s": int(values["start_s"]), "units": int(values["units"])})


def _key(setting: Setting, laws: Laws, start_s: int, units: int, sight: Sight) -> str:
    """Everything an episode's evidence depends on."""
    t = setting.table
    parts = (
        len(t), int(t.submit_s[0]), int(t.submit_s[-1]), int(t.run_s.sum()), int(t.start_s.sum()), setting.capacity, setting.protocol,
        setting.segment_s, setting.look_s, setting.train_until_s, laws.full.seed, LAW, units, start_s, sight,
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:24]
