"""Goals, the plan cache, lookups, the daemon's lock."""

from __future__ import annotations

import datetime
import os
from pathlib import Path

import pytest
from helper_builders import T0, plan, planset

from ischeduler.core.errors import BadInput, NoFeasiblePlan, NotFound
from ischeduler.helper import daemon
from ischeduler.helper.goals import parse_goal
from ischeduler.helper.plan_cache import CachedPlans, PlanRequest, recall, remember
from ischeduler.helper.plans import find_plan


@pytest.mark.parametrize("name", ["soonest", "cheapest", "fewest-interruptions"])
def test_plain_goals(name: str) -> None:
    assert parse_goal(name, T0).name == name


def test_deadlines_and_budgets() -> None:
    assert parse_goal("deadline=12h", T0).deadline == T0 + 43200
    when = "2026-05-01T09:00"
    assert parse_goal(f"deadline={when}", T0).deadline == datetime.datetime.fromisoformat(when).timestamp()
    assert (parse_goal("budget=$2.50", T0).budget, parse_goal("budget=2.5", T0).unit) == (2.5, "usd")
    assert (parse_goal("budget=40SU", T0).budget, parse_goal("budget=40SU", T0).unit) == (40, "SU")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sonest", "goal 'sonest' is unknown; the nearest is 'soonest'."),
        ("deadline", "deadline needs a time"),
        ("deadline=never", "'never' is neither a duration"),
        ("budget=much", "'much' is not an amount"),
        ("cheapest=1", "goal 'cheapest' takes no value"),
    ],
)
def test_bad_goals(text: str, words: str) -> None:
    with pytest.raises(BadInput) as error:
        parse_goal(text, T0)
    assert words in str(error.value)


def test_the_last_plan_of_a_folder_comes_back_whole(tmp_path: Path) -> None:
    request = PlanRequest(planset().workload, goal="cheapest", clusters=("pitzer",), account="abc", assume="/x/y.toml")
    remember(tmp_path, Path("/project"), CachedPlans(request, planset()))
    assert recall(tmp_path, Path("/project")) == CachedPlans(request, planset())


def test_folders_do_not_mix_and_damage_is_said(tmp_path: Path) -> None:
    remember(tmp_path, Path("/a"), CachedPlans(PlanRequest(planset().workload), planset()))
    with pytest.raises(NotFound, match="no plan was made in /b yet"):
        recall(tmp_path, Path("/b"))
    next((tmp_path / "plans").iterdir()).write_text("{")
    with pytest.raises(NotFound, match="cannot be read any more"):
        recall(tmp_path, Path("/a"))


@pytest.mark.parametrize(
    ("key", "number"), [("soonest", 1), ("ideal", 2), ("cheapest", 2), ("goal", 1), ("2", 2), ("pitzer/gpu", 2), ("cpu", 1)]
)
def test_lookups(key: str, number: int) -> None:
    assert find_plan(planset(), key).number == number


def test_a_refused_place_says_why() -> None:
    with pytest.raises(NoFeasiblePlan, match="pitzer/hugemem is refused: account not permitted"):
        find_plan(planset(), "pitzer/hugemem")


def test_an_unknown_place_names_the_nearest() -> None:
    with pytest.raises(NotFound, match="the nearest is 'pitzer/gpu'"):
        find_plan(planset(), "pitzer/gup")


def test_nothing_fits_says_the_first_reason() -> None:
    with pytest.raises(NoFeasiblePlan, match=r"nothing fits: pitzer/gpu needs 41 GB.*1 more"):
        find_plan(planset(plans=()), "soonest")


def test_the_lock_says_who_is_alive_and_keeps_a_second_out(tmp_path: Path) -> None:
    assert daemon.alive(tmp_path) is None
    with daemon.held(tmp_path) as lock:
        lock.beat(T0, 3)
        info = daemon.alive(tmp_path)
        assert info is not None
        assert (info.pid, info.last_tick_at, info.active_runs) == (os.getpid(), T0, 3)
        with pytest.raises(daemon.DaemonBusy, match="alive already"), daemon.held(tmp_path):
            pass
    assert daemon.alive(tmp_path) is None


def test_option_reads_through_to_its_plan() -> None:
    from ischeduler.helper.plans import Option

    option = Option(plan(), PlanRequest(plan().workload), None)  # type: ignore[arg-type]
    assert option.where == "pitzer/gpu"
    with pytest.raises(AttributeError):
        _ = option.nothing_like_it
