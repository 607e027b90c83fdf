"""The simulated cluster against the real Slurm: the same jobs start in the same order at the same times. The long version is
``python -m benchmarks.slurm_replay``.
"""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from benchmarks.slurm_replay import QOS, Seen, Wish, compare, main, replay_spec, requests, run_in, schedulers, wishes

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
    assert metrics["slurm.same_second"] == 1.0
    assert metrics["slurm.order_tau"] == 1.0
    assert metrics["fcfs.within_2s"] < 0.9
    assert metrics["easy.same_second"] < 1.0
    moved = [replace(seen[0], start_s=seen[0].start_s + 30, end_s=seen[0].end_s + 30), *seen[1:]]
    assert compare(CONF, jobs, moved)["slurm.same_second"] < 1.0


def test_the_jobs_are_seeded_and_the_spec_is_sound(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert wishes(50, 3) == wishes(50, 3) != wishes(50, 4)
    assert {p.name for p in replay_spec().partitions} == {"main", "gpu", "wide", "fast"}
    assert main(["--from", str(tmp_path / "none.json")]) == 2
    assert "none.json" in capsys.readouterr().err


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
