"""Causes from every mixture of evidence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from world import T0, make_run

from ischeduler.core.jobs import Cause, JobState, Resources
from ischeduler.core.pilots import ROUND_OVER
from ischeduler.core.run import Attempt, Progress
from ischeduler.core.sizes import GIB
from ischeduler.plane.causes import classify, oom_in, settled, wants_log
from ischeduler.plane.policy import DEFAULT

F = JobState.FAILED
BASE = Attempt(
    1, "k", "one", "gpu", Resources(memory_bytes=16 * GIB), 32, state=F, ended_seen_at=T0, spool_started=True, log_read=True,
)
DONE, HALF, SILENT = Progress(6, 6, 600, 600), Progress(3, 6, 300, 600), Progress()

CASES: list[tuple[str, Progress, dict[str, Any], Cause]] = [
    ("all epochs and exit 0", DONE, {"state": JobState.COMPLETED, "exit_code": 0}, Cause.FINISHED),
    ("its own word, epochs or not", HALF, {"state": JobState.COMPLETED, "exit_code": 0, "finished": True}, Cause.FINISHED),
    ("a silent script's 0", SILENT, {"state": JobState.COMPLETED, "exit_code": 0}, Cause.FINISHED),
    ("0 and no last word: the disk was full", HALF, {"state": JobState.COMPLETED, "exit_code": 0}, Cause.FINISHED),
    ("0 with epochs missing", HALF, {"state": JobState.COMPLETED, "exit_code": 0, "exit_reason": "completed"}, Cause.UNKNOWN),
    ("done before the limit hit the epilogue", DONE, {"state": JobState.TIMEOUT, "exit_reason": "completed"}, Cause.FINISHED),
    ("done, vanished from every memory", DONE, {"state": JobState.UNKNOWN, "exit_reason": "completed"}, Cause.FINISHED),
    ("done although a move was asked", DONE, {"state": JobState.COMPLETED, "exit_code": 0, "ending": "moved"}, Cause.FINISHED),
    ("timeout", HALF, {"state": JobState.TIMEOUT, "exit_code": 0, "signal": 15}, Cause.WALLTIME),
    ("timeout of a silent script, 0:0", SILENT, {"state": JobState.TIMEOUT, "exit_code": 0}, Cause.WALLTIME),
    ("85 from the batch system alone", HALF, {"exit_code": 85}, Cause.WALLTIME),
    ("85 in the spool alone", HALF, {"state": JobState.UNKNOWN, "exit_reason": "checkpointed", "exit_code": 85}, Cause.WALLTIME),
    ("warned, then killed", HALF, {"signalled": "USR2", "exit_code": 137}, Cause.WALLTIME),
    ("killed by the very warning", HALF, {"signalled": "USR2", "exit_code": 140}, Cause.WALLTIME),
    ("warned, then an error of its own", HALF, {"signalled": "USR2", "exit_code": 1, "exit_reason": "error"}, Cause.USER_ERROR),
    ("Slurm's out of memory", HALF, {"state": JobState.OUT_OF_MEMORY}, Cause.OUT_OF_MEMORY),
    ("FAILED 0:9 with the log's word", HALF, {"exit_code": 0, "signal": 9, "oom_where": "host"}, Cause.OUT_OF_MEMORY),
    ("FAILED 0:9 with the reason's word", HALF, {"signal": 9, "reason": "exceeded memory limit"}, Cause.OUT_OF_MEMORY),
    ("FAILED 0:9 near its memory", replace(HALF, peak_rss_bytes=15 * GIB), {"exit_code": 0, "signal": 9}, Cause.OUT_OF_MEMORY),
    ("FAILED 0:9 far from it", replace(HALF, peak_rss_bytes=2 * GIB), {"exit_code": 0, "signal": 9}, Cause.UNKNOWN),
    ("MemoryError", HALF, {"exit_code": 1, "exit_reason": "oom", "oom_where": "host"}, Cause.OUT_OF_MEMORY),
    ("CUDA", HALF, {"exit_code": 1, "exit_reason": "oom", "oom_where": "cuda"}, Cause.GPU_OUT_OF_MEMORY),
    ("CUDA in a script that caught it", DONE, {"state": JobState.COMPLETED, "exit_code": 0, "oom_where": "cuda"}, Cause.FINISHED),
    ("CUDA once, checkpointed later", HALF, {"exit_code": 85, "oom_where": "cuda"}, Cause.WALLTIME),
    ("node", HALF, {"state": JobState.NODE_FAIL, "nodes": ("n1",)}, Cause.NODE_FAILURE),
    ("boot", HALF, {"raw_state": "BOOT_FAIL"}, Cause.NODE_FAILURE),
    ("preempted", HALF, {"state": JobState.PREEMPTED}, Cause.PREEMPTED),
    ("preempted, saved in time", HALF, {"state": JobState.PREEMPTED, "exit_reason": "checkpointed"}, Cause.PREEMPTED),
    ("superseded", HALF, {"exit_code": 86, "exit_reason": "superseded"}, Cause.SUPERSEDED),
    ("doubled", HALF, {"exit_code": 87}, Cause.SUPERSEDED),
    ("gave its allocation back", HALF, {"exit_code": 88, "keep_from": T0, "spool_started": False}, Cause.RETURNED),
    ("gave back in a pool's round", HALF, {"exit_code": 88, "keep_from": T0, "spool_started": False, "reason": ROUND_OVER}, Cause.RETURNED),
    ("88 of a job that was asked no such thing", HALF, {"exit_code": 88, "spool_started": False}, Cause.USER_ERROR),
    ("88 of a training that ran", HALF, {"exit_code": 88, "exit_reason": "error", "keep_from": T0}, Cause.USER_ERROR),
    ("cancelled by us", HALF, {"state": JobState.CANCELLED, "ending": "user"}, Cause.CANCELLED),
    ("cancelled by someone", HALF, {"state": JobState.CANCELLED}, Cause.CANCELLED),
    ("moved", HALF, {"exit_code": 85, "exit_reason": "checkpointed", "ending": "moved"}, Cause.MOVED),
    ("moved the hard way", HALF, {"state": JobState.CANCELLED, "ending": "moved"}, Cause.MOVED),
    ("stalled", HALF, {"state": JobState.CANCELLED, "ending": "stalled"}, Cause.STALLED),
    ("its own error", HALF, {"exit_code": 3, "exit_reason": "error"}, Cause.USER_ERROR),
    ("refused", HALF, {"exit_reason": "refused", "reason": "no"}, Cause.REFUSED),
    ("nothing at all", HALF, {"state": JobState.UNKNOWN}, Cause.LOST),
    ("failed without a word", HALF, {}, Cause.UNKNOWN),
]


@pytest.mark.parametrize(("name", "progress", "fields", "cause"), CASES, ids=[c[0] for c in CASES])
def test_cause(name: str, progress: Progress, fields: dict[str, Any], cause: Cause):
    attempt = replace(BASE, **fields)
    why = classify(replace(make_run(), progress=progress, attempts=(attempt,)), attempt)
    assert why.cause is cause
    assert why.text


def test_every_cause_has_a_case():
    assert {c[3] for c in CASES} == set(Cause)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("x\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "cuda"),
        ("slurmstepd: error: Job 12 exceeded memory limit (1 > 0), being killed", "host"),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=5.batch", "host"),
        ("MemoryError", "host"),
        ("loss 0.1\nall is well", ""),
    ],
)
def test_oom_in_text(text: str, where: str):
    assert oom_in(text)[0] == where


def test_evidence_is_given_time():
    fresh = replace(BASE, exit_code=1)
    assert not settled(fresh, T0 + 1, DEFAULT)
    assert settled(fresh, T0 + DEFAULT.evidence_s, DEFAULT)
    assert settled(replace(fresh, exit_reason="error"), T0, DEFAULT)
    assert settled(replace(fresh, exit_code=85), T0, DEFAULT)
    assert settled(replace(fresh, exit_code=88, keep_from=T0, spool_started=False), T0, DEFAULT)
    assert not settled(replace(fresh, exit_code=88), T0, DEFAULT)
    assert settled(replace(fresh, state=JobState.TIMEOUT), T0, DEFAULT)
    unread = replace(fresh, exit_reason="error", log_read=False)
    assert wants_log(unread)
    assert not settled(unread, T0, DEFAULT)
