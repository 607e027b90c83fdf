"""Golden transcripts: what a person types and reads, word for word. ISCHED_UPDATE_GOLDEN=1 writes them anew."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from helper_world import T0, World
from typer.testing import Result

from ischeduler.core.event import Event
from ischeduler.core.jobs import Cause, JobState
from ischeduler.core.run import Progress, Run, RunState
from ischeduler.core.sizes import GIB

GOLDEN = Path(__file__).parent / "golden"
PLAN = "plan train.py --samples 20000 --epochs 50 --batch-size 32"


class Transcript:
    """Collects commands and their output, and compares the whole with the golden file."""

    def __init__(self, isched: Callable[..., Result], world: World) -> None:
        self._isched, self._world, self._text = isched, world, ""

    def type(self, line: str, *, stdin: str = "", code: int = 0) -> Result:
        result = self._isched(line, stdin)
        said = result.output
        self._text += f"$ isched {line}\n{said}"
        if result.exit_code:
            self._text += f"[exit code {result.exit_code}]\n"
        self._text += "\n"
        assert result.exit_code == code, said
        assert "Traceback" not in said
        return result

    def matches(self, name: str) -> None:
        path = GOLDEN / f"{name}.txt"
        text = self._text.replace(str(self._world.folder), "/home/me").replace(sys.executable, "python3")
        if os.environ.get("ISCHED_UPDATE_GOLDEN"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        assert text == path.read_text()


@pytest.fixture
def transcript(isched: Callable[..., Result], world: World) -> Transcript:
    return Transcript(isched, world)


def change(world: World, run_id: str, **fields: object) -> Run:
    """Let the stored run look as it would later."""
    run = world.store.get_run(run_id)
    return world.store.save_run(dataclasses.replace(run, **fields))  # type: ignore[arg-type]


def test_before_anything_is_submitted(transcript: Transcript) -> None:
    transcript.type("runs")
    transcript.type("status", code=2)
    transcript.type("submit 1", code=2)
    transcript.type(PLAN)
    transcript.type("plan train.py --samples 20000 --epochs 50 --partition shut", code=1)
    transcript.type("plan train.py --samples 20000 --epochs 50 --goal sonest", code=2)
    transcript.type(f"{PLAN} --goal deadline=1h", code=1)
    transcript.type("estimate train.py --samples 20000 --epochs 50")
    transcript.matches("before")


def test_delegate_follow_and_report(transcript: Transcript, world: World) -> None:
    transcript.type(PLAN)
    transcript.type("submit 1 --dry-run")
    transcript.type("submit 1", stdin="n\n", code=2)
    transcript.type("submit 1", stdin="y\n")
    run_id = "r-7f3a1c"
    world.clock.time = T0 + 600
    transcript.type("status")
    change(world, run_id, progress=Progress(epochs_done=20, epochs=50, loss=0.4123, checkpoint_at=T0 + 480, at=T0 + 590))
    transcript.type(f"why {run_id}")
    transcript.type("runs")
    transcript.type(f"logs {run_id}")
    transcript.type(f"move {run_id} lab/shut", code=1)
    transcript.type(f"move {run_id} lab/nowhere", code=2)
    transcript.matches("delegate")


def test_the_end_and_the_report(transcript: Transcript, world: World) -> None:
    run = world.plans()["lab/cpu"].submit()
    stored = world.store.get_run(run.id)
    attempt = dataclasses.replace(
        stored.attempts[0],
        state=JobState.COMPLETED,
        started_at=T0 + 30,
        ended_at=T0 + 30 + 8.9 * 3600,
        submitted_at=T0,
        cause=Cause.FINISHED,
    )
    world.clock.time = T0 + 9 * 3600
    progress = Progress(epochs_done=50, epochs=50, peak_rss_bytes=int(22.4 * GIB))
    change(
        world,
        run.id,
        state=RunState.COMPLETED,
        attempts=(attempt,),
        progress=progress,
        spent=0.748,
        message="training finished in one job",
    )
    transcript.type("status")
    transcript.type(f"report {run.id}")
    transcript.type(f"why {run.id}")
    transcript.type(f"cancel {run.id} --yes", code=2)
    transcript.matches("report")


def test_cancel_asks_first(transcript: Transcript, world: World) -> None:
    run = world.plans()["lab/cpu"].submit()
    transcript.type(f"cancel {run.id}", stdin="n\n", code=2)
    transcript.type(f"cancel {run.id}", stdin="y\n")
    transcript.matches("cancel")


def test_a_failed_run(transcript: Transcript, world: World) -> None:
    run = world.plans()["lab/gpudbg"].submit()
    stored = world.store.get_run(run.id)
    attempt = dataclasses.replace(
        stored.attempts[0], state=JobState.FAILED, started_at=T0, ended_at=T0 + 60, cause=Cause.USER_ERROR, exit_code=1
    )
    world.store.save_run(
        dataclasses.replace(
            stored,
            state=RunState.FAILED,
            attempts=(attempt,),
            message="the training failed twice with exit code 1 without progress",
        ),
        [Event(run.id, "noted", T0 + 60, data={"cause": "user_error"})],
    )
    transcript.type(f"status {run.id}", code=1)
    transcript.type(f"why {run.id}")
    transcript.type(f"watch {run.id}", code=1)
    transcript.type(f"report {run.id}", code=1)
    transcript.matches("failed")


def test_an_old_plan_is_checked_again(transcript: Transcript, world: World) -> None:
    transcript.type(PLAN)
    world.clock.time += 3600
    transcript.type("submit soonest --yes")
    transcript.matches("old-plan")
