"""Files of jobs and of throughputs in Gavel's formats, known by their columns, not by their names.

Throughputs: JSON, ``{type: {"('job type', accelerators)": {"null": steps/s, "('other', accelerators)": [mine, theirs]}}}``; a type that
ends in ``_unconsolidated`` holds the throughputs of a job scattered over nodes. Jobs: one JSON object a line (``id``, ``arrival_s``,
``job_type``, ``scale_factor``, ``total_steps``, and optionally ``weight``, ``deadline_s``, ``entity``), a table with such columns
(.csv, .parquet), or Gavel's trace of ten tab-separated columns.
"""

from __future__ import annotations

import ast
import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from ischeduler.core.errors import BadInput
from ischeduler.policies.problem import Throughputs
from ischeduler.simulator.pools.workload import JobRow, Workload, class_name

SPREAD = "_unconsolidated"
NAMES = {
    "name": ("id", "job_id", "name"),
    "arrival_s": ("arrival_s", "arrival_time", "submit_s", "time"),
    "job_type": ("job_type", "type", "model"),
    "accelerators": ("scale_factor", "accelerators", "num_gpus", "gpus"),
    "total_steps": ("total_steps", "steps", "num_steps"),
    "weight": ("weight", "priority_weight"),
    "deadline_s": ("deadline_s", "slo_s"),
    "entity": ("entity", "group"),
}
"""Under which names a column may stand."""
NEEDED = ("arrival_s", "job_type", "total_steps")


def read_throughputs(path: Path) -> Throughputs:
    """The throughputs in a JSON file of Gavel's. BadInput, one sentence, when it is something else."""
    try:
        raw = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror}); give a file of throughputs.") from None
    except ValueError:
        raise BadInput(f"{path} is not JSON; expected throughputs by accelerator type and job type.") from None
    if not isinstance(raw, dict) or not raw or not all(isinstance(v, dict) for v in cast("dict[str, Any]", raw).values()):
        raise BadInput(f"{path} holds no throughputs by accelerator type; expected {{type: {{\"('job type', 1)\": {{\"null\": steps/s}}}}}}.")
    return throughputs_of(cast("dict[str, Any]", raw), str(path))


def throughputs_of(raw: Mapping[str, Mapping[str, Mapping[str, Any]]], where: str) -> Throughputs:
    """Columns from Gavel's nested objects."""
    types = tuple(t for t in raw if not t.endswith(SPREAD))
    keys = list(dict.fromkeys(key for t in types for key in raw[t]))
    classes = {key: row for row, key in enumerate(keys)}
    rate, loose = np.zeros((len(keys), len(types))), np.zeros((len(keys), len(types)))
    shared = np.zeros((len(keys), len(keys), len(types)))
    for column, kind in enumerate(types):
        for key, row in classes.items():
            cell = raw[kind].get(key, {})
            rate[row, column] = _rate(cell.get("null", 0.0), key, kind, where)
            scattered = raw.get(kind + SPREAD, {}).get(key, {}).get("null")
            loose[row, column] = rate[row, column] if scattered is None else _rate(scattered, key, kind + SPREAD, where)
            for other, pair in cell.items():
                if other in classes and isinstance(pair, list) and len(cast("list[Any]", pair)) == 2:
                    shared[row, classes[other], column] = float(cast("list[float]", pair)[0])
    return Throughputs(types, tuple(class_name(*_key(key, where)) for key in keys), rate, loose, shared)


def _rate(value: Any, key: str, kind: str, where: str) -> float:
    if not isinstance(value, int | float) or not np.isfinite(value) or value < 0:
        raise BadInput(f"{where}: the throughput of {key} on {kind} is {value!r}; expected steps per second, zero or more.")
    return float(value)


def _key(key: str, where: str) -> tuple[str, int]:
    """('job type', accelerators) as a Python tuple in a string; a bare name is a job on one accelerator."""
    try:
        name, size = ast.literal_eval(key)
        return str(name), int(size)
    except (ValueError, SyntaxError, TypeError):
        if key.startswith("("):
            raise BadInput(f"{where}: the job type {key} cannot be read; expected ('name', accelerators).") from None
        return key, 1


def read_jobs(path: Path, throughputs: Throughputs) -> Workload:
    """The jobs in a file, in order of arrival. BadInput, one sentence, when the file holds none or one of them cannot be."""
    try:
        rows = list(_rows(path))
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror}); give a file of jobs.") from None
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not text; expected jobs as JSON lines, csv, or a trace of tab-separated columns.") from None
    return Workload.of(rows, throughputs)


def _rows(path: Path) -> Iterator[JobRow]:
    if path.suffix.lower() == ".parquet":
        import pandas as pd

        yield from (_row(cast("dict[str, Any]", r), number, path) for number, r in enumerate(pd.read_parquet(path).to_dict("records")))
        return
    text = path.read_text("utf-8")
    first = text.lstrip()[:1]
    if first == "{":
        yield from (_row(_json(line, number, path), number, path) for number, line in enumerate(text.splitlines()) if line.strip())
    elif first and "\t" in text.partition("\n")[0] and "arrival" not in text.partition("\n")[0]:
        yield from (_trace(line, number, path) for number, line in enumerate(text.splitlines()) if line.strip())
    else:
        table = csv.DictReader(text.splitlines(), delimiter="\t" if "\t" in text.partition("\n")[0] else ",")
        yield from (_row(cast("dict[str, Any]", row), number, path) for number, row in enumerate(table))


def _json(line: str, number: int, path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise BadInput(f"{path}, line {number + 1}: expected one JSON object a line.")
    return cast("dict[str, Any]", found)


def _row(row: Mapping[str, Any], number: int, path: Path) -> JobRow:
    found: dict[str, Any] = {field: next((row[n] for n in names if row.get(n) not in (None, "")), None) for field, names in NAMES.items()}
    lacking = [NAMES[field][0] for field in NEEDED if found[field] is None]
    if lacking:
        raise BadInput(f"{path}, job {number + 1}: there is no {' and no '.join(lacking)}; its columns are {', '.join(map(str, row))}.")
    try:
        return JobRow(
            str(number if found["name"] is None else found["name"]), str(found["job_type"]), int(found["accelerators"] or 1),
            float(found["arrival_s"]), float(found["total_steps"]), float(1 if found["weight"] is None else found["weight"]),
            float("inf" if found["deadline_s"] is None else found["deadline_s"]), str(found["entity"] or ""),
        )  # fmt: skip
    except (TypeError, ValueError) as error:
        raise BadInput(f"{path}, job {number + 1}: {error}; correct that number.") from None


def _trace(line: str, number: int, path: Path) -> JobRow:
    """job type, command, folder, steps' argument, needs data, steps, accelerators, weight, SLO (below zero: none), arrival.

    Shockwave's have two more: how the batch size changes, before the weight, and a duration after the SLO; both are passed over.
    """
    cells = line.rstrip("\n").split("\t")
    if len(cells) == 12:
        cells = cells[:7] + cells[8:10] + cells[11:]
    if len(cells) < 10:
        raise BadInput(f"{path}, line {number + 1}: expected ten tab-separated columns as in Gavel's traces, found {len(cells)}.")
    try:
        steps, size, weight = (float(cells[5]), int(cells[6]), float(cells[7]))
        slo, arrival = float(cells[8]), float(cells[-1])
    except ValueError as error:
        raise BadInput(f"{path}, line {number + 1}: {error}; correct that number.") from None
    return JobRow(str(number), cells[0], size, arrival, steps, weight, slowdown=slo if slo > 0 else float("inf"))
