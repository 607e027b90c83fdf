"""A training carried by a real plane on the real Slurm, seen from a test: start, look, interfere, judge.

The training is a chain of hashes, one link a step, so that its final value is right only if every step was done exactly once, in
order, from the right state: what equal final weights would show, in a tenth of a second of start-up.
"""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ischeduler.core.codec import to_plain
from ischeduler.core.estimate import Estimate
from ischeduler.core.jobs import Resources
from ischeduler.core.plan import Needs, Plan, Segment
from ischeduler.core.run import Caps, Run, RunState
from ischeduler.core.sizes import MIB
from ischeduler.core.workload import Workload
from ischeduler.sandbox import Sandbox

DRIVER = Path(__file__).with_name("plane_driver.py")
CHAIN = """\
import hashlib, os, sys, time
from ischeduler.training import checkpointing
epochs, steps, step_s = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
chain = {"value": "seed"}
with checkpointing(epochs=epochs, steps_per_epoch=steps, chain=(lambda: dict(chain), chain.update)) as run:
    for epoch in run.epochs():
        for number, _ in run.steps(range(steps)):
            time.sleep(step_s)
            chain["value"] = hashlib.sha256(f"{chain['value']}:{epoch}:{number}".encode()).hexdigest()
            run.step(loss=1.0 / (1 + run.step_count))
with open("result.txt", "w") as result:
    result.write(chain["value"])
"""


def chain_value(epochs: int, steps: int) -> str:
    """What an uninterrupted training ends with."""
    value = "seed"
    for epoch in range(epochs):
        for number in range(steps):
            value = hashlib.sha256(f"{value}:{epoch}:{number}".encode()).hexdigest()
    return value


def seconds(low: float, high: float | None = None) -> Estimate:
    return Estimate(low, low, high if high is not None else low, "s", "test")


@dataclass
class Carried:
    """One run of alice's. ``script`` is the training's text; ``arguments`` its command line."""

    sandbox: Sandbox
    name: str
    script: str = CHAIN
    epochs: int = 4
    steps: int = 5
    step_s: float = 0.2
    partition: str = "gpu"
    node_type: str = "v100x2-8c-16g"
    walltime_s: float = 60.0
    memory_bytes: int | None = 400 * MIB
    batch_size: int = 64
    qos: str | None = None
    caps: Caps = Caps()
    arguments: tuple[str, ...] | None = None
    directory: Path | None = None
    config: dict[str, Any] = field(default_factory=dict)
    lines: list[dict[str, Any]] = field(default_factory=list)
    process: subprocess.Popen[str] | None = None

    def __post_init__(self) -> None:
        self.work = self.sandbox.home("alice") / self.name
        self.run_directory = self.directory or self.work / "run"
        self.sandbox.run(["mkdir", "-p", str(self.work)], user="alice")
        self.write("train.py", self.script)

    def write(self, name: str, text: str) -> Path:
        """A file of alice's in the run's working directory."""
        path = self.work / name
        self.sandbox.run(["tee", str(path)], user="alice", stdin=text)
        return path

    def plan(self, **changes: Any) -> Plan:
        arguments = self.arguments or (str(self.epochs), str(self.steps), str(self.step_s))
        python = str(self.sandbox.python)
        workload = Workload(
            name=self.name, epochs=self.epochs, samples=self.steps * self.batch_size, batch_size=self.batch_size,
            command=(python, "train.py", *arguments), directory=str(self.work), options={"python": python},
        )  # fmt: skip
        training_s = self.epochs * self.steps * self.step_s
        needs = Needs(startup=seconds(1.0, 2.0), checkpoint=seconds(0.1, 0.5), run=seconds(training_s, training_s * 1.2))
        plan = Plan(
            number=1, cluster=self.sandbox.spec.cluster_name, partition=self.partition, node_type=self.node_type, workload=workload,
            resources=Resources(
                nodes=1, cpus_per_node=1, memory_bytes=self.memory_bytes, gpus_per_node=1 if "gpu" in self.partition else 0,
                walltime_s=self.walltime_s,
            ),
            segments=(Segment(0, self.walltime_s, self.walltime_s - 15, seconds(1.0, 5.0)),), needs=needs,
            run=seconds(training_s, training_s * 1.2), wait=seconds(1.0, 5.0), finish=seconds(training_s + 5),
            cost=Estimate.exact(0.0, "usd", "test"), qos=self.qos, signal_lead_s=12, node_memory_bytes=15000 * MIB,
        )  # fmt: skip
        return replace(plan, **changes)

    def start(self, **config: Any) -> Carried:
        """Start the plane's process (again); it delegates the run the first time."""
        account = self.sandbox.system_user("alice")
        run = Run(
            id=self.name, owner=account, plan=self.plan(), state=RunState.PLANNED, directory=str(self.run_directory),
            created_at=time.time(), caps=self.caps, state_since=time.time(),
        )  # fmt: skip
        settings = {"run": to_plain(run), "store": f"sqlite:///{self.work}/store.db", **self.config, **config}
        path = self.write("driver.json", json.dumps(settings))
        driver = self.write("plane_driver.py", DRIVER.read_text())
        entry = pwd.getpwnam(account)
        self.process = subprocess.Popen(
            [str(self.sandbox.python), str(driver), str(path)], cwd=self.work, env=self.sandbox.user_env("alice"), user=entry.pw_uid,
            group=entry.pw_gid, extra_groups=[], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=(Path("/tmp") / f"driver-{self.name}-{os.getpid()}.err").open("w"), text=True,
        )  # fmt: skip
        threading.Thread(target=self._listen, args=(self.process,), daemon=True).start()
        return self

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.lines.append(json.loads(line))

    @property
    def run(self) -> dict[str, Any]:
        """The run as last seen; empty before the first tick."""
        return self.lines[-1]["run"] if self.lines else {}

    @property
    def attempts(self) -> list[dict[str, Any]]:
        return self.run.get("attempts", [])

    def until(self, wish: Callable[[dict[str, Any]], bool], limit_s: float = 90.0) -> dict[str, Any]:
        """Wait until the run is as wished; fails with its story otherwise."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            if self.lines and wish(self.run):
                return self.run
            if self.process is not None and self.process.poll() not in (None, 0):
                time.sleep(0.3)
                if not (self.lines and wish(self.run)):
                    raise AssertionError(f"the plane's process ended with {self.process.returncode}: {self.story()}")
            time.sleep(0.1)
        raise AssertionError(f"not within {limit_s:.0f} s: {self.story()}")

    def until_running(self, attempt: int = 1, step: int = 1) -> dict[str, Any]:
        """Until that attempt runs and has published a checkpoint at or beyond that step."""

        def wish(run: dict[str, Any]) -> bool:
            newest = run["attempts"][-1] if run["attempts"] else None
            return bool(newest and newest["number"] >= attempt and newest["state"] == "running" and run["progress"]["checkpoint_step"] >= step)

        return self.until(wish)

    def ended(self, limit_s: float = 150.0) -> dict[str, Any]:
        """The run once it has ended in any way."""
        run = self.until(lambda r: r["state"] in ("completed", "failed", "cancelled"), limit_s)
        if self.process is not None:
            self.process.wait(10)
        return run

    def stop(self) -> None:
        """Kill the plane's process, if any, and the run's jobs: for the end of a test."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if not self.sandbox.layout.marker.exists():
            return  # the sandbox went first and took its jobs along
        self.sandbox.run(["scancel", f"--user={self.sandbox.system_user('alice')}"], user="alice", check=False)

    def result(self) -> str:
        path = self.work / "result.txt"
        return path.read_text() if path.exists() else ""

    def right(self) -> bool:
        """Whether the training ended with what an uninterrupted one ends with."""
        return self.result() == chain_value(self.epochs, self.steps)

    def jobs(self) -> list[str]:
        """Names of all jobs of this run once accounting, which lags a little, knows one an attempt; refused ones left out."""
        deadline = time.monotonic() + 20.0
        while len(found := self._accounted()) < len(self.attempts) and time.monotonic() < deadline:
            time.sleep(0.5)
        return found

    def _accounted(self) -> list[str]:
        done = self.sandbox.run(["sacct", "-nPX", "-o", "JobName,NodeList,State", "-S", "now-1hours"], user="alice")
        rows = [line.split("|") for line in done.stdout.splitlines()]
        return [name for name, nodes, _ in rows if self.name in name and nodes != "None assigned"]

    def causes(self) -> list[str | None]:
        return [a["cause"] for a in self.attempts]

    def story(self) -> str:
        errors = Path("/tmp") / f"driver-{self.name}-{os.getpid()}.err"
        words = [f"state {self.run.get('state')}, message {self.run.get('message')!r}", f"causes {self.causes()}"]
        words += [f"attempt {a['number']}: {a['state']} {a['raw_state']} {a['reason']} exit {a['exit_code']}" for a in self.attempts]
        words += self.lines[-1]["problems"] if self.lines else []
        words += [errors.read_text()[-1500:] if errors.exists() else ""]
        return "\n".join(words)
