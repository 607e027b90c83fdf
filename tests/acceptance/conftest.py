"""The commands on fakes: one deterministic world a test, its clock set by hand."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "unit" / "helper"))

from helper_world import World
from typer.testing import CliRunner, Result


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path)
    monkeypatch.setattr("ischeduler.helper.session.Session", lambda config=None: made.session)
    monkeypatch.setattr("secrets.token_hex", lambda n: "7f3a1c"[: 2 * n])
    monkeypatch.chdir(tmp_path)
    return made


@pytest.fixture
def isched(world: World) -> Callable[..., Result]:
    """Runs a command line in this process; what it exits with and prints."""
    from ischeduler.cli.root import app

    def call(line: str, stdin: str = "") -> Result:
        import shlex

        return CliRunner().invoke(app, shlex.split(line), input=stdin)

    return call
