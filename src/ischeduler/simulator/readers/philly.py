"""Microsoft Philly's job log: JSON, one entry a job with its attempts; alone, or inside the archive that it is published in.

Source: Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads", ATC 2019;
https://github.com/msr-fiddle/philly-traces
"""

from __future__ import annotations

import json
import tarfile
import zlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from ischeduler.core.errors import BadInput
from ischeduler.simulator.readers import contents
from ischeduler.simulator.trace import Trace, make_trace

MEMBER = "cluster_job_log"
_NEEDED = "expected a list of jobs with jobid, submitted_time and attempts"
_EPOCH = datetime(1970, 1, 1)


def read_philly(path: Path, *, archive: bool = False) -> Trace:
    """The jobs of the log. Units are GPUs, the run time is that of all attempts together, the queue is the virtual cluster.

    Times have no zone in the log; they are taken as UTC, which moves them all by the same hours.
    """
    data = _member(path) if archive else contents(path)
    try:
        jobs = json.loads(data)
        rows = [_row(job) for job in jobs]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"{path} is no job log of Philly ({type(error).__name__}: {' '.join(str(error).split())[:120]}); {_NEEDED}.") from None
    if not rows:
        raise BadInput(f"{path} holds no job; {_NEEDED}.")
    ids, submit, start, run, units, users, queues = zip(*rows, strict=True)
    columns = {
        "job_id": np.array(ids, dtype=object), "submit_s": np.array(submit), "start_s": np.array(start), "run_s": np.array(run),
        "units": np.array(units), "user": _coded(users), "queue": _coded(queues),
    }  # fmt: skip
    return make_trace(path.name, columns)


def _member(path: Path) -> bytes:
    """The log inside the archive, which holds much larger files, too."""
    try:
        with tarfile.open(path, "r|*") as archive:
            for member in archive:
                if member.isfile() and member.name.rsplit("/", 1)[-1] == MEMBER:
                    file = archive.extractfile(member)
                    return file.read() if file else b""
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise BadInput(f"{path} is a damaged archive ({error}); fetch it again.") from None
    raise BadInput(f"{path} is an archive without {MEMBER}; unpack it and give the trace inside.")


def _row(job: Mapping[str, Any]) -> tuple[str, float, float, float, float, str, str]:
    attempts = job["attempts"]
    times = [(_seconds(a.get("start_time")), _seconds(a.get("end_time"))) for a in attempts]
    starts = [begin for begin, _ in times if begin == begin]
    lasted = [end - begin for begin, end in times if end >= begin]
    units = max((sum(len(node["gpus"]) for node in a.get("detail") or ()) for a in attempts), default=0)
    first, run = min(starts, default=np.nan), sum(lasted) if lasted else np.nan
    return str(job["jobid"]), _seconds(job["submitted_time"]), first, run, float(units), str(job.get("user") or ""), str(job.get("vc") or "")


def _seconds(text: str | None) -> float:
    if text in (None, "", "None"):
        return float("nan")
    return (datetime.strptime(str(text).removesuffix(" PST").removesuffix(" PDT"), "%Y-%m-%d %H:%M:%S") - _EPOCH).total_seconds()


def _coded(names: Sequence[str]) -> tuple[Any, list[str]]:
    known, codes = np.unique(np.array(names), return_inverse=True)
    return codes, known.tolist()
