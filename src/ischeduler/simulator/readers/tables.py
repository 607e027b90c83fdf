"""Traces as tables (parquet, csv), known by their columns.

The plain names are job_id, submit_s, start_s, end_s, wait_s, run_s, req_units, req_walltime_s, user, queue; the names that
Philly (timestamp, duration, num_gpus, vc), Alibaba's GPU traces (creation_time, scheduled_time, deletion_time, num_gpu) and Slurm's
accounting tables use are known, too. Times may be numbers or dates.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from ischeduler.core.errors import BadInput
from ischeduler.simulator.readers import contents
from ischeduler.simulator.trace import Trace, make_trace

NAMES: dict[str, tuple[str, ...]] = {
    "job_id": ("job_id", "jobid", "job_unique_id", "id_job", "job", "name"),
    "submit_s": ("submit_s", "submit_time", "submitted_time", "time_submit", "timestamp", "creation_time"),
    "start_s": ("start_s", "start_time", "scheduled_time", "time_start"),
    "end_s": ("end_s", "end_time", "finish_time", "deletion_time", "time_end"),
    "wait_s": ("wait_s", "wait_time", "submit_wait_sec"),
    "run_s": ("run_s", "runtime_s", "duration", "run_time_sec", "elapsed_time", "run_time"),
    "units": ("req_units", "units", "req_procs", "nodes_req", "num_gpus", "num_gpu", "alloc_nodes", "nodes_alloc", "nodes"),
    "limit_s": ("req_walltime_s", "limit_s", "time_limit_sec", "wallclock_req"),
    "user": ("user", "user_id", "id_user", "vc", "account"),
    "queue": ("queue", "partition", "qos", "pool"),
}
_NEEDED = "a submission (submit_s), a run time (run_s, or start_s and end_s) and units (req_units)"


def read_parquet(path: Path, *, units: str = "") -> Trace:
    """The jobs of a parquet table."""
    pa = _arrow()
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            present = file.schema_arrow.names
            wanted = _columns(present, units)
            table = file.read(columns=sorted(set(wanted.values())), use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise BadInput(f"{path} is a damaged parquet file ({_short(error)}); fetch it again.") from None
    return _trace(path, table, wanted, present)


def read_csv(path: Path, *, units: str = "") -> Trace:
    """The jobs of a csv table with a header."""
    pa = _arrow()
    import pyarrow.csv as pc

    try:
        table = pc.read_csv(io.BytesIO(contents(path)), read_options=pc.ReadOptions(use_threads=False))
    except pa.ArrowException as error:
        raise BadInput(f"{path} is a damaged csv file ({_short(error)}).") from None
    return _trace(path, table, _columns(table.column_names, units), table.column_names)


def _arrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise BadInput("Tables need pyarrow; pip install 'ischeduler[simulator]'.") from None
    return pyarrow


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:160]


def _columns(present: Iterable[str], units: str) -> dict[str, str]:
    """Which column of the table plays which role."""
    lower = {name.lower(): name for name in present}
    found = {role: lower[n] for role, names in NAMES.items() if (n := next((x for x in names if x in lower), None))}
    if units:
        if units.lower() not in lower:
            raise BadInput(f"There is no column '{units}' to count units by; the table has {', '.join(lower)}.")
        found["units"] = lower[units.lower()]
    return found


def _trace(path: Path, table: Any, wanted: dict[str, str], present: Iterable[str]) -> Trace:
    if "submit_s" not in wanted or "units" not in wanted or not ({"run_s"} <= wanted.keys() or "end_s" in wanted):
        raise BadInput(f"{path} has the columns {', '.join(list(present)[:12])}; a trace needs {_NEEDED}.")
    if not table.num_rows:
        raise BadInput(f"{path} has a header but no jobs; expected at least one row.")
    columns: dict[str, Any] = {}
    for role, column in wanted.items():
        values = table[column].combine_chunks()
        if role in ("user", "queue"):
            columns[role] = _dictionary(values)
        elif role == "job_id":
            columns[role] = _ids(values)
        else:
            columns[role] = _numbers(path, values, column)
    columns.setdefault("job_id", np.arange(1, table.num_rows + 1))
    _complete(columns)
    return make_trace(path.name, columns)


def _complete(columns: dict[str, Any]) -> None:
    """Fill in the start from the wait, and the run time from start and end."""
    if "start_s" not in columns and "wait_s" in columns:
        columns["start_s"] = columns["submit_s"] + columns["wait_s"]
    if "start_s" not in columns and {"end_s", "run_s"} <= columns.keys():
        columns["start_s"] = columns["end_s"] - columns["run_s"]
    if "run_s" not in columns:
        columns["run_s"] = columns["end_s"] - columns.get("start_s", columns["submit_s"])
    columns.pop("wait_s", None)
    columns.pop("end_s", None)


def _dictionary(values: Any) -> tuple[Any, list[str]]:
    """Codes and the names they stand for."""
    import pyarrow as pa

    coded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode(null_encoding="encode")
    return coded.indices.to_numpy(zero_copy_only=False), ["" if v is None else str(v) for v in coded.dictionary.to_pylist()]


def _ids(values: Any) -> Any:
    """Whole numbers where all ids are such, else text."""
    import pyarrow as pa

    try:
        return values.cast(pa.int64()).to_numpy(zero_copy_only=False).astype(np.int64)
    except (pa.ArrowException, ValueError):
        return np.array(values.to_pylist(), dtype=object)


def _numbers(path: Path, values: Any, column: str) -> Any:
    """Numbers as they are, dates as epoch seconds; unknown is NaN."""
    import pyarrow as pa

    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_timestamp(values.type) or pa.types.is_date(values.type):
        return _epoch(values.to_numpy(zero_copy_only=False))
    if pa.types.is_integer(values.type) and not values.null_count:
        return values.to_numpy(zero_copy_only=False)
    if pa.types.is_floating(values.type) or pa.types.is_integer(values.type) or pa.types.is_null(values.type):
        return values.cast(pa.float64()).to_numpy(zero_copy_only=False)
    try:
        return values.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowException:
        pass
    try:
        return _epoch(np.array([None if v in ("", "None", None) else v for v in values.to_pylist()], dtype="datetime64[s]"))
    except ValueError as error:
        raise BadInput(f"{path} has a '{column}' that is neither a number nor a date ({_short(error)}).") from None


def _epoch(dates: Any) -> Any:
    seconds = dates.astype("datetime64[s]")
    return np.where(np.isnat(seconds), np.nan, seconds.astype(np.int64).astype(np.float64))
