"""``python -m benchmarks.chain [--rules reactive,twin,hand-over] [--segments N] [--minutes M] [--trace FILE] [--json]``: a chain on a real Slurm.

Each rule carries the same training over the same walltime limits, all at once, each in a partition of its own that the same other jobs keep
busy (``--trace``: run times, requests and arrivals of a trace, scaled down to minutes; else made up). What Slurm's accounting tells of the
training's jobs is the result: seconds without any job between two (interruption), seconds with two (overlap), and whether the training came
out as an uninterrupted one does. Needs root and Slurm's daemons (``./scripts/install-slurm``).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.report import Bar, finish
from ischeduler.core.codec import to_plain
from ischeduler.core.errors import BadInput, IschedError
from ischeduler.core.estimate import Estimate
from ischeduler.core.jobs import Resources
from ischeduler.core.plan import Needs, Plan, Segment
from ischeduler.core.run import Run, RunState
from ischeduler.core.workload import Workload

if TYPE_CHECKING:
    from ischeduler.sandbox import Sandbox, SandboxSpec

RULES = ("reactive", "average", "quantile", "twin", "hand-over")
NODES, CARDS = 2, 2
STEPS, STEP_S, LEAD_S = 5, 0.2, 10.0
WARM_UP_S = 45.0
TRAINING = """\
import hashlib, sys, time
from ischeduler.training import checkpointing
epochs, steps, step_s = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
chain = {"value": "seed"}
with checkpointing(epochs=epochs, steps_per_epoch=steps, chain=(lambda: dict(chain), chain.update)) as run:
    for epoch in run.epochs():
        for number, _ in run.steps(range(steps)):
            time.sleep(step_s)
            chain["value"] = hashlib.sha256(f"{chain['value']}:{epoch}:{number}".encode()).hexdigest()
            run.step()
with open("result.txt", "w") as result:
    result.write(chain["value"])
"""


@dataclass(frozen=True)
class Other:
    """Somebody else's job: ``at_s`` after the first one."""

    at_s: float
    cards: int
    minutes: int
    run_s: float


@dataclass(frozen=True)
class Outcome:
    """How one rule did. Gaps in seconds between consecutive jobs: positive an interruption, negative an overlap. ``ahead``: how many
    successors were queued before their predecessor's end."""

    rule: str
    state: str
    right: bool
    gaps_s: tuple[float, ...]
    waits_s: tuple[float, ...]
    ahead: int
    lost_steps: int
    whole_s: float
    troubles: tuple[str, ...]

    def figures(self) -> dict[str, float]:
        """Means over the transitions, by name."""
        count = max(1, len(self.gaps_s))
        return {
            "transitions": len(self.gaps_s), "interruption_s": sum(max(0.0, g) for g in self.gaps_s) / count,
            "overlap_s": sum(max(0.0, -g) for g in self.gaps_s) / count, "zero_share": sum(g <= 1.0 for g in self.gaps_s) / count,
            "wait_s": sum(self.waits_s) / max(1, len(self.waits_s)), "ahead": self.ahead, "whole_s": self.whole_s, "lost_steps": self.lost_steps,
        }  # fmt: skip


def chain_spec(rules: Sequence[str], minutes: int) -> SandboxSpec:
    """One partition a rule, each with nodes of its own."""
    from ischeduler.sandbox import SandboxAccount, SandboxNode, SandboxPartition, SandboxSpec

    names = {rule: [f"{partition_of(rule)}{i}" for i in range(1, NODES + 1)] for rule in rules}
    nodes = tuple(SandboxNode(n, cpus=4, memory_mb=8000, gres=f"gpu:v100:{CARDS}") for found in names.values() for n in found)
    partitions = tuple(
        SandboxPartition(partition_of(r), tuple(names[r]), max_time_min=max(3, minutes), default=r == rules[0]) for r in rules
    )
    return SandboxSpec("chain", nodes, partitions, accounts=(SandboxAccount("research"),), rest=False, min_job_age_s=300)


def partition_of(rule: str) -> str:
    """The rule's partition."""
    return rule.replace("-", "").replace("_", "")


def others(count: int, seed: int, load: float, trace: Path | None = None) -> list[Other]:
    """Jobs that together ask for ``load`` of a partition: minutes of limit, used in part."""
    draw = random.Random(seed)
    shapes = _of_trace(trace, count) if trace else [
        (draw.choices([1, 2], [70, 30])[0], draw.choice([1, 1, 2, 2, 3]), draw.betavariate(1.2, 1.0), 1.0) for _ in range(count)
    ]  # fmt: skip
    jobs, at_s = list[Other](), 0.0
    for cards, minutes, share, pace in shapes:
        run_s = max(3.0, 60.0 * minutes * share)
        jobs.append(Other(at_s, cards, minutes, run_s))
        mean_s = cards * run_s / (NODES * CARDS * load)
        at_s += mean_s * pace if trace else draw.expovariate(1 / mean_s)
    return jobs


def _of_trace(path: Path, count: int) -> list[tuple[int, int, float, float]]:
    """(cards, minutes, share of the limit used, pace of arrivals) of consecutive jobs from the trace's middle."""
    from ischeduler.simulator.readers import read_trace

    trace = read_trace(path)
    if len(trace) < count:
        raise BadInput(f"{path} holds {len(trace)} jobs, {count} are needed; give a longer trace.")
    first = (len(trace) - count) // 2
    here = slice(first, first + count)
    limits, units = trace.limit_s[here], trace.units[here]
    ranks = limits.argsort(kind="stable").argsort(kind="stable")
    gaps = [max(0, int(b - a)) for a, b in pairwise(trace.submit_s[first : first + count + 1])] or [1]
    mean_gap = max(1e-9, sum(gaps) / len(gaps))
    gaps += [round(mean_gap)] * (count - len(gaps))
    usual = sorted(units.tolist())[count // 2]
    return [
        (1 if u <= usual else 2, 1 + int(3 * r / count), min(1.0, max(0.02, run / max(1, limit))), min(4.0, g / mean_gap))
        for u, r, run, limit, g in zip(units.tolist(), ranks.tolist(), trace.run_s[here].tolist(), limits.tolist(), gaps, strict=True)
    ]  # fmt: skip


def chains(
    sandbox: Sandbox, rules: Sequence[str], jobs: Sequence[Other], *, segments: int, minutes: int, models: Mapping[str, Path] | None = None
) -> list[Outcome]:
    """Run all rules side by side in a sandbox of :func:`chain_spec`, each beside the same ``jobs`` of others.

    ``models``: files of ``isched provisioner train``; a rule of that name is what the file says.
    """
    longest_s = longest_for(segments, minutes)
    stop = threading.Event()
    threads = [threading.Thread(target=_keep_busy, args=(sandbox, partition_of(r), jobs, stop), daemon=True) for r in rules]
    for thread in threads:
        thread.start()
    time.sleep(WARM_UP_S)
    try:
        begun = {r: _start(sandbox, r, segments, minutes, longest_s, (models or {}).get(r)) for r in rules}
        return [_outcome(sandbox, r, *begun[r], longest_s) for r in rules]
    finally:
        stop.set()
        for thread in threads:
            thread.join(timeout=30)
        sandbox.run(["scancel", f"--user={sandbox.system_user('bob')}"], user="bob", check=False)


def _keep_busy(sandbox: Sandbox, partition: str, jobs: Sequence[Other], stop: threading.Event) -> None:
    """Submit the others' jobs at their times, starting with what fills the partition."""
    begun = time.monotonic()
    for job in jobs:
        if stop.wait(max(0.0, begun + job.at_s - WARM_UP_S - time.monotonic())):
            return
        argv = ["sbatch", "-p", partition, "-N", "1", "-c", "1", "--mem=500", f"--gres=gpu:{job.cards}", "-t", str(job.minutes), "-o", "/dev/null"]
        sandbox.run([*argv, f"--wrap=exec sleep {job.run_s:.1f}"], user="bob", check=False)


def longest_for(segments: int, minutes: int) -> float:
    """Seconds after which a chain is given up."""
    return segments * (60.0 * minutes + 480.0)


def epochs_for(segments: int, minutes: int) -> int:
    """So long that it takes that many segments."""
    return int((segments - 0.5) * (60.0 * minutes - LEAD_S - 8.0) / (STEPS * STEP_S))


def _start(
    sandbox: Sandbox, rule: str, segments: int, minutes: int, longest_s: float, model: Path | None
) -> tuple[subprocess.Popen[bytes], Path, float]:
    work = sandbox.home("alice") / partition_of(rule)
    sandbox.run(["mkdir", "-p", str(work)], user="alice")
    run = planned(sandbox, rule, work, segments, minutes)
    for name, text in (
        ("train.py", TRAINING), ("run.json", json.dumps({"run": to_plain(run), "most_s": longest_s})),
        ("driver.py", Path(__file__).with_name("chain_driver.py").read_text()),
    ):  # fmt: skip
        sandbox.run(["tee", str(work / name)], user="alice", stdin=text)
    decided = {"ISCHED_PLANE_PROVISIONER": rule}
    if model is not None:
        sandbox.run(["tee", str(work / "model.json")], user="alice", stdin=model.read_text())
        decided = {"ISCHED_PLANE_PROVISIONER": "trained", "ISCHED_PLANE_PROVISIONER_MODEL": str(work / "model.json")}
    environment = sandbox.user_env("alice") | decided | {
        "ISCHED_PATHS_STATE": str(work / "state"), "ISCHED_PATHS_DATA": str(work / "data"), "ISCHED_PLANE_INTERVAL": "1s",
        "ISCHED_BATCH_KIND": "slurm", "NUMBA_CACHE_DIR": str(work.parent / "numba"),
    }  # fmt: skip
    account = sandbox.system_user("alice")
    with (work.parent / f"{partition_of(rule)}.out").open("wb") as out, (work.parent / f"{partition_of(rule)}.err").open("wb") as err:
        process = subprocess.Popen(
            [str(sandbox.python), str(work / "driver.py"), str(work / "run.json")], cwd=work, env=environment, user=account, group=account,
            extra_groups=[], stdin=subprocess.DEVNULL, stdout=out, stderr=err,
        )  # fmt: skip
    return process, work, time.monotonic()


def planned(sandbox: Sandbox, rule: str, work: Path, segments: int, minutes: int) -> Run:
    """The training as a run that the plane takes."""
    epochs, python, walltime_s = epochs_for(segments, minutes), str(sandbox.python), 60.0 * minutes
    workload = Workload(
        name=f"chain-{partition_of(rule)}", epochs=epochs, samples=STEPS, batch_size=1, directory=str(work), options={"python": python},
        command=(python, "train.py", str(epochs), str(STEPS), str(STEP_S)),
    )  # fmt: skip
    training = _seconds(epochs * STEPS * STEP_S)
    plan = Plan(
        number=1, cluster=sandbox.spec.cluster_name, partition=partition_of(rule), node_type="", workload=workload,
        resources=Resources(memory_bytes=400 * 2**20, gpus_per_node=CARDS, walltime_s=walltime_s), run=training, wait=_seconds(30.0),
        segments=tuple(Segment(i, walltime_s, walltime_s - LEAD_S - 8, _seconds(30.0)) for i in range(segments)), finish=training,
        needs=Needs(startup=_seconds(2.0), checkpoint=_seconds(0.2), run=training), cost=Estimate.exact(0.0, "usd", "chain"), signal_lead_s=int(LEAD_S),
    )  # fmt: skip
    now = time.time()
    return Run(
        id=f"chain-{partition_of(rule)}", owner=sandbox.system_user("alice"), plan=plan, state=RunState.PLANNED, directory=str(work / "run"),
        created_at=now, state_since=now,
    )  # fmt: skip


def _seconds(value: float) -> Estimate:
    return Estimate(value, value, 1.1 * value, "s", "chain")


def _outcome(sandbox: Sandbox, rule: str, process: subprocess.Popen[bytes], work: Path, begun: float, longest_s: float) -> Outcome:
    try:
        process.wait(timeout=max(1.0, begun + longest_s + 60 - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
    whole_s = time.monotonic() - begun
    out, err = (work.parent / f"{partition_of(rule)}{suffix}" for suffix in (".out", ".err"))
    lines = out.read_text().splitlines()
    if not lines:
        raise IschedError(f"the plane of {rule} said nothing within {whole_s:.0f} s: {err.read_text()[-500:].strip() or 'no word'}")
    told = json.loads(lines[-1])
    spans = _accounted(sandbox, [a["job_id"] for a in told["run"]["attempts"] if a["job_id"]])
    result = work / "result.txt"
    right = result.exists() and result.read_text() == chain_value(told["run"]["plan"]["workload"]["epochs"])
    gaps = tuple(float(b[1] - a[2]) for a, b in pairwise(spans))
    return Outcome(
        rule, told["run"]["state"], right, gaps, tuple(float(s[1] - s[0]) for s in spans),
        sum(b[0] < a[2] for a, b in pairwise(spans)), lost_steps(told["events"]), whole_s,
        tuple(told["troubles"]),
    )  # fmt: skip


def _accounted(sandbox: Sandbox, ids: Sequence[str]) -> list[tuple[int, int, int]]:
    """(submission, start, end) of the jobs that started, by start, once accounting knows them ended."""
    argv = ["sacct", "-nPX", "-o", "Submit,Start,End", "-S", "now-3hours", "-j", ",".join(ids)]
    rows: list[list[str]] = []
    for _ in range(30):
        rows = [line.split("|") for line in sandbox.run(argv, user="alice", env={"SLURM_TIME_FORMAT": "%s"}).stdout.splitlines()]
        if len(rows) >= len(ids) and all(r[2].isdigit() or not r[1].isdigit() for r in rows):
            break
        time.sleep(1.0)
    return sorted(((int(a), int(b), int(c)) for a, b, c in rows if b.isdigit() and c.isdigit()), key=lambda s: s[1])


def lost_steps(events: Sequence[dict[str, Any]]) -> int:
    """Steps done twice: between what a job resumed from and the furthest that had been reached."""
    reached = lost = 0
    for event in events:
        step = event["data"].get("step") or 0
        if event["kind"] == "resumed":
            lost += max(0, reached - step)
        elif event["kind"] in ("progress", "checkpoint"):
            reached = max(reached, step)
    return lost


def chain_value(epochs: int) -> str:
    """What an uninterrupted training ends with."""
    value = "seed"
    for epoch in range(epochs):
        for number in range(STEPS):
            value = hashlib.sha256(f"{value}:{epoch}:{number}".encode()).hexdigest()
    return value


def show(found: Sequence[Outcome]) -> None:
    """One line a rule."""
    print(f"{'rule':<12}{'state':<11}{'moves':>6}{'ahead':>7}{'interrupted s':>15}{'overlap s':>11}{'zero':>7}{'wait s':>8}{'lost steps':>12}{'whole s':>9}")
    for one in found:
        f = one.figures()
        print(
            f"{one.rule:<12}{one.state:<11}{f['transitions']:>6.0f}{f['ahead']:>7.0f}{f['interruption_s']:>15.1f}{f['overlap_s']:>11.1f}{f['zero_share']:>7.2f}"
            f"{f['wait_s']:>8.1f}{f['lost_steps']:>12.0f}{f['whole_s']:>9.0f}{'' if one.right else '  WRONG RESULT'}"
        )
        for trouble in one.troubles:
            print(f"  {one.rule}: {trouble}")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0 when all trainings came out right with no step done twice, 1 when not, 2 on bad input."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rules", default="reactive,twin,hand-over", help=f"of {', '.join(RULES)}")
    parser.add_argument("--model", type=Path, action="append", default=[], help="a file of isched provisioner train: its method is one more rule")
    parser.add_argument("--segments", "--limit", type=int, default=5)
    parser.add_argument("--minutes", type=int, default=2, help="walltime limit of a segment")
    parser.add_argument("--load", type=float, default=0.65, help="of each partition that the others ask for; the training takes half of one")
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(argv)
    rules = [r.strip() for r in asked.rules.split(",") if r.strip()]
    try:
        if not rules or set(rules) - set(RULES) or asked.segments < 1 or asked.minutes < 1 or asked.load <= 0:
            raise BadInput(f"rules are of {', '.join(RULES)}; --segments, --minutes and --load are positive.")
        found = measured(rules, asked, {method_of(path): path for path in asked.model})
    except (IschedError, OSError) as error:
        print(f"chain: {error}", file=sys.stderr)
        return 2
    if not asked.json:
        show(found)
    metrics: dict[str, Any] = {f"{o.rule}.{k}": round(v, 3) for o in found for k, v in o.figures().items()}
    metrics |= {"wrong": sum(not o.right for o in found), "lost_steps": sum(o.lost_steps for o in found)}
    return finish("chain", metrics, [Bar("wrong", 0), Bar("lost_steps", 0)], as_json=asked.json)


def method_of(path: Path) -> str:
    """What a model file follows."""
    from ischeduler.helper.provisioning.model_file import read

    return read(path).method


def measured(named: Sequence[str], asked: Any, models: Mapping[str, Path]) -> list[Outcome]:
    """A sandbox of its own for one experiment."""
    from ischeduler.sandbox import Sandbox

    rules = [*named, *models]
    sandbox = Sandbox(chain_spec(rules, asked.minutes), "chain")
    sandbox.down()
    sandbox.up()
    try:
        jobs = others(int(longest_for(asked.segments, asked.minutes) / 6), asked.seed, asked.load, asked.trace)
        return chains(sandbox, rules, jobs, segments=asked.segments, minutes=asked.minutes, models=models)
    finally:
        sandbox.down()


if __name__ == "__main__":
    sys.exit(main())
