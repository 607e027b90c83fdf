"""The provisioners' rules: what they ask of a forecast, and what may never happen."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from world import make_run

from ischeduler.core.errors import BadInput
from ischeduler.core.jobs import JobState, Resources
from ischeduler.core.run import Attempt, Run, RunState
from ischeduler.plane.provisioners import (
    REACTIVE,
    Average,
    Forecast,
    HandOver,
    Informed,
    Newsvendor,
    Prices,
    Twin,
    smoothed,
)

START, LIMIT = 1000.0, 7200.0
FORECAST = Forecast(START, (0.1, 0.5, 0.9), (0.0, 600.0, 3600.0), mean_s=900.0, source="test")

waits = st.lists(st.floats(0, 1e6), min_size=2, max_size=9).map(sorted)
price = st.floats(0.01, 100)


def running(started_at: float | None = START, state: JobState = JobState.RUNNING) -> Run:
    attempt = Attempt(1, "r-1-1", "one", "gpu", Resources(walltime_s=LIMIT), 32, state=state, started_at=started_at)
    return replace(make_run(), state=RunState.RUNNING, attempts=(attempt,))


def forecast(values: list[float]) -> Forecast:
    return Forecast(START, tuple((i + 0.5) / len(values) for i in range(len(values))), tuple(values), mean_s=values[0])


def test_reactive_waits_for_the_end():
    assert REACTIVE.submit_at(running(), START) is None
    assert REACTIVE.submit_at(running(), START, FORECAST) is None


def test_average_submits_the_mean_wait_before_the_end():
    assert Average().submit_at(running(), START, FORECAST) == START + LIMIT - 900


def test_newsvendor_asks_the_critical_quantile():
    assert Newsvendor(Prices(1, 1)).lead_s(FORECAST) == 600
    assert Newsvendor(Prices(9, 1)).lead_s(FORECAST) == pytest.approx(3600)
    assert Newsvendor(Prices(7, 3)).lead_s(FORECAST) == pytest.approx(600 + 0.5 * 3000)
    assert Newsvendor(Prices(7, 3), margin_s=60).lead_s(FORECAST) == pytest.approx(2160)


def test_tuned_levels_replace_the_price_s_own():
    rule = Twin(Prices(1, 1), tuned=((0.5, 0.1), (0.9, 0.5)))
    assert rule.lead_s(FORECAST) == 0
    assert replace(rule, prices=Prices(9, 1)).lead_s(FORECAST) == 600
    with pytest.raises(ValueError, match="out of order"):
        Newsvendor(tuned=((0.5, 0.6), (0.9, 0.5)))


@given(values=waits, dear=price, cheap=price, now=st.floats(START, START + LIMIT))
def test_dearer_interruption_never_submits_later(values: list[float], dear: float, cheap: float, now: float):
    low, high = sorted((dear, cheap))
    asked, run = forecast(values), running()
    tuned = ((0.2, 0.1), (0.5, 0.4), (0.9, 0.4), (0.95, 0.9))
    for levels in ((), tuned):
        early = Newsvendor(Prices(high, 1), levels).submit_at(run, now, asked)
        late = Newsvendor(Prices(low, 1), levels).submit_at(run, now, asked)
        assert early is not None
        assert late is not None
        assert early <= late


@given(values=waits, longer=st.floats(0, 1e5), ratio=price)
def test_longer_waits_never_submit_later(values: list[float], longer: float, ratio: float):
    rule, run = Newsvendor(Prices(ratio, 1)), running()
    more = forecast([v + longer for v in values])
    assert rule.submit_at(run, START, more) <= rule.submit_at(run, START, forecast(values))


@given(values=waits, ratio=price, now=st.floats(START, START + 2 * LIMIT))
def test_never_in_the_past_and_only_the_ratio_counts(values: list[float], ratio: float, now: float):
    asked, run = forecast(values), running()
    at = Newsvendor(Prices(ratio, 1)).submit_at(run, now, asked)
    assert at >= now
    assert at == pytest.approx(Newsvendor(Prices(8 * ratio, 8)).submit_at(run, now, asked))


def test_nothing_known_or_not_running_means_reactive():
    for rule in (Average(), Newsvendor(), HandOver()):
        assert rule.submit_at(running(), START, None) is None
        assert rule.submit_at(make_run(), START, FORECAST) is None
    assert Newsvendor().lead_s(Forecast(START)) is None


def test_one_that_waits_is_followed_from_when_it_is_expected_to_start():
    run = running()
    waiting = replace(run.attempts[0], number=2, key="k-2", state=JobState.PENDING, started_at=None, created_at=START + 100)
    for wait, end in ((50.0, START + 2 * LIMIT), (LIMIT, START + 100 + 2 * LIMIT)):
        rule, said = Newsvendor(), Forecast(START, (0.5,), (wait,))
        assert rule.submit_at(replace(run, attempts=(*run.attempts, waiting)), START, said) == end - wait
        assert rule.submit_at(replace(run, attempts=(waiting,)), START, said) == START + 100 + LIMIT


def test_hand_over_keeps_a_share_of_the_segment():
    endless = Forecast(START, (0.5,), (1e9,))
    assert Newsvendor().submit_at(running(), START, endless) == START
    assert HandOver(Newsvendor(), longest_share=0.25).submit_at(running(), START, endless) == START + 0.75 * LIMIT


def test_informed_rule_is_the_port_s_provisioner():
    assert Informed(Newsvendor(), FORECAST).submit_at(running(), START) == START + LIMIT - 600
    assert Informed(HandOver(Newsvendor(), 0.05), FORECAST).submit_at(running(), START) == START + 0.95 * LIMIT
    assert Informed(REACTIVE, FORECAST).submit_at(running(), START) is None


def test_an_early_start_stays_where_another_would_not_come_in_time():
    rule = Newsvendor(kept=((0.25, 0.5), (0.75, 0.9)))
    assert rule.keep_s(FORECAST) == FORECAST.wait_s(0.7)
    assert replace(rule, prices=Prices(9, 1)).keep_s(FORECAST) == FORECAST.wait_s(0.9)
    assert rule.keep_s(replace(FORECAST, waits_s=(0.0, 0.0, 0.0))) == 900
    assert rule.keep_s(None) is None
    assert Newsvendor(kept=((0.5, 1.0),)).keep_s(FORECAST) is None
    assert Newsvendor().keep_s(FORECAST) is None
    assert Informed(rule, FORECAST).keep_s == FORECAST.wait_s(0.7)
    assert Informed(HandOver(rule), FORECAST).keep_s is None, "who takes over stays"
    with pytest.raises(ValueError, match="out of order"):
        Newsvendor(kept=((0.25, 0.6), (0.75, 0.5)))


def test_smoothing_averages_the_looks():
    spike = replace(FORECAST, waits_s=(0.0, 6600.0, 9600.0))
    assert smoothed([FORECAST, spike]).waits_s == (0.0, 3600.0, 6600.0)
    assert smoothed([FORECAST]) == FORECAST


@pytest.mark.parametrize("pair", [(-1, 1), (0, 0), (float("nan"), 1), (1, float("inf"))])
def test_bad_prices_are_refused_in_a_sentence(pair: tuple[float, float]):
    with pytest.raises(BadInput, match="give two numbers"):
        Prices(*pair)


def test_costs_at_equal_prices_are_the_sum():
    assert Prices().cost_h(3600, 1800) == pytest.approx(1.5)
    assert Prices(3, 1).cost_h(3600, 0) == pytest.approx(1.5)
