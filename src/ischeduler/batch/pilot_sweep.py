"""Taking away what a pool's directory no longer needs: segments that are over and done with, and pilots that nobody refers to."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from ischeduler.batch.local_jobs import JobFolder, JobFolders
from ischeduler.batch.pilot_files import read_json, status_of

_GONE = ".gone-"
"""A folder is renamed before it is emptied, so that nobody meets half of one."""


def swept(root: Path, before: float, done_with: Callable[[str], bool]) -> int:
    """Segments taken away: those that ended before an instant and whose key is done with. Call under the directory's lock.

    The newest segment stays whatever it is, for numbers are given once. A pilot's folder goes when it is closed and no segment ran in it.
    Raises OSError.
    """
    jobs, pilots = root / "jobs", root / "pilots"
    for half in (*jobs.glob(f"{_GONE}*"), *pilots.glob(f"{_GONE}*")):
        shutil.rmtree(half, ignore_errors=True)
    over = [f for f in JobFolders(root).submitted()[:-1] if _ended_before(f, pilots, before) and done_with(f.spec.key)]
    for folder in over:
        _take_away(folder.path)
    if pilots.is_dir():
        _sweep_pilots(root, before)
    return len(over)


def _ended_before(folder: JobFolder, pilots: Path, before: float) -> bool:
    status = status_of(folder, pilots)
    return status.state.ended and status.end_s is not None and status.end_s < before


def _sweep_pilots(root: Path, before: float) -> None:
    """A segment that its pilot's end took with it is known as ended by the pilot's folder alone."""
    used = {str(f.read("start.json").get("pilot", "")) for f in JobFolders(root).all()}
    for folder in (root / "pilots").iterdir():
        closed = read_json(folder / "ended.json").get("at")
        if isinstance(closed, (int, float)) and closed < before and folder.name not in used:
            _take_away(folder)


def _take_away(folder: Path) -> None:
    gone = folder.with_name(_GONE + folder.name)
    folder.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)
