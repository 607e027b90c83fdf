"""``sacct -P`` dumps: a header of field names, one job a line, bars between. Steps (12.batch) are left out.

A good dump is ``sacct -aXP -S 2024-01-01 -o JobID,User,Partition,Submit,Start,End,Timelimit,NNodes,State``.
"""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import Any

import numpy as np

from ischeduler.core.errors import BadInput
from ischeduler.simulator.readers import contents
from ischeduler.simulator.trace import Trace, make_trace

_UNITS = ("nnodes", "allocnodes", "reqnodes", "ncpus", "alloccpus", "reqcpus")
_UNKNOWN = ("", "unknown", "none", "n/a", "invalid")


def read_sacct(path: Path, *, units: str = "") -> Trace:
    """The jobs of a dump with at least JobID, Submit, Start, End (or Elapsed) and a count of nodes or processors."""
    rows = list(csv.reader(io.StringIO(contents(path).decode("utf-8", "replace")), delimiter="|", quoting=csv.QUOTE_NONE))
    names = [name.strip().lower() for name in rows[0]]
    jobs = [r for r in rows[1:] if r]
    _check(path, names, jobs, units)
    column = {name: [r[i] for r in jobs] for i, name in enumerate(names) if name}
    keep = [i for i, job in enumerate(column["jobid"]) if "." not in job]
    chosen = {name: [values[i] for i in keep] for name, values in column.items()}
    return make_trace(path.name, _columns(path, chosen, units.lower() or next(u for u in _UNITS if u in column)))


def _check(path: Path, names: list[str], jobs: list[list[str]], units: str) -> None:
    missing = [f for f in ("JobID", "Submit", "Start") if f.lower() not in names]
    if not {"end", "elapsed", "elapsedraw"} & set(names):
        missing.append("End")
    if not ({units.lower()} if units else set(_UNITS)) & set(names):
        missing.append(units or "NNodes")
    if missing:
        raise BadInput(f"{path} lacks {', '.join(missing)}; dump with sacct -aXP -o JobID,User,Partition,Submit,Start,End,Timelimit,NNodes.")
    if not jobs:
        raise BadInput(f"{path} has a header but no jobs; widen sacct's -S and -E.")
    wrong = next((i for i, r in enumerate(jobs, 2) if len(r) != len(names)), None)
    if wrong is not None:
        raise BadInput(f"{path} has {len(jobs[wrong - 2])} fields in line {wrong}, its header {len(names)}: the dump is damaged or cut off.")


def _columns(path: Path, c: dict[str, list[str]], units: str) -> dict[str, Any]:
    submit, start = (_dates(path, c[name], name) for name in ("submit", "start"))
    if "elapsedraw" in c:
        run = np.array([_float(v) for v in c["elapsedraw"]])
    elif "elapsed" in c:
        run = np.array([duration_s(v) for v in c["elapsed"]])
    else:
        run = _dates(path, c["end"], "end") - start
    columns: dict[str, Any] = {
        "job_id": _ids(c["jobid"]), "submit_s": submit, "start_s": start, "run_s": np.where(np.isfinite(start), run, np.nan),
        "units": np.array([_float(v) for v in c[units]]),
    }  # fmt: skip
    if "timelimit" in c:
        columns["limit_s"] = np.array([duration_s(v) for v in c["timelimit"]])
    elif "timelimitraw" in c:
        columns["limit_s"] = np.array([_float(v) * 60 for v in c["timelimitraw"]])
    for role, name in (("user", "user"), ("queue", "partition")):
        if name in c:
            known, codes = np.unique(np.array(c[name]), return_inverse=True)
            columns[role] = codes, known.tolist()
    return columns


def duration_s(text: str) -> float:
    """``1-02:03:04``, ``02:03:04``, ``03:04`` or ``03:04.5`` in seconds; NaN for UNLIMITED, Partition_Limit and the like."""
    days, _, rest = text.strip().rpartition("-")
    try:
        parts = [float(x) for x in rest.split(":")]
        seconds = sum(x * 60**i for i, x in enumerate(reversed(parts)))
        return seconds + 86400 * float(days or 0) if len(parts) <= 3 else math.nan
    except ValueError:
        return math.nan


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _dates(path: Path, values: list[str], name: str) -> Any:
    known = [v if v.strip().lower() not in _UNKNOWN else "NaT" for v in values]
    if all(v == "NaT" or v.isdigit() for v in known):
        return np.array([math.nan if v == "NaT" else float(v) for v in known])
    try:
        seconds = np.array(known, dtype="datetime64[s]")
    except ValueError as error:
        raise BadInput(f"{path} has a {name} that is no date ({' '.join(str(error).split())}); expected 2024-01-31T12:00:00.") from None
    return np.where(np.isnat(seconds), np.nan, seconds.astype(np.int64).astype(np.float64))


def _ids(values: list[str]) -> Any:
    """Job numbers, or text where arrays (12_3) and the like are among them."""
    return np.array(values, dtype=np.int64) if all(v.isdigit() for v in values) else np.array(values, dtype=object)
