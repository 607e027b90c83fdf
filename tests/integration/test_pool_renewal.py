"""Pilots of one minute on a real Slurm: each is renewed at its limit, and its member trains on in the successor without losing a step.

One type has a node to spare, so that the successor starts beside its predecessor, which then lets its member go; the other has none, so
that the successor waits until the predecessor has left before its limit. Nothing is asked of how long anything takes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from benchmarks.pool_live import Live, live_spec, lost_steps, right

from conftest import sandbox_name
from ischeduler.sandbox import Sandbox, SandboxSpec

SPARE, NONE = "a100", "v100"
"""The type with a node to spare, and that without."""


def spec() -> SandboxSpec:
    made = live_spec("poolrenewal", accounting=False)
    left = {SPARE: 2, NONE: 1}
    nodes = tuple(n for n in made.nodes if int(n.name[-1]) <= left[n.gpu_type])
    names = {n.name for n in nodes}
    return replace(made, nodes=nodes, partitions=tuple(replace(p, nodes=tuple(n for n in p.nodes if n in names)) for p in made.partitions))


@pytest.fixture(scope="module")
def told(slurm_host: None) -> Iterator[dict[str, Any]]:
    """The driver's last word, once both pilots were renewed and both members have trained on; with each training's state."""
    sandbox = Sandbox(spec(), sandbox_name("n"))
    sandbox.up()
    live = Live(sandbox, sandbox.home("alice") / "pool")
    cluster = sandbox.spec.cluster_name
    try:
        members = [
            {"name": name, "directory": str(live.work / name), "type": kind, "step_s": {kind: 0.1}} for name, kind in (("one", SPARE), ("two", NONE))
        ]
        pilots = [f"{t}={cluster}/{t},count=1,gpus=1,cpus=2,memory=1500M,gres={t},walltime=1m" for t in (SPARE, NONE)]
        live.start(members=members, pilots=pilots, accelerators=2, round_s=10.0, rounds=1, renewals=1, most_s=420.0)
        last = live.wait(450.0)
        yield last | {"right": {n: right(live, n, m) for n, m in last["members"].items()}}
    finally:
        live.stop()
        sandbox.down()


def trained_in(told: dict[str, Any], name: str) -> list[str]:
    """The pilots in which a member ran, in order, each once."""
    return list(dict.fromkeys(j["pilot"] for j in told["members"][name]["jobs"] if j["started_at"] is not None))


@pytest.mark.parametrize("name", ["one", "two"])
def test_a_member_trains_on_in_its_pilots_successor_and_loses_no_step(told: dict[str, Any], name: str):
    pilots = trained_in(told, name)
    assert len(pilots) >= 2
    assert len({p.rpartition("-")[0] for p in pilots}) == 1, "a successor is the same run's next job, and no other pilot"
    member = told["members"][name]
    assert told["right"][name], json.dumps(member["events"][-5:])
    assert lost_steps(member) == (0, 0)
    resumed = [e["data"]["step"] for e in member["events"] if e["kind"] == "resumed"]
    assert 0 < resumed[-1] <= member["step"]
    assert "node_failure" not in member["causes"]


def test_a_pilot_leaves_before_its_limit_ends_it(told: dict[str, Any]):
    assert len(told["endings"]) == 2
    for endings in told["endings"].values():
        assert len(endings) >= 2
        assert endings[0] == ["walltime", 85], told["endings"]  # its own word; Slurm's SIGTERM or SIGKILL would be another code
