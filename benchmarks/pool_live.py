"""``python -m benchmarks.pool_live [--rounds N] [--round SECONDS] [--policy NAME] [--no-failure] [--minutes M] [--json]``: a live pool on a real Slurm.

Six small trainings over two emulated types of accelerators (each training has its own step time on each), four pilots of one accelerator, a
node that fails in between. Judged is what really happened: when each training's job steps started and ended (the pilots' own records,
checked against Slurm's accounting), against the shares of time that the policy promised over the same rounds; and whether every training's
state is that of an uninterrupted one, each step done once, in order. Needs root and Slurm's daemons (``./scripts/install-slurm``).

Metrics. ``share_error_max``: over members and types, the largest difference of share of time received and promised over the rounds, as a
share of all time (bar .10). ``progress_error_max``: the same in what counts, the steps that those shares are worth, relative.
``wrong_states``, ``lost_steps``: trainings whose chain is wrong; steps done twice at a move (those at the node failure apart).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.report import Bar, finish
from ischeduler.core.errors import BadInput, IschedError

if TYPE_CHECKING:
    from ischeduler.sandbox import Sandbox, SandboxSpec

TYPES = ("a100", "v100")
PILOTS, NODES = 2, 3
"""Pilots of each type; one node more than that, for when one fails."""
STEPS = 100_000
STEP_S: Mapping[str, tuple[float, float]] = {
    "one": (0.06, 0.18), "two": (0.09, 0.27), "three": (0.12, 0.36), "four": (0.15, 0.18), "five": (0.12, 0.15), "six": (0.15, 0.15),
}
"""Seconds a step of each training on each of the types."""
FAIL_ROUND, MID_ROUND_S = 4, 3.5
TRAINING = """\
import atexit, hashlib, json, os, sys, time
from ischeduler.training import checkpointing
steps, step_s = int(sys.argv[1]), json.loads(sys.argv[2])[os.environ["ISCHED_ACCELERATOR"]]
chain = {"value": "seed", "count": 0}
def told():
    with open("state.json.new", "w") as file:
        json.dump(chain, file)
    os.replace("state.json.new", "state.json")
atexit.register(told)
with checkpointing(epochs=1, steps_per_epoch=steps, chain=(lambda: dict(chain), chain.update)) as run:
    for epoch in run.epochs():
        for number, _ in run.steps(range(steps)):
            time.sleep(step_s)
            chain["value"] = hashlib.sha256(f"{chain['value']}:{number}".encode()).hexdigest()
            chain["count"] += 1
            run.step()
"""


@dataclass
class Live:
    """One experiment: the driver's lines as they come, and its last word."""

    sandbox: Sandbox
    work: Path
    training: str = TRAINING
    process: subprocess.Popen[str] | None = None
    lines: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    seen: Callable[[dict[str, Any]], None] = lambda line: None

    def start(self, **asked: Any) -> Live:
        """Start the driver as alice."""
        self.sandbox.run(["mkdir", "-p", *(str(self.work / name) for name in ("", *STEP_S))], user="alice")
        members = [{"name": n, "directory": str(self.work / n), "step_s": dict(zip(TYPES, s, strict=True))} for n, s in STEP_S.items()]
        config = {
            "python": str(self.sandbox.python), "script": str(self.work / "train.py"), "steps": STEPS, "members": members,
            "accelerators": PILOTS * len(TYPES), "policy": "max_min_fairness_perf", "round_s": 8.0, "restart_s": 0.25, "idle_s": 600.0,
            "checkpoint_every_s": 1.5, "rounds": 10, "pilots": pilots_of(self.sandbox.spec.cluster_name, 10), "most_s": 240.0, **asked,
        }  # fmt: skip
        for name, text in (
            ("train.py", self.training), ("config.json", json.dumps(config)),
            ("driver.py", Path(__file__).with_name("pool_live_driver.py").read_text()),
        ):  # fmt: skip
            self.sandbox.run(["tee", str(self.work / name)], user="alice", stdin=text)
        account = self.sandbox.system_user("alice")
        with (self.work.parent / f"{self.work.name}.err").open("w") as errors:
            self.process = subprocess.Popen(
                [str(self.sandbox.python), str(self.work / "driver.py"), str(self.work / "config.json")], cwd=self.work, env=self.environment(),
                user=account, group=account, extra_groups=[], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True,
            )  # fmt: skip
        threading.Thread(target=self._listen, args=(self.process,), daemon=True).start()
        return self

    def environment(self) -> dict[str, str]:
        """Settings of alice's plane: its own state, a short interval."""
        return self.sandbox.user_env("alice") | {
            "ISCHED_PATHS_STATE": str(self.work / "state"), "ISCHED_PATHS_DATA": str(self.work / "data"), "ISCHED_PLANE_INTERVAL": "1s",
            "ISCHED_PLANE_AUTOSTART": "false", "ISCHED_BATCH_KIND": "slurm", "NUMBA_CACHE_DIR": str(self.work.parent / "numba"), "OPENBLAS_NUM_THREADS": "1",
        }  # fmt: skip

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for text in process.stdout:
            line = json.loads(text)
            self.lines.append(line)
            self.seen(line)

    def isched(self, *words: str) -> subprocess.CompletedProcess[str]:
        """One of alice's commands beside the driver."""
        return self.sandbox.run([str(self.sandbox.python), "-m", "ischeduler.cli.main", *words], user="alice", env=self.environment(), check=False)

    def wait(self, limit_s: float) -> dict[str, Any]:
        """The driver's last word. IschedError when it ended without one."""
        assert self.process is not None
        try:
            self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.stop()
        time.sleep(0.2)
        last = self.lines[-1] if self.lines else {}
        if not last.get("done"):
            errors = (self.work.parent / f"{self.work.name}.err").read_text()[-1500:]
            raise IschedError(f"the pool did not come to its end: {last.get('why', last)} {last.get('problems', '')} {errors}")
        return last

    def stop(self) -> None:
        """Kill the driver and everything alice has in the queue."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.sandbox.run(["scancel", f"--user={self.sandbox.system_user('alice')}"], user="alice", check=False)


def pilots_of(cluster: str, minutes: int) -> list[str]:
    """What the pool's pilots ask for."""
    return [f"{t}={cluster}/{t},count={PILOTS},gpus=1,cpus=2,memory=1500M,gres={t},walltime={minutes}m" for t in TYPES]


def live_spec(name: str = "poollive", *, accounting: bool = True) -> SandboxSpec:
    """A partition a type, with a node to spare in each."""
    from ischeduler.sandbox import SandboxAccount, SandboxNode, SandboxPartition, SandboxSpec

    nodes = tuple(SandboxNode(f"{t}n{i}", cpus=4, memory_mb=4000, gres=f"gpu:{t}:1") for t in TYPES for i in range(1, NODES + 1))
    partitions = tuple(
        SandboxPartition(t, tuple(n.name for n in nodes if n.gpu_type == t), max_time_min=60, default=t == TYPES[0]) for t in TYPES
    )  # fmt: skip
    return SandboxSpec(name, nodes, partitions, accounts=(SandboxAccount("research"),), rest=False, min_job_age_s=300, accounting=accounting)


def fails_at(live: Live, round_: int) -> Callable[[dict[str, Any]], None]:
    """What lets the node of a running a100 member fail, in the middle of a round, some rounds after the start: its slurmd is killed, and
    Slurm is told that it is down."""
    first: list[int] = []
    begun: list[float] = []
    failed: list[str] = []

    def seen(line: dict[str, Any]) -> None:
        if line.get("phase") != "rounds" or failed:
            return
        first.append(line["round"])
        nodes = [node for kind, node in line["on"].values() if kind == TYPES[0]]
        if line["round"] >= first[0] + round_:
            begun.append(line["t"])
            if nodes and line["t"] - begun[0] >= MID_ROUND_S:
                failed.append(nodes[0])
                live.sandbox.kill_slurmd(nodes[0])
                live.sandbox.node_down(nodes[0])

    return seen


def shares(told: Mapping[str, Any]) -> dict[str, dict[str, tuple[float, float]]]:
    """By member and type: (received, promised) as shares of the window. Received is what the steps' starts and ends say."""
    since, until = told["window"]
    span = until - since
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for name, member in told["members"].items():
        held = dict.fromkeys(TYPES, 0.0)
        for job in member["jobs"]:
            if job["started_at"] is not None:
                held[job["type"]] += max(0.0, min(until, job["ended_at"] or until) - max(since, job["started_at"]))
        found[name] = {t: (held[t] / span, member["promised_s"][t] / span) for t in TYPES}
    return found


def progress_error(name: str, row: Mapping[str, tuple[float, float]]) -> float:
    """How far the steps that the received shares are worth are off those of the promised ones, relative."""
    speed = {t: 1 / s for t, s in zip(TYPES, STEP_S[name], strict=True)}
    promised = sum(speed[t] * row[t][1] for t in TYPES)
    return abs(sum(speed[t] * row[t][0] for t in TYPES) / promised - 1.0) if promised > 0 else 0.0


def chain_value(count: int) -> str:
    """What an uninterrupted training has after that many steps."""
    value = "seed"
    for number in range(count):
        value = hashlib.sha256(f"{value}:{number}".encode()).hexdigest()
    return value


def right(live: Live, name: str, member: Mapping[str, Any]) -> bool:
    """Whether the training's last state is that of an uninterrupted one, and is what its last checkpoint says."""
    state = json.loads((live.work / name / "state.json").read_text())
    return state["count"] == member["step"] and state["value"] == chain_value(state["count"])


def lost_steps(member: Mapping[str, Any]) -> tuple[int, int]:
    """Steps done twice: (at moves, at failures of nodes)."""
    reached, lost, failed = 0, 0, 0
    for event in member["events"]:
        step = event["data"].get("step") or 0
        if event["kind"] == "resumed":
            attempt = int(event["token"].split(".")[0])
            before = member["causes"][attempt - 2] if attempt >= 2 else None
            again, reached = max(0, reached - step), step
            lost, failed = (lost, failed + again) if before == "node_failure" else (lost + again, failed)
        elif event["kind"] in ("progress", "checkpoint"):
            reached = max(reached, step)
    return lost, failed


def accounted(live: Live, told: Mapping[str, Any]) -> float:
    """The largest difference in seconds of a step's length by Slurm's accounting (whole seconds) and by the pilots' records."""
    if not live.sandbox.spec.accounting:
        return 0.0
    ids = ",".join(j for found in told["pilots"].values() for j in found if j)
    argv = ["sacct", "-nP", "-o", "JobName,Start,End", "-S", "now-1hours", "-j", ids]
    rows = [r.split("|") for r in live.sandbox.run(argv, user="alice", env={"SLURM_TIME_FORMAT": "%s"}).stdout.splitlines()]
    spans = {name: float(end) - float(start) for name, start, end in rows if start.isdigit() and end.isdigit()}
    jobs = [j for m in told["members"].values() for j in m["jobs"] if j["started_at"] and j["ended_at"] and j["key"] in spans]
    # A step on a node that failed is ended by Slurm when it notices, by the pool when the pilot's job is over.
    sound = [j for j in jobs if j["asked"]]
    return max((abs(spans[j["key"]] - (j["ended_at"] - j["started_at"])) for j in sound), default=float("nan"))


def judged(live: Live, told: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics."""
    rows = shares(told)
    lost = [lost_steps(m) for m in told["members"].values()]
    moves = sum(max(0, len(m["jobs"]) - 1) for m in told["members"].values())
    return {
        "rounds": told["rounds"], "window_s": round(told["window"][1] - told["window"][0], 1), "moves": moves,
        "share_error_max": round(max(abs(r - p) for row in rows.values() for r, p in row.values()), 4),
        "share_error_mean": round(sum(abs(r - p) for row in rows.values() for r, p in row.values()) / (len(rows) * len(TYPES)), 4),
        "progress_error_max": round(max(progress_error(n, row) for n, row in rows.items()), 4),
        "received": round(sum(r for row in rows.values() for r, _ in row.values()) / (PILOTS * len(TYPES)), 4),
        "promised": round(sum(p for row in rows.values() for _, p in row.values()) / (PILOTS * len(TYPES)), 4),
        "wrong_states": sum(not right(live, n, m) for n, m in told["members"].items()), "lost_steps": sum(a for a, _ in lost),
        "lost_steps_node_failure": sum(b for _, b in lost), "node_failures": sum(m["causes"].count("node_failure") for m in told["members"].values()),
        "renewals": sum(max(0, sum(1 for j in found if j) - 1) for found in told["pilots"].values()),
        "accounting_difference_s": round(accounted(live, told), 2),
    }  # fmt: skip


def show(told: Mapping[str, Any]) -> None:
    """One line a member."""
    print(f"{'training':<10}" + "".join(f"{t + ' got':>12}{'promised':>10}" for t in TYPES) + f"{'jobs':>6}{'steps':>8}  ended by")
    for name, row in shares(told).items():
        member = told["members"][name]
        cells = "".join(f"{row[t][0]:>12.3f}{row[t][1]:>10.3f}" for t in TYPES)
        causes = [c for c in member["causes"] if c]
        print(f"{name:<10}{cells}{len(member['jobs']):>6}{member['step']:>8}  {', '.join(f'{c} {causes.count(c)}' for c in dict.fromkeys(causes))}")
    for words in told["problems"]:
        print(f"  {words}")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0 when every bar is met, 1 when not, 2 on bad input."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", "--limit", type=int, default=10)
    parser.add_argument("--round", type=float, default=8.0, help="seconds of a round")
    parser.add_argument("--policy", default="max_min_fairness_perf")
    parser.add_argument("--minutes", type=int, default=10, help="walltime limit of a pilot; 1 lets them be renewed in between")
    parser.add_argument("--no-failure", action="store_true", help="let no node fail")
    parser.add_argument("--keep", action="store_true", help="leave the sandbox up")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(argv)
    try:
        if asked.rounds < 1 or asked.round < 2 or asked.minutes < 1:
            raise BadInput("--rounds and --minutes are 1 or more, --round 2 s or more.")
        told, metrics = measured(asked)
    except (IschedError, OSError) as error:
        print(f"pool_live: {error}", file=sys.stderr)
        return 2
    if not asked.json:
        show(told)
    bars = [Bar("share_error_max", 0.10), Bar("wrong_states", 0), Bar("lost_steps", 0)]
    return finish("pool_live", metrics, bars, as_json=asked.json)


def measured(asked: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """A sandbox of its own for one experiment."""
    from ischeduler.sandbox import Sandbox

    sandbox = Sandbox(live_spec(), "poollive")
    sandbox.down()
    sandbox.up()
    live = Live(sandbox, sandbox.home("alice") / "pool")
    try:
        if not asked.no_failure:
            live.seen = fails_at(live, min(FAIL_ROUND, asked.rounds - 1))
        most_s = 180.0 + (asked.rounds + 3) * asked.round
        pilots = pilots_of(sandbox.spec.cluster_name, asked.minutes)
        live.start(rounds=asked.rounds, round_s=asked.round, policy=asked.policy, most_s=most_s, pilots=pilots)
        told = live.wait(most_s + 30)
        return told, judged(live, told)
    finally:
        live.stop()
        if not asked.keep:
            sandbox.down()


if __name__ == "__main__":
    sys.exit(main())
