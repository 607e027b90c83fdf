"""``isched top`` over a service: the same glance as without one, of one's own runs only."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("textual", reason="textual is missing; pip install 'ischeduler[top]'")
pytest.importorskip("fastapi", reason="the service's libraries are missing: pip install 'ischeduler[service]'")

from test_remote_session import Place

from ischeduler.cli.top_screen import TopApp
from ischeduler.cli.top_text import once
from ischeduler.helper.top import Lookout


def test_top_over_a_service(tmp_path: Path) -> None:
    place = Place(tmp_path)
    alice, bob = place.session("alice"), place.session("bob")
    run = place.plans(alice)["soonest"].submit()
    glance = Lookout(alice).glance()
    assert glance.owner == "alice"
    assert [r.id for r in (*glance.going, *glance.ended)] == [run.id]
    assert [c.name for c in glance.clusters if c.seen] == ["local"]
    assert "alice: 1 run under way" in once(glance)[0]
    assert run.id not in "\n".join(once(Lookout(bob).glance()))

    async def cancel() -> None:
        app = TopApp(Lookout(alice), interval=3600)
        async with app.run_test(size=(80, 24)) as pilot:
            for key, done in (("c", lambda: len(app.screen_stack) == 2), ("y", lambda: alice.owned_run(run.id).cancel_requested)):
                for _ in range(400):
                    await pilot.pause(0.01)
                    if app.chosen == run.id:
                        break
                await pilot.press(key)
                for _ in range(400):
                    await pilot.pause(0.01)
                    if done():
                        break

    asyncio.run(cancel())
    assert alice.owned_run(run.id).cancel_requested or alice.owned_run(run.id).state.ended
