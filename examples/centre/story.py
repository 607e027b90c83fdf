"""The guided demo: three users, five trainings, three faults, and what must hold at the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stage import CLUSTER, PEOPLE, Centre
from train import Model, digits

from ischeduler.sandbox import daemons

WORKLOADS = (
    ("alice", "digits-a1", "gpu"), ("alice", "digits-a2", "cpu"), ("bob", "digits-b1", "gpu"), ("bob", "digits-b2", "cpu"),
    ("carol", "digits-c1", "gpu"),
)  # fmt: skip
SAMPLES, TRAINING_CPU_S = 1500, 40.0
"""Each training is given about that much processor time; five at once on two cores take three times as long, and are cut."""
PATIENCE_S, ARRIVAL_S = 1500.0, 90.0
ENDED = ("completed", "failed", "cancelled")
ASSUMED = """[[given]]
run = "2m30s"
run_p90 = "3m"
wait = "5s"
wait_p90 = "1m"
host_memory = "300M"
gpu_memory = "500M"
startup = 5
checkpoint = 1
"""


@dataclass
class Training:
    """One of the five. ``seed`` makes its final weights known beforehand."""

    owner: str
    name: str
    partition: str
    seed: int
    run_id: str = ""


def uninterrupted(epochs: int, seed: int) -> float:
    """The sum of the final weights of a training that nothing disturbs."""
    data, model = digits(SAMPLES, seed), Model()
    for _ in range(epochs):
        for image, label in data:
            model.step(image, label)
    return sum(map(sum, model.weights))


class Story:
    """Tells it step by step; :meth:`tell` says whether everything held."""

    def __init__(self, centre: Centre, say: Callable[[str], None] = print, *, training_s: float = TRAINING_CPU_S) -> None:
        self.centre, self._say, self._training_s = centre, say, training_s
        self.trainings = [Training(o, n, p, seed) for seed, (o, n, p) in enumerate(WORKLOADS, 1)]
        self.epochs = 0
        self.faults: list[dict[str, Any]] = []
        self.checks: list[tuple[str, bool, str]] = []
        self._gateway: subprocess.Popen[bytes] | None = None
        self._started = time.time()
        self._aside = ProcessPoolExecutor(1, initializer=os.nice, initargs=(5,))
        self._references: list[Future[float]] = []

    def tell(self) -> bool:
        """From the first plan to the report. True when every check held."""
        try:
            self._say("\nThree users plan and submit five trainings over the API, each with a token of their own.")
            self._calibrate()
            self._submit()
            self._start_gateway()
            self._wait("each has started and told of an epoch", lambda runs: all(r["progress"]["epochs_done"] or r["state"] in ENDED for r in runs))
            self._kill_worker()
            self._kill_broker()
            self._kill_slurmctld()
            self._wait("all five have ended", lambda runs: all(r["state"] in ENDED for r in runs))
            self._judge()
        finally:
            self._aside.shutdown(wait=False, cancel_futures=True)
            if self._gateway is not None:
                self._gateway.kill()
        return all(held for _, held, _ in self.checks)

    def _calibrate(self) -> None:
        """How many epochs are a training of the wanted length on this machine, and what each must come to."""
        data, model, started = digits(SAMPLES, 0), Model(), time.process_time()
        for image, label in data:
            model.step(image, label)
        self.epochs = max(10, round(self._training_s / max(0.01, time.process_time() - started)))
        self._references = [self._aside.submit(uninterrupted, self.epochs, t.seed) for t in self.trainings]
        self._say(f"  {self.epochs} epochs each, about {self._training_s:.0f} s of one core; limits are two minutes")

    def _submit(self) -> None:
        for training in self.trainings:
            command = ["python", "train.py", "--epochs", "{epochs}", "--samples", str(SAMPLES), "--seed", str(training.seed)]
            home = str(self.centre.box.home(training.owner))
            workload = {
                "name": training.name, "model": "custom", "samples": SAMPLES, "epochs": self.epochs, "batch_size": 1, "directory": home,
                "command": [*command, "--result", f"{training.name}.json"], "gpus": 1 if training.partition == "gpu" else 0,
            }  # fmt: skip
            asked = {"workload": workload, "clusters": [CLUSTER], "partitions": [training.partition], "assume": ASSUMED}
            plan = self.centre.ask(training.owner, "/v1/plans", asked)
            best = plan["plans"][0]
            training.run_id = self.centre.ask(training.owner, "/v1/runs", {"plan": plan["id"], "choice": "1"})["run"]["id"]
            where = f"{best['cluster']}/{best['partition']}"
            self._say(f"  {training.owner}: {training.name} is {training.run_id}, planned as {len(best['segments'])} job(s) on {where}")

    def _start_gateway(self) -> None:
        """Bob's events also go by Kafka: what arrives by both roads must count once."""
        mine = [t for t in self.trainings if t.owner == "bob"]
        said = "".join(f"{t.run_id} {self.centre.ask('bob', f'/v1/runs/{t.run_id}/token', {})['token']}\n" for t in mine)
        runs = self.centre.box.home("bob") / ".isched" / "runs"
        self._gateway = self.centre.as_user("bob", ["gateway.py", "--servers", self.centre.broker.servers, "--runs", str(runs)], said, "gateway")
        self._say("  a gateway sends the events of bob's jobs to Kafka as well, where the consumer reads them")

    def runs(self) -> list[dict[str, Any]]:
        """The five as their owners see them."""
        return [self.centre.ask(t.owner, f"/v1/runs/{t.run_id}")["run"] for t in self.trainings]

    def _wait(self, what: str, condition: Callable[[list[dict[str, Any]]], bool]) -> None:
        self._say(f"Waiting until {what}.")
        until, shown = time.monotonic() + PATIENCE_S, ""
        while True:
            runs = self.runs()
            line = "  " + "  ".join(f"{r['owner']}:{r['progress']['epochs_done']}/{self.epochs} {r['state']} ({len(r['attempts'])})" for r in runs)
            if line != shown:
                self._say(line)
                shown = line
            if condition(runs):
                return
            if time.monotonic() > until:
                raise RuntimeError(f"it took longer than {PATIENCE_S:.0f} s until {what}")
            time.sleep(3.0)

    def _fault(self, what: str, pid: int) -> None:
        progress = [r["progress"]["epochs_done"] for r in self.runs()]
        self.faults.append({"what": what, "pid": pid, "at_s": round(time.time() - self._started), "progress": progress})
        self._say(f"FAULT: {what} (process {pid})")

    def _kill_worker(self) -> None:
        self._fault("kill -9 of plane worker 1", self.centre.parts["worker-1"].kill())
        before = sum(r["version"] for r in self.runs())
        self._until(lambda: sum(r["version"] for r in self.runs()) > before or self._all_ended(), 120, "worker 2 goes on alone")
        self._say(f"  worker 1 is back as process {self.centre.restart('worker-1')}")

    def _kill_broker(self) -> None:
        pid = self.centre.broker.pid
        self.centre.broker.kill()
        self._fault("kill -9 of the Kafka broker, whose log is gone with it", pid)
        time.sleep(5.0)
        self.centre.start_broker_again()
        self._say("  the broker is back, empty; the gateway sends everything again")

    def _kill_slurmctld(self) -> None:
        box = self.centre.box
        process = box.daemon_process(daemons.SLURMCTLD)
        box.signal_daemon(daemons.SLURMCTLD, signal.SIGKILL)
        self._fault("kill -9 of slurmctld", process.pid if process else 0)
        time.sleep(8.0)
        states = sorted({r["state"] for r in self.runs()})
        self._say(f"  meanwhile the runs are {', '.join(states)}: a question without an answer says nothing about a job")
        box.start_slurmctld()
        self._say("  slurmctld is back")

    def _until(self, condition: Callable[[], bool], limit_s: float, what: str) -> None:
        until = time.monotonic() + limit_s
        while not condition():
            if time.monotonic() > until:
                raise RuntimeError(f"not seen within {limit_s:.0f} s: {what}")
            time.sleep(1.0)
        self._say(f"  {what}")

    def _all_ended(self) -> bool:
        return all(r["state"] in ENDED for r in self.runs())

    def _judge(self) -> None:
        """What must hold, each looked at where it is: at the API, in Slurm's accounting, in the users' own files."""
        runs = self.runs()
        self._check("all five trainings completed", all(r["state"] == "completed" for r in runs), ", ".join(r["state"] for r in runs))
        done = [r["progress"]["epochs_done"] for r in runs]
        self._check("every epoch was told of", done == [self.epochs] * len(runs), str(done))
        self._check_weights()
        self._check_jobs(runs)
        self._check_events()
        self._check_isolation()

    def _check(self, what: str, held: bool, seen: str) -> None:
        self.checks.append((what, held, seen))
        self._say(f"  {'✓' if held else '✗'} {what}: {seen}")

    def _check_weights(self) -> None:
        """The very numbers of a training that nobody interrupted: no step lost, none done twice."""
        equal = []
        for training, wanted in zip(self.trainings, self._references, strict=True):
            path = self.centre.box.home(training.owner) / f"{training.name}.json"
            found = json.loads(path.read_text()) if path.exists() else {}
            equal.append(found.get("sum") == wanted.result())
        self._check("final weights equal an uninterrupted training's", all(equal), f"{sum(equal)} of {len(equal)}")

    def _check_jobs(self, runs: Iterable[Mapping[str, Any]]) -> None:
        """Slurm's accounting knows exactly the jobs that the plane knows, each once."""
        said = self.centre.box.run(["sacct", "-n", "-X", "-P", "-a", "-S", "now-2hours", "-o", "JobID,JobName,User"]).stdout
        rows = [line.split("|") for line in said.splitlines() if "|isched-" in line]
        names = [name for _, name, _ in rows]
        known = sorted(a["job_id"] for r in runs for a in r["attempts"] if a["job_id"])
        self._check("no job was doubled", len(names) == len(set(names)), f"{len(names)} jobs in accounting, {len(set(names))} keys")
        self._check("no job was lost", sorted(row[0] for row in rows) == known, f"{len(known)} attempts known to the plane")
        owners = {a["job_id"]: self.centre.box.system_user(r["owner"]) for r in runs for a in r["attempts"] if a["job_id"]}
        foreign = [f"{job} as {user}" for job, _, user in rows if owners.get(job) != user]
        self._check("every job ran as its owner", not foreign, ", ".join(foreign) or ", ".join(sorted({row[2] for row in rows})))

    def _check_events(self) -> None:
        """What each job wrote down is in the database once, whichever road it took and how often; the last may still be on its way."""
        until = time.monotonic() + ARRIVAL_S
        while (found := self._events_missing())[0] and time.monotonic() < until:
            time.sleep(2.0)
        wrong, total = found
        self._check("every event is in the database once", not wrong, "; ".join(wrong) or f"{total} events")

    def _events_missing(self) -> tuple[list[str], int]:
        from ischeduler.training.spool import SpoolReader

        wrong, total = list[str](), 0
        for training in self.trainings:
            folder = self.centre.box.home(training.owner) / ".isched" / "runs" / training.run_id
            written = {(str(e.token), e.seq) for e in SpoolReader(folder).poll()}
            stored = self.centre.stored_events(training.run_id)
            total += len(written)
            if len(stored) != len(set(stored)) or set(stored) != written:
                wrong.append(f"{training.name}: {len(written)} written, {len(stored)} stored ({len(set(stored))} different)")
        return wrong, total

    def _check_isolation(self) -> None:
        other = next(t for t in self.trainings if t.owner == "alice")
        try:
            self.centre.ask("bob", f"/v1/runs/{other.run_id}")
            answer = "200"
        except RuntimeError as error:
            answer = str(error).split(": ", 1)[1][:3]
        self._check("bob cannot see alice's run", answer == "404", f"answer {answer}")


def report(story: Story, folder: Path, took_s: float, shots: Iterable[Path]) -> Path:
    """The demo's report as a page of Markdown, with the same as JSON beside it."""
    runs = story.runs()
    lines = ["# The centre's demo", "", f"{took_s:.0f} s in all. {len(PEOPLE)} users, {len(runs)} trainings of {story.epochs} epochs.", "", "## Trainings", ""]
    lines += ["| owner | run | state | jobs | epochs | cut by |", "| --- | --- | --- | --- | --- | --- |"]
    for run in runs:
        causes = ", ".join(str(a["cause"]) for a in run["attempts"] if a["cause"])
        lines.append(f"| {run['owner']} | {run['id']} | {run['state']} | {len(run['attempts'])} | {run['progress']['epochs_done']} | {causes} |")
    lines += ["", "## Faults", "", *(f"- {f['at_s']} s: {f['what']} (process {f['pid']}); epochs done then: {f['progress']}" for f in story.faults)]
    lines += ["", "## What was checked", "", *(f"- {'held' if held else 'FAILED'}: {what} ({seen})" for what, held, seen in story.checks)]
    lines += ["", "## Screenshots", "", *(f"![{s.stem}]({s.name})" for s in shots)]
    path = folder / "report.md"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    plain = {"took_s": round(took_s), "faults": story.faults, "checks": [list(c) for c in story.checks], "states": [r["state"] for r in runs]}
    (folder / "report.json").write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
    return path
