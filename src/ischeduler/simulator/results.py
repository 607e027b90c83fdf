"""What a simulation says about each job, as a parquet or csv table of the same columns as the traces."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ischeduler.core.errors import BadInput
from ischeduler.simulator.summary import ends
from ischeduler.simulator.trace import Trace


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """A name beside ``path`` to write to; it takes ``path``'s place once all is written, and vanishes when that failed."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_results(path: Path, trace: Trace, start_s: Any) -> None:
    """Write job_id, submit_s, start_s, end_s, wait_s, run_s, req_units, req_walltime_s, user and queue of each job.

    ``run_s`` is the time the job held its units. A job that never started has no start, end, wait and run time.
    """
    kind = path.suffix.lower()
    if kind not in (".parquet", ".csv"):
        raise BadInput(f"Results cannot be written as '{path.suffix}'; give a name ending in .parquet or .csv.")
    table = _table(trace, start_s)
    with replaced(path) as temporary:
        if kind == ".parquet":
            import pyarrow.parquet as pq

            pq.write_table(table, temporary, compression="zstd", compression_level=1)
        else:
            import pyarrow.csv as pc

            pc.write_csv(table, temporary)


def _table(trace: Trace, start_s: Any) -> Any:
    try:
        import pyarrow as pa
    except ImportError:
        raise BadInput("Tables need pyarrow; pip install 'ischeduler[simulator]'.") from None
    never = start_s < 0
    end = ends(trace, start_s)
    some = bool(never.any())

    def known(values: Any) -> Any:
        return pa.array(values, mask=never) if some else pa.array(values)

    return pa.table({
        "job_id": pa.array(trace.job_id), "submit_s": pa.array(trace.submit_s), "start_s": known(start_s), "end_s": known(end),
        "wait_s": known(start_s - trace.submit_s), "run_s": known(np.where(never, 0, end - start_s)), "req_units": pa.array(trace.units),
        "req_walltime_s": pa.array(trace.limit_s), "user": _names(pa, trace.user, trace.users), "queue": _names(pa, trace.queue, trace.queues),
    })  # fmt: skip


def _names(pa: Any, codes: Any, names: tuple[str, ...]) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(names, pa.string()))
