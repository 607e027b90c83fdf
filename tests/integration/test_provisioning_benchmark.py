"""The provisioning table's figures: every method with its interval against ours, and a trained peer counts as beaten only beyond chance."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("lightgbm", reason="LightGBM is not installed")
pytest.importorskip("numba", reason="numba is not installed")

from benchmarks.provisioning import main
from benchmarks.provisioning_held_out import GRID, cheaper_of, cheapest, forward, gap_table, held_out_costs, signed_gaps
from benchmarks.provisioning_report import Table, by_load, print_curves, summary

from ischeduler.estimators.jobruntime.table import job_table
from ischeduler.helper.provisioning.evidence import LEVELS, Evidence
from ischeduler.helper.provisioning.forecasters import BOOSTED_LEVELS
from ischeduler.helper.provisioning.judge import Record, difference_h, interval_h, record
from ischeduler.helper.provisioning.methods import DEPLOYED, STAYING, Method
from ischeduler.helper.provisioning.setting import Setting
from ischeduler.helper.provisioning.state import FEATURES
from ischeduler.helper.provisioning.tuning import WINDOWS, decide
from ischeduler.plane.provisioners import Newsvendor

EPISODES = 96
JOBS = job_table({
    "submit_s": np.arange(600) * 3600, "start_s": np.arange(600) * 3600, "run_s": np.full(600, 1800), "req_units": np.ones(600, int),
    "req_walltime_s": np.full(600, 3600), "user": ["one"] * 600,
})  # fmt: skip


def episode(number: int) -> Evidence:
    """Two hours of wait for each job that waits (the first feature); 24 hours, a look an hour."""
    rng = np.random.default_rng(number)
    looks = number * 400_000 + np.arange(0, 86401, 3600)
    remaining, waiting = (looks[-1] - looks) / 3600.0, float(rng.integers(0, 8))
    state = rng.uniform(0, 1, (len(looks), len(FEATURES))).astype(np.float32)
    state[:, 0] = waiting
    nothing = np.zeros(len(looks))
    return Evidence(
        int(looks[0]), 1, looks, remaining, 2 * waiting - remaining, np.arange(len(looks)), state, nothing, np.zeros((len(looks), len(LEVELS))), nothing,
    )  # fmt: skip


def made(name: str, hours: float, spread: float) -> Record:
    """Gaps around ``hours``, by a generator of its own for each name."""
    rng = np.random.default_rng(sum(map(ord, name)))
    return record(name, [(float(g), 0) for g in hours + rng.normal(0, spread, EPISODES)], 48.0)


@pytest.fixture(scope="module")
def found() -> dict[str, object]:
    worse, level = made("mixture_policy", 6.0, 0.5), made("ppo", 2.05, 1.0)
    plain = [made("reactive", 9.0, 3.0), made("average", 7.0, 3.0)]
    ours, staying = made(DEPLOYED, 2.0, 1.0), made(STAYING, 2.5, 1.0)
    table = Table([*plain, worse, level, staying, ours], Method(DEPLOYED), DEPLOYED, ours, [made("oracle", 0.5, 0.1)], ["mixture_policy", "ppo"], {(2, 5): worse}, {(2, 5): level}, plain[0])
    return {"table": table, **summary(table, 1)}


def test_every_other_method_has_its_interval(found: dict[str, object]):
    named = sorted(k.removesuffix("_costs_more_h") for k in found if k.endswith("_costs_more_h"))
    assert named == ["n1_average", "n1_blend_staying", "n1_mixture_policy", "n1_ppo", "n1_reactive"]
    table = found["table"]
    assert isinstance(table, Table)
    expected = difference_h(table.of(DEPLOYED), table.of("mixture_policy"))
    assert found["n1_mixture_policy_costs_more_h"] == pytest.approx(expected, abs=1e-4)
    assert expected[1] < expected[0] < expected[2]
    assert found["n1_mixture_policy_costs_more_than_staying_h"][0] < expected[0]  # type: ignore[index]


def test_each_load_class_has_its_figures_in_a_table(found: dict[str, object]):
    table = found["table"]
    assert isinstance(table, Table)
    reactive = table.of("reactive").interruption
    heavy, medium = reactive > 12, (reactive > 2) & (reactive <= 12)
    lines = by_load(table)
    assert lines[0] == f"| method | low ({EPISODES - (heavy | medium).sum()}) | medium ({medium.sum()}) | heavy ({heavy.sum()}) |"
    assert len({line.count("|") for line in lines}) == 1
    ours, cells = table.of(DEPLOYED), next(line for line in lines if line.startswith(f"| {DEPLOYED} |")).split("|")
    zero = (ours.interruption[heavy] < 1 / 60).mean()
    assert cells[4].strip() == f"{ours.interruption[heavy].mean():.2f} + {ours.overlap[heavy].mean():.2f} ({zero:.2f})"
    assert any(line.startswith("| oracle |") for line in lines)


def test_how_far_chance_goes_in_heavy_load(found: dict[str, object]):
    table = found["table"]
    assert isinstance(table, Table)
    heavy = table.of("reactive").interruption > 12
    low, high = found["n1_heavy_interruption_95_h"]  # type: ignore[misc]
    assert low < table.of(DEPLOYED).interruption[heavy].mean() < high
    assert (low, high) == pytest.approx(interval_h(table.of(DEPLOYED).interruption, heavy), abs=1e-4)
    narrow = found["n1_sum_95_h"]
    assert narrow[1] - narrow[0] < high - low, "96 starts, not the few heavy ones"  # type: ignore[index]
    assert interval_h(np.arange(24.0), np.arange(24) == 5) == (5.0, 5.0)


def test_what_a_price_buys_under_heavy_load(found: dict[str, object], capsys: pytest.CaptureFixture[str]):
    table = found["table"]
    assert isinstance(table, Table)
    print_curves(table)
    shown = capsys.readouterr().out.splitlines()[1].split()
    other, heavy = table.curves[2, 5], table.of("reactive").interruption > 12
    assert shown[0] == "2:5"
    assert [float(shown[i]) for i in (1, 5)] == pytest.approx([other.interruption.mean(), other.interruption[heavy].mean()], abs=0.01)
    trained = table.trained[2, 5].interruption[table.trained_reactive.interruption > 12].mean()
    assert float(shown[9]) == pytest.approx(trained, abs=0.01)
    assert [found["n1_price_2_5"][i] for i in (3, 6)] == pytest.approx([other.interruption[heavy].mean(), trained], abs=1e-4)  # type: ignore[index]


def test_a_peer_that_may_be_as_good_is_not_beaten(found: dict[str, object]):
    more, low, high = found["n1_ppo_costs_more_h"]  # type: ignore[misc]
    assert low < 0 < high
    assert abs(more) < 1
    assert found["n1_trained_peers_not_beaten"] == 1


def test_each_seed_of_each_network_is_a_line_of_its_own():
    pytest.importorskip("torch", reason="PyTorch is not installed")
    pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")
    from benchmarks.provisioning_networks import Effort, network_records

    told: list[str] = []
    setting = Setting(JOBS, 4, int(JOBS.submit_s[-1]))
    found = network_records([episode(i) for i in range(24)], [episode(i) for i in range(30, 34)], setting, 5, Effort(8, 1, 200, 2), told.append)
    names = [f"{network}_{head}" for network in ("transformer", "mixture") for head in ("value", "policy")] + ["dqn", "ppo"]
    assert [r.method for r in found] == [*names, *(f"{name}_seed6" for name in names)]
    assert [words.partition(":")[0] for words in told] == [r.method for r in found]
    value, other = found[0], found[6]
    assert not np.array_equal(value.cost, other.cost), "another seed is another network"


def test_a_forward_split_learns_only_from_what_lies_before():
    starts = np.arange(0, 60 * 86400, 4 * 3600)
    parts = forward(starts)
    assert len(parts) == 7
    for learned, out in parts:
        assert starts[learned].max() < starts[out].min() - 3 * 86400
    assert np.concatenate([out for _, out in parts]).tolist() == list(range(3 * 36, len(starts)))


def test_gaps_of_a_level_are_what_the_rule_would_have_got():
    made = [episode(i) for i in range(6)]
    tables = [np.sort(np.random.default_rng(i).uniform(0, 20, (len(e.asked), len(BOOSTED_LEVELS))), axis=1) for i, e in enumerate(made)]
    gaps = gap_table(made, tables)
    for window, level in ((0, 0), (0, 20), (2, 30)):
        rule = Newsvendor(tuned=((0.5, float(GRID[level])),))
        expected = [e.gap[decide(e, rule, t, BOOSTED_LEVELS, WINDOWS[window]).due[0]] for e, t in zip(made, tables, strict=True)]
        assert gaps[window, level].tolist() == expected


def test_the_lowest_level_that_is_nearly_as_cheap():
    gaps = np.full((len(WINDOWS), len(GRID), 1), 9.0)
    gaps[1] = 2.0 + 0.001 * np.abs(np.arange(len(GRID)) - 20)[:, None] + 5 * (np.arange(len(GRID)) < 10)[:, None]
    assert cheapest(gaps) == (1, 20)
    window, level = cheapest(gaps, 0.01)
    assert window == 1
    assert 10 <= level < 20


def test_the_cheaper_of_two_is_taken_week_by_week():
    starts = np.arange(0, 60 * 86400, 4 * 3600)
    shape = (len(WINDOWS), len(GRID), len(starts))
    cheap, dear = np.full(shape, 1.0), np.full(shape, -2.0)
    for pair in ((cheap, dear), (dear, cheap)):
        assert signed_gaps(forward(starts), lambda rest, pair=pair: cheaper_of(*pair, rest)).tolist() == [1.0] * (len(starts) - 3 * 36)


def test_held_out_weeks_tell_a_good_forecast_from_a_bad_one():
    rng = np.random.default_rng(3)
    train, test = ([week(i, rng) for i in span] for span in (range(60), range(70, 80)))
    lines: list[str] = []
    found = held_out_costs(train, test, 2, seed=0, probes=7, told=lines.append)
    assert found["n2_training_episodes"] == 60
    for way in ("scattered", "forward"):
        assert found[f"n2_{way}_twin_h"] < 0.5 * found[f"n2_{way}_newsvendor_h"], "only the twin knows"
        more, low, high = found[f"n2_{way}_newsvendor_more_h"]
        assert 0 < low <= more <= high
        assert found[f"n2_{way}_cheaper_of_blend_and_twin_h"] < 0.5 * found[f"n2_{way}_newsvendor_h"]
        assert found[f"n2_{way}_blend_more_h"] == [0, 0, 0]
        assert found[f"n2_{way}_blend_giving_back_h"] > 0
    assert found["n2_pinball_twin_h"] < found["n2_pinball_blend_h"] < found["n2_pinball_mean_of_all_three_h"] < found["n2_pinball_newsvendor_h"]
    assert len(found["n2_blend_level_0.53_h"]) == 3
    assert found["n2_hindsight_blend_h"] <= found["n2_tuned_blend_h"]
    assert any("60 training episodes" in line for line in lines)


def week(number: int, rng: np.random.Generator) -> Evidence:
    """A wait that nothing of the state tells, and a twin that does, to an eighth; episodes twelve hours apart."""
    of, wait = episode(number), float(rng.uniform(0, 20))
    looks = number * 43_200 + np.arange(0, 86401, 3600)
    twin = np.repeat(wait * (0.9 + 0.25 * LEVELS)[None, :], len(looks), axis=0)
    state = rng.uniform(0, 1, of.state.shape).astype(np.float32)
    return replace(of, start_s=int(looks[0]), looks_s=looks, gap=wait - of.remaining, state=state, twin=twin)


@pytest.mark.parametrize("flag", ["--network-epochs", "--network-width", "--network-decisions", "--network-seeds"])
def test_no_training_at_all_is_refused(flag: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as stopped:
        main(["--networks", flag, "0"])
    assert stopped.value.code == 2
    assert "'0' is no whole number of at least 1" in capsys.readouterr().err


def test_a_trace_that_is_not_here_is_one_sentence(capsys: pytest.CaptureFixture[str]):
    assert main(["--trace", "nowhere.parquet"]) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("provisioning: nowhere.parquet is not here")
    with pytest.raises(json.JSONDecodeError):
        json.loads(shown.out.strip().rpartition("\n")[2])
