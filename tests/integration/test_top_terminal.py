"""``isched top`` in a real terminal of 80 by 24: it paints, and 'q' leaves with 0; piped it prints one look."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

pytest.importorskip("textual", reason="textual is missing; pip install 'ischeduler[top]'")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {
        **os.environ, "ISCHED_PATHS_STATE": str(tmp_path / "state"), "ISCHED_PATHS_DATA": str(tmp_path / "data"), "ISCHED_PLANE_AUTOSTART": "no",
        "ISCHED_BATCH_KIND": "local", "XDG_CONFIG_HOME": str(tmp_path / "none"), "TERM": "xterm-256color",
    }  # fmt: skip


def command(*more: str) -> list[str]:
    return [sys.executable, "-m", "ischeduler.cli.main", "top", *more]


def test_piped_it_prints_one_look(environment: dict[str, str], tmp_path: Path) -> None:
    text = subprocess.run(command(), env=environment, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert "0 runs under way" in text
    assert "local" in text
    document = json.loads(subprocess.run(command("--json"), env=environment, cwd=tmp_path, capture_output=True, text=True, check=True).stdout)
    assert document["schema"] == "isched.top/1"
    assert document["glance"]["clusters"][0]["name"] == "local"


def test_in_a_terminal_it_paints_and_leaves_when_told(environment: dict[str, str], tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen(command("--interval", "60"), env=environment, cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    try:
        painted = _read_until(ours, b"under way")
        assert b"PROGRESS" in painted
        os.write(ours, b"q")
        _read_until(ours, None)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def _read_until(terminal: int, wanted: bytes | None, patience_s: float = 120) -> bytes:
    """What the terminal got, up to a word (None: up to the end)."""
    seen = b""
    while wanted is None or wanted not in seen:
        if not select.select([terminal], [], [], patience_s)[0]:
            raise AssertionError(f"nothing more came after {seen[-300:]!r}")
        try:
            piece = os.read(terminal, 65536)
        except OSError:
            piece = b""
        if not piece:
            if wanted is None:
                return seen
            raise AssertionError(f"it left after {seen[-300:]!r}")
        seen += piece
    return seen
