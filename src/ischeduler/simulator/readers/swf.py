"""The Standard Workload Format of the Parallel Workloads Archive: comments with ``;``, then 18 numbers a job.

Source: Chapin et al., "Benchmarks and Standards for the Evaluation of Parallel Job Schedulers", JSSPP 1999; field list at
https://www.cs.huji.ac.il/labs/parallel/workload/swf.html
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from ischeduler.core.errors import BadInput
from ischeduler.simulator.readers import contents
from ischeduler.simulator.trace import Trace, make_trace

FIELDS = 18
_HEADER = re.compile(r"^;\s*(\w+)\s*:\s*(.*?)\s*$")


def read_swf(path: Path) -> Trace:
    """The jobs of an SWF file. Units are the requested processors, the allocated ones where none were requested.

    Submissions become epoch seconds where the header has UnixStartTime; the machine's size is MaxProcs, or MaxNodes.
    """
    text = contents(path).decode("utf-8", "replace")
    lines = text.splitlines()
    header = {m[1].lower(): m[2] for line in lines if line.startswith(";") and (m := _HEADER.match(line))}
    rows = _rows(path, [line for line in lines if line.strip() and not line.lstrip().startswith(";")])
    asked, got = rows[:, 7], rows[:, 4]
    start = np.where(rows[:, 2] >= 0, rows[:, 1] + rows[:, 2], np.nan)
    origin = _number(header.get("unixstarttime", ""))
    columns = {
        "job_id": rows[:, 0].astype(np.int64), "submit_s": rows[:, 1] + origin, "start_s": start + origin, "run_s": rows[:, 3],
        "units": np.where(asked > 0, asked, got), "limit_s": rows[:, 8], "user": _coded(rows[:, 11]), "queue": _coded(rows[:, 14]),
    }  # fmt: skip
    return make_trace(path.name, columns, capacity=_number(header.get("maxprocs", "")) or _number(header.get("maxnodes", "")) or None)


def _rows(path: Path, lines: list[str]) -> Any:
    """Numbers of shape (jobs, 18)."""
    if not lines:
        raise BadInput(f"{path} has comments but no jobs; expected lines of {FIELDS} numbers.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            flat = np.fromstring("\n".join(lines), dtype=np.float64, sep=" ")
    except ValueError:
        raise BadInput(_ragged(path, lines)) from None
    if len(flat) != FIELDS * len(lines) or len(lines[0].split()) != FIELDS:
        raise BadInput(_ragged(path, lines))
    return flat.reshape(-1, FIELDS)


def _ragged(path: Path, lines: list[str]) -> str:
    for number, line in enumerate(lines, 1):
        cells = line.split()
        if len(cells) != FIELDS:
            return f"{path} has {len(cells)} fields in its job line {number}; SWF has {FIELDS}: the file is damaged or cut off."
        wrong = next((c for c in cells if not re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", c)), None)
        if wrong is not None:
            return f"{path} has '{wrong}' in its job line {number}; expected {FIELDS} numbers."
    return f"{path} is no SWF file; expected {FIELDS} numbers a line."


def _number(text: str) -> int:
    match = re.match(r"\d+", text)
    return int(match[0]) if match else 0


def _coded(values: Any) -> tuple[Any, list[str]]:
    names, codes = np.unique(values, return_inverse=True)
    return codes, [f"{v:g}" for v in names]
