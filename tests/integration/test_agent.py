"""A real ``isched agent`` of an ordinary user on the real Slurm, over HTTP to a real service that may do nothing on the cluster."""

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from carried import Carried
from test_service_live import served

from ischeduler.core.errors import BatchUnavailable
from ischeduler.core.jobs import JobRef, JobState
from ischeduler.core.run import Run, RunState
from ischeduler.helper.reached_batches import reached_batches
from ischeduler.plane.cadence import Cadence
from ischeduler.plane.loop import Plane
from ischeduler.sandbox import Sandbox
from ischeduler.testing.service import TestService, make_service

pytestmark = pytest.mark.slurm


@dataclass
class World:
    """The service, its address, and alice's agent on the cluster."""

    sandbox: Sandbox
    service: TestService
    url: str
    token_file: Path
    agents: list[subprocess.Popen[str]] = field(default_factory=list)

    def start_agent(self, *more: str) -> subprocess.Popen[str]:
        """``isched agent`` as alice."""
        entry = pwd.getpwnam(self.sandbox.system_user("alice"))
        command = [str(self.sandbox.python), "-m", "ischeduler.cli.main", "agent", *more]
        agent = subprocess.Popen(
            command, cwd=entry.pw_dir, env=self.environment(), user=entry.pw_uid, group=entry.pw_gid, extra_groups=[],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self.agents.append(agent)
        return agent

    def environment(self) -> dict[str, str]:
        home = self.sandbox.home("alice")
        return {
            **self.sandbox.user_env("alice"), "ISCHED_SERVICE_URL": self.url, "ISCHED_SERVICE_TOKEN_FILE": str(self.token_file),
            "ISCHED_BATCH_KIND": "slurm", "ISCHED_BATCH_CLUSTER": "testbed", "ISCHED_PATHS_DATA": str(home / ".isched"),
        }  # fmt: skip

    def alive(self) -> bool:
        return self.service.centre.services.mailbox.alive("alice", "testbed")


@pytest.fixture(scope="module")
def world(slurm: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    more = {"ISCHED_BATCH_KIND": "agent", "ISCHED_BATCH_CLUSTER": "testbed"}
    service = make_service(tmp_path_factory.mktemp("agents"), more=more)
    headers = service.add_user("alice")
    token_file = slurm.home("alice") / "agent.token"
    slurm.run(["install", "-m", "600", "/dev/null", str(token_file)], user="alice")
    token_file.write_text(headers["Authorization"].removeprefix("Bearer "))
    with served(service) as url:
        found = World(slurm, service, url, token_file)
        yield found
        for agent in found.agents:
            agent.kill()
            agent.communicate()


def wait(condition: Any, timeout_s: float = 40.0) -> bool:
    until = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.2)
    return True


def test_killing_the_agent_again_and_again_loses_and_doubles_nothing(world: World) -> None:
    """A run is delegated to the service, carried by alice's agent, which is killed with -9 at different moments."""
    work = Carried(world.sandbox, f"agent{os.getpid()}", epochs=6, steps=10, step_s=0.35, directory=None)
    run_dir = world.sandbox.home("alice") / ".isched" / "runs" / work.name
    services = world.service.centre.services
    directory = reached_batches(services)
    run = Run(work.name, "alice", work.plan(), RunState.PLANNED, str(run_dir), time.time(), state_since=time.time())
    plane = Plane(
        services.store, directory.of("alice"), services.events, services.clock, Silent(), services.files, owner="alice", holder="t",
        cadence=Cadence(fast_s=0.5, slow_s=1.0, idle_s=1.0),
    )  # fmt: skip
    plane.delegate(run)
    kills, stop = [0], threading.Event()

    def killer() -> None:
        """Kill -9, wait, start another; sometimes within a request, sometimes between two."""
        for pause_s in (1.2, 2.9, 2.1, 3.7):
            agent = world.start_agent()
            if stop.wait(3.0 + pause_s):
                return
            agent.send_signal(signal.SIGKILL)
            agent.wait()
            kills[0] += 1
        world.start_agent()

    thread = threading.Thread(target=killer)
    thread.start()
    until = time.monotonic() + 150
    while time.monotonic() < until and not services.store.get_run(run.id).state.ended:
        plane.tick()
        time.sleep(0.3)
    stop.set()
    thread.join()
    after = services.store.get_run(run.id)
    assert after.state is RunState.COMPLETED, (after.message, after.attempts)
    assert kills[0] >= 3
    assert work.right(), "every step exactly once, in order"
    names = world.sandbox.run(["sacct", "-nXP", "-o", "JobName", "-S", "now-1hours"], user="alice").stdout.split()
    assert names.count(f"isched-{after.attempts[0].key}") == 1
    assert len([n for n in names if work.name in n]) == len(after.attempts) == 1
    assert after.progress.epochs_done == 6, "the job's events came by the agent: its nodes know no service"


class Silent:
    def notify(self, run: Any, subject: str, text: str) -> None:
        """Nobody listens."""


def test_once_for_cron_works_off_what_waits_and_ends(world: World) -> None:
    for agent in world.agents:
        agent.terminate()
        agent.wait(30)
    assert wait(lambda: not world.alive())
    batch = reached_batches(world.service.centre.services).of("alice")["testbed"]
    with pytest.raises(BatchUnavailable, match="start one there: isched agent"):
        batch.snapshot()
    agent = world.start_agent("--once", "--idle", "3", "--json")
    assert wait(world.alive)
    seen = batch.snapshot()
    assert seen.cluster == "testbed"
    assert {n.partition for n in seen.nodes} >= {"gpu", "cpu"}
    assert batch.observe([JobRef("r-nobody-1")]).complete
    out, _ = agent.communicate(timeout=60)
    assert agent.returncode == 0, out
    assert json.loads(out.splitlines()[-1])["done"] == 2
    assert not world.alive(), "it said good-bye"


def test_the_service_reads_the_cluster_through_an_agent(world: World) -> None:
    agent = world.start_agent("--once", "--idle", "5")
    assert wait(world.alive)
    batch: Any = reached_batches(world.service.centre.services).of("alice")["testbed"]
    found = batch.cluster(time.time())
    assert {"gpu", "cpu", "gpudebug"} <= {p.name for p in found.partitions}
    assert found.node_types
    agent.terminate()
    agent.communicate(timeout=30)


def test_an_agent_outlives_a_service_that_is_away(world: World) -> None:
    """Its answers are kept and told when the service is back."""
    from ischeduler.helper.agent import Agent, HttpLine

    line = HttpLine("http://127.0.0.1:9", "isc_x", "testbed")
    agent = Agent(line, None, world.service.centre.services.clock, name="h:1:x", monotonic=time.monotonic)  # type: ignore[arg-type]
    assert "cannot be reached" in agent.round(0.0).trouble
    assert [round(agent.wait_s()) for _ in range(4) if agent.round(0.0).trouble] == [2, 4, 8, 16]


def test_nobody_gets_another_s_requests(world: World) -> None:
    mailbox = world.service.centre.services.mailbox
    mailbox.arrive("alice", "testbed", "h:1:x", 60.0)
    number = mailbox.post("alice", "testbed", "snapshot", {}, 30.0)
    bob = world.service.add_user("bob")
    body = {"agent": "evil:1:x", "answers": [{"id": number, "answer": {"ok": 1}}], "wait_s": 0, "next_s": 60}
    answer = httpx2.post(f"{world.url}/v1/agents/testbed/poll", json=body, headers=bob)
    assert (answer.status_code, answer.json()["requests"]) == (200, [])
    assert mailbox.answer(number) is None
    assert httpx2.post(f"{world.url}/v1/agents/testbed/poll", json=body).status_code == 401
    reader = world.service.headers("bob", ("read",))
    assert httpx2.post(f"{world.url}/v1/agents/testbed/poll", json=body, headers=reader).status_code == 403
    assert httpx2.post(f"{world.url}/v1/agents/testbed/poll", json={**body, "wait_s": 1e9}, headers=bob).status_code == 422
    mailbox.withdraw(number)
    mailbox.leave("alice", "testbed", "h:1:x")


def test_install_prints_a_line_that_works_and_holds_no_secret(world: World) -> None:
    done = world.sandbox.run(
        [str(world.sandbox.python), "-m", "ischeduler.cli.main", "agent", "install"], user="alice", env=world.environment()
    )
    line = done.stdout.strip()
    assert line.startswith("* * * * * env ISCHED_")
    assert "isc_" not in line
    command = line.removeprefix("* * * * * ").replace(r"\%", "%").replace("--once", "--once --idle 1")
    run = world.sandbox.run(["sh", "-c", command], user="alice", env={"SLURM_CONF": str(world.sandbox.layout.slurm_conf)})
    assert run.returncode == 0
    scrontab = world.sandbox.run(
        [str(world.sandbox.python), "-m", "ischeduler.cli.main", "agent", "install", "--scrontab"],
        user="alice",
        env=world.environment(),
    )
    assert scrontab.stdout.startswith("#SCRON ")


def test_jobs_of_an_agent_are_the_user_s_own(world: World) -> None:
    from test_batch_slurm import SlurmRig

    from ischeduler.testing.batch_contract import Program

    rig = SlurmRig(world.sandbox)
    batch = reached_batches(world.service.centre.services).of("alice")["testbed"]
    agent = world.start_agent()
    assert wait(world.alive)
    spec = rig.spec(rig.new_key(), Program(run_s=60))
    job_id = batch.submit(spec)
    who = world.sandbox.run(["squeue", "-h", "-j", job_id, "-o", "%u"]).stdout.strip()
    assert who == world.sandbox.system_user("alice")
    batch.cancel(job_id)
    assert wait(lambda: batch.observe([JobRef(spec.key)]).jobs[spec.key][0].state is JobState.CANCELLED)
    agent.terminate()
    agent.communicate(timeout=30)
