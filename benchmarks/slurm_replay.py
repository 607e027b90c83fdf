"""``python -m benchmarks.slurm_replay [--jobs N] [--seed N] [--stock] [--twice] [--save FILE | --from FILE] [--json]``: the simulated cluster against Slurm.

Scaled-down jobs (seconds of ``sleep``, limits in minutes) are submitted to a real Slurm in a sandbox: several partitions over shared
nodes, two priority tiers, a better QOS, GPUs, whole and partial nodes, dependencies, a job array. Then the engine, configured from that
very slurm.conf, gets the same jobs with the submission times and run times that slurmctld's log tells, and only those: when each
starts is its own decision. Order and start times are compared. Peers on the same machine and jobs: FCFS and EASY.

slurmctld's two scheduling threads look once a second, each at its own fraction of the second. Those fractions (:func:`beat`) are read off
the log, too; ``slurm_at_once`` is the engine without them, which looks at every event.

``--stock`` leaves Slurm's scheduler at its defaults (backfill every 30 s, resolution 60 s) instead of the sandbox's quick ones.
``--twice`` has Slurm do the same jobs again: ``slurm_itself`` is how far it is from itself, since a start a tenth of a second later can
take another node and move everything behind it. No simulator can be expected to be nearer than that.

``--save`` keeps what Slurm did; ``--from`` compares again without a Slurm. Metrics: shares of jobs that start within half a second, within
1, 2 and 5 s; median, mean and largest difference; Kendall's tau of the order of
starts; how many jobs start before the first one that is more than a second off; the mean waits.
"""

from __future__ import annotations

import argparse
import cmath
import json
import math
import random
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.report import finish
from ischeduler.core.errors import BadInput, IschedError
from ischeduler.simulator.engine.jobs import Dependency, JobRequest
from ischeduler.simulator.engine.machine import Machine, SimQos
from ischeduler.simulator.engine.options import SchedulerOptions
from ischeduler.simulator.engine.slurm_conf import read_slurm_conf
from ischeduler.simulator.engine.trace import replay

if TYPE_CHECKING:
    from ischeduler.sandbox import Sandbox, SandboxSpec

QOS = (SimQos("normal", 0), SimQos("high", 100))
ACCOUNTED = ("JobID", "JobName", "Submit", "Eligible", "Start", "End", "State", "NodeList")
EPOCH = {"SLURM_TIME_FORMAT": "%s"}
DRAIN_LIMIT_S = 900.0


@dataclass(frozen=True)
class Wish:
    """One job as it is submitted: ``delay_s`` after the one before. ``after`` is an earlier wish's place, with the dependency's kind."""

    delay_s: float
    user: str
    partition: str
    qos: str
    nodes: int
    cores: int
    memory_mb: int
    gpus: int
    exclusive: bool
    limit_min: int
    run_s: float
    after: tuple[str, int] | None = None
    tasks: int = 0
    tasks_at_once: int = 0

    def options(self, ids: Sequence[str]) -> list[str]:
        """sbatch's options."""
        found = ["-p", self.partition, f"--qos={self.qos}", "-N", str(self.nodes), "--ntasks-per-node=1", "-c", str(self.cores)]
        found += [f"--mem={self.memory_mb}", "-t", str(self.limit_min), "--no-requeue", "-o", "/dev/null", f"--wrap=exec sleep {self.run_s:.2f}"]
        found += [f"--gres=gpu:{self.gpus}"] if self.gpus else []
        found += ["--exclusive"] if self.exclusive else []
        found += [f"--dependency={self.after[0]}:{ids[self.after[1]]}"] if self.after else []
        return [*found, *([f"--array=0-{self.tasks - 1}%{self.tasks_at_once}"] if self.tasks else [])]


@dataclass(frozen=True)
class Seen:
    """What accounting says of one job or task, times to the millisecond by slurmctld's log. Epoch seconds.

    ``by`` is the thread that started it, ``main`` or ``backfill``.
    """

    job_id: str
    wish: int
    submit_s: float
    start_s: float
    end_s: float
    state: str
    nodes: str
    by: str = ""


@dataclass(frozen=True)
class Replay:
    """The slurm.conf, what was submitted, what became of it, and of it once more where that was asked for."""

    conf: str
    jobs: list[Wish]
    seen: list[Seen]
    again: list[Seen]


def replay_spec(*, stock: bool = False) -> SandboxSpec:
    """Eight CPU nodes and two GPU nodes; ``main``, ``gpu``, ``wide`` over both kinds, and ``fast``, a tier above on half of ``main``."""
    from ischeduler.sandbox import SandboxAccount, SandboxNode, SandboxPartition, SandboxQos, SandboxSpec

    cpu = tuple(SandboxNode(f"c{i:02d}", cpus=4, memory_mb=4000) for i in range(1, 9))
    gpu = tuple(SandboxNode(f"g{i:02d}", cpus=8, memory_mb=16000, gres="gpu:v100:2") for i in range(1, 3))
    names = [n.name for n in cpu]
    partitions = (
        SandboxPartition("main", tuple(names), 10, default=True), SandboxPartition("gpu", tuple(n.name for n in gpu), 10),
        SandboxPartition("wide", (*names[4:], *(n.name for n in gpu)), 10), SandboxPartition("fast", tuple(names[:4]), 5, priority_tier=2),
    )  # fmt: skip
    spec = SandboxSpec(
        "replay", (*cpu, *gpu), partitions, accounts=(SandboxAccount("research"),), qos=(SandboxQos("high", priority=100),), rest=False,
        min_job_age_s=300,
    )  # fmt: skip
    return replace(spec, scheduler_parameters=("batch_sched_delay=0",)) if stock else spec


def wishes(count: int, seed: int, *, mean_delay_s: float = 1.1) -> list[Wish]:
    """Seeded jobs that keep the sandbox of :func:`replay_spec` busy and its queue long. An array counts as its tasks."""
    draw = random.Random(seed)
    made: list[Wish] = []
    total = 0
    while total < count:
        made.append(_wish(draw, made, mean_delay_s, array=len(made) == count // 4))
        total += max(1, made[-1].tasks)
    return made


def _wish(draw: random.Random, made: Sequence[Wish], mean_delay_s: float, *, array: bool) -> Wish:
    partition = draw.choices(["main", "gpu", "wide", "fast"], [50, 20, 18, 12])[0]
    nodes = draw.choices([1, 2, 3, 4], [60, 22, 8, 10])[0] if partition != "gpu" else draw.choices([1, 2], [80, 20])[0]
    cores = draw.choices([1, 2, 3, 4], [25, 30, 10, 35])[0]
    run_s = min(20.0, max(1.0, draw.lognormvariate(2.0, 0.7)))
    plain = [i for i, w in enumerate(made) if not w.tasks]
    after = (draw.choice(["afterany", "afterok", "after"]), draw.choice(plain[-15:])) if plain and draw.random() < 0.06 else None
    return Wish(
        draw.expovariate(1 / mean_delay_s), draw.choice(["alice", "bob", "carol"]), partition, draw.choices(["normal", "high"], [88, 12])[0],
        1 if array else nodes, cores, draw.choice([200, 500, 900]), draw.choice([1, 1, 2]) if partition == "gpu" else 0,
        not array and draw.random() < 0.12, draw.choices([1, 2, 3, 5], [50, 25, 15, 10])[0], run_s, None if array else after,
        *((10, 3) if array else (0, 0)),
    )  # fmt: skip


def run_in(sandbox: Sandbox, jobs: Sequence[Wish]) -> list[Seen]:
    """Submit the jobs to a running sandbox at their times, wait until all have ended, and ask the accounting."""
    ids: list[str] = []
    due_s = time.monotonic()
    for wish in jobs:
        due_s += wish.delay_s
        time.sleep(max(0.0, due_s - time.monotonic()))
        done = sandbox.run(["sbatch", "--parsable", *wish.options(ids)], user=wish.user)
        ids.append(done.stdout.strip())
    wanted = sum(max(1, w.tasks) for w in jobs)
    deadline = time.monotonic() + DRAIN_LIMIT_S
    while time.monotonic() < deadline:
        found = accounted(sandbox, ids)
        if len(found) >= wanted:
            return timed(found, (sandbox.layout.log / "slurmctld.log").read_text("utf-8", "replace"))
        time.sleep(2.0)
    raise IschedError(f"of {wanted} jobs {len(accounted(sandbox, ids))} had ended in the sandbox after {DRAIN_LIMIT_S:.0f} s; try again on a quieter host.")


def accounted(sandbox: Sandbox, ids: Sequence[str]) -> list[Seen]:
    """The jobs of these ids that have ended, tasks one by one, in the order of their ids."""
    argv = ["sacct", "-anPX", "-o", ",".join(ACCOUNTED), "-S", "now-2hours", "-j", ",".join(ids)]
    found: list[Seen] = []
    for line in sandbox.run(argv, env=EPOCH).stdout.splitlines():
        row = dict(zip(ACCOUNTED, line.split("|"), strict=True))
        if row["End"].isdigit() and row["Start"].isdigit():
            wish = ids.index(row["JobID"].split("_")[0])
            state = row["State"].split(" ")[0]
            found.append(Seen(row["JobID"], wish, float(row["Submit"]), float(row["Start"]), float(row["End"]), state, row["NodeList"]))
    return sorted(found, key=lambda s: tuple(int(part) for part in s.job_id.split("_")))


_JOB = r"JobId=(\d+(?:_\d+)?)(?:\(\d+\))?"
_SAID = {
    "submit": re.compile(r"\[(\S+)\] _slurm_rpc_submit_batch_job: " + _JOB), "main": re.compile(r"\[(\S+)\] sched: Allocate " + _JOB),
    "backfill": re.compile(r"\[(\S+)\] sched/backfill: _start_job: Started " + _JOB), "end": re.compile(r"\[(\S+)\] _job_complete: " + _JOB + " done"),
}  # fmt: skip


def timed(found: Sequence[Seen], log: str) -> list[Seen]:
    """The same with the milliseconds of slurmctld's log, where it tells them and agrees with accounting to the second."""
    said: dict[tuple[str, str], float] = {}
    for line in log.splitlines():
        for kind, pattern in _SAID.items():
            match = pattern.match(line)
            if match:
                said[kind, match[2]] = datetime.fromisoformat(match[1]).timestamp()
    return [_timed(s, said) for s in found]


def _timed(seen: Seen, said: Mapping[tuple[str, str], float]) -> Seen:
    by = "main" if ("main", seen.job_id) in said else "backfill"
    submit_s = said.get(("submit", seen.job_id.split("_")[0]), seen.submit_s)
    start_s, end_s = said.get((by, seen.job_id), seen.start_s), said.get(("end", seen.job_id), seen.end_s)
    pairs = ((submit_s, seen.submit_s), (start_s, seen.start_s), (end_s, seen.end_s))
    if any(abs(fine - whole) > 1.5 for fine, whole in pairs):
        return seen
    return replace(seen, submit_s=submit_s, start_s=start_s, end_s=end_s, by=by)


def beat(moments: Sequence[float]) -> tuple[float, float]:
    """The period, a little over a second, and the phase of a thread that did something at these moments."""

    def turned(period_s: float) -> complex:
        return sum((cmath.exp(2j * math.pi * (m - moments[0]) / period_s) for m in moments), 0j)

    if not moments:
        return 1.0, 0.0
    period_s = max((1.0 + step / 5000 for step in range(51)), key=lambda p: abs(turned(p)))
    return period_s, moments[0] + cmath.phase(turned(period_s)) / (2 * math.pi) * period_s


def requests(jobs: Sequence[Wish], seen: Sequence[Seen]) -> list[JobRequest]:
    """The same jobs for the engine: submission and run times as measured."""
    ids = {s.wish: s.job_id.split("_")[0] for s in seen}
    return [_request(jobs[s.wish], s, ids) for s in seen]


def _request(wish: Wish, seen: Seen, ids: dict[int, str]) -> JobRequest:
    dependencies = (Dependency(wish.after[0], ids[wish.after[1]]),) if wish.after else ()
    return JobRequest(
        seen.job_id, seen.submit_s, wish.limit_min * 60.0, seen.end_s - seen.start_s, wish.nodes, wish.cores, wish.memory_mb, wish.gpus,
        exclusive=wish.exclusive, partition=wish.partition, qos=wish.qos, user=wish.user, dependencies=dependencies,
        array=ids[seen.wish] if wish.tasks else "", array_limit=wish.tasks_at_once or None,
    )  # fmt: skip


def compare(conf: str, jobs: Sequence[Wish], seen: Sequence[Seen], again: Sequence[Seen] = ()) -> dict[str, Any]:
    """Metrics of the engine under each scheduler; ``slurm.`` is the one that claims to be faithful. ``again``: the same jobs once more."""
    machine, options = read_slurm_conf(conf, qos=QOS)
    real = [s.start_s for s in seen]
    metrics: dict[str, Any] = {"jobs": len(seen), "real.mean_wait_s": _mean([s.start_s - s.submit_s for s in seen])}
    if again:
        first, second = since_the_first(seen), since_the_first(again)
        metrics |= {f"slurm_itself.{k}": v for k, v in differences(list(first.values()), [second[job] for job in first]).items()}
        metrics["slurm_itself.mean_wait_s"] = _mean([s.start_s - s.submit_s for s in again])
    for name, chosen in schedulers(options).items():
        starts = simulated(jobs, seen, machine, chosen, beats=name == "slurm")
        waits = [start - s.submit_s for start, s in zip(starts, seen, strict=True)]
        metrics.update({f"{name}.{k}": v for k, v in differences(real, starts).items()})
        metrics[f"{name}.mean_wait_s"] = _mean(waits)
    return metrics


def since_the_first(seen: Sequence[Seen]) -> dict[tuple[int, str], float]:
    """Each job's start, in seconds after the first submission, by its wish and task."""
    first_s = min(s.submit_s for s in seen)
    return {(s.wish, s.job_id.partition("_")[2]): s.start_s - first_s for s in seen}


def simulated(jobs: Sequence[Wish], seen: Sequence[Seen], machine: Machine, options: SchedulerOptions, *, beats: bool) -> list[float]:
    """The engine's starts; with ``beats`` its two threads look when Slurm's did, its time counted from a look of the main one."""
    origin_s = 0.0
    if beats and all(s.by for s in seen):
        first_s = min(s.submit_s for s in seen)
        period_s, phase_s = beat([s.start_s for s in seen if s.by == "main"])
        origin_s = phase_s - (math.ceil((phase_s - first_s) / period_s) + 2) * period_s
        poll_s, backfill_s = beat([s.start_s for s in seen if s.by == "backfill"])
        backfill_s -= math.ceil((backfill_s - origin_s) / poll_s) * poll_s
        timing = {"bf_first_s": backfill_s - origin_s, "bf_poll_s": poll_s, "bf_interval_s": options.bf_interval_s * poll_s}
        options = replace(options, sched_tick_s=period_s, **timing)
    asked = [replace(r, submit_s=r.submit_s - origin_s) for r in requests(jobs, seen)]
    _, starts = replay(asked, machine, options)
    return [start + origin_s for start in starts]


def schedulers(options: SchedulerOptions) -> dict[str, SchedulerOptions]:
    """The faithful one as configured, and the peers."""
    faithful = replace(options, idle_cycles=True)
    return {"slurm": faithful, "slurm_at_once": faithful, "easy": replace(options, scheduler="easy"), "fcfs": replace(options, scheduler="fcfs")}


def differences(real: Sequence[float], starts: Sequence[float]) -> dict[str, float]:
    """How far two lists of start times are apart."""
    gaps = [abs(a - b) for a, b in zip(real, starts, strict=True)]
    within = {f"within_{n}s": _mean([g <= n for g in gaps]) for n in (1, 2, 5)}
    in_order = sorted(range(len(real)), key=lambda i: real[i])
    in_step = next((n for n, i in enumerate(in_order) if gaps[i] > 1.0), len(gaps))
    half = {"jobs_in_step": in_step, "within_half_s": _mean([g <= 0.5 for g in gaps])}
    return {**half, **within, "median_gap_s": median(gaps), "mean_gap_s": _mean(gaps), "largest_gap_s": max(gaps), "order_tau": _tau(real, starts)}


def _tau(first: Sequence[float], second: Sequence[float]) -> float:
    """Kendall's tau over the pairs that neither list ties."""
    agree = differ = 0
    for i in range(len(first)):
        for j in range(i):
            sign = (first[i] - first[j]) * (second[i] - second[j])
            agree += sign > 0
            differ += sign < 0
    return (agree - differ) / max(1, agree + differ)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / max(1, len(values))


def measured(count: int, seed: int, *, stock: bool, twice: bool) -> Replay:
    """A sandbox of its own for one replay, or two in a row."""
    if count < 10:
        raise BadInput(f"--jobs {count} is too few to compare; give 10 or more.")
    from ischeduler.sandbox import Sandbox

    sandbox = Sandbox(replay_spec(stock=stock), "replay")
    sandbox.up()
    try:
        sandbox.sacctmgr(["modify", "account", "research", "set", "qos+=high,normal"])
        jobs = wishes(count, seed)
        seen = run_in(sandbox, jobs)
        again = run_in(sandbox, jobs) if twice else []
        return Replay(sandbox.layout.slurm_conf.read_text(), jobs, seen, again)
    finally:
        sandbox.down()


def main(argv: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", "--limit", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--stock", action="store_true")
    parser.add_argument("--twice", action="store_true")
    parser.add_argument("--save", type=Path)
    parser.add_argument("--from", type=Path, dest="source")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    try:
        done = load(options.source) if options.source else measured(options.jobs, options.seed, stock=options.stock, twice=options.twice)
        if options.save:
            options.save.write_text(json.dumps(asdict(done)))
        metrics = compare(done.conf, done.jobs, done.seen, done.again)
    except (IschedError, OSError, ValueError, KeyError, TypeError) as error:
        print(f"slurm_replay: {error}", file=sys.stderr)
        return 2
    return finish("slurm_replay", metrics, [], as_json=options.json)


def load(path: Path) -> Replay:
    """What ``--save`` kept."""
    data = json.loads(path.read_text())
    jobs = [Wish(**{**j, "after": tuple(j["after"]) if j["after"] else None}) for j in data["jobs"]]
    return Replay(data["conf"], jobs, [Seen(**s) for s in data["seen"]], [Seen(**s) for s in data.get("again", ())])


if __name__ == "__main__":
    sys.exit(main())
