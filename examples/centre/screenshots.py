"""Pictures of the dashboard after the demo, by a headless Chromium that signs in as a person would."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-sync")
PATIENCE_MS = 120_000.0


def take(url: str, token: str, pages: Mapping[str, str], folder: Path, say: Callable[[str], None] = print) -> list[Path]:
    """A full picture of each page, name to path, at 1440 pixels. None where no Chromium is installed, nor of a page that does not come."""
    program = shutil.which("chromium")
    if program is None:
        return []
    from playwright.sync_api import Error, sync_playwright

    made: list[Path] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        page = browser.new_context(viewport={"width": 1440, "height": 900}, base_url=url).new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.goto("/login")
        page.fill("#token", token)
        page.press("#token", "Enter")
        page.wait_for_url("**/runs")
        for name, path in pages.items():
            try:
                page.goto(path)
                page.screenshot(path=folder / f"{name}.png", full_page=True)
            except Error as error:
                say(f"no picture of {path}: {error.message.splitlines()[0]}")
                continue
            made.append(folder / f"{name}.png")
        browser.close()
    return made
