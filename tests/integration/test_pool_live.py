"""A live pool on a real Slurm: six trainings over two types of accelerators, sixteen rounds, a node that fails in between.

The experiment is the benchmark's (``python -m benchmarks.pool_live``, whose bar is for ten rounds on a machine with nothing else to do); here it
runs once beside other tests, for as many rounds as let one late round weigh a sixteenth, and everything is asked of that one run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from benchmarks.pool_live import PILOTS, STEP_S, TYPES, Live, fails_at, judged, live_spec, lost_steps, right, shares

from conftest import sandbox_name
from ischeduler.sandbox import Sandbox

ROUNDS = 16


class Experiment:
    """What was seen: the driver's last word, answers of commands given in between, the node that failed."""

    def __init__(self, live: Live) -> None:
        self.live, self.answers, self.told = live, dict[str, Any](), dict[str, Any]()

    def run(self) -> None:
        fail = fails_at(self.live, 4)

        def seen(line: dict[str, Any]) -> None:
            fail(line)
            if line.get("phase") == "rounds" and "status" not in self.answers:
                self.answers["status"] = self.live.isched("pool", "status", "lab", "--json")
                member = next(iter(line["on"]))
                self.answers["why"] = self.live.isched("why", member)

        self.live.seen = seen
        self.live.start(rounds=ROUNDS, most_s=360.0)
        self.told = self.live.wait(390.0)
        self.answers["list"] = self.live.isched("pool", "list", "--json")
        self.answers["delete"] = self.live.isched("pool", "delete", "lab")


@pytest.fixture(scope="module")
def experiment(slurm_host: None) -> Iterator[Experiment]:
    sandbox = Sandbox(live_spec("poollive", accounting=False), sandbox_name("p"))
    sandbox.up()
    live = Live(sandbox, sandbox.home("alice") / "pool")
    try:
        found = Experiment(live)
        found.run()
        yield found
    finally:
        live.stop()
        sandbox.down()


def test_received_shares_are_within_a_tenth_of_what_the_policy_promised(experiment: Experiment):
    metrics = judged(experiment.live, experiment.told)
    assert metrics["rounds"] >= ROUNDS
    assert metrics["share_error_max"] <= 0.10, shares(experiment.told)
    assert metrics["moves"] >= 6
    assert metrics["promised"] > 0.9


def test_no_work_is_lost_at_any_move_and_every_step_is_done_once(experiment: Experiment):
    members = experiment.told["members"]
    assert set(members) == set(STEP_S)
    assert [n for n, m in members.items() if not right(experiment.live, n, m)] == []
    assert [lost_steps(m)[0] for m in members.values()] == [0] * len(members)
    assert all(m["step"] > 20 for m in members.values())


def test_members_of_the_node_that_failed_go_on_elsewhere(experiment: Experiment):
    hit = [m for m in experiment.told["members"].values() if "node_failure" in m["causes"]]
    assert hit, "the node that failed ran nobody"
    for member in hit:
        at = member["causes"].index("node_failure")
        lost = member["nodes"][at]
        later = [nodes for nodes in member["nodes"][at + 1 :] if nodes]
        assert later
        assert all(nodes != lost for nodes in later)
    renewed = [jobs for jobs in experiment.told["pilots"].values() if len(jobs) > 1]
    assert len(renewed) == 1, "the pilot of the node that failed has a successor elsewhere"


def test_draining_leaves_runs_that_can_go_on_and_no_pilot(experiment: Experiment):
    assert {m["state"] for m in experiment.told["members"].values()} == {"queued"}
    (pool,) = json.loads(experiment.answers["list"].stdout)["pools"]
    assert (pool["state"], pool["pilots"], len(pool["members"])) == ("drained", [], len(STEP_S))
    queue = experiment.live.sandbox.run(["squeue", "-h", "-o", "%j %T"], user="alice").stdout
    assert [line for line in queue.splitlines() if line.endswith(("RUNNING", "PENDING"))] == []
    assert experiment.answers["delete"].returncode == 2
    assert "move or cancel them first" in experiment.answers["delete"].stderr


def test_status_and_why_tell_what_was_promised_and_got(experiment: Experiment):
    status = json.loads(experiment.answers["status"].stdout)["pool"]
    assert [(t["type"], t["most"], t["held"]) for t in status["types"]] == [(t, PILOTS, PILOTS) for t in TYPES]
    assert len(status["members"]) == len(STEP_S)
    assert {m["state"] for m in status["members"]} <= {"runs", "waits", "leaves", "starts", "between"}
    words = experiment.answers["why"].stdout
    assert "in the pool lab" in words
    assert "the job with the least normalised progress" in words
    assert "got" in words
