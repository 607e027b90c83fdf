"""The demo's story, act by act, and the proof at its end."""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from stage import Stage

PROFILE_STEPS = 60
OCCUPY_S = 75
TIMEOUT_S = 600.0


@dataclass
class Seen:
    """What the watcher has seen of the run so far."""

    state: str = ""
    attempts: int = 0
    plane_killed: bool = False
    node_down: bool = False
    lines: list[str] = field(default_factory=list)


class Story:
    """Estimate, plan, submit, two misfortunes, report, proof."""

    def __init__(self, stage: Stage, training_s: float) -> None:
        self.stage = stage
        self.training_s = training_s
        self.began = time.monotonic()

    def tell(self) -> bool:
        epochs = self._size()
        run_id = self._delegate(epochs)
        reference = self._uninterrupted(epochs)
        final = self._carry(run_id)
        self._show("isched", "report", run_id)
        reference.wait(timeout=TIMEOUT_S)
        return self._prove(run_id, final, epochs)

    def _size(self) -> int:
        """Read the cluster, measure a few steps on one of its nodes, and choose how many epochs fill the demo's time."""
        self._title("What is this cluster, and how fast is the training on it?")
        self._show("isched", "clusters", "sync")
        self._show("isched", "profile", "train.py", "--steps", str(PROFILE_STEPS))
        profile = self._json("isched", "profile", "train.py", "--last", "--json")
        epoch_s = profile["epoch_time_s"]
        epochs = max(8, round(self.training_s / epoch_s))
        print(f"An epoch takes {epoch_s:.2f} s here; {epochs} epochs are about {self.training_s:.0f} s: more than any one-minute limit.")
        return epochs

    def _delegate(self, epochs: int) -> str:
        self._title("Where should it run?")
        if busy := self.stage.occupy(OCCUPY_S):
            print(f"({busy})")
        self._show("isched", "plan", "train.py", "--epochs", str(epochs))
        self._title("Delegate it")
        done = self._show("isched", "submit", "soonest", "--yes", "--json", quiet=True)
        run_id = json.loads(done.stdout)["run"]["id"]
        print(f"run {run_id} accepted; the plane carries it from here")
        return run_id

    def _uninterrupted(self, epochs: int) -> subprocess.Popen[bytes]:
        """The same training without a scheduler around it, beside the run: what the weights must equal."""
        print("(beside it, the same training with the same seed, uninterrupted, for the proof)")
        script = f"mkdir -p ../reference && cp train.py ../reference && cd ../reference && exec {self.stage.python} train.py --epochs {epochs}"
        return self.stage.start(["sh", "-c", script], self._log("reference.log"))

    def _carry(self, run_id: str) -> dict[str, Any]:
        self._title("Carried over its limits")
        seen, deadline = Seen(), time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            run = self._json("isched", "status", run_id, "--json")["run"]
            self._tell_changes(run, seen)
            self._misfortunes(run, seen)
            if run["state"] in ("completed", "failed", "cancelled"):
                return run
            time.sleep(1.5)
        raise SystemExit(f"the run did not end within {TIMEOUT_S:.0f} s; its last words: {seen.lines[-1]}")

    def _tell_changes(self, run: dict[str, Any], seen: Seen) -> None:
        attempt = run["attempts"][-1] if run["attempts"] else None
        words = f"{run['state']:<17}"
        if attempt:
            words += f" attempt {attempt['number']} on {attempt['partition']:<9} job {attempt['job_id'] or '-':<5}"
        words += f" epoch {run['progress']['epochs_done']}/{run['progress']['epochs']}"
        key = (run["state"], attempt["number"] if attempt else 0)
        if str(key) != seen.state:
            seen.state = str(key)
            ended = [a for a in run["attempts"][:-1] if a["cause"]]
            why = f"   (attempt {ended[-1]['number']}: {ended[-1]['cause']})" if ended and run["state"] != "running" else ""
            self._line(words + why, seen)

    def _misfortunes(self, run: dict[str, Any], seen: Seen) -> None:
        numbers = [a["number"] for a in run["attempts"] if a["spool_started"]]
        if not numbers or run["state"] not in ("running", "checkpointing"):
            return
        current = run["attempts"][-1]
        progressed = run["progress"]["checkpoint_step"] > current["start_step"] and current["spool_started"]
        if not seen.plane_killed and progressed:
            pid = self.stage.kill_plane()
            if pid is not None:
                seen.plane_killed = True
                self._line(f"!! kill -9 {pid} (the plane); nobody watches now", seen)
                time.sleep(4)
                self.stage.start(["isched", "plane", "run"], self._log("plane.log"))
                self._line("   the plane is started again and reads where it was", seen)
        elif seen.plane_killed and not seen.node_down and current["number"] >= 2 and progressed:
            seen.node_down = True
            self._line(f"!! {self.stage.take_node_down()}", seen)

    def _prove(self, run_id: str, run: dict[str, Any], epochs: int) -> bool:
        self._title("The proof")
        checks = [
            (run["state"] == "completed", f"the run is {run['state']}"),
            (run["progress"]["epochs_done"] == epochs, f"{run['progress']['epochs_done']} of {epochs} epochs done"),
            *self._limits(run),
            *self._overlaps(run),
            *self._lost_epochs(run_id),
            self._same_weights(run),
        ]
        for good, words in checks:
            print(f"  {'✓' if good else '✗'} {words}")
        return all(good for good, _ in checks)

    def _limits(self, run: dict[str, Any]) -> list[tuple[bool, str]]:
        crossed = [a for a in run["attempts"] if a["cause"] == "walltime"]
        places = {a["partition"] for a in run["attempts"]}
        on_slurm = self.stage.engine == "slurm"
        planned = ("walltime", "finished", "refused", "moved", None)
        lost = [a["cause"] for a in run["attempts"] if a["cause"] not in planned]  # here the job itself is killed, not its node
        failures = [c for c in lost if c in ("node_failure", "lost")] if on_slurm else lost
        wanted = 2 if on_slurm else 1
        return [
            (len(crossed) >= 3, f"{len(crossed)} walltime limits crossed"),
            (len(places) >= wanted, f"on {len(places)} partition{'s' * (len(places) > 1)}: {', '.join(sorted(places))}"),
            (len(failures) >= 1, f"{len(failures)} attempt lost and recovered"),
        ]

    def _overlaps(self, run: dict[str, Any]) -> list[tuple[bool, str]]:
        """Slurm's own accounting: no two jobs of the run ran at once. On the local engine the store's times serve."""
        ids = [a["job_id"] for a in run["attempts"] if a["job_id"]]
        if self.stage.engine != "slurm":
            spans = sorted((a["started_at"], a["ended_at"]) for a in run["attempts"] if a["started_at"] and a["ended_at"])
            source = "the batch system's record"
        else:
            command = ["sacct", "-X", "-n", "-P", "-j", ",".join(ids), "-o", "JobID,Partition,State,ExitCode,Start,End,NodeList"]
            rows = [line.split("|") for line in self.stage.command(command).stdout.split()]
            print("  $ " + " ".join(command))
            for row in rows:
                print("    " + "  ".join(f"{cell:<20}" if i == 2 else cell for i, cell in enumerate(row)))
            spans = sorted((_epoch(r[4]), _epoch(r[5])) for r in rows)
            source = f"sacct ({len(rows)} jobs)"
        overlap = max((a[1] - b[0] for a, b in pairwise(spans)), default=0.0)
        how = "shared" if overlap > 0 else "apart"
        return [(overlap <= 2.0, f"{source}: no two attempts overlapped (closest: {abs(overlap):.0f} s {how})")]

    def _lost_epochs(self, run_id: str) -> list[tuple[bool, str]]:
        """Each attempt resumed at the newest checkpoint its predecessors had published."""
        events = self._json("isched", "events", run_id, "--json")["events"]
        newest, lost = 0, 0
        for event in events:
            if event["kind"] == "checkpoint":
                newest = max(newest, event["data"]["step"])
            elif event["kind"] == "resumed" and newest:
                lost += max(0, newest - (event["data"].get("step") or 0))
        return [(lost == 0, f"{lost} steps lost beyond the last checkpoints")]

    def _same_weights(self, run: dict[str, Any]) -> tuple[bool, str]:
        code = (
            "import torch; a = torch.load('weights.pt', weights_only=True); b = torch.load('../reference/weights.pt', weights_only=True); "
            "print('equal' if a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a) else 'different')"
        )
        said = self.stage.command([str(self.stage.python), "-c", code]).stdout.strip()
        return said == "equal", f"final weights are {said or 'missing'} to those of the uninterrupted run, bit for bit"

    def _show(self, *argv: str, quiet: bool = False) -> subprocess.CompletedProcess[str]:
        print(f"\n$ {' '.join(a for a in argv if a != '--json')}", flush=True)
        done = self.stage.command(argv)
        if not quiet:
            print(done.stdout.rstrip())
        if done.returncode:
            print(done.stderr.rstrip())
            raise SystemExit(f"that command ended with code {done.returncode}; the demo stops here")
        return done

    def _json(self, *argv: str) -> dict[str, Any]:
        done = self.stage.command(argv)
        if done.returncode not in (0, 1) or not done.stdout.strip():
            raise SystemExit(f"{' '.join(argv)} failed: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def _line(self, words: str, seen: Seen) -> None:
        seen.lines.append(words)
        print(f"  {time.monotonic() - self.began:5.0f} s  {words}", flush=True)

    def _title(self, words: str) -> None:
        print(f"\n── {words} " + "─" * max(0, 90 - len(words)), flush=True)

    def _log(self, name: str) -> Path:
        path = Path("/tmp") / f"isched-demo-{name}"
        path.touch()
        return path


def _epoch(text: str) -> float:
    return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S")) if text[:1].isdigit() else time.time()
