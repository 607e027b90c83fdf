"""``isched top``: one glance as text, and the live screen driven by keys."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, Static

sys.path.insert(0, str(Path(__file__).parent.parent / "helper"))

from helper_builders import attempt, plan, run, workload
from helper_world import T0, World

from ischeduler.cli.top_screen import Ask, TopApp, Words
from ischeduler.cli.top_text import once, plain
from ischeduler.core.event import Event
from ischeduler.core.jobs import JobState
from ischeduler.core.run import Progress, RunState
from ischeduler.helper.top import QUEUE_EVERY_S, Lookout

EVIL = "[bold red]x[/]\x1b[2J\x1b]0;pwned\x07"


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    going = attempt(1, submitted=T0 - 900, wait_s=300, ran_s=None, cause=None, state=JobState.RUNNING, partition="gpudbg", cluster="lab")
    progress = Progress(epochs_done=27, epochs=50, loss=0.41, epoch_times_s=(61.0, 60.0))
    folder = tmp_path / "r-aa1"
    (folder / "logs").mkdir(parents=True)
    (folder / "logs" / "1.out").write_text(f"Epoch 27/50 loss 0.41\nodd {EVIL}\n")
    mine = run(id="r-aa1", owner="me", plan=plan(workload=workload(name="flowers")), state=RunState.RUNNING, created_at=T0 - 1000, attempts=(going,), progress=progress, directory=str(folder), spent=0.1)
    stored = made.store.create_run(mine)
    made.store.save_run(stored, [Event("r-aa1", "progress", T0 - 100 + i, "job", "1.0", i, {"step": i, "loss": 3.0 - i / 5}) for i in range(1, 11)])
    made.store.create_run(run(id="r-aa2", owner="me", state=RunState.FAILED, created_at=T0 - 9000, ended_at=T0 - 5000, message=EVIL, plan=plan(workload=workload(name=EVIL))))
    made.store.create_run(run(id="r-aa3", owner="somebody", plan=plan(workload=workload(name="not-mine"))))
    made.session.services.tick = lambda *a, **k: None  # type: ignore[method-assign,assignment]  # no job of these runs is known to the batch system
    return made


def drive(app: TopApp, story: Any, size: tuple[int, int] = (80, 24)) -> None:
    async def play() -> None:
        async with app.run_test(size=size) as pilot:
            await settled(pilot, lambda: app.glance is not None)
            await story(pilot)

    asyncio.run(play())


async def settled(pilot: Pilot[None], condition: Any) -> None:
    for _ in range(400):
        await pilot.pause(0.01)
        if condition():
            return
    pytest.fail("the screen never came to that")


def shown(app: TopApp, name: str) -> str:
    return str(app.query_one(name, Static).render())


def test_one_glance_is_plain_text_with_ones_own_runs(world: World) -> None:
    lines = once(Lookout(world.session).glance())
    assert lines[0] == "me: 1 run under way, 1 ended"
    assert lines[1].split() == ["RUN", "NAME", "STATE", "PROGRESS", "LEFT", "COST", "WHERE"]
    assert "r-aa1  flowers" in lines[2]
    assert "54%" in lines[2]
    assert "23m" in lines[2]
    assert any(line.startswith("lab  ") and "queue just now" in line for line in lines)
    assert "not-mine" not in "\n".join(lines)


def test_what_users_wrote_does_not_steer_the_terminal(world: World) -> None:
    text = "\n".join(once(Lookout(world.session).glance()))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert plain("a\x1b[31mb\nc\u202e") == "a [31mb c "


def test_a_queue_is_looked_at_seldom_and_its_silence_is_told(world: World) -> None:
    lookout, looks = Lookout(world.session), []
    real = world.batch.snapshot
    world.batch.snapshot = lambda: looks.append(1) or real()  # type: ignore[method-assign,func-returns-value]
    for _ in range(5):
        lookout.glance()
        world.clock.time += QUEUE_EVERY_S / 4
    assert len(looks) == 2
    world.batch.down = True
    world.clock.time += QUEUE_EVERY_S
    glance = lookout.glance()
    assert glance.troubles == ("lab: the controller does not answer",)
    assert once(glance)[-1] == "lab  the controller does not answer"


def test_the_screen_shows_runs_clusters_and_the_chosen_run(world: World) -> None:
    app = TopApp(Lookout(world.session), interval=3600)

    async def story(pilot: Pilot[None]) -> None:
        table = app.query_one(DataTable)
        assert [k.value for k in table.rows] == ["r-aa1", "r-aa2"]
        await settled(pilot, lambda: "flowers" in shown(app, "#detail"))
        assert "loss" in shown(app, "#detail")
        assert "Its limit is in" in shown(app, "#detail")
        assert "lab" in shown(app, "#clusters")
        await pilot.press("down")
        await settled(pilot, lambda: "FAILED" in shown(app, "#detail"))
        assert "[bold red]x[/]" in shown(app, "#detail")

    drive(app, story)


def test_keys_lead_to_why_and_logs_and_back(world: World) -> None:
    app = TopApp(Lookout(world.session), interval=3600)

    async def story(pilot: Pilot[None]) -> None:
        for key, expected in (("w", "RUNNING"), ("l", "Epoch 27/50 loss 0.41")):
            await pilot.press(key)
            await settled(pilot, lambda: isinstance(app.screen, Words))
            text = str(app.screen.query_one("VerticalScroll > Static", Static).render())
            assert expected in text
            assert "\x1b" not in text
            await pilot.press("escape")
            await settled(pilot, lambda: not isinstance(app.screen, Words))

    drive(app, story)


@pytest.mark.parametrize(("key", "asked"), [("n", False), ("escape", False), ("enter", False), ("y", True)])
def test_cancel_is_confirmed_first(world: World, key: str, asked: bool) -> None:
    app = TopApp(Lookout(world.session), interval=3600)

    async def story(pilot: Pilot[None]) -> None:
        await pilot.press("c")
        await settled(pilot, lambda: isinstance(app.screen, Ask))
        await pilot.press(key)
        await settled(pilot, lambda: not isinstance(app.screen, Ask))
        if asked:
            await settled(pilot, lambda: world.store.get_run("r-aa1").cancel_requested)
        await pilot.pause(0.05)

    drive(app, story)
    assert world.store.get_run("r-aa1").cancel_requested is asked


def test_an_ended_run_cannot_be_cancelled(world: World) -> None:
    app = TopApp(Lookout(world.session), interval=3600)

    async def story(pilot: Pilot[None]) -> None:
        await pilot.press("down", "c")
        await pilot.pause(0.05)
        assert not isinstance(app.screen, Ask)

    drive(app, story)


def test_a_look_keeps_the_cursor_on_its_run(world: World) -> None:
    app = TopApp(Lookout(world.session), interval=3600)

    async def story(pilot: Pilot[None]) -> None:
        await pilot.press("down")
        await settled(pilot, lambda: app.chosen == "r-aa2")
        newer = run(id="r-aa9", owner="me", state=RunState.QUEUED, created_at=T0, attempts=())
        world.store.create_run(newer)
        await pilot.press("r")
        await settled(pilot, lambda: app.query_one(DataTable).row_count == 3)
        await settled(pilot, lambda: app.chosen == "r-aa2")

    drive(app, story)


def test_a_run_that_goes_on_is_seen_going_on(world: World) -> None:
    app = TopApp(Lookout(world.session), interval=3600)

    async def story(pilot: Pilot[None]) -> None:
        stored = world.store.get_run("r-aa1")
        world.store.save_run(dataclasses.replace(stored, progress=dataclasses.replace(stored.progress, epochs_done=40)))
        await pilot.press("r")
        await settled(pilot, lambda: " 80%" in str(app.query_one(DataTable).get_cell("r-aa1", "PROGRESS")))

    drive(app, story)


def test_no_runs_is_said_kindly(tmp_path: Path) -> None:
    app = TopApp(Lookout(World(tmp_path).session), interval=3600)

    async def story(pilot: Pilot[None]) -> None:
        await settled(pilot, lambda: "no runs yet" in shown(app, "#detail"))
        await pilot.press("w", "l", "c")

    drive(app, story)




def test_a_long_log_is_read_once(world: World) -> None:
    lookout, asked = Lookout(world.session), []
    real = world.store.events
    world.store.events = lambda run_id, *, after=0: asked.append(after) or real(run_id, after=after)  # type: ignore[method-assign,func-returns-value]
    assert len(lookout.detail("r-aa1").losses) == 10
    stored = world.store.get_run("r-aa1")
    world.store.save_run(stored, [Event("r-aa1", "progress", T0, "job", "1.0", 11, {"step": 11, "loss": 0.5})])
    assert lookout.detail("r-aa1").losses[-1] == 0.5
    assert asked == [0, 10]
