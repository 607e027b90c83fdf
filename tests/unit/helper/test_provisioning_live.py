"""A trained provisioner on a live queue sees what it saw in its training, and its rule is the one of the settings."""

from __future__ import annotations

import base64
import json
import os
import pickle
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("lightgbm", reason="LightGBM is not installed")
pytest.importorskip("numba", reason="numba is not installed")

from helper_builders import plan
from helper_builders import run as make_run

from ischeduler.core.errors import BadInput, ConfigError
from ischeduler.core.jobs import JobState, Resources
from ischeduler.core.run import Attempt, Progress, Run, RunState
from ischeduler.core.snapshot import FinishedJob, QueuedJob, QueueSnapshot
from ischeduler.estimators.jobruntime.model import RuntimeLaw
from ischeduler.estimators.jobruntime.table import job_table
from ischeduler.helper.foresight import HAND_OVER_SHARE, LiveForesight
from ischeduler.helper.provisioning.collecting import fit_laws
from ischeduler.helper.provisioning.evidence import Evidence, Sight, gather, look_at
from ischeduler.helper.provisioning.live import Look, forecast
from ischeduler.helper.provisioning.methods import Effort, fitted
from ischeduler.helper.provisioning.model_file import TrainedProvisioner, forecaster_of, read, write
from ischeduler.helper.provisioning.setting import Setting
from ischeduler.helper.provisioning.training import Order, train
from ischeduler.helper.provisioning.tuning import Tuning
from ischeduler.plane.provisioners import REACTIVE, Forecast, Informed, Newsvendor

DAY, HOUR = 86400, 3600
AT_ONCE_H = 1e4
SEGMENT_S = 12 * HOUR


@pytest.fixture(scope="module")
def setting() -> Setting:
    """Twelve nodes under a load that waxes and wanes by the week."""
    rng = np.random.default_rng(4)
    submit = np.sort(np.concatenate([rng.integers(w * 7 * DAY, (w + 1) * 7 * DAY, n) for w, n in enumerate([150, 300] * 5)]))
    count = len(submit)
    limit = rng.choice([2 * HOUR, 8 * HOUR, 16 * HOUR], count)
    table = job_table({
        "submit_s": submit, "start_s": submit + rng.integers(0, 2 * HOUR, count), "run_s": limit * rng.uniform(0.1, 1, count),
        "req_units": rng.integers(1, 4, count), "req_walltime_s": limit, "user": rng.integers(0, 9, count).astype(str),
    })  # fmt: skip
    return Setting(table, 12, 49 * DAY, segment_s=SEGMENT_S, span_s=3 * DAY, horizon_s=4 * DAY, source="made up")


@pytest.fixture(scope="module")
def model(setting: Setting, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, TrainedProvisioner]:
    out = tmp_path_factory.mktemp("model") / "model.json"
    train(setting, Order(units=2, training=24, validation=0, rolls=32, stride=12, looks=100), out)
    return out, read(out)


def live_at(setting: Setting, start_s: int, look: int = 0) -> tuple[QueueSnapshot, tuple[FinishedJob, ...], Attempt]:
    """What squeue and sacct would show at a look of an episode, the segment running."""
    of = setting.episode(start_s, 2)
    assert of is not None
    now, world, table = int(of.looks_s[look]), of.world, setting.table
    jobs, known = [], []
    for i, row in enumerate(world.row):
        if world.submit_s[i] > now:
            continue
        runs = 0 <= world.start_s[i] <= now
        if runs and world.end_s[i] <= now:
            known.append(row)
            continue
        user = str(table.user[row]) if row >= 0 else "me"
        start = float(world.start_s[i]) if runs else None
        jobs.append(QueuedJob(
            str(i), "p", "RUNNING" if runs else "PENDING", int(world.units[i]), 0, float(world.submit_s[i]), start, float(world.limit_s[i]), user=user,
        ))  # fmt: skip
    past = [r for r in range(len(table)) if table.start_s[r] + table.run_s[r] <= start_s]
    over = tuple(
        FinishedJob(str(table.user[r]), "", "p", *(float(x) for x in (table.submit_s[r], table.start_s[r], table.end_s[r], table.limit_s[r])), int(table.units[r]))
        for r in past
    )  # fmt: skip
    attempt = Attempt(
        1, "r-1", "one", "p", Resources(nodes=2, walltime_s=float(SEGMENT_S)), 8, state=JobState.RUNNING, job_id=str(of.predecessor),
        started_at=float(of.start_s), spool_started=True, spool_started_at=float(of.start_s),
    )  # fmt: skip
    return QueueSnapshot("one", float(now), (), tuple(jobs)), over, attempt


def test_a_live_look_says_what_the_look_of_an_episode_says(setting: Setting, model: tuple[Path, TrainedProvisioner]):
    law, told, seen = fit_laws(setting, looks=100).full, [], []
    starts = [int(s) for s in setting.validation_starts()[::12]]
    for start in starts:
        of = setting.episode(start, 2)
        assert of is not None
        episode = look_at(setting, law, of, start, Sight(stride=1000, rolls=64), outcomes=False)
        seen.append(model[1].forecaster.forecast(episode)[0])
        snapshot, finished, attempt = live_at(setting, start)
        found = forecast(model[1], snapshot, finished, attempt, snapshot.taken_at)
        told.append(np.array(found.waits_s) / HOUR)
    told, seen = np.array(told), np.array(seen)
    middle = len(told[0]) // 2
    assert np.ptp(seen[:, middle]) > 2, "the queue is empty at times and full at others"
    assert np.corrcoef(told[:, middle], seen[:, middle])[0, 1] > 0.9
    assert np.abs(told - seen).mean() < 0.15 * np.ptp(seen[:, middle])


PEERS = {
    "random_forest": "sklearn", "xgboost": "xgboost", "transformer_policy": "torch", "mixture_value": "torch", "dqn": "stable_baselines3",
    "ppo": "stable_baselines3",
}  # fmt: skip


@pytest.fixture(scope="module")
def learned(setting: Setting) -> tuple[RuntimeLaw, list[Evidence]]:
    law = fit_laws(setting, looks=100).full
    starts = setting.training_starts()[::10]
    return law, [e for e in gather(setting, law, starts, 2, Sight(stride=12, rolls=2)) if e is not None]


@pytest.mark.parametrize("name", PEERS)
def test_every_peer_sees_live_what_it_learned_from(name: str, setting: Setting, learned: tuple[RuntimeLaw, list[Evidence]], tmp_path: Path):
    """Six looks of an episode, one after another, by what was read back from a model file: its forecasts are the episode's."""
    pytest.importorskip(PEERS[name], reason=f"{PEERS[name]} is not installed")
    method = fitted(name, learned[1], 0, effort=Effort(8, 3, 1000))
    assert method.forecaster is not None
    assert isinstance(method.rule, Newsvendor)
    about = {"method": name, "segment_units": 2, "seed": 0, "data": {"units": setting.capacity}}
    write(TrainedProvisioner(method.forecaster, Tuning(), learned[0], about, method.rule.margin_s), tmp_path / "model.json")
    model = read(tmp_path / "model.json")
    assert model.segments_own
    assert model.rule().lead_s(Forecast(0.0, (0.5,), (3600.0,))) == 3600.0 + method.rule.margin_s
    seen = []
    for start in (int(s) for s in setting.validation_starts()[::40]):
        of, looks = setting.episode(start, 2), range(0, 72, 12)
        assert of is not None
        episode = look_at(setting, learned[0], of, start, Sight(stride=12, rolls=2), outcomes=False)
        expected = method.forecaster.forecast(episode)[: len(looks)]
        past: list[Look] = []
        for number, look in enumerate(looks):
            snapshot, finished, attempt = live_at(setting, start, look)
            found = forecast(model, snapshot, finished, attempt, snapshot.taken_at, past)
            assert len(past) == number + 1
            assert np.array(found.waits_s) / HOUR == pytest.approx(expected[number], rel=1e-4, abs=1e-4)
        seen.extend(expected)
    assert np.ptp(seen) > 0.5 or set(np.unique(seen)) <= {0.0, AT_ONCE_H}


def test_a_day_of_looks_is_kept(setting: Setting, model: tuple[Path, TrainedProvisioner]):
    snapshot, finished, attempt = live_at(setting, int(setting.validation_starts()[3]))
    now, nothing = round(snapshot.taken_at), np.zeros(53, np.float32)
    past = [Look(now - hours * HOUR, 12.0 + hours, nothing) for hours in (30, 25, 24, 1)]
    forecast(model[1], snapshot, finished, attempt, now, past)
    assert [now - look.at_s for look in past] == [24 * HOUR, HOUR, 0]


def test_a_model_file_of_before_is_read(setting: Setting, model: tuple[Path, TrainedProvisioner], tmp_path: Path):
    data = json.loads(model[0].read_text())
    parts = data.pop("forecaster")["parts"]
    del data["margin_s"], data["about"]["method"]
    data |= {"format": "ischeduler-provisioner/2", "boosted": [{k: p[k] for k in ("with_twin", "boosters")} for p in parts if p["kind"] == "boosted"]}
    (tmp_path / "old.json").write_text(json.dumps(data))
    old = read(tmp_path / "old.json")
    assert old.method == "blend"
    snapshot, finished, attempt = live_at(setting, int(setting.validation_starts()[30]))
    now = snapshot.taken_at
    assert forecast(old, snapshot, finished, attempt, now) == forecast(model[1], snapshot, finished, attempt, now)
    assert old.rule() == model[1].rule()


LEFT_BEHIND = Path(tempfile.gettempdir()) / f"a-model-file-ran-code-{os.getpid()}"


class Evil:
    """A pickle that would leave a file behind."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (LEFT_BEHIND,)


@pytest.mark.parametrize(
    "forecaster",
    [
        {"kind": "evil"}, 3, {"kind": "random_forest", "trees": "AAAA"}, {"kind": "xgboost", "trees": "AAAA"}, {"kind": "boosted", "with_twin": True, "boosters": ["?"]},
        {"kind": "dqn", "scale": [[0.0] * 43, [1.0] * 43], "weights": base64.b64encode(pickle.dumps(Evil(), 2)).decode()},
        {"kind": "random_forest", "trees": base64.b64encode(pickle.dumps(Evil(), 2)).decode()},
    ],
)  # fmt: skip
def test_a_damaged_or_hostile_model_file_is_one_sentence(forecaster: object, model: tuple[Path, TrainedProvisioner], tmp_path: Path):
    pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")
    (tmp_path / "bad.json").write_text(json.dumps(json.loads(model[0].read_text()) | {"forecaster": forecaster}))
    with pytest.raises(BadInput, match=r"bad\.json is no provisioner of this version"):
        read(tmp_path / "bad.json")
    assert not LEFT_BEHIND.exists()


def carried(attempt: Attempt) -> Run:
    longer = plan(cluster="one", run_h=480, segments=40, gpus=0)
    return make_run(plan=longer, state=RunState.RUNNING, progress=Progress(), attempts=(attempt,))


@pytest.mark.parametrize("kind", ["twin", "trained", "hand-over"])
def test_the_plane_asks_the_trained_model(kind: str, setting: Setting, model: tuple[Path, TrainedProvisioner]):
    snapshot, finished, attempt = live_at(setting, int(setting.validation_starts()[30]))
    batch = SimpleNamespace(snapshot=lambda: snapshot)
    services = SimpleNamespace(batches={"one": batch}, troubles=[], finished_jobs=lambda name, age_s: finished)
    prices = {"plane.interruption_price": 1.0, "plane.overlap_price": 1.0}
    found = LiveForesight(services, {"plane.provisioner": kind, "plane.pending_successors": 1, "plane.provisioner_model": str(model[0]), **prices})  # pyright: ignore[reportArgumentType]
    now, run = snapshot.taken_at, carried(attempt)
    rule, problem = found.provisioner(run, now)
    assert problem == ""
    at = rule.submit_at(run, now)
    assert at is not None
    assert attempt.started_at is not None
    end = attempt.started_at + SEGMENT_S
    forecasts = forecast(model[1], snapshot, finished, attempt, now)
    own = model[1].handover().rule if kind == "hand-over" else model[1].rule()
    lead = own.lead_s(forecasts)
    assert lead is not None
    earliest = end - HAND_OVER_SHARE * SEGMENT_S if kind == "hand-over" else now
    assert at == pytest.approx(max(earliest, end - lead))


def test_a_model_of_other_segments_is_refused_in_a_sentence(setting: Setting, model: tuple[Path, TrainedProvisioner]):
    snapshot, finished, attempt = live_at(setting, int(setting.validation_starts()[0]))
    wide = Attempt(1, "r-1", "one", "p", Resources(nodes=5), 8, state=JobState.RUNNING, job_id=attempt.job_id)
    with pytest.raises(BadInput, match=r"segments of 2 units, the run asks for 5 nodes .* train one with --nodes 5"):
        forecast(model[1], snapshot, finished, wide, snapshot.taken_at)
    gone = Attempt(1, "r-1", "one", "p", Resources(nodes=2), 8, state=JobState.RUNNING, job_id="nobody")
    with pytest.raises(BadInput, match="does not run in the queue"):
        forecast(model[1], snapshot, finished, gone, snapshot.taken_at)


def test_who_waits_and_may_give_back_is_looked_after_as_if_it_were_not_there(setting: Setting, model: tuple[Path, TrainedProvisioner]):
    snapshot, finished, attempt = live_at(setting, int(setting.validation_starts()[30]))
    now = snapshot.taken_at
    own = QueuedJob("own-2", attempt.partition, "PENDING", user="me", name="own", nodes=attempt.resources.nodes, submit_s=now - 60, limit_s=SEGMENT_S)
    queue = replace(snapshot, jobs=(*snapshot.jobs, own))
    services = SimpleNamespace(batches={"one": SimpleNamespace(snapshot=lambda: queue)}, troubles=[], finished_jobs=lambda name, age_s: finished)
    settings = {
        "plane.provisioner": "twin", "plane.pending_successors": 1, "plane.provisioner_model": str(model[0]), "plane.interruption_price": 1.0,
        "plane.overlap_price": 1.0,
    }  # fmt: skip
    waiting = replace(attempt, number=2, key="r-1-2", job_id="own-2", state=JobState.PENDING, started_at=None, keep_from=now + 9 * HOUR)
    run = replace(carried(attempt), attempts=(attempt, waiting))
    rule, problem = LiveForesight(services, settings).provisioner(run, now)  # pyright: ignore[reportArgumentType]
    assert problem == ""
    assert isinstance(rule, Informed)
    assert rule.forecast == forecast(model[1], snapshot, finished, attempt, now)
    assert rule.keep_s == model[1].rule().keep_s(rule.forecast)
    stays = replace(run, attempts=(attempt, replace(waiting, keep_from=None)))
    assert LiveForesight(services, settings).provisioner(stays, now)[0] is REACTIVE  # pyright: ignore[reportArgumentType]


def test_what_is_about_one_segment_is_not_told_another(setting: Setting, model: tuple[Path, TrainedProvisioner], tmp_path: Path):
    """A policy that has just said "submit" for a segment that ends says nothing of one that has just begun."""
    pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")

    class Late:
        levels = np.array([0.5])

        def fit(self, episodes: object) -> None: ...

        def forecast(self, of: Evidence) -> np.ndarray:
            return np.where(of.remaining[of.asked] < 6, 1e4, 0.0)[:, None]

        def as_data(self) -> dict[str, object]:
            return {"kind": "late"}

    peer = replace(model[1], forecaster=Late(), about={**model[1].about, "method": "ppo"})
    monkey = pytest.MonkeyPatch()
    monkey.setattr("ischeduler.helper.provisioning.model_file.forecaster_of", lambda data: Late() if data["kind"] == "late" else forecaster_of(data))
    write(peer, tmp_path / "late.json")
    start, look = int(setting.validation_starts()[30]), 50
    snapshot, finished, attempt = live_at(setting, start, look)
    now = snapshot.taken_at
    assert attempt.started_at is not None
    job = next(j for j in snapshot.jobs if j.job_id == attempt.job_id)
    ends = replace(job, start_s=now - 0.9 * SEGMENT_S, submit_s=now - SEGMENT_S)
    begins = replace(job, job_id="fresh", start_s=now, submit_s=now)
    queue = replace(snapshot, jobs=(*(j for j in snapshot.jobs if j.job_id != job.job_id), ends, begins))
    services = SimpleNamespace(batches={"one": SimpleNamespace(snapshot=lambda: queue)}, troubles=[], finished_jobs=lambda name, age_s: finished)
    foresight = LiveForesight(services, {  # pyright: ignore[reportArgumentType]
        "plane.provisioner": "trained", "plane.pending_successors": 1, "plane.provisioner_model": str(tmp_path / "late.json"),
        "plane.interruption_price": 1.0, "plane.overlap_price": 1.0,
    })  # fmt: skip
    monkey.undo()
    ending = replace(attempt, started_at=now - 0.9 * SEGMENT_S)
    fresh = replace(attempt, key="r-2", job_id="fresh", started_at=now)
    for one, expected in ((ending, now), (fresh, now + SEGMENT_S)):
        rule, problem = foresight.provisioner(carried(one), now)
        assert problem == ""
        assert rule.submit_at(carried(one), now) == pytest.approx(expected)
    later = replace(queue, taken_at=now + 2 * DAY)
    services.batches["one"].snapshot = lambda: later
    assert set(foresight._looked) == {ending.key, fresh.key}
    foresight.provisioner(carried(replace(fresh, key="r-3", started_at=now + 2 * DAY)), now + 2 * DAY)
    assert set(foresight._looked) == {"r-3"}, "nobody has looked at the others for a day"
    assert {place.segment for place in foresight._made} == {"r-3"}


def test_a_segment_that_has_just_started_is_looked_for_anew(setting: Setting, model: tuple[Path, TrainedProvisioner]):
    """The queue is looked at once an hour for all runs; a segment that began since then need not wait for the next look."""
    snapshot, finished, attempt = live_at(setting, int(setting.validation_starts()[30]))
    now = snapshot.taken_at
    before = replace(snapshot, taken_at=now - 600, jobs=tuple(j for j in snapshot.jobs if j.job_id != attempt.job_id))
    shown = [before]
    looks: list[float] = []

    def look() -> QueueSnapshot:
        looks.append(now)
        return shown[-1]

    services = SimpleNamespace(batches={"one": SimpleNamespace(snapshot=look)}, troubles=[], finished_jobs=lambda name, age_s: finished)
    settings = {
        "plane.provisioner": "twin", "plane.pending_successors": 1, "plane.provisioner_model": str(model[0]), "plane.interruption_price": 1.0,
        "plane.overlap_price": 1.0,
    }  # fmt: skip
    foresight = LiveForesight(services, settings)  # pyright: ignore[reportArgumentType]
    rule, problem = foresight.provisioner(carried(replace(attempt, job_id="gone")), now - 600)
    assert "job gone does not run in the queue" in problem
    assert rule is REACTIVE
    assert len(looks) == 1, "what was seen just now is not asked for again"
    shown.append(snapshot)
    other = replace(carried(attempt), plan=plan(cluster="one", run_h=480, segments=20, gpus=0))
    rule, problem = foresight.provisioner(other, now)
    assert problem == ""
    assert len(looks) == 2
    foresight.provisioner(other, now + 1)
    assert len(looks) == 2


def test_a_trained_rule_without_a_model_is_refused_in_a_sentence():
    settings = {
        "plane.provisioner": "trained", "plane.pending_successors": 1, "plane.provisioner_model": "", "plane.interruption_price": 1.0,
        "plane.overlap_price": 1.0,
    }  # fmt: skip
    with pytest.raises(ConfigError, match=r"trained needs plane\.provisioner_model"):
        LiveForesight(SimpleNamespace(), settings)  # pyright: ignore[reportArgumentType]
