"""Cascade arithmetic, re-estimation, hysteresis, cadence."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from world import T0, make_plan, make_run, seconds

from ischeduler.core.estimate import Estimate
from ischeduler.core.jobs import JobState
from ischeduler.core.run import Attempt, Progress, Run, RunState
from ischeduler.core.workload import EnvironmentSpec
from ischeduler.plane import segments
from ischeduler.plane.cadence import Cadence, next_tick_s
from ischeduler.plane.decide import decide
from ischeduler.plane.inputs import Submitted, Tick
from ischeduler.plane.pursue import key_of
from ischeduler.plane.reestimate import epoch_time, training_left
from ischeduler.plane.reschedule import clearly_better, expected_finish

TIMES = st.lists(st.floats(1.0, 1000.0), min_size=1, max_size=60)


def started(run: Run | None = None) -> Run:
    run, _ = decide(run or make_run(), Tick(), T0)
    return decide(run, Submitted(run.attempts[0].key, 1, "7"), T0)[0]


@given(value=st.floats(1.0, 1e4), n=st.integers(1, 60), prior=st.one_of(st.none(), st.floats(1.0, 1e4)))
def test_interval_narrows_with_each_epoch(value: float, n: int, prior: float | None):
    known = None if prior is None else seconds(prior)
    fewer, more = epoch_time([value] * n, known), epoch_time([value] * (n + 1), known)
    assert fewer is not None
    assert more is not None
    assert more.mean_sd < fewer.mean_sd
    assert abs(more.mean_s - value) <= abs(fewer.mean_s - value) + 1e-6


@given(times=TIMES, epochs=st.floats(0, 500))
def test_quantiles_are_ordered_and_not_negative(times: list[float], epochs: float):
    posterior = epoch_time(times, seconds(100))
    assert posterior is not None
    p10, p50, p90 = posterior.of(epochs)
    assert 0 <= p10 <= p50 <= p90


def test_an_outlier_does_not_count_and_a_wrong_plan_gives_way():
    clean, dirty = epoch_time([100.0] * 9, None), epoch_time([100.0] * 8 + [5000.0], None)
    assert clean is not None
    assert dirty is not None
    assert dirty.mean_s == pytest.approx(clean.mean_s, rel=0.01)
    wrong = epoch_time([100.0] * 3, seconds(10, 0.05))
    assert wrong is not None
    assert wrong.mean_s > 95


def test_a_good_prior_is_kept_while_nothing_is_seen():
    run = make_run(make_plan(epochs=10, epoch_s=60))
    left = training_left(run)
    assert left is not None
    assert left.p50 == pytest.approx(600)
    assert left.source == "plan"


def test_lead_follows_the_measured_save_and_step():
    run = make_run()
    assert segments.signal_lead_s(run, 3600) == 30
    run = replace(run, progress=Progress(checkpoint_save_s=40.0, step_time_s=10.0))
    assert segments.signal_lead_s(run, 3600) == 105
    assert segments.signal_lead_s(run, 120) == 40
    run = replace(run, progress=Progress(checkpoint_save_s=0.1))
    assert segments.signal_lead_s(run, 3600) == 30
    assert segments.signal_lead_s(run, 60) == 10


@given(done=st.integers(0, 100), limit=st.floats(60, 1e5))
def test_walltime_covers_the_rest_or_is_the_limit(done: int, limit: float):
    run = make_run(make_plan(epochs=100, epoch_s=60, walltime_s=limit))
    run = replace(run, progress=Progress(done, 100, done, 100, checkpoint="c", checkpoint_epoch=done, checkpoint_step=done))
    walltime = segments.next_walltime_s(run)
    left = training_left(run, durable=True)
    assert left is not None
    assert walltime == limit or (walltime < limit and walltime >= left.p90 and walltime % 60 == 0)


def test_job_spec_is_the_protocol():
    workload = replace(
        make_plan(batch=16).workload, environment=EnvironmentSpec(venv="/venv/"), directory="/code", grad_accum=2,
        checkpoint_every_s=90.0,
    )
    run = started(make_run(replace(make_plan(), workload=workload, account="PAS1", qos="normal")))
    spec = segments.job_spec(replace(run, excluded_nodes=("n1",)), run.attempts[0])
    assert spec.variables["ISCHED_CHECKPOINT_EVERY_S"] == "90"
    assert spec.key == key_of("r-1", 1) == "r-1-1"
    assert spec.command == (
        "/venv/bin/python", "-m", "ischeduler.training.wrapper", "--",
        "python", "train.py", "--batch=16", "--epochs=6", "--accum=2", "{other}",
    )
    assert spec.variables["ISCHED_RUN_DIR"] == "/runs/r-1"
    assert spec.variables["ISCHED_ATTEMPT"] == "1"
    assert spec.variables["ISCHED_GRACE_S"] == str(spec.signal_lead_s)
    assert float(spec.variables["ISCHED_WALLTIME_S"]) == spec.resources.walltime_s
    assert (spec.account, spec.qos, spec.directory, spec.output) == ("PAS1", "normal", "/code", "/runs/r-1/logs/1.out")
    assert spec.exclude_nodes == ("n1",)
    assert spec.launcher == "direct"


def test_launchers():
    workload = make_plan().workload
    assert segments.launcher_of(replace(workload, gpus=2)) == "torchrun"
    assert segments.launcher_of(replace(workload, nodes=2, framework="keras")) == "srun"
    assert segments.launcher_of(replace(workload, nodes=2, options={"launcher": "direct"})) == "direct"


@pytest.mark.parametrize(
    ("here", "there", "cost", "moves"),
    [
        (36000, 31000, 0, False), (36000, 30000, 0, True), (36000, 30000, 2000, False), (600, 500, 0, False), (600, 400, 0, True),
        (3600, 3100, 0, False), (3600, 2900, 0, True),
    ],
)
def test_hysteresis(here: float, there: float, cost: float, moves: bool):
    assert clearly_better(Estimate.exact(here, "s", "a"), Estimate.exact(there, "s", "b"), cost) is moves


def test_a_gamble_is_not_better():
    sure, gamble = Estimate(900, 1000, 1100, "s", "a"), Estimate(10, 100, 5000, "s", "b")
    assert not clearly_better(sure, gamble, 0)


@given(here=st.floats(1, 1e6), there=st.floats(1, 1e6), cost=st.floats(0, 1e5))
def test_never_there_and_back(here: float, there: float, cost: float):
    a, b = Estimate.exact(here, "s", "a"), Estimate.exact(there, "s", "b")
    assert not (clearly_better(a, b, cost) and clearly_better(b, a, cost))


def test_expected_finish_shrinks_with_progress_and_counts_waits():
    run = make_run(make_plan(epochs=100, epoch_s=60, walltime_s=1800, wait_s=600))
    early = expected_finish(run, T0)
    late = expected_finish(replace(run, progress=Progress(90, 100, 9000, 10000, epoch_times_s=(60.0,) * 90)), T0)
    assert early is not None
    assert late is not None
    assert late.p50 < early.p50
    assert early.p50 > 100 * 60 + 3 * 600


def test_cadence():
    c, run = Cadence(), started()
    assert next_tick_s([], T0, c) == c.idle_s
    assert next_tick_s([make_run()], T0, c) == c.fast_s
    assert next_tick_s([run], T0, c) == c.fast_s
    assert next_tick_s([run], T0 + 3600, c) == c.slow_s
    running = replace(run, state=RunState.RUNNING, attempts=(replace(run.attempts[0], state=JobState.RUNNING),))
    walltime = running.attempts[0].resources.walltime_s
    assert next_tick_s([running], T0 + walltime - 1, c) < next_tick_s([running], T0, c) <= c.slow_s
    away = replace(running, query_failures=3)
    assert next_tick_s([away], T0, c) == 16


def test_attempt_keys_are_per_run_and_number():
    keys = {key_of(r, n) for r in ("a", "b") for n in range(1, 50)}
    assert len(keys) == 98
    assert Attempt(1, "k", "c", "p", make_plan().resources, 1).ended_seen_at is None
