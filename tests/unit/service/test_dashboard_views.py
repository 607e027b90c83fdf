"""What the dashboard says of runs, clusters, options and estimators: pure values from core objects."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

import dashboard_world as world
from helper_builders import HOUR, attempt, plan, planset, run

from ischeduler.core.estimate import Estimate
from ischeduler.core.event import Event
from ischeduler.core.jobs import Cause, JobState
from ischeduler.core.run import Caps, Progress, RunState
from ischeduler.helper.report import report_of
from ischeduler.ports import WorkerSign
from ischeduler.service.dashboard.views.accuracy import accuracy_page
from ischeduler.service.dashboard.views.admin import controllers_table, queues_table, workers_table
from ischeduler.service.dashboard.views.clusters import cluster_card
from ischeduler.service.dashboard.views.curves import loss_curve, memory_curve, thinned
from ischeduler.service.dashboard.views.plans import options
from ischeduler.service.dashboard.views.run import run_page
from ischeduler.service.dashboard.views.runs import left_s, run_row, run_rows, share_done
from ischeduler.service.dashboard.views.timeline import timeline

NOW = world.NOW


def test_a_row_says_how_far_how_long_and_what_it_cost() -> None:
    one, _ = world.cascade()
    row = run_row(one, NOW)
    assert (row.name, row.where, row.progress, row.tone) == ("resnet50-flowers", "pitzer/gpudbg", "epoch 27/50", "live")
    assert row.share == pytest.approx(6750 / 12500)
    assert row.left_s == 23 * 151.0
    assert row.left == "58m of training left"
    assert row.money.words == "$0.210 of about $0.360"


def test_a_waiting_run_says_when_it_may_start() -> None:
    assert run_row(world.waiting(), NOW).left == "starts in about 4h00, 2h00 of training left"


def test_beyond_its_cap_a_run_is_marked() -> None:
    money = run_row(run(caps=Caps(max_cost=0.2), spent=0.3), NOW).money
    assert money.over
    assert money.words == "$0.300 of about $0.348, at most $0.200"


def test_what_costs_nothing_has_no_bar() -> None:
    free = run(plan=plan(cost=0.0), spent=0.0)
    assert run_row(free, NOW).money.share is None


def test_runs_that_want_attention_come_first_and_ended_ones_apart() -> None:
    going, ended = run_rows([one for one, _ in world.all_runs()], NOW)
    assert going[0].id == "r-91d0ee"
    assert [r.id for r in ended] == ["r-5e1177", "r-0bad00", "r-0e71ab"]


def test_progress_without_steps_counts_epochs() -> None:
    assert share_done(run(state=RunState.RUNNING, progress=Progress(epochs_done=5, epochs=20))) == 0.25
    assert share_done(run(state=RunState.COMPLETED, progress=Progress())) == 1.0
    assert left_s(run(state=RunState.COMPLETED)) is None


def test_loss_of_a_step_done_twice_is_the_later_one() -> None:
    told = [Event("r-1", "progress", t, data={"step": s, "loss": x}) for t, s, x in ((1, 10, 2.0), (2, 20, 1.5), (3, 20, 1.4), (4, 30, 1.0))]
    curve = loss_curve(told)
    assert curve.x == (10, 20, 30)
    assert curve.lines[0].y == (2.0, 1.4, 1.0)


@pytest.mark.parametrize("loss", ["nan", None, "lots", True, float("inf"), {"a": 1}])
def test_what_is_no_number_is_passed_over(loss: object) -> None:
    assert loss_curve([Event("r-1", "progress", 1, data={"step": 1, "loss": loss})]).empty


@given(st.lists(st.dictionaries(st.sampled_from(["rss_bytes", "gpu", "loss", "step", "name"]), st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5), lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=3), x, max_size=3), max_leaves=5)), max_size=8))  # fmt: skip
def test_whatever_a_job_sends_the_page_is_made(data: list[dict[str, object]]) -> None:
    one = world.cascade()[0]
    told = [Event(one.id, kind, NOW, "job", "1.0", i, d) for i, d in enumerate(data, 1) for kind in ("progress", "heartbeat", "checkpoint")]
    page = run_page(one, told, None, "", NOW)
    assert page.row.id == one.id


def test_memory_has_host_and_fullest_card_and_what_was_predicted() -> None:
    one, events = world.cascade()
    curve = next(c for c in run_page(one, events, None, "", NOW).curves if c.title == "Memory")
    assert [line.name for line in curve.lines] == ["host", "GPU"]
    assert max(v for v in curve.lines[1].y if v is not None) == pytest.approx(23.0, abs=0.1)
    assert [(limit.name, limit.low, limit.high) for limit in curve.limits] == [("host predicted", 3, 5), ("GPU predicted", 22, 26)]


def test_a_job_without_cards_has_no_line_for_them() -> None:
    beats = [Event("r-1", "heartbeat", t, data={"rss_bytes": 2**30}) for t in (1.0, 2.0)]
    assert [line.name for line in memory_curve(beats, 0.0).lines] == ["host"]


@given(st.lists(st.integers(), min_size=0, max_size=2000), st.integers(2, 300))
def test_thinned_keeps_ends_and_bounds(points: list[int], most: int) -> None:
    few = thinned(points, most)
    assert len(few) == min(len(points), most)
    if points:
        assert (few[0], few[-1]) == (points[0], points[-1])


def test_the_gantt_shows_waits_runs_checkpoints_and_what_cut_them() -> None:
    one, events = world.cascade()
    line = timeline(one, events, NOW)
    first, second = line.lanes
    assert line.words == "2 jobs, 1 interruption (walltime); 1h59 in jobs, 36m in queues."
    assert (first.ended_by, first.end_tone, second.ended_by, second.end_tone) == ("walltime", "warn", "", "live")
    assert [b.kind for b in first.bars] == ["wait", "run"]
    assert first.bars[0].end == first.bars[1].start
    assert second.bars[1].end == pytest.approx(line.now or 0)
    assert len(first.checkpoints) == 8
    assert line.promised is not None
    assert all(0 <= x <= 1 for lane in line.lanes for bar in lane.bars for x in (bar.start, bar.end))


def test_a_run_without_jobs_says_so() -> None:
    line = timeline(run(attempts=(), state=RunState.PLANNED, created_at=NOW), [], NOW)
    assert line.words == "No job has been submitted yet."
    assert line.lanes == ()


def test_a_handed_over_job_is_no_interruption() -> None:
    both = (attempt(1, cause=Cause.SUPERSEDED), attempt(2, cause=Cause.FINISHED))
    assert "no interruption" in timeline(run(attempts=both, ended_at=NOW), [], NOW).words


def test_a_job_that_gave_its_allocation_back_is_no_interruption_and_not_the_run_s_job() -> None:
    going = attempt(1, cause=None, ran_s=None, state=JobState.RUNNING)
    back = attempt(2, cause=Cause.RETURNED, ran_s=3, state=JobState.FAILED)
    line = timeline(run(state=RunState.RUNNING, attempts=(going, back)), [], NOW)
    assert "no interruption" in line.words
    assert [lane.end_tone for lane in line.lanes] == ["live", "idle"]
    table = queues_table([run(state=RunState.RUNNING, attempts=(going, back))])
    assert [r.cells for r in table.rows] == [("pitzer/gpu", "0", "1")]


def test_a_run_under_way_is_not_judged_for_what_may_still_grow() -> None:
    one, events = world.cascade()
    shown = {c.name: (c.verdict, c.tone) for c in run_page(one, events, report_of(one, [], NOW), "", NOW).compared}
    assert shown["run"] == ("so far", "idle")
    assert shown["gpu memory"] == ("inside, −4\u202f%", "good")
    done = world.ended("r-1", RunState.COMPLETED, 30, "x", Cause.FINISHED)
    told = {c.name: c.verdict for c in run_page(done, [], report_of(done, [], NOW), "", NOW).compared}
    assert told["run"] == "inside, +9\u202f%"
    assert told["wait"].startswith("outside")


def test_idle_cards_are_counted_once_though_two_partitions_share_them() -> None:
    card = cluster_card(world.PITZER, world.snapshot(), world.forecasts(), NOW)
    assert [(c.name, c.idle, c.total) for c in card.cards] == [("v100-32g", 6, 64), ("a100-80g", 0, 32)]
    rows = {p.name: p for p in card.partitions}
    assert (rows["gpu"].running, rows["gpu"].waiting, rows["gpu"].wait, rows["gpu"].chance) == (58, 112, "5h12–26h00", 0.12)
    assert (rows["serial-48core"].unit, rows["serial-48core"].idle, rows["serial-48core"].total) == ("node", 41, 160)
    assert rows["hugemem"].allowed is False
    assert rows["hugemem"].access == "Invalid account for this partition"


def test_each_fact_says_how_old_it_is() -> None:
    fresh = cluster_card(world.PITZER, world.snapshot(), (), NOW)
    assert (fresh.looked, fresh.looked_old, fresh.facts, fresh.facts_old) == ("40s ago", False, "5d00h ago", False)
    later = cluster_card(world.PITZER, world.snapshot(), (), NOW + 3600)
    assert later.looked_old
    unseen = cluster_card(world.OLD, None, (), NOW, live=False)
    assert (unseen.seen, unseen.looked_old, unseen.facts_old) == (False, True, True)


def test_options_share_one_axis_and_refusals_carry_their_fix() -> None:
    shown = options(planset())
    assert [r.where for r in shown.rows] == ["pitzer/cpu", "pitzer/gpu"]
    assert all(0 <= r.wait_share + r.run_share + r.late_share <= 1.000001 for r in shown.rows)
    assert shown.refusals[0].reasons == (("does not fit: needs 41 GB, card has 32 GB, 9 GB more needed", "batch 48 fits, or --grad-accum 2"),)
    assert shown.rows[0].goal
    assert shown.rows[0].tags == ("soonest",)


def test_an_option_that_never_ends_does_not_stretch_the_axis() -> None:
    forever = plan(2, "gpu", finish=Estimate(HOUR, 2 * HOUR, float("inf"), "s", "p"))
    shown = options(planset(plans=(plan(1, "cpu", run_h=9, wait_h=0), forever)))
    assert shown.axis_s == 9 * HOUR
    assert shown.rows[1].wait_share <= 1


def test_a_coverage_is_judged_only_with_enough_figures() -> None:
    few = accuracy_page([world.ended(f"r-{i}", RunState.COMPLETED, 30 + i, "x", Cause.FINISHED) for i in range(4)], [], NOW)
    assert {r.tone for r in few.rows} == {"idle"}
    many = accuracy_page([world.ended(f"r-{i}", RunState.COMPLETED, 30 + i, "x", Cause.FINISHED) for i in range(12)], [], NOW)
    told = {r.quantity: r for r in many.rows}
    assert (told["run time"].inside, told["run time"].tone) == (1.0, "good")
    assert (told["queue wait"].inside, told["queue wait"].tone, told["queue wait"].tone_under) == (0.0, "bad", "good")


def test_controllers_are_told_by_looks_a_minute_of_workers_alive() -> None:
    signs = [
        WorkerSign("w1", "n1", 1, NOW - 120, NOW, 3, {"pitzer": 8}), WorkerSign("w2", "n2", 2, NOW - 60, NOW - 2, 2, {"pitzer": 4}),
        WorkerSign("gone", "n3", 3, NOW - 900, NOW - 600, 0, {"pitzer": 99}),
    ]  # fmt: skip
    (row,) = controllers_table(signs, [world.cascade()[0]], NOW).rows
    assert row.cells == ("pitzer", "1", "8.1", "answers")
    assert [r.tone for r in workers_table(signs, NOW).rows] == ["good", "good", "bad"]
    silent = replace(world.cascade()[0], query_failures=2)
    assert controllers_table(signs, [silent], NOW).rows[0].cells[-1] == "no answer for 1"


def test_queues_count_our_jobs_by_place() -> None:
    rows = {r.cells[0]: r.cells[1:] for r in queues_table([world.cascade()[0], world.waiting()]).rows}
    assert rows == {"pitzer/gpudbg": ("0", "1"), "pitzer/gpu": ("1", "0")}
    pending = run(state=RunState.COMPLETED, attempts=(attempt(1, state=JobState.PENDING),))
    assert queues_table([pending]).rows == ()
