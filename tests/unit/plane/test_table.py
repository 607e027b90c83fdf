"""The transition table, and the page that shows it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from world import T0, make_run

from ischeduler.core.jobs import Cause
from ischeduler.core.run import RunState
from ischeduler.plane.describe import MEANING, page
from ischeduler.plane.reactions import REACTIONS
from ischeduler.plane.transitions import LIVE, TERMINAL, TRANSITIONS, IllegalTransition, allowed, move

PAIRS = [(a, b) for a in RunState for b in RunState]
DOC = Path(__file__).parents[3] / "docs" / "reference" / "run-states.md"


@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_every_pair_is_allowed_or_raises_with_its_story(before: RunState, after: RunState):
    run = replace(make_run(), state=before)
    if allowed(before, after):
        moved = move(run, after, T0 + 5)
        assert moved.state is after
        assert moved.state_since == (T0 if before is after else T0 + 5)
        assert (moved.ended_at is not None) == (after.ended and before is not after)
    else:
        with pytest.raises(IllegalTransition, match=f"r-1 cannot go from {before} to {after}"):
            move(run, after, T0)


def test_terminal_states_are_final_and_every_live_state_reaches_an_end():
    assert not [pair for pair in TRANSITIONS if pair[0] in TERMINAL]
    for start in LIVE:
        reached, todo = {start}, [start]
        while todo:
            now = todo.pop()
            new = {b for a, b in TRANSITIONS if a is now} - reached
            reached |= new
            todo += new
        assert reached >= TERMINAL


def test_a_run_ends_only_when_nothing_is_alive():
    assert {a for a, b in TRANSITIONS if b in TERMINAL} == {RunState.BETWEEN_SEGMENTS}


def test_unknown_remembers_where_it_came_from():
    run = move(replace(make_run(), state=RunState.RUNNING), RunState.UNKNOWN, T0)
    assert run.state_before_unknown is RunState.RUNNING
    assert move(run, RunState.RUNNING, T0).state_before_unknown is None


def test_every_cause_has_a_reaction_and_every_state_a_meaning():
    assert set(REACTIONS) == set(Cause)
    assert set(MEANING) == set(RunState)


def test_the_page_is_up_to_date():
    assert DOC.read_text() == page(), "run: python -m ischeduler.plane.describe > docs/reference/run-states.md"
