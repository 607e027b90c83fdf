"""Provisioners trained on a small trace: nothing of the future is seen, a model survives its file, a stopped training goes on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("lightgbm", reason="LightGBM is not installed")
pytest.importorskip("numba", reason="numba is not installed")

from provisioning_parts import even_load

from ischeduler.core.errors import BadInput
from ischeduler.estimators.jobruntime.model import RuntimeLaw
from ischeduler.helper.provisioning.collecting import fit_laws
from ischeduler.helper.provisioning.evidence import Evidence, Sight, look_at
from ischeduler.helper.provisioning.model_file import read
from ischeduler.helper.provisioning.setting import Setting
from ischeduler.helper.provisioning.training import Order, train
from ischeduler.helper.provisioning.tuning import folds
from ischeduler.plane.provisioners import Prices

DAY, HOUR = 86400, 3600
SIGHT = Sight(stride=12, rolls=8)
ORDER = Order(units=2, training=24, validation=4, rolls=8, stride=12, looks=100)


@pytest.fixture(scope="module")
def setting() -> Setting:
    return even_load(4)


@pytest.fixture(scope="module")
def law(setting: Setting) -> RuntimeLaw:
    return fit_laws(setting, looks=80).full


@pytest.fixture(scope="module")
def trained(setting: Setting, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, object]]:
    out = tmp_path_factory.mktemp("model") / "model.json"
    return out, train(setting, ORDER, out)


def test_shuffled_future_moves_no_forecast(setting: Setting, law: RuntimeLaw):
    start, at = 45 * DAY, 3
    of = setting.episode(start, 2)
    assert of is not None
    seen = look_at(setting, law, of, start, SIGHT)
    now = int(of.looks_s[seen.asked[at]])
    unknown = np.flatnonzero((of.world.end_s > now) & (of.world.row >= 0))
    rows = of.world.row[unknown]
    gone = np.maximum(now - of.world.start_s[unknown], 0)
    run = setting.table.run_s.copy()
    left = setting.table.limit_s[rows] - gone
    run[rows] = gone + 1 + (np.random.default_rng(9).random(len(rows)) * left).astype(np.int64)
    other = replace(setting, table=replace(setting.table, run_s=np.minimum(run, setting.table.limit_s)))
    changed = other.episode(start, 2)
    assert changed is not None
    again = look_at(other, law, changed, start, SIGHT)
    for column in ("state", "mean", "twin"):
        assert np.array_equal(getattr(seen, column)[: at + 1], getattr(again, column)[: at + 1]), column
    assert not np.array_equal(seen.gap, again.gap)


def test_other_arrivals_move_no_forecast(setting: Setting, law: RuntimeLaw):
    """Whoever comes after a look, however large, long and many: what was forecast until then stays to the last bit."""
    start, at = 45 * DAY, 3
    of = setting.episode(start, 2)
    assert of is not None
    seen = look_at(setting, law, of, start, SIGHT)
    later = setting.table.submit_s > int(of.looks_s[seen.asked[at]])
    keep = ~later | (np.random.default_rng(1).random(len(later)) < 0.6)
    order = np.flatnonzero(keep)
    shuffled = setting.table.take(np.where(later[order], np.random.default_rng(2).permutation(order), order))
    table = replace(shuffled, submit_s=setting.table.submit_s[order], start_s=setting.table.submit_s[order] + (shuffled.start_s - shuffled.submit_s))
    early = ~later[order]
    table = replace(table, start_s=np.where(early, setting.table.start_s[order], table.start_s))
    other = replace(setting, table=table)
    changed = other.episode(start, 2)
    assert changed is not None
    again = look_at(other, law, changed, start, SIGHT)
    for column in ("state", "mean", "twin"):
        assert np.array_equal(getattr(seen, column)[: at + 1], getattr(again, column)[: at + 1]), column
    assert not np.array_equal(seen.gap, again.gap)


def test_forecasts_do_not_read_outcomes(setting: Setting, law: RuntimeLaw, trained: tuple[Path, dict[str, object]]):
    model = read(trained[0])
    of = setting.episode(46 * DAY, 2)
    assert of is not None
    seen = look_at(setting, law, of, 46 * DAY, SIGHT)
    blind = look_at(setting, law, of, 46 * DAY, SIGHT, outcomes=False)
    assert np.isnan(blind.gap).all()
    hidden: Evidence = replace(blind, twin_true=np.full_like(blind.twin_true, np.nan))
    assert np.array_equal(model.forecaster.forecast(seen), model.forecaster.forecast(hidden))


def test_model_survives_its_file_and_says_where_it_came_from(
    setting: Setting, law: RuntimeLaw, trained: tuple[Path, dict[str, object]]
):
    out, about = trained
    model = read(out)
    assert model.about == about
    assert about["data"]["jobs"] == len(setting.table)  # type: ignore[index]
    assert set(about["validation"]) == {"reactive", "average", "blend", "oracle", "hand_over", "reduction"}  # type: ignore[call-overload]
    levels = [model.rule(Prices(c, 1.0)).level for c in (0.25, 1.0, 4.0)]
    assert levels == sorted(levels)
    copy = out.with_name("again.json")
    copy.write_text(out.read_text())
    assert read(copy).tuning == model.tuning
    assert model.rule().kept, "from when on a successor stays is tuned, too"
    older = json.loads(out.read_text())
    del older["tuning"]["kept"]
    out.with_name("older.json").write_text(json.dumps(older))
    assert read(out.with_name("older.json")).rule().kept == ()
    of = setting.episode(46 * DAY, 2)
    assert of is not None
    seen = look_at(setting, law, of, 46 * DAY, SIGHT)
    table = model.forecaster.forecast(seen)
    assert (np.diff(table, axis=1) >= 0).all()
    assert np.array_equal(table, read(copy).forecaster.forecast(seen))


def test_training_again_goes_on_from_kept_episodes_and_is_seeded(setting: Setting, trained: tuple[Path, dict[str, object]], tmp_path: Path):
    out, about = trained
    work = out.with_suffix(".work")
    kept = {p.name: p.stat().st_mtime_ns for p in work.iterdir()}
    assert len(kept) == about["training_episodes"] + about["validation"]["blend"]["episodes"]  # type: ignore[operator, index]
    lost = sorted(work.iterdir())[0]
    lost.write_bytes(b"half a file")
    again = tmp_path / "model.json"
    assert train(setting, replace(ORDER, work=work), again) == about
    assert again.read_text() == out.read_text()
    changed = [name for name, when in kept.items() if (work / name).stat().st_mtime_ns != when]
    assert changed == [lost.name]


def test_held_out_parts_cover_everything_and_share_no_queue():
    starts = np.arange(0, 60 * DAY, 4 * HOUR)
    parts = folds(starts.tolist())
    held = np.concatenate([out for _, out in parts])
    assert sorted(held.tolist()) == list(range(len(starts)))
    for learned, out in parts:
        assert np.abs(starts[learned][:, None] - starts[out][None, :]).min() >= 3 * DAY
        assert len(learned) > len(starts) / 2


def test_no_model_is_refused_in_a_sentence(tmp_path: Path):
    with pytest.raises(BadInput, match="is not here"):
        read(tmp_path / "none.json")
    (tmp_path / "other.json").write_text('{"format": "something else"}')
    with pytest.raises(BadInput, match="train it again"):
        read(tmp_path / "other.json")
