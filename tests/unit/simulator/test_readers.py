"""Every trace format is read by its content; damaged and empty files are one sentence."""

from __future__ import annotations

import gzip
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ischeduler.core.errors import BadInput
from ischeduler.simulator.readers import read_trace
from ischeduler.simulator.readers.sacct import duration_s
from ischeduler.simulator.trace import make_trace

SWF = """; Computer: Test
; UnixStartTime: 1000
; MaxNodes: 50
; MaxProcs: 64
  2 10  5  30  4 -1 -1  8 60 -1 1 7 1 1 2 -1 -1 -1
  1 10 -1  20  4 -1 -1 -1 -1 -1 1 9 1 1 3 -1 -1 -1
  3 11 -1  -1  4 -1 -1  4 60 -1 5 7 1 1 2 -1 -1 -1
"""
SACCT = """JobID|User|Partition|Submit|Start|End|Timelimit|NNodes|State
11|ann|gpu|2024-01-01T00:00:10|2024-01-01T00:01:00|2024-01-01T01:01:00|1-00:00:00|2|COMPLETED
11.batch|||2024-01-01T00:01:00|2024-01-01T00:01:00|2024-01-01T01:01:00||2|COMPLETED
10|bob|cpu|2024-01-01T00:00:10|2024-01-01T00:00:20|2024-01-01T00:00:50|UNLIMITED|1|FAILED
12|bob|cpu|2024-01-01T00:00:30|Unknown|2024-01-01T00:00:50|02:00:00|1|CANCELLED
"""


def put(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def table(folder: Path, columns: dict[str, Any], name: str = "t.parquet") -> Path:
    path = folder / name
    pq.write_table(pa.table(columns), path)
    return path


@pytest.mark.parametrize("packed", [False, True])
def test_swf(tmp_path: Path, packed: bool) -> None:
    t = read_trace(put(tmp_path, "a.swf", gzip.compress(SWF.encode(), mtime=0) if packed else SWF))
    assert t.job_id.tolist() == [1, 2], "equal seconds are sorted by job number, and the job that never ran is left out"
    assert t.submit_s.tolist() == [1010, 1010]
    assert t.units.tolist() == [4, 8], "requested processors, or else the allocated ones"
    assert t.limit_s.tolist() == [20, 60]
    assert t.start_s.tolist() == [-1, 1015]
    assert [t.users[u] for u in t.user] == ["9", "7"]
    assert t.capacity == 64
    assert any("one job without run time" in n for n in t.notes)


def test_sacct(tmp_path: Path) -> None:
    t = read_trace(put(tmp_path, "dump.txt", SACCT))
    assert t.job_id.tolist() == [10, 11]
    assert t.run_s.tolist() == [30, 3600]
    assert t.limit_s.tolist() == [30, 86400], "UNLIMITED counts as the true run time"
    assert t.wait_s.tolist() == [10, 50]
    assert [t.queues[q] for q in t.queue] == ["cpu", "gpu"]
    assert t.units.tolist() == [1, 2]


def test_our_columns(tmp_path: Path) -> None:
    t = read_trace(table(tmp_path, {
        "job_id": ["5", "4"], "submit_s": [7.0, 7.0], "wait_s": [1.0, None], "run_s": [3.9, 4.0], "req_units": [2.0, 1.0],
        "req_walltime_s": [9, 9], "user": ["a", None], "queue": ["q", "r"],
    }))  # fmt: skip
    assert t.job_id.tolist() == [4, 5]
    assert t.start_s.tolist() == [-1, 8]
    assert t.run_s.tolist() == [4, 3]
    assert [t.users[u] for u in t.user] == ["", "a"]


def test_philly_and_alibaba_columns(tmp_path: Path) -> None:
    philly = read_trace(put(tmp_path, "p.csv", "timestamp,duration,num_gpus,gpu_time,vc\n2017-09-04 10:30:41,60,8,480,7f\n2017-09-04 10:30:40,5,1,5,7f\n"))
    assert philly.submit_s.tolist() == [1504521040, 1504521041]
    assert philly.units.tolist() == [1, 8]
    assert any("no requested walltimes" in n for n in philly.notes)
    alibaba = read_trace(put(tmp_path, "a.csv", (
        "name,cpu_milli,num_gpu,qos,creation_time,deletion_time,scheduled_time\n"
        "openb-pod-0000,12000,1,LS,0,100,10\nopenb-pod-0001,6000,0,LS,5,50,5\nopenb-pod-0002,6000,2,BE,9,,\n"
    )))
    assert alibaba.run_s.tolist() == [90]
    assert alibaba.job_id.tolist() == ["openb-pod-0000"]
    assert len(alibaba.notes) == 3


def philly_job(number: int, **changes: Any) -> dict[str, Any]:
    attempt = {"start_time": "2017-10-07 02:05:00", "end_time": "2017-10-07 02:06:00", "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}]}
    job = {"status": "Pass", "vc": "ee", "jobid": f"application_{number}", "attempts": [attempt], "submitted_time": "2017-10-07 02:00:00", "user": "a"}
    return {**job, **changes}


@pytest.mark.parametrize("packed", [False, True])
def test_phillys_own_log_also_in_its_archive(tmp_path: Path, packed: bool) -> None:
    again = {"start_time": "2017-10-07 03:00:00", "end_time": "2017-10-07 03:00:10", "detail": [{"ip": "m1", "gpus": ["gpu0"]}]}
    jobs = [philly_job(1), philly_job(2, attempts=[*philly_job(2)["attempts"], again], user=None), philly_job(3, attempts=[])]
    log = json.dumps([*jobs, philly_job(4, attempts=[{**again, "end_time": None}])]).encode()
    path = put(tmp_path, "cluster_job_log", log)
    if packed:
        put(tmp_path, "big.csv", b"time," * 1000)
        with tarfile.open(tmp_path / "trace-data.tar.gz", "w:gz") as archive:
            for name in ("big.csv", "cluster_job_log"):
                archive.add(tmp_path / name, f"trace-data/{name}")
        path = tmp_path / "trace-data.tar.gz"
    t = read_trace(path)
    assert t.job_id.tolist() == ["application_1", "application_2"]
    assert t.run_s.tolist() == [60, 70], "all attempts together"
    assert t.units.tolist() == [2, 2]
    assert t.wait_s.tolist() == [300, 300]
    assert [t.users[u] for u in t.user] == ["a", ""]
    assert t.queues == ("ee",)
    assert t.notes[0] == "2 jobs without run time (never started or not ended) are left out"


def test_an_archive_without_the_log_is_one_sentence(tmp_path: Path) -> None:
    put(tmp_path, "a.csv", b"x")
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "a.csv", "a.csv")
    with pytest.raises(BadInput, match="archive without cluster_job_log"):
        read_trace(tmp_path / "a.tar.gz")
    whole = (tmp_path / "a.tar.gz").read_bytes()
    with pytest.raises(BadInput, match=r"damaged|without"):
        read_trace(put(tmp_path, "cut.tar.gz", whole[: len(whole) - 20]))


def test_the_column_of_units_can_be_chosen(tmp_path: Path) -> None:
    path = table(tmp_path, {"submit_s": [0], "run_s": [1], "req_units": [2], "ntasks": [64]})
    assert read_trace(path).units.tolist() == [2]
    assert read_trace(path, units="ntasks").units.tolist() == [64]
    with pytest.raises(BadInput, match="no column 'cores'"):
        read_trace(path, units="cores")


def test_recorded_use_gives_the_machine_a_size(tmp_path: Path) -> None:
    t = read_trace(table(tmp_path, {"submit_s": [0, 1, 2], "start_s": [0, 1, 9], "run_s": [9, 9, 9], "req_units": [2, 3, 4]}))
    assert t.peak_units() == 7, "the third takes over what the first gave back in that second"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("empty.swf", b"", "is empty"),
        ("blank.csv", b"  \n\n", "is empty"),
        ("comments.swf", b"; MaxProcs: 3\n", "comments but no jobs"),
        ("short.swf", b"; c\n1 2 3\n", "3 fields in its job line 1"),
        ("cut.swf", SWF[:-10].encode(), r"job line 3.*damaged or cut off"),
        ("word.swf", SWF.replace("30  4", "xx  4").encode(), "'xx' in its job line 1"),
        ("other.json", b'[{"a": 1}]', "no job log of Philly"),
        ("cut.json", b'[{"a": 1}', "no job log of Philly"),
        ("none.json", b"[]", "holds no job"),
        ("photo.jpg", b"\xff\xd8\xff\xe0 nonsense", "is no trace"),
        ("broken.parquet", b"PAR1 nothing here", "damaged parquet"),
        ("broken.swf.gz", gzip.compress(SWF.encode(), mtime=0)[:40], "is damaged"),
        ("header.csv", b"submit_s,run_s,req_units\n", "no jobs"),
        ("other.csv", b"a,b\n1,2\n", "a trace needs a submission"),
        ("ragged.csv", b"submit_s,run_s,req_units\n1,2\n", "damaged csv"),
        ("dates.csv", b"submit_s,run_s,req_units\nsoon,2,1\n", "neither a number nor a date"),
        ("never.csv", b"submit_s,run_s,req_units\n1,,1\n", "no job that ran"),
        ("steps.txt", b"JobID|User\n1|ann\n", "lacks Submit, Start, End, NNodes"),
        ("none.txt", SACCT.splitlines()[0].encode(), "header but no jobs"),
        ("cut.txt", SACCT[:-40].encode(), "damaged or cut off"),
    ],
)
def test_bad_files_are_one_sentence(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    with pytest.raises(BadInput, match=words) as caught:
        read_trace(put(tmp_path, name, content))
    assert "\n" not in str(caught.value)


def test_missing_files_and_folders_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        read_trace(tmp_path / "nowhere.swf")
    with pytest.raises(BadInput, match="is a folder"):
        read_trace(tmp_path)


@pytest.mark.parametrize(
    ("text", "seconds"), [("1-02:03:04", 93784), ("02:03:04", 7384), ("03:04", 184), ("03:04.5", 184.5), ("1-00:00:00", 86400)]
)
def test_slurm_durations(text: str, seconds: float) -> None:
    assert duration_s(text) == seconds
    assert np.isnan(duration_s("UNLIMITED"))


def test_a_trace_is_frozen_and_sorted() -> None:
    t = make_trace("t", {"job_id": np.array([1, 2]), "submit_s": np.array([5, 3]), "units": np.array([1, 1]), "run_s": np.array([1, 1])})
    assert t.submit_s.tolist() == [3, 5]
    assert t.head(1).job_id.tolist() == [2]
    with pytest.raises(AttributeError):
        t.name = "other"  # type: ignore[misc]
