"""The real commands in real processes on the embedded batch system: delegate, carry over a limit, report; and the daemon."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

HEAD = """# isched: name = "counter"
# isched: epochs = 3
# isched: samples = 30
# isched: batch_size = 10
# isched: command = ["{python}", "train.py", "{{epochs}}"]
"""
ASSUME = '[[given]]\nrun = 20\nstep_time = 2\nwait = 1\nhost_memory = "100M"\nstartup = 1\ncheckpoint = 1\n'


class Place:
    """A project folder of a user with an empty home."""

    def __init__(self, folder: Path, body: str) -> None:
        self.folder = folder
        (folder / "train.py").write_text(HEAD.format(python=sys.executable) + body)
        (folder / "assume.toml").write_text(ASSUME)
        (folder / "ischeduler.toml").write_text(
            f'[batch]\nkind = "local"\n[paths]\nstate = "{folder}/state"\ndata = "{folder}/data"\n'
            '[plane]\nautostart = false\ninterval = "1s"\nidle_exit = "2s"\n'
        )

    def isched(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        env = {k: v for k, v in os.environ.items() if not k.startswith(("ISCHED_", "SLURM"))} | {
            "HOME": str(self.folder),
            **variables,
        }
        command = [sys.executable, "-m", "ischeduler.cli.main", *arguments]
        return subprocess.run(
            command, cwd=self.folder, env=env, input="", capture_output=True, text=True, timeout=120, check=False
        )

    def json(self, *arguments: str, **variables: str) -> dict[str, Any]:
        done = self.isched(*arguments, "--json", **variables)
        assert done.stdout, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def counter(tmp_path: Path) -> Place:
    return Place(tmp_path, "import sys\nfor epoch in range(int(sys.argv[1])):\n    print('epoch', epoch, flush=True)\n")


def test_from_init_to_report(counter: Place) -> None:
    assert counter.isched("init").returncode == 0
    planned = counter.isched("plan", "train.py", "--assume", "assume.toml")
    assert planned.returncode == 0, planned.stderr
    assert "local/main" in planned.stdout
    assert "\x1b" not in planned.stdout
    asked = counter.isched("submit", "1")
    assert (asked.returncode, "nothing was submitted" in asked.stderr) == (2, True)
    run = counter.json("submit", "1", "--yes")["run"]
    watched = counter.isched("watch", run["id"], "--interval", "0.3")
    assert watched.returncode == 0, watched.stdout + watched.stderr
    assert "COMPLETED" in watched.stdout.splitlines()[-1]
    assert counter.isched("logs", run["id"]).stdout.splitlines()[-3:] == ["epoch 0", "epoch 1", "epoch 2"]
    report = counter.json("report", run["id"])["report"]
    assert report["state"] == "completed"
    assert next(line for line in report["lines"] if line["name"] == "run")["actual"] is not None
    kinds = {e["kind"] for e in counter.json("events", run["id"])["events"]}
    assert {"started", "exit"} <= kinds
    script = counter.isched("script", "1").stdout
    assert script.startswith("#!/bin/bash\n#SBATCH")
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0


def test_a_training_that_fails_twice_is_stopped_and_says_so(tmp_path: Path) -> None:
    place = Place(tmp_path, "print('about to fail', flush=True)\nraise SystemExit(3)\n")
    place.isched("plan", "train.py", "--assume", "assume.toml")
    run = place.json("submit", "1", "--yes")["run"]
    watched = place.isched("watch", run["id"], "--interval", "0.3")
    assert watched.returncode == 1
    assert place.isched("status", run["id"]).returncode == 1
    assert place.isched("report", run["id"]).returncode == 1
    assert "Act: the training itself fails" in place.isched("why", run["id"]).stdout
    assert len(place.json("status", run["id"])["run"]["attempts"]) == 2


def test_cancel_ends_the_process(tmp_path: Path) -> None:
    place = Place(tmp_path, "import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(300)\n")
    place.isched("plan", "train.py", "--assume", "assume.toml")
    run = place.json("submit", "1", "--yes")["run"]
    pid = int(eventually((tmp_path / "pid").read_text))
    assert place.isched("cancel", run["id"], "--yes").returncode == 0
    assert "CANCELLED" in place.isched("watch", run["id"], "--interval", "0.3").stdout
    eventually(lambda: not Path(f"/proc/{pid}").exists() or None)


def test_the_plane_starts_by_itself_survives_a_kill_and_ends_when_idle(counter: Place) -> None:
    auto = {"ISCHED_PLANE_AUTOSTART": "yes"}
    counter.isched("plan", "train.py", "--assume", "assume.toml", **auto)
    run = counter.json("submit", "1", "--yes", **auto)["run"]
    alive = eventually(lambda: counter.json("plane", "status")["daemon"])
    os.kill(alive["pid"], signal.SIGKILL)
    eventually(lambda: not counter.json("plane", "status")["alive"] or None)
    again = subprocess.Popen(
        [sys.executable, "-m", "ischeduler.cli.main", "plane", "run", "--until-idle"],
        cwd=counter.folder,
        env={**os.environ, "HOME": str(counter.folder)},
    )
    eventually(lambda: counter.json("status", run["id"])["run"]["state"] == "completed" or None)
    assert len(counter.json("status", run["id"])["run"]["attempts"]) == 1
    assert again.wait(timeout=60) == 0


def test_two_planes_do_not_run_at_once(counter: Place) -> None:
    env = {**os.environ, "HOME": str(counter.folder)}
    first = subprocess.Popen([sys.executable, "-m", "ischeduler.cli.main", "plane", "run"], cwd=counter.folder, env=env)
    try:
        eventually(lambda: counter.json("plane", "status")["daemon"])
        second = counter.isched("plane", "run")
        assert second.returncode == 2
        assert f"a plane is alive already (pid {first.pid})" in second.stderr
    finally:
        first.terminate()
        assert first.wait(timeout=30) == 0


def eventually(question: Any, within_s: float = 60.0) -> Any:
    """The first answer that is something; asked again until then."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            answer = question()
        except FileNotFoundError:
            answer = None
        if answer:
            return answer
        time.sleep(0.2)
    raise AssertionError(f"nothing within {within_s:.0f} s")


def test_the_python_twin(counter: Place) -> None:
    code = (
        "import ischeduler as isc\n"
        "plans = isc.plan('train.py', assume='assume.toml')\n"
        "print(plans.table())\n"
        "run = plans['soonest'].submit(max_attempts=3)\n"
        "assert run.why()\n"
        "done = run.result(timeout=90)\n"
        "print(done.state.value, len(isc.runs()), isc.run(run.id).report().state, run.logs().splitlines()[-1])\n"
        "print(isc.Workload.__name__, sorted(isc.clusters())[0], len(isc.estimate('train.py', assume='assume.toml')))\n"
    )
    env = {k: v for k, v in os.environ.items() if not k.startswith(("ISCHED_", "SLURM"))} | {"HOME": str(counter.folder)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=counter.folder, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == ["completed 1 completed epoch 2", "Workload anvil 1"]


RELAYED = """
import time
from ischeduler.training import checkpointing

class Net:
    done = 0
    def state_dict(self): return {"done": self.done}
    def load_state_dict(self, state): self.done = state["done"]

net = Net()
with checkpointing(epochs=16, model=net) as run:
    for epoch in run.epochs():
        for _, batch in run.steps(range(4)):
            time.sleep(1)
            net.done += 1
            run.step()
        run.epoch_end()
print("steps done", net.done, flush=True)
"""


def test_jobs_alone_carry_a_run_over_its_limits(tmp_path: Path) -> None:
    """No daemon and nobody who looks: each job queues its successor when it has saved and leaves."""
    place = Place(tmp_path, RELAYED)
    settings = tmp_path / "ischeduler.toml"
    limit = '[local]\npartitions = [{ name = "main", max_walltime = "1m" }]\n'
    settings.write_text(settings.read_text().replace("[plane]\n", "[plane]\nfrom_jobs = true\n") + limit)
    (tmp_path / "assume.toml").write_text(ASSUME.replace("run = 20", "run = 60"))
    planned = place.isched("plan", "train.py", "--assume", "assume.toml")
    assert planned.returncode == 0, planned.stdout + planned.stderr
    run = place.json("submit", "1", "--yes")["run"]
    log = lambda: "".join(p.read_text() for p in sorted((tmp_path / "data" / "runs" / run["id"] / "logs").glob("*.out")))  # noqa: E731
    eventually(lambda: "steps done 64" in log() or None, within_s=400)
    eventually(lambda: place.json("status", run["id"])["run"]["state"] == "completed" or None)
    *carried, last = [a["cause"] for a in place.json("status", run["id"])["run"]["attempts"]]
    assert set(carried) == {"walltime"}
    assert last == "finished"
