"""The submit-time guard on a real Slurm: sbatch with the filter in place, the service up, wrong, slow and away."""

from __future__ import annotations

import os
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import uvicorn
from fastapi import FastAPI, Request

from conftest import remove_leftovers, sandbox_name
from ischeduler.core.cluster import Cluster, NodeType, Partition
from ischeduler.core.errors import BadInput
from ischeduler.core.history import HistoryRecord
from ischeduler.sandbox import Sandbox, demo_spec
from ischeduler.service.guard.routes import Guard, router

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]
FILES = Path(__file__).resolve().parents[2] / "deploy" / "slurm"
JOB = """#!/bin/sh
#SBATCH --partition=gpu
#SBATCH --gres=gpu:1
#SBATCH --time=02:00:00
true
"""


class Known:
    """What the service knows: one cluster, and each user's own past; any account is a user. ``asked`` tells who asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.delay_s = 0.0

    def cluster(self, user: str, name: str) -> Cluster | None:
        time.sleep(self.delay_s)
        limits = {"gpu": 14400.0, "gpudebug": 60.0}
        parts = tuple(Partition(p, ("g",), max_walltime_s=s) for p, s in limits.items())
        return Cluster("guardbox", partitions=parts, node_types=(NodeType("g", accelerators_per_node=2),))

    def past(self, user: str, cluster: str) -> list[HistoryRecord]:
        self.asked.append(user)
        if "alice" not in user:
            return []
        job = HistoryRecord("x", "attempt", user, "train", "guardbox", "gpu", "g", 0.0, gpus=1, walltime_s=7200.0, run_s=600.0)
        return [replace(job, run_id=f"x{i}") for i in range(6)]

    def by_account(self, account: str) -> str:
        return account

    def by_token(self, request: Request) -> str:
        raise BadInput("no tokens here; expected munge.")


@contextmanager
def served(known: Known, munge_socket: Path) -> Iterator[str]:
    app = FastAPI()
    app.state.guard = Guard(known, known, ("unmunge", f"--socket={munge_socket}"))
    app.include_router(router)
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
        listener.close()


class GuardedSlurm:
    """A sandbox whose sbatch asks the guard."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.etc = sandbox.layout.etc
        shutil.copy2(FILES / "ischeduler-guard", self.etc / "ischeduler-guard")

    def configure(self, url: str, **changes: str) -> None:
        keys = {"url": url, "cluster": "guardbox", "timeout_s": "2", "munge_socket": str(self.sandbox.layout.munge_socket), **changes}
        (self.etc / "guard.conf").write_text("".join(f"{k}={v}\n" for k, v in keys.items()))

    def submit(self, *options: str, user: str = "alice", env: dict[str, str] | None = None) -> tuple[str, int]:
        """What sbatch said on stderr, and the limit in minutes that the job got."""
        done = self.sandbox.run(["sbatch", "--hold", "--parsable", *options], user=user, stdin=JOB, env=env)
        limit = self.sandbox.run(["squeue", "--noheader", "--format=%l", "--job", done.stdout.strip()]).stdout.strip()
        self.sandbox.run(["scancel", done.stdout.strip()])
        parts = [int(p) for p in limit.split(":")]
        return done.stderr, parts[-2] + 60 * (parts[-3] if len(parts) > 2 else 0)


@pytest.fixture(scope="module")
def guarded(slurm_host: None) -> Iterator[GuardedSlurm]:
    if not all(shutil.which(p) for p in ("munge", "unmunge", "curl", "timeout")):
        pytest.skip("the guard's helper needs munge and curl; install them with scripts/install-slurm")
    remove_leftovers()
    spec = replace(
        demo_spec(cluster_name="guardbox", gpu_min=240), accounting=False, rest=False, cli_filter=(FILES / "cli_filter.lua").read_text()
    )
    sandbox = Sandbox(spec, sandbox_name("g"))
    sandbox.up()
    try:
        yield GuardedSlurm(sandbox)
    finally:
        sandbox.down()


def scratch_files() -> set[str]:
    return {n for n in os.listdir("/tmp") if n.startswith(("lua_", "tmp."))}


def test_the_service_warns_and_knows_who_asked(guarded: GuardedSlurm) -> None:
    known, before = Known(), scratch_files()
    with served(known, guarded.sandbox.layout.munge_socket) as url:
        guarded.configure(url)
        said, minutes = guarded.submit("--job-name=train-3")
        assert "ischeduler: 2h00 of walltime is asked for, and the longest of your 6 similar jobs took 10m" in said
        assert minutes == 120, "told, not changed"
        said, _ = guarded.submit("--job-name=train-3", user="bob")
        assert said == "", "bob has no such past, and alice's is not told to him"
        said, _ = guarded.submit("--partition=gpudebug", "--time=1", "--gres=gpu:2")
        assert said == ""
    assert known.asked == [guarded.sandbox.system_user(u) for u in ("alice", "bob", "alice")]
    assert scratch_files() - before == set()


def test_the_site_may_let_it_rewrite_and_a_user_may_switch_it_off(guarded: GuardedSlurm) -> None:
    known = Known()
    with served(known, guarded.sandbox.layout.munge_socket) as url:
        guarded.configure(url, rewrite="yes")
        said, minutes = guarded.submit("--job-name=train")
        assert minutes == 20, said
        assert "set: --time=00:20:00" in said
        said, minutes = guarded.submit("--job-name=train", env={"ISCHED_GUARD": "off"})
        assert (said, minutes) == ("", 120)
        said, minutes = guarded.submit("--job-name=isched-r-123456.1")
        assert (said, minutes) == ("", 120)
    assert len(known.asked) == 1, "neither a user who does not want it nor the plane's own jobs are looked at"


def test_without_a_service_jobs_go_on(guarded: GuardedSlurm) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:  # accepts, never answers
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        guarded.configure(url, timeout_s="0.5")
        assert guarded.submit() == ("", 120)
    guarded.configure(url)
    assert guarded.submit() == ("", 120), "nobody listens there any more"
    guarded.configure("http://127.0.0.1:9", munge_socket="/nonexistent/munge")
    assert guarded.submit() == ("", 120)
    (guarded.etc / "guard.conf").unlink()
    assert guarded.submit() == ("", 120)
    helper = guarded.etc / "ischeduler-guard"
    helper.rename(helper.with_suffix(".away"))
    try:
        assert guarded.submit() == ("", 120)
    finally:
        helper.with_suffix(".away").rename(helper)


def test_a_slow_service_is_not_waited_for(guarded: GuardedSlurm) -> None:
    known = Known()
    known.delay_s = 3.0
    with served(known, guarded.sandbox.layout.munge_socket) as url:
        guarded.configure(url, timeout_s="0.3", rewrite="yes")
        assert guarded.submit("--job-name=train") == ("", 120)


@pytest.mark.parametrize("text", ["x$(touch {0})`touch {0}`", "'; touch {0}; '", '"; touch {0}; "', "a\nb\x1b[2J", "--config=/etc/passwd", "é" * 50])
def test_nothing_a_user_writes_reaches_a_shell(guarded: GuardedSlurm, text: str, tmp_path: Path) -> None:
    trap = guarded.sandbox.home("alice") / f"trap-{tmp_path.name}"
    known = Known()
    with served(known, guarded.sandbox.layout.munge_socket) as url:
        guarded.configure(url)
        said, minutes = guarded.submit(f"--job-name={text.format(trap)}", f"--comment={text.format(trap)}")
    assert minutes == 120
    assert known.asked, "the job was shown to the service all the same"
    assert not trap.exists()
    assert "\x1b" not in said


def test_a_credential_works_once_and_only_for_the_guard(guarded: GuardedSlurm) -> None:
    import httpx2 as httpx

    socket_path = guarded.sandbox.layout.munge_socket
    seal = ["munge", f"--socket={socket_path}", "--string"]
    question = '{"schema":"isched.guard/1","job":{"partition":"gpu"}}'
    with served(Known(), socket_path) as url:
        kind = {"content-type": "application/x-munge", "accept": "text/plain"}
        sealed = guarded.sandbox.run([*seal, question], user="bob").stdout.encode()
        assert httpx.post(f"{url}/v1/guard", content=sealed, headers=kind).status_code == 200
        with pytest.raises(Exception, match=r"refused|500|Server"):
            httpx.post(f"{url}/v1/guard", content=sealed, headers=kind).raise_for_status()
        other = guarded.sandbox.run([*seal, '{"job":{}}'], user="bob").stdout.encode()
        with pytest.raises(Exception, match=r"no question|500|Server"):
            httpx.post(f"{url}/v1/guard", content=other, headers=kind).raise_for_status()
