"""Waits learned from a real Slurm's accounting: the prior at first, a model once hundreds of jobs have finished, and who said it, to the user."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import sandbox_name
from ischeduler import __version__
from ischeduler.estimators.queuewait.site import FEWEST
from ischeduler.sandbox import Sandbox, demo_spec

pytestmark = [pytest.mark.slurm, pytest.mark.slow]
pytest.importorskip("lightgbm", reason="LightGBM is not installed")
pytest.importorskip("numba", reason="numba is not installed")

GIVEN = '[[given]]\nrun = "20s"\nstartup = "1s"\ncheckpoint = "1s"\nhost_memory = "200M"\n'
TRAINING = (
    "--name small --command 'sleep 20' --samples 100 --epochs 1 --batch-size 10 --gpus 0 --cpus 1 --mem 200M --partition cpu --goal deadline=12h"
)
WAVES, TASKS = 10, 34
CHANCES = re.compile(r"starts within 10 min: (\d+)%, within 1 h: (\d+)%, in time for the deadline \(within 1\dh\d\d\): (\d+)%")


class Site:
    """A small cluster where alice asks, and others, too, have jobs."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox, self.home = sandbox, sandbox.home("alice")
        sandbox.run(["tee", str(self.home / "given.toml")], user="alice", stdin=GIVEN)

    def isched(self, words: str, state: str) -> str:
        environment = {
            "ISCHED_PATHS_STATE": f"{self.home}/{state}", "ISCHED_PATHS_DATA": f"{self.home}/data", "ISCHED_BATCH_KIND": "slurm",
            "ISCHED_LEARNING_ACCOUNTING": "true",
        }  # fmt: skip
        line = f"{self.sandbox.python} -m ischeduler.cli.main {words}"
        done = self.sandbox.run(["sh", "-c", line], user="alice", env=environment, check=False, timeout_s=300.0)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout

    def wait(self, state: str) -> dict[str, Any]:
        """What the plan says of the queue wait in ``cpu``."""
        page = json.loads(self.isched(f"plan {TRAINING} --assume {self.home}/given.toml --json", state))
        (plan,) = page["plans"]
        assert plan["needs"]["wait"] == plan["segments"][0]["wait"]
        return plan["needs"]["wait"]

    def queue(self, user: str, tasks: int, seconds: float, *options: str) -> None:
        words = ["--partition=cpu", f"--array=0-{tasks - 1}", "--time=2", "--mem=50", "--output=/dev/null", *options]
        self.sandbox.run(["sbatch", *words, f"--wrap=sleep {seconds}"], user=user)

    def crowd(self) -> None:
        """Both nodes taken for a minute, and more jobs that want them."""
        self.queue("bob", 6, 100, "--exclusive")
        self.until(lambda: self.count("running") == 2)

    def clear(self) -> None:
        self.sandbox.run(["scancel", f"--user={self.sandbox.system_user('bob')}"])
        self.until(lambda: not self.count("pending,running,completing"))

    def count(self, states: str) -> int:
        return len(self.sandbox.run(["squeue", "-h", "-r", "-t", states]).stdout.split("\n")) - 1

    def told(self) -> int:
        """Finished jobs that accounting tells alice of."""
        asked = ["sacct", "-a", "-X", "-n", "-P", "--state=COMPLETED", "--starttime=now-1hours", "--endtime=now", "--format=JobID"]
        return len(self.sandbox.run(asked, user="alice").stdout.split())

    def until(self, wish: Callable[[], bool], limit_s: float = 60.0) -> None:
        end = time.monotonic() + limit_s
        while not wish():
            assert time.monotonic() < end, f"not within {limit_s:.0f} s; {self.told()} jobs are told of"
            time.sleep(0.5)


@pytest.fixture
def site(slurm_host: None) -> Iterator[Site]:
    sandbox = Sandbox(demo_spec(cluster_name="learning"), sandbox_name("w"))
    sandbox.up()
    try:
        yield Site(sandbox)
    finally:
        sandbox.down()


def test_the_prior_answers_at_first_and_then_what_was_learned_and_why_says_so(site: Site) -> None:
    site.isched("clusters sync", "new")
    site.crowd()
    cold = site.wait("new")
    assert cold["source"] == "queue@1"
    assert "the prior, what jobs waited elsewhere under such a load, counts 70%; no past waits here" in cold["reason"]
    assert "in time for the deadline (within 1" in cold["reason"]
    site.clear()

    for wave in range(WAVES):
        site.queue(("alice", "bob")[wave % 2], TASKS, 0.5)
        time.sleep(2.0)
    site.until(lambda: site.told() >= WAVES * TASKS > FEWEST)

    site.isched("clusters sync", "known")
    site.crowd()
    learned = site.wait("known")
    assert learned["source"] == "queue@1"
    assert (learned["basis"], learned["unit"]) == ("live", "s")
    jobs = re.search(r"^learned from (\d+) jobs of this partition \d+s ago \(version (.+?)\)", learned["reason"])
    assert jobs is not None, learned["reason"]
    assert int(jobs[1]) >= WAVES * TASKS
    assert jobs[2] == __version__
    assert 0 <= learned["p10"] <= learned["p50"] <= learned["p90"] < 600, "no job here has waited a minute"
    chances = CHANCES.search(learned["reason"])
    assert chances is not None, learned["reason"]
    soon, hour, in_time = (int(c) for c in chances.groups())
    assert soon <= hour <= in_time
    (kept,) = Path(site.home, "known").glob("wait-learning-cpu-nodes.json")
    provenance = json.loads(kept.read_text())["provenance"]
    assert provenance["data"] == "accounting of learning/cpu"
    assert provenance["started"] == int(jobs[1])

    run = json.loads(site.isched("submit goal --yes --deadline 12h --json", "known"))
    site.until(lambda: site.count("pending") == 5)
    why = site.isched(f"why {run['run']['id']}", "known")
    assert why.startswith("PENDING"), why
    assert re.search(r"\(ours; within 10 min \d+%, within 1 h \d+%, in time for the deadline \d+%\)|later than we thought", why), why
    assert re.search(r"^Ours is of queue@1, .+ ago: learned from \d+ jobs of this partition", why, re.MULTILINE), why
