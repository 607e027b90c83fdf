"""Readers of job traces: one function that looks at the file and picks the format."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from ischeduler.core.errors import BadInput
from ischeduler.simulator.trace import Trace


def read_trace(path: Path | str, *, units: str = "") -> Trace:
    """The jobs of a trace file: SWF (Parallel Workloads Archive), ``sacct -P`` text, Philly's job log, or a parquet or csv table;
    also gzipped.

    The format is told by the content, not by the name. ``units`` names the column that counts what a job occupies, where a file
    has several (nodes, processors, GPUs). BadInput, one sentence, when the file is missing, empty, damaged or none of these.
    """
    path = Path(path)
    first = _beginning(path)
    if first[:4] == b"PAR1":
        from ischeduler.simulator.readers.tables import read_parquet

        return read_parquet(path, units=units)
    if first[257:262] == b"ustar" or first.lstrip()[:1] in (b"[", b"{"):
        from ischeduler.simulator.readers.philly import read_philly

        return read_philly(path, archive=first[257:262] == b"ustar")
    line = next((x for x in first.decode("utf-8", "replace").splitlines() if x.strip()), "")
    if "|" in line and "jobid" in line.lower():
        from ischeduler.simulator.readers.sacct import read_sacct

        return read_sacct(path, units=units)
    if line.lstrip().startswith(";") or (len(line.split()) == 18 and "," not in line):
        from ischeduler.simulator.readers.swf import read_swf

        return read_swf(path)
    if "," in line:
        from ischeduler.simulator.readers.tables import read_csv

        return read_csv(path, units=units)
    raise BadInput(f"{path} is no trace: expected SWF lines, a 'sacct -P' dump, or a parquet or csv table with a header.")


def contents(path: Path) -> bytes:
    """The whole file, unpacked where it is gzipped. BadInput when it cannot be read."""
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(_unreadable(path, error)) from None


def _beginning(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path) if packed else path.open("rb") as file:
            first = file.read(65536)
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(_unreadable(path, error)) from None
    if not first.strip():
        raise BadInput(f"{path} is empty; expected a trace with at least one job.")
    return first


def _unreadable(path: Path, error: Exception) -> str:
    if isinstance(error, (EOFError, zlib.error, gzip.BadGzipFile)):
        return f"{path} is damaged ({error}); fetch it again."
    if isinstance(error, IsADirectoryError):
        return f"{path} is a folder; give a trace file."
    words = getattr(error, "strerror", None) or error
    return f"{path} cannot be read ({words}); give a trace file: SWF, sacct -P, parquet or csv."
