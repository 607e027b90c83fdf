"""How convolutions borrow: learned from measured totals, and only where models left out are the better for it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from ischeduler.core.errors import BadInput
from ischeduler.core.sizes import MIB
from ischeduler.estimators.calibration.memory_fit import fit_memory
from ischeduler.estimators.calibration.record import CalibrationRecord, StepTime
from ischeduler.estimators.memory.calibration import SEARCH_SHARE, Behaviour, DeviceCalibration, Measured, learn
from ischeduler.estimators.memory.replay import replayed
from ischeduler.estimators.memory.report import Setting, memory_report
from ischeduler.estimators.memory.spec import TraceReport
from ischeduler.estimators.memory.steplog import ALLOC, FREE, WORK, ConvolutionCall, StepLog, joined
from ischeduler.estimators.memory.workspaces import Borrowers, Workspaces, borrowers

CONTEXT, HELD = 1700 * MIB, 2.0
CONV = ConvolutionCall("forward", (8, 64, 56, 56), (64, 64, 3, 3), (8, 64, 56, 56), 1, "fp32")
IO = 4 * 2 * 8 * 64 * 56 * 56


def log_at(batch: int) -> StepLog:
    """Much is allocated under a grouped convolution, less under an ordinary one."""
    rows = (
        (ALLOC, 1, 100 * MIB, 0.0), (ALLOC, 2, 10 * batch * MIB, 0.0), (WORK, 0, 0, 0.0), (FREE, 2, 0, 0.0),
        (ALLOC, 3, 4 * batch * MIB, 0.0), (WORK, 1, 0, 0.0), (FREE, 3, 0, 0.0), (WORK, -1, 0, 0.0),
    )
    return StepLog(batch, False, rows, {}, (replace(CONV, groups=64).at_batch(batch), CONV.at_batch(batch)), 1)


LINES = joined(log_at(8), log_at(16))
TRACE = TraceReport(8, "fake-accelerator", "2.13.0", 1, 100 * MIB, 0, 0, 80 * MIB, 180 * MIB, 180 * MIB, 8 * MIB, log=LINES)


def site(
    searched: float, kept: float, *, benchmark: bool, families: Sequence[str], noise: float = 0.01, seed: int = 1
) -> list[Measured]:
    """Runs of a site whose convolutions borrow so: five batches of a model of each family, some with hardly a convolution."""
    source = random.Random(seed)
    points: list[Measured] = []
    for family in families:
        weight, share = source.uniform(300, 3000), source.choice((0.01, 0.1, 0.2, 0.3))
        for batch in (8, 16, 32, 64, 128):
            reserved = (weight + source.uniform(0.9, 1.1) * 60 * batch) * MIB
            largest = round(share * 60 * batch * MIB)
            busiest = round(source.uniform(0.5, 0.95) * reserved)
            borrowed = max(reserved, busiest + searched * largest) - reserved if searched else 0.0
            total = (reserved + borrowed + kept * largest + CONTEXT + HELD * batch * MIB) * source.lognormvariate(0.0, noise)
            points.append(Measured(total, reserved, batch * MIB, Borrowers(largest, busiest), benchmark, family))
    return points


FAMILIES = tuple("abcdefghijklmnopqrst")


def test_what_a_step_may_borrow_is_that_of_its_ungrouped_convolutions() -> None:
    assert borrowers(LINES, 8) == Borrowers(IO, (100 + 4 * 8) * MIB)
    assert borrowers(LINES, 16) == Borrowers(2 * IO, (100 + 4 * 16) * MIB)
    assert borrowers(replace(LINES, convolutions=LINES.convolutions[:1] * 2), 8) == Borrowers()


def test_how_convolutions_borrow_is_recovered_with_and_without_the_search() -> None:
    points = site(4.0, 0.5, benchmark=True, families=FAMILIES) + site(0.0, 0.25, benchmark=False, families=FAMILIES, seed=2)
    learned = learn(points)
    assert learned.searching.searched == pytest.approx(4.0, abs=0.5)
    assert learned.searching.kept == pytest.approx(0.5, abs=0.25)
    assert (learned.quiet.searched, learned.quiet.kept) == (0.0, 0.25)
    assert learned.context_bytes == pytest.approx(CONTEXT, rel=0.05)
    assert (learned.searching.points, learned.quiet.points) == (100, 100)
    fresh = site(4.0, 0.5, benchmark=True, families=[f"new {f}" for f in FAMILIES], seed=9)
    assert error(learned, fresh) < 0.015 < 0.04 < error(learn([replace(p, family="") for p in points]), fresh)


def test_the_rules_stand_where_they_are_as_good() -> None:
    learned = learn(site(0.0, 0.0, benchmark=True, families=FAMILIES))
    assert (learned.searching.searched, learned.searching.kept) == (0.0, 0.0)
    assert learned.searching.error_rules is not None


def test_one_familys_habit_says_nothing_of_the_others() -> None:
    points = site(0.0, 0.0, benchmark=True, families=FAMILIES[:7], noise=0.002)
    odd = site(0.0, 1.0, benchmark=True, families=("z",) * 12, noise=0.002, seed=5)
    learned = learn(points + odd)
    assert (learned.searching.searched, learned.searching.kept) == (0.0, 0.0)


def test_nothing_is_fitted_where_too_few_families_can_be_held_out() -> None:
    learned = learn(site(4.0, 0.5, benchmark=True, families=FAMILIES[:3]))
    assert (learned.searching.searched, learned.searching.error_rules) == (0.0, None)


def test_a_few_runs_that_are_not_what_their_trace_is_change_little() -> None:
    points = site(4.0, 0.5, benchmark=True, families=FAMILIES)
    broken = [replace(p, total=p.total / 9) if place % 6 == 0 else p for place, p in enumerate(points)]
    learned = learn(broken)
    assert learned.searching.searched == pytest.approx(4.0, abs=0.5)
    assert learned.context_bytes == pytest.approx(CONTEXT, rel=0.1)


def test_the_interval_widens_with_the_largest_convolution_where_the_search_is_the_risk() -> None:
    source = random.Random(4)
    quiet = site(0.0, 0.0, benchmark=True, families=FAMILIES)
    points = [replace(p, total=p.total + source.choice((0, 0, 0, 2)) * p.borrowers.largest) for p in quiet]
    how = learn(points)
    assert how.searching.high_convolution >= 1.0
    spans = [how.quantiles(4e9, 0.0, Borrowers(large, 10**9), benchmark=True) for large in (0, 10**9)]
    assert spans[1][2] - spans[1][1] > spans[0][2] - spans[0][1] + 0.9e9
    found = [how.quantiles(p.reserved, p.inputs, p.borrowers, p.benchmark) for p in points]
    covered = sum(low <= p.total <= high for p, (low, _, high) in zip(points, found, strict=True))
    assert 0.75 <= covered / len(points) <= 0.88


def test_a_setting_that_was_not_measured_strays_as_the_other_and_the_search_stays_a_risk() -> None:
    learned = learn(site(0.0, 0.0, benchmark=False, families=FAMILIES))
    assert learned.searching.high_convolution >= SEARCH_SHARE
    assert (learned.searching.low_share, learned.searching.points) == (learned.quiet.low_share, 0)


def test_what_was_learned_is_part_of_the_reports_workspaces() -> None:
    rules = Workspaces("ampere", benchmark=True)
    plain = DeviceCalibration(CONTEXT, HELD)
    fitted = replace(plain, searching=Behaviour(4.0, 0.5, points=20))
    before, after = (memory_report(TRACE, setting=Setting(rules, c)) for c in (plain, fitted))
    beside = borrowers(LINES, 8)
    more = fitted.searching.borrowed(before.reserved_bytes + before.workspaces_bytes, beside)
    assert more >= IO / 2
    assert after.workspaces_bytes - before.workspaces_bytes == round(more)
    assert after.total.p50 - before.total.p50 == pytest.approx(more, abs=1)
    assert memory_report(TRACE, setting=Setting(replace(rules, benchmark=False), fitted)).total == memory_report(
        TRACE, setting=Setting(replace(rules, benchmark=False), plain)).total


def test_a_records_steps_become_its_memory_calibration() -> None:
    def row(model: str, batch: int, benchmark: bool, precision: str = "tf32") -> StepTime:
        reserved = replayed(LINES, batch, workspaces=Workspaces("ampere", benchmark)).peak_reserved
        return StepTime(model, batch, precision, benchmark, device_bytes=reserved + CONTEXT)

    steps = [row(f"timm:{m}", b, on) for m in ("resnet50", "vgg16") for b in (8, 16, 32) for on in (False, True)]
    failed = replace(row("timm:odd", 8, False), failed="out of memory")
    untold = [row("timm:odd", 8, False, "fp32"), failed, row("timm:untraced", 8, True)]
    record = CalibrationRecord("a100-40g", "2.13.0", 1.0, steps=(*steps, *untold))
    memory = fit_memory(record, lambda row: None if "untraced" in row.model else TRACE).memory
    assert memory is not None
    assert memory.context_bytes == pytest.approx(CONTEXT)
    assert (memory.quiet.points, memory.searching.points) == (6, 6)
    assert DeviceCalibration.from_json(memory.to_json()) == memory
    with pytest.raises(BadInput, match="at least 8"):
        fit_memory(replace(record, steps=tuple(steps[:4])), lambda row: TRACE)


def error(calibration: DeviceCalibration, points: Sequence[Measured]) -> float:
    off = [abs(calibration.quantiles(p.reserved, p.inputs, p.borrowers, p.benchmark)[1] / p.total - 1) for p in points]
    return sum(off) / len(off)
