"""An elastic policy on a real Slurm: one elastic training alone gets the node's accelerators; when a second comes, both get half at the next round.

Each training (one process that plays them all: it sleeps a step's time divided by their number) writes down, segment by segment, what it was
told (processes, batch, accumulation) and how many accelerators Slurm gave the step, and every step that it does, in a file that no checkpoint
takes back. Nothing is asked of how long anything takes.
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

TYPE, NODE, BATCH, ALONE_S = "a100", 4, 8, 0.4
"""Seconds a step on one accelerator."""
TRAINING = """\
import atexit, hashlib, json, os, sys, time
from ischeduler.training import checkpointing
from ischeduler.training.elastic import elastic
steps, step_s = int(sys.argv[1]), json.loads(sys.argv[2])[os.environ["ISCHED_ACCELERATOR"]]
figures, chain = elastic(), {"value": "seed", "count": 0, "segments": []}
devices = os.environ.get("CUDA_VISIBLE_DEVICES", "")
def told():
    with open("state.json.new", "w") as file:
        json.dump(chain, file)
    os.replace("state.json.new", "state.json")
atexit.register(told)
with checkpointing(epochs=1, steps_per_epoch=steps, chain=(lambda: dict(chain), chain.update)) as run:
    for epoch in run.epochs():
        told_here = [figures.world_size, figures.batch_size, figures.grad_accum, figures.global_batch, len(devices.split(",")) if devices else 0]
        chain["segments"] = [*chain["segments"], [chain["count"], *told_here]]
        for _ in run.steps(range(steps)):
            time.sleep(step_s / figures.world_size)
            with open("done", "a") as done:
                done.write(f"{chain['count']}\\n")
            chain["value"] = hashlib.sha256(f"{chain['value']}:{chain['count']}".encode()).hexdigest()
            chain["count"] += 1
            run.step()
"""


def spec() -> SandboxSpec:
    """One node of four accelerators."""
    made = live_spec("poolelastic", accounting=False)
    node = replace(made.nodes[0], gres=f"gpu:{TYPE}:{NODE}")
    return replace(made, nodes=(node,), partitions=tuple(replace(p, nodes=(node.name,)) for p in made.partitions if p.name == TYPE))


@pytest.fixture(scope="module")
def told(slurm_host: None) -> Iterator[dict[str, Any]]:
    """The driver's last word, and each training's own."""
    sandbox = Sandbox(spec(), sandbox_name("e"))
    sandbox.up()
    live = Live(sandbox, sandbox.home("alice") / "pool", TRAINING)
    try:
        one, two = (
            {"name": n, "directory": str(live.work / n), "step_s": {TYPE: ALONE_S}, "world_sizes": [2, 4], "batch_size": BATCH} for n in ("one", "two")
        )
        pilots = [f"{TYPE}={sandbox.spec.cluster_name}/{TYPE},count=1,gpus={NODE},cpus=4,memory=3000M,gres={TYPE},walltime=15m"]
        live.start(members=[one], later=[two], pilots=pilots, accelerators=1, policy="sia", round_s=10.0, rounds=2, most_s=400.0)
        last = live.wait(430.0)
        states = {n: json.loads((live.work / n / "state.json").read_text()) for n in last["members"]}
        done = {n: [int(x) for x in (live.work / n / "done").read_text().split()] for n in last["members"]}
        yield last | {"states": states, "done": done, "right": {n: right(live, n, m) for n, m in last["members"].items()}, "lines": live.lines}
    finally:
        live.stop()
        sandbox.down()


def ran_on(told: dict[str, Any], name: str) -> list[int]:
    """Accelerators of a member's segments in which it trained, one after the other, each change once."""
    found: list[int] = []
    for _, world, *_ in told["states"][name]["segments"]:
        if not found or found[-1] != world:
            found.append(world)
    return found


def test_alone_it_gets_the_node_and_shrinks_when_another_comes(told: dict[str, Any]):
    assert ran_on(told, "one")[-2:] == [NODE, NODE // 2]  # alone; beside the other
    assert set(ran_on(told, "one")[:-2]) <= {1}  # what it asks for, before the policy was given
    assert ran_on(told, "two") == [NODE // 2]
    held = {n: [j["gpus"] for j in m["jobs"] if j["started_at"] is not None][-1] for n, m in told["members"].items()}
    assert held == {"one": NODE // 2, "two": NODE // 2}


def test_slurm_gave_each_step_as_many_as_it_was_told_and_the_batch_of_a_step_is_kept(told: dict[str, Any]):
    for state in told["states"].values():
        for _, world, batch, passes, whole, devices in state["segments"]:
            assert devices == world
            assert batch * passes * world == whole == BATCH


def test_no_step_is_lost_or_done_twice_at_any_change_of_size(told: dict[str, Any]):
    assert told["right"] == {"one": True, "two": True}
    assert {n: steps == list(range(told["members"][n]["step"])) for n, steps in told["done"].items()} == {"one": True, "two": True}
    assert {n: lost_steps(m) for n, m in told["members"].items()} == {"one": (0, 0), "two": (0, 0)}
    assert set(told["members"]["one"]["causes"]) <= {"walltime", "moved", None}, told["members"]["one"]["causes"]


def test_its_speed_on_the_whole_node_was_seen(told: dict[str, Any]):
    steps = [e["data"]["step_time_s"] for e in told["members"]["one"]["events"] if e["kind"] == "progress" and e["data"].get("step_time_s")]
    assert min(steps) < ALONE_S * 0.75
