"""A successor that starts too early gives its start back: which, how often, and what the world looks like afterwards."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from provisioning_parts import even_load

from ischeduler.helper.provisioning.evidence import LEVELS, Evidence
from ischeduler.helper.provisioning.forecasters import TwinForecaster
from ischeduler.helper.provisioning.judge import record
from ischeduler.helper.provisioning.methods import Method, told_in_hindsight, told_outcomes
from ischeduler.helper.provisioning.setting import Setting
from ischeduler.helper.provisioning.tuning import (
    KEEPS,
    RETURN_H,
    Decisions,
    after_start,
    decide,
    replayed,
    submissions,
    tune,
)
from ischeduler.plane.provisioners import RETURNS_MAX, Newsvendor
from ischeduler.simulator.chain import gaps_s, given_back, queue_at, successor_start_s

HOUR, DAY, SEGMENT_H = 3600, 86400, 48
LOOKS_S = np.arange(0, SEGMENT_H * HOUR + 1, 600)
REMAINING_H = SEGMENT_H - LOOKS_S / HOUR
HOURS = np.arange(0, len(LOOKS_S), 6)


def seen(start_s: int, waits_h: np.ndarray, quantiles_h: np.ndarray) -> Evidence:
    """An episode whose waits and hourly forecasts (every level alike) are given."""
    nothing = np.zeros(len(HOURS))
    twin = np.repeat(quantiles_h[HOURS][:, None], len(LEVELS), axis=1)
    return Evidence(start_s, 1, LOOKS_S + start_s, REMAINING_H, waits_h - REMAINING_H, HOURS, np.zeros((len(HOURS), 1)), nothing, twin, nothing)


def asked(due: list[int], keep_h: float) -> Decisions:
    return Decisions(np.array([*due, len(LOOKS_S) - 1]), np.full(len(LOOKS_S), keep_h))


def test_what_starts_too_early_is_given_back_and_queued_again():
    of = seen(0, np.full(len(LOOKS_S), 2.0), np.zeros(len(LOOKS_S)))
    starts_at_24, ends_in_5 = 22 * 6, 41 * 6
    made, gap = submissions(asked([starts_at_24, starts_at_24 + 1, ends_in_5], 8.0), of.gap.__getitem__, lambda g: after_start(of, g))
    assert made == [starts_at_24, ends_in_5], "looks before the start that was given back are passed over"
    assert gap == pytest.approx(-5.0)
    made, gap = submissions(asked([starts_at_24, ends_in_5], 24.0), of.gap.__getitem__, lambda g: after_start(of, g))
    assert (made, gap) == ([starts_at_24], -24.0)


def test_the_next_after_three_stays():
    of = seen(0, np.zeros(len(LOOKS_S)), np.zeros(len(LOOKS_S)))
    made, gap = submissions(asked(list(range(40)), 1.0), of.gap.__getitem__, lambda g: after_start(of, g))
    assert made == list(range(RETURNS_MAX + 1))
    assert gap == -REMAINING_H[RETURNS_MAX]


def test_who_gives_back_at_the_very_end_waits_for_the_end():
    of = seen(0, np.zeros(len(LOOKS_S)), np.zeros(len(LOOKS_S)))
    assert submissions(asked([6], 1.0), of.gap.__getitem__, lambda g: after_start(of, g)) == ([6, len(LOOKS_S) - 1], 0.0)


@given(st.integers(0, 2**32 - 1), st.floats(0.1, 60))
def test_what_stays_is_kept_forced_or_the_fourth(seed: int, keep_h: float):
    rng = np.random.default_rng(seed)
    of = seen(0, rng.exponential(6, len(LOOKS_S)), np.zeros(len(LOOKS_S)))
    due = sorted(set(rng.integers(0, len(LOOKS_S) - 1, 20).tolist()))
    made, gap = submissions(asked(due, keep_h), of.gap.__getitem__, lambda g: after_start(of, g))
    assert gap == of.gap[made[-1]]
    assert made == sorted(set(made))
    assert len(made) <= RETURNS_MAX + 1
    assert -gap <= keep_h or len(made) == RETURNS_MAX + 1
    for early, later in pairwise(made):
        assert -of.gap[early] > keep_h
        assert of.looks_s[later] > of.looks_s[early] + 3600 * of.wait[early] or later == len(LOOKS_S) - 1


def test_decisions_ask_the_forecast_of_the_look_of_the_start():
    of = seen(0, np.full(len(LOOKS_S), 1.0), np.where(LOOKS_S < 30 * HOUR, 20.0, 3.0))
    made = decide(of, Newsvendor(kept=((0.5, 0.5),)), of.twin, LEVELS)
    assert REMAINING_H[made.due[0]] == 20
    assert made.keep[0] == 20
    assert made.keep[-1] == 3
    assert np.isinf(decide(of, Newsvendor(), of.twin, LEVELS).keep).all()


def episodes(rng: np.random.Generator) -> list[Evidence]:
    """Half the time the queue clears at 40 h, whatever was foretold before; afterwards nobody waits."""
    found = []
    for number in range(40):
        clears = number % 2 == 0
        at_s = (20 + rng.integers(0, 8)) * HOUR
        foretold = np.where(clears & (at_s <= LOOKS_S), 0.0, 30.0)
        waits = np.where(clears, np.maximum(at_s - LOOKS_S, 0) / HOUR, 30.0 + rng.normal(0, 1, len(LOOKS_S)))
        found.append(seen(number * DAY, waits, foretold))
    return found


def test_giving_back_is_chosen_where_it_pays():
    made = episodes(np.random.default_rng(5))
    tables = [e.twin for e in made]
    staying, giving = tune(made, tables, LEVELS), tune(made, tables, LEVELS, KEEPS)
    assert staying.kept == ()
    assert dict(giving.kept)[0.5] < 1
    keeps = [level for _, level in giving.kept]
    assert keeps == sorted(keeps)
    assert giving.cost_h < 0.5 * staying.cost_h
    method = Method("one", TwinForecaster(), tuning=giving)
    outcomes = method.outcomes(made)
    assert {back for _, back in outcomes} == {0, 1}
    found = record("one", outcomes, SEGMENT_H)
    assert found.cost.mean() == pytest.approx(np.mean([abs(gap) + RETURN_H * back for gap, back in outcomes]), abs=1e-3)
    assert found.figures()["given_back"] == 0.5


def test_nothing_is_given_back_where_waits_are_as_foretold():
    made = [seen(n * DAY, np.full(len(LOOKS_S), 7.0), np.full(len(LOOKS_S), 7.0)) for n in range(12)]
    method = Method("one", TwinForecaster(), tuning=tune(made, [e.twin for e in made], LEVELS, KEEPS))
    assert method.outcomes(made) == [(0.0, 0)] * 12


@pytest.fixture(scope="module")
def setting() -> Setting:
    return even_load(7)


def test_a_world_with_a_start_given_back(setting: Setting):
    of = setting.episode(45 * DAY, 2)
    assert of is not None
    look_s = int(of.looks_s[6])
    start_s = successor_start_s(of.world, look_s, of.units, of.segment_s)
    after = given_back(of, look_s, 60)
    assert (after.start_s, after.end_s) == (of.start_s, of.end_s)
    new = [i for i in np.flatnonzero(after.world.row < 0) if i != after.predecessor]
    assert [(int(after.world.start_s[i]), int(after.world.end_s[i])) for i in new] == [(start_s, start_s + 60)]
    assert int(after.world.limit_s[new[0]]) == of.segment_s, "until it starts it waits like any other"
    assert not set(new) & set(queue_at(after.world, start_s + 60).alive.tolist())


def test_replayed_submissions_see_each_other(setting: Setting):
    of = setting.episode(45 * DAY, 2)
    assert of is not None
    gap = gaps_s(of) / HOUR
    remaining = (of.end_s - of.looks_s) / HOUR
    every = np.arange(len(of.looks_s))
    nothing = np.zeros(len(every))
    known = Evidence(45 * DAY, 2, of.looks_s, remaining, gap, every, nothing[:, None], nothing, nothing[:, None], nothing)
    early = int(np.flatnonzero(gap < -4)[0])
    both = Decisions(np.array([early, len(every) - 1]), np.full(len(every), 1.0))
    made, last, world = replayed(known, both, of)
    assert made == [early, len(every) - 1]
    assert last == (successor_start_s(given_back(of, int(of.looks_s[early]), 60).world, of.end_s, 2, of.segment_s) - of.end_s) / HOUR
    assert len(world.world) == len(of.world) + 1
    stays = Decisions(both.due, np.full(len(every), math.inf))
    assert replayed(known, stays, of)[:2] == ([early], pytest.approx(gap[early]))


def test_who_is_told_the_run_times_may_still_come_late_by_a_margin_and_give_back():
    """Two hours that arrive after the look are added by the margin; a start long before the end, when a wait of four hours is told by then, is given back."""
    late = [replace(seen(0, np.full(len(LOOKS_S), 6.0), LOOKS_S * 0.0), twin_true=np.full(len(HOURS), 4.0)) for _ in range(3)]
    assert [gap for gap, _ in told_outcomes(late)] == pytest.approx([2.0] * 3)
    assert told_in_hindsight(late) == [(pytest.approx(0.0), 0)] * 3
    early = np.where(REMAINING_H > 10, 1.5, 4.0)
    clears = replace(late[0], gap=early - REMAINING_H, twin_true=np.where(REMAINING_H[HOURS] > 19, 20.0, np.minimum(4.0, REMAINING_H[HOURS])))
    (stays,), (back,) = told_outcomes([clears]), told_in_hindsight([clears])
    assert stays == (pytest.approx(-18.5), 0)
    assert back[1] > 0
    assert abs(back[0]) < 0.5


def test_a_hand_over_takes_the_highest_quantile_and_the_widest_margin_that_leave_segments_long_enough():
    made = [seen(n * DAY, np.full(len(LOOKS_S), 7.0), np.full(len(LOOKS_S), 8.0)) for n in range(12)]
    sure = tune(made, [e.twin for e in made], LEVELS)
    assert (sure.handover_level, sure.handover_margin_h) == (LEVELS[-1], 3.25), "an hour too early already; 48 h may lose 4.32"
    wide = [np.tile(np.linspace(7.0, 20.0, len(LEVELS)), (len(HOURS), 1)) for _ in made]
    unsure = tune(made, wide, LEVELS)
    assert 0.5 <= unsure.handover_level < LEVELS[-1], "the highest quantile would cost 13 h of each segment"
    ended = record("hand_over", Method("one", TwinForecaster(), tuning=sure).outcomes(made, handover=True), SEGMENT_H, 180)
    assert ended.segment.mean() >= 0.91 * SEGMENT_H
