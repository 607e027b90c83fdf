"""The simulated cluster against the real Slurm: the same jobs start in the same order at the same times. The long version is
``python -m benchmarks.slurm_replay``.
"""

from __future__ import annotations

import json
import random
from dataclasses import asdict, replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest
from benchmarks.slurm_replay import (
    QOS,
    Replay,
    Seen,
    Wish,
    beat,
    compare,
    load,
    main,
    replay_spec,
    requests,
    run_in,
    schedulers,
    timed,
    wishes,
)

from ischeduler.sandbox import Sandbox
from ischeduler.simulator.engine.slurm_conf import read_slurm_conf
from ischeduler.simulator.engine.trace import replay

CONF = """
ClusterName=replay
SchedulerParameters=sched_interval=1,bf_interval=1,bf_resolution=1,bf_window=1440
PriorityWeightQOS=10000
NodeName=c01,c02,c03,c04,c05,c06,c07,c08 CPUs=4 RealMemory=4000
NodeName=g01,g02 CPUs=8 RealMemory=16000 Gres=gpu:v100:2
PartitionName=main Nodes=c01,c02,c03,c04,c05,c06,c07,c08 MaxTime=10
PartitionName=gpu Nodes=g01,g02 MaxTime=10
PartitionName=wide Nodes=c05,c06,c07,c08,g01,g02 MaxTime=10
PartitionName=fast Nodes=c01,c02,c03,c04 MaxTime=5 PriorityTier=2
"""


def pretended(jobs: list[Wish]) -> list[Seen]:
    """Accounting of a Slurm that is the engine itself."""
    now_s, seen = 1_800_000_000.0, list[Seen]()
    for number, wish in enumerate(jobs):
        now_s += wish.delay_s
        ids = [f"{number + 1}_{t}" for t in range(wish.tasks)] or [str(number + 1)]
        seen += [Seen(i, number, float(int(now_s)), 0.0, float(round(wish.run_s)), "COMPLETED", "") for i in ids]
    machine, options = read_slurm_conf(CONF, qos=QOS)
    _, starts = replay(requests(jobs, seen), machine, schedulers(options)["slurm"])
    return [replace(s, start_s=start, end_s=start + s.end_s) for s, start in zip(seen, starts, strict=True)]


def test_a_slurm_that_is_the_engine_is_matched_and_the_peers_differ() -> None:
    jobs = wishes(200, 1)
    seen = pretended(jobs)
    metrics = compare(CONF, jobs, seen)
    assert metrics["jobs"] >= 200
    assert metrics["slurm.within_half_s"] == 1.0
    assert metrics["slurm.order_tau"] == 1.0
    assert metrics["fcfs.within_2s"] < 0.9
    assert metrics["easy.within_half_s"] < 1.0
    moved = [replace(seen[0], start_s=seen[0].start_s + 30, end_s=seen[0].end_s + 30), *seen[1:]]
    assert compare(CONF, jobs, moved)["slurm.within_half_s"] < 1.0


def test_the_jobs_are_seeded_and_the_spec_is_sound(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert wishes(50, 3) == wishes(50, 3) != wishes(50, 4)
    assert {p.name for p in replay_spec().partitions} == {"main", "gpu", "wide", "fast"}
    assert main(["--from", str(tmp_path / "none.json")]) == 2
    assert "none.json" in capsys.readouterr().err
    assert main(["--jobs", "0"]) == 2
    assert "too few to compare" in capsys.readouterr().err


LOG = """[2026-11-21T16:00:02.250] _slurm_rpc_submit_batch_job: JobId=7 InitPrio=1000 usec=987
[2026-11-21T16:00:02.400] _slurm_rpc_submit_batch_job: JobId=8 InitPrio=1000 usec=11
[2026-11-21T16:00:03.105] sched: Allocate JobId=7 NodeList=c01 #CPUs=1 Partition=main
[2026-11-21T16:00:03.813] sched/backfill: _start_job: Started JobId=8_1(9) in main on c02
[2026-11-21T16:00:08.155] _job_complete: JobId=7 WEXITSTATUS 0
[2026-11-21T16:00:08.156] _job_complete: JobId=7 done
[2026-11-21T16:00:09.500] _job_complete: JobId=8_1(9) done
"""


def test_the_log_tells_milliseconds_and_who_started_a_job() -> None:
    day_s = datetime(2026, 11, 21, 16).timestamp()
    rows = [Seen("7", 0, day_s + 2, day_s + 3, day_s + 8, "COMPLETED", "c01"), Seen("8_1", 1, day_s + 2, day_s + 3, day_s + 9, "COMPLETED", "c02")]
    plain, task = timed(rows, LOG)
    assert [round(t - day_s, 3) for t in (plain.submit_s, plain.start_s, plain.end_s)] == [2.25, 3.105, 8.156]
    assert [round(t - day_s, 3) for t in (task.submit_s, task.start_s, task.end_s)] == [2.4, 3.813, 9.5]
    assert (plain.by, task.by) == ("main", "backfill")
    elsewhere = replace(rows[0], end_s=day_s + 60)
    assert timed([elsewhere], LOG) == [elsewhere], "a log that contradicts accounting is not believed"


def test_a_threads_beat_is_found() -> None:
    moments = [1e9 + 0.4 + 1.0022 * n + 0.01 * (n % 3) for n in (0, 3, 4, 50, 51, 120, 200, 240)]
    period_s, phase_s = beat(moments)
    assert period_s == pytest.approx(1.0022, abs=3e-4)
    assert ((phase_s - moments[0] + 0.5) % period_s) - 0.5 == pytest.approx(0.01, abs=0.03)


def test_what_was_seen_twice_is_its_own_yardstick(tmp_path: Path) -> None:
    jobs = wishes(60, 2)
    seen = pretended(jobs)
    again = [replace(s, submit_s=s.submit_s + 500, start_s=s.start_s + 500 + 3 * (s.wish % 2), end_s=s.end_s + 503) for s in seen]
    metrics = compare(CONF, jobs, seen, again)
    assert metrics["slurm_itself.largest_gap_s"] == 3.0
    assert 0.3 < metrics["slurm_itself.within_2s"] < 0.7
    kept = Replay(CONF, jobs, seen, again)
    (tmp_path / "kept.json").write_text(json.dumps(asdict(kept)))
    assert load(tmp_path / "kept.json") == kept
    assert main(["--from", str(tmp_path / "kept.json"), "--json"]) == 0


@pytest.mark.slurm
def test_the_same_jobs_start_alike_in_a_real_slurm(slurm: Sandbox) -> None:
    draw = random.Random(5)
    jobs = [
        Wish(
            draw.expovariate(1.6), draw.choice(["alice", "bob"]), draw.choice(["cpu", "cpu", "gpu"]), "normal", draw.choice([1, 1, 1, 2]),
            draw.choice([2, 4, 8]), 500, 0, draw.random() < 0.15, draw.choice([1, 1, 2]), draw.uniform(1.0, 5.0),
        )
        for _ in range(40)
    ]  # fmt: skip
    seen = run_in(slurm, jobs)
    metrics = compare(slurm.layout.slurm_conf.read_text(), jobs, seen)
    story = "\n".join(f"{a.job_id} {b.start_s - a.start_s:+.0f}" for a, b in pairwise(seen)) + f"\n{metrics}"
    assert metrics["real.mean_wait_s"] > 1.0, story
    assert metrics["slurm.within_2s"] >= 0.85, story
    assert metrics["slurm.order_tau"] >= 0.9, story
