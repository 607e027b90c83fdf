"""Pictures of the dashboard after the demo, by a headless Chromium that signs in as a person would."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-sync")


def take(url: str, token: str, pages: Mapping[str, str], folder: Path) -> list[Path]:
    """A full picture of each page, name to path, at 1440 pixels. None where no Chromium is installed."""
    program = shutil.which("chromium")
    if program is None:
        return []
    from playwright.sync_api import sync_playwright

    made: list[Path] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        page = browser.new_context(viewport={"width": 1440, "height": 900}, base_url=url).new_page()
        page.goto("/login")
        page.fill("#token", token)
        page.press("#token", "Enter")
        page.wait_for_url("**/runs")
        for name, path in pages.items():
            page.goto(path)
            made.append(folder / f"{name}.png")
            page.screenshot(path=made[-1], full_page=True)
        browser.close()
    return made
