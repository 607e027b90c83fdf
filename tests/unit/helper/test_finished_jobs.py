"""How often accounting is asked for finished jobs: seldom where it tells of many, soon again where it tells of few."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from ischeduler.core.snapshot import FinishedJob
from ischeduler.wiring import FINISHED_FEW, FINISHED_FEW_AGE_S, FINISHED_SINCE_S, Services

NOW = 2e9


class Site:
    """Accounting that tells of ``count`` jobs, and how often it was asked."""

    def __init__(self, folder: Path, count: int) -> None:
        self.count, self.asked, self.now_s = count, 0, NOW
        self.services = SimpleNamespace(
            batches={"one": SimpleNamespace(finished=self.finished)}, settings=SimpleNamespace(state_dir=folder),
            clock=SimpleNamespace(now=lambda: self.now_s),
        )  # fmt: skip

    def finished(self, since_s: float) -> tuple[FinishedJob, ...]:
        self.asked += 1
        assert since_s == self.now_s - FINISHED_SINCE_S
        return tuple(FinishedJob("me", f"job{i}", "cpu", NOW - 100, NOW - 90, NOW - i, 60.0) for i in range(self.count))

    def told(self, name: str = "one", **how: Any) -> int:
        return len(Services.finished_jobs(cast("Any", self.services), name, **how))


def test_many_jobs_are_asked_for_every_six_hours_and_few_every_quarter_of_an_hour(tmp_path: Path) -> None:
    for count, soon in ((FINISHED_FEW, 1), (FINISHED_FEW - 1, 2), (0, 2)):
        folder = tmp_path / str(count)
        folder.mkdir()
        site = Site(folder, count)
        assert (site.told(), site.told(), site.asked) == (count, count, 1)
        site.now_s += FINISHED_FEW_AGE_S
        site.told()
        assert site.asked == soon
        site.now_s += 6 * 3600
        site.told()
        assert site.asked == soon + 1


def test_somebody_in_a_hurry_is_told_what_is_newer(tmp_path: Path) -> None:
    site = Site(tmp_path, FINISHED_FEW)
    site.told()
    site.now_s += 61
    site.told(age_s=60.0)
    assert site.asked == 2


def test_accounting_that_falls_silent_unsays_nothing_but_what_is_older_than_a_week(tmp_path: Path) -> None:
    site = Site(tmp_path, 10)
    assert site.told() == 10
    site.count, site.now_s = 0, NOW + 7 * 3600
    assert site.told() == 10
    site.now_s = NOW + FINISHED_SINCE_S - 4.5
    assert site.told() == 5  # those that ended in the first five seconds before are a week old
    assert site.told("nobody") == 0
