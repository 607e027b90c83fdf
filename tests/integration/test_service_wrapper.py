"""Services under real wrappers on this machine: ready, handed over, started again, ended before the limit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from service_parts import SERVER, Client

from ischeduler.training.service import read_endpoint
from ischeduler.training.spool import read_events

Start = Callable[..., "subprocess.Popen[bytes]"]


class Scene:
    """One run's directory and the wrappers that were started on it."""

    def __init__(self, folder: Path) -> None:
        self.run_dir, self.server = folder / "run", folder / "server.py"
        self.server.write_text(SERVER)
        self.wrappers: list[subprocess.Popen[bytes]] = []

    def start(
        self, attempt: int, *command: str, walltime_s: float = 120.0, **settings: Any
    ) -> subprocess.Popen[bytes]:
        """A wrapper of that attempt around ``command``, by default the server, which needs half a second to be up."""
        told = {"ready_port": 0, "ready_url": "/", "linger_s": 1.0, "drain_s": 3.0, "restarts": 2, **settings}
        env = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("ISCHED_", "SLURM_"))},
            "ISCHED_RUN_ID": "s", "ISCHED_RUN_DIR": str(self.run_dir), "ISCHED_ATTEMPT": str(attempt),
            "ISCHED_WALLTIME_S": str(walltime_s), "ISCHED_SERVICE": json.dumps(told), "ISCHED_JOB_ID": str(100 + attempt),
        }  # fmt: skip
        words = command or (sys.executable, str(self.server), "{port}", "0.5")
        wrapper = subprocess.Popen([sys.executable, "-m", "ischeduler.training.wrapper", "--", *words], env=env)
        self.wrappers.append(wrapper)
        return wrapper

    def kinds(self, token: str) -> list[str]:
        return [e.kind for e in read_events(self.run_dir, {})[0] if str(e.token) == token and e.kind != "heartbeat"]

    def of(self, token: str, kind: str) -> list[dict[str, Any]]:
        return [e.data for e in read_events(self.run_dir, {})[0] if str(e.token) == token and e.kind == kind]

    def until(self, wish: Callable[[], bool], limit_s: float = 20.0) -> None:
        end = time.monotonic() + limit_s
        while not wish():
            assert time.monotonic() < end, [(t, self.kinds(t)) for t in ("1.0", "2.0")]
            time.sleep(0.05)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    for wrapper in made.wrappers:
        if wrapper.poll() is None:
            wrapper.terminate()
            wrapper.wait(15)


def test_a_successor_takes_over_only_when_it_is_ready_and_no_client_notices(scene: Scene) -> None:
    first = scene.start(1)
    scene.until(lambda: "ready" in scene.kinds("1.0"))
    client = Client(scene.run_dir, every_s=0.05)
    second = scene.start(2)
    scene.until(lambda: "started" in scene.kinds("2.0"))
    assert first.poll() is None  # a claim alone ends no service
    scene.until(lambda: first.poll() is not None)
    client.stop()
    assert first.returncode == 85
    assert second.poll() is None
    assert client.who == ["1.0", "2.0"]
    assert client.outages_s == []
    assert scene.of("1.0", "leaving") == [{"why": "handed_over"}]
    assert scene.of("1.0", "exit") == [{"code": 85, "reason": "left"}]
    place = read_endpoint(scene.run_dir)
    assert place is not None
    assert (place["token"], place["job_id"]) == ("2.0", "102")


def test_a_service_that_fails_is_started_again_and_given_up_after_its_cap(scene: Scene) -> None:
    wrapper = scene.start(1, sys.executable, "-c", "import sys; sys.exit(3)", restarts=1)
    assert wrapper.wait(20) == 3
    assert [d["code"] for d in scene.of("1.0", "restarting")] == [3]
    assert scene.of("1.0", "exit") == [{"code": 3, "reason": "error"}]
    assert "ready" not in scene.kinds("1.0")
    assert read_endpoint(scene.run_dir) is None


def test_one_that_ends_by_itself_with_success_has_failed_too(scene: Scene) -> None:
    wrapper = scene.start(1, sys.executable, "-c", "pass", restarts=0)
    assert wrapper.wait(20) == 1


def test_a_crash_is_repaired_in_place_and_told(scene: Scene, tmp_path: Path) -> None:
    wrapper = scene.start(1, sys.executable, str(scene.server), "{port}", "0", str(tmp_path / "failed"))
    scene.until(lambda: scene.kinds("1.0").count("ready") == 2)
    assert wrapper.poll() is None
    assert scene.kinds("1.0")[:4] == ["started", "ready", "restarting", "ready"]


def test_it_serves_on_after_the_warning_and_leaves_before_the_limit(scene: Scene) -> None:
    wrapper = scene.start(1, walltime_s=9.0)
    scene.until(lambda: "ready" in scene.kinds("1.0"))
    wrapper.send_signal(signal.SIGUSR2)
    scene.until(lambda: "signal" in scene.kinds("1.0"))
    assert wrapper.poll() is None
    assert wrapper.wait(20) == 85
    assert scene.of("1.0", "leaving") == [{"why": "limit"}]


def test_ready_can_be_a_file_that_the_service_writes(scene: Scene, tmp_path: Path) -> None:
    stale = tmp_path / "up"
    stale.write_text("from an earlier job")
    code = "import sys, time, pathlib; time.sleep(0.6); pathlib.Path(sys.argv[1]).write_text('now'); time.sleep(60)"
    scene.start(1, sys.executable, "-c", code, str(stale), ready_file=str(stale), ready_port=None, ready_url="")
    scene.until(lambda: "started" in scene.kinds("1.0"))
    assert "ready" not in scene.kinds("1.0")
    scene.until(lambda: "ready" in scene.kinds("1.0"))


def test_control_and_signals_end_it(scene: Scene) -> None:
    first = scene.start(1)
    scene.until(lambda: "ready" in scene.kinds("1.0"))
    (scene.run_dir / "attempts" / "1.0" / "control").write_text("stop\n")
    assert first.wait(15) == 85
    second = scene.start(2)
    scene.until(lambda: "ready" in scene.kinds("2.0"))
    second.terminate()
    assert second.wait(15) == 85
    assert scene.of("2.0", "leaving") == [{"why": "signal"}]
