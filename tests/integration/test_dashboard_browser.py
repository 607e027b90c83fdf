"""The dashboard in a real Chromium: both widths, light and dark, with and without scripts, by keyboard alone, and judged by axe-core.

With ``ISCHED_SCREENSHOTS`` set to a folder, screenshots of everything are left there for people to look at.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "service"))

from dashboard_world import World

from ischeduler.core.run import RunState

SHOTS = os.environ.get("ISCHED_SCREENSHOTS")
CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync",
)  # fmt: skip
pytestmark = pytest.mark.skipif(not Path(CHROMIUM).exists(), reason="chromium is missing; install it: scripts/install-browser")
PATIENCE_MS = 120_000
"""Machines that do much else at the same time are slow, not wrong."""
PLAN = {"model": "timm:resnet50", "samples": "20000", "epochs": "50", "batch_size": "32,64"}
PAGES = {
    "runs": "/runs", "run": "/runs/r-7f3a01", "waiting": "/runs/r-2b9c44", "failed": "/runs/r-0bad00", "hostile": "/runs/r-0e71ab", "cancel": "/runs/r-7f3a01/cancel",
    "move": "/runs/r-7f3a01/move", "clusters": "/clusters", "plan": "/plan", "options": "/plan/p-0001", "submit": "/plan/p-0001/2",
    "estimators": "/estimators", "missing": "/runs/r-ffffff",
}  # fmt: skip
LOOKS = [(1440, "light"), (1440, "dark"), (390, "light"), (390, "dark")]


@dataclass
class Site:
    """The running service and a browser for it."""

    world: World
    address: str
    browser: Browser

    def shoot(self, page: Page, name: str) -> None:
        """A picture of the whole page, where somebody wants to look."""
        if SHOTS:
            page.screenshot(path=Path(SHOTS) / name, full_page=True)

    def context(self, width: int = 1440, scheme: str = "light", *, scripts: bool = True, user: str = "alice") -> BrowserContext:
        """A browser window of that user, signed in through the page itself."""
        made = self.browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, java_script_enabled=scripts, base_url=self.address,  # type: ignore[arg-type]
        )  # fmt: skip
        made.set_default_timeout(PATIENCE_MS)
        if user:
            page = made.new_page()
            page.goto("/login")
            page.fill("#token", self.world.tokens[user])
            page.press("#token", "Enter")
            page.wait_for_url("**/runs")
            page.close()
        return made


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("dashboard")
    world = World(folder)
    world.shelf.plan("alice", PLAN)
    server = uvicorn.Server(uvicorn.Config(world.app, port=0, log_level="warning", log_config=None))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    port = server.servers[0].sockets[0].getsockname()[1]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield Site(world, f"http://127.0.0.1:{port}", browser)
        browser.close()
    server.should_exit = True
    thread.join(10)


def watched(context: BrowserContext, site: Site) -> tuple[Page, list[str]]:
    """A page, and what went wrong on it: script errors, refused content, requests to anywhere else."""
    page, wrong = context.new_page(), []
    page.on("pageerror", lambda error: wrong.append(f"script: {error}"))
    page.on("dialog", lambda dialog: (wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    page.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") and "404" not in said.text else None)
    page.on("request", lambda asked: wrong.append(asked.url) if not asked.url.startswith((site.address, "data:")) else None)
    return page, wrong


def too_wide(page: Page) -> int:
    """Pixels by which the page scrolls sideways."""
    return page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")


def findings(page: Page) -> list[str]:
    """axe-core's serious and critical ones."""
    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    return [f"{v['id']}: {v['nodes'][0]['html'][:200]}" for v in found if v["impact"] in ("serious", "critical")]


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_every_page_is_sound_at_both_widths_in_light_and_dark(site: Site, width: int, scheme: str) -> None:
    judged = (width, scheme) in ((1440, "light"), (390, "dark"))
    with site.context(width, scheme) as context:
        page, wrong = watched(context, site)
        for name, path in PAGES.items():
            page.goto(path)
            site.shoot(page, f"{name}-{width}-{scheme}.png")
            assert too_wide(page) <= 0, name
            if judged:
                assert findings(page) == [], name
        assert wrong == []


@pytest.mark.parametrize("width", [1440, 390])
def test_without_scripts_every_page_can_be_read_and_used(site: Site, width: int) -> None:
    with site.context(width, scripts=False) as context:
        page, wrong = watched(context, site)
        for name, path in PAGES.items():
            page.goto(path)
            site.shoot(page, f"{name}-{width}-plain.png")
            assert page.locator("main h1").is_visible(), name
            assert too_wide(page) <= 0, name
        page.goto("/runs/r-7f3a01")
        curve = page.locator("figure.curve svg").first.bounding_box()
        assert curve is not None
        assert curve["height"] > 100
        page.locator("summary", has_text="Loss as a table").click()
        assert page.locator("figure.curve table").first.is_visible()
        page.goto("/plan")
        for field, value in PLAN.items():
            page.fill(f"#f-{field}", value)
        page.click("text=Show options")
        assert "3 options" in page.locator("h1").inner_text()
        assert wrong == []


@pytest.mark.parametrize(("width", "scheme"), [(1440, "dark"), (390, "light")])
def test_signing_in_and_administration(site: Site, width: int, scheme: str) -> None:
    with site.context(width, scheme, user="carol") as context:
        page, wrong = watched(context, site)
        for name, path in (("admin", "/admin"), ("empty", "/runs"), ("everybody", "/runs?everybody=1"), ("signin", "/login")):
            page.goto(path)
            site.shoot(page, f"{name}-{width}-{scheme}.png")
            assert too_wide(page) <= 0, name
            assert findings(page) == [], name
        assert wrong == []


def test_from_the_form_to_a_run_by_keyboard_alone(site: Site) -> None:
    with site.context() as context:
        page, wrong = watched(context, site)
        page.goto("/plan")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to content"
        page.keyboard.press("Enter")
        for name in ("model", "samples", "epochs", "batch_size"):
            tab_to(page, f"document.activeElement.name === '{name}'")
            page.keyboard.type(PLAN[name])
        page.keyboard.press("Enter")
        page.wait_for_url("**/plan/p-0001")
        tab_to(page, "document.activeElement.textContent.startsWith('Choose option 2')")
        page.keyboard.press("Enter")
        page.wait_for_url("**/plan/p-0001/2")
        tab_to(page, "document.activeElement.name === 'max_cost'")
        page.keyboard.type("0.50")
        tab_to(page, "document.activeElement.textContent === 'Submit'")
        page.keyboard.press("Enter")
        page.wait_for_url("**/runs/r-fe5400")
        assert site.world.shelf.asked[-1][0] == "submit"
        assert wrong == []


def tab_to(page: Page, condition: str, most: int = 60) -> None:
    """Go on with Tab until there, every stop being visibly focused."""
    for _ in range(most):
        if page.evaluate(condition):
            return
        page.keyboard.press("Tab")
        shown: Any = page.evaluate(
            "(() => { const e = document.activeElement, s = getComputedStyle(e), r = e.getBoundingClientRect();"
            " return e === document.body || (parseFloat(s.outlineWidth) >= 2 && s.outlineStyle !== 'none' && r.width > 1 && r.height > 1); })()"
        )
        assert shown, page.evaluate("document.activeElement.outerHTML.slice(0, 200)")
    pytest.fail(f"the keyboard does not reach: {condition}")


def test_a_run_that_goes_on_is_seen_going_on_and_keeps_the_readers_place(site: Site) -> None:
    with site.context() as context:
        page, wrong = watched(context, site)
        with page.expect_response(lambda answer: answer.url.endswith("/v1/runs/r-2b9c44/stream")) as streamed:
            page.goto("/runs/r-2b9c44")
        assert streamed.value.status == 200
        page.locator("#cancel-r-2b9c44").focus()
        store = site.world.shelf.store
        store.save_run(replace(store.get_run("r-2b9c44"), state=RunState.RUNNING, message=""))
        page.wait_for_selector("#run .badge:text-is('running')")
        assert page.evaluate("document.activeElement.id") == "cancel-r-2b9c44"
        page.click("text=Pause live updates")
        assert page.locator("text=Go on live").get_attribute("aria-pressed") == "true"
        assert wrong == []


def test_a_curve_can_be_pointed_at(site: Site) -> None:
    with site.context() as context:
        page, wrong = watched(context, site)
        page.goto("/runs/r-7f3a01")
        page.wait_for_selector(".plot.drawn canvas")
        page.locator(".u-over").first.hover()
        page.wait_for_function("parseFloat(document.querySelectorAll('.u-legend .u-value')[1].textContent) > 0")
        assert page.locator(".plot.drawn [role=img]").first.get_attribute("aria-label")
        assert wrong == []


def test_the_theme_can_be_chosen_against_the_systems(site: Site) -> None:
    with site.context(scheme="light") as context:
        page, wrong = watched(context, site)
        page.goto("/clusters")
        light = page.evaluate("getComputedStyle(document.body).backgroundColor")
        for expected in ("Light", "Dark"):
            page.click(".who button[name=theme]")
            page.wait_for_selector(f".theme-word:text-is('{expected}')")
        assert page.url.endswith("/clusters")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
        assert wrong == []
