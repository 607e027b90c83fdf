"""Throughputs from several sources: measurement corrects claims, and the table fills what nobody saw."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import numpy as np
import pytest

from ischeduler.core.errors import BadInput
from ischeduler.core.estimate import Estimate
from ischeduler.policies.estimates import Figure, combine, profiles, table_with
from ischeduler.policies.problem import Throughputs

TYPES = ("v100", "p100", "k80")
GAVEL = Path(__file__).resolve().parents[4] / "shared" / "data" / "gavel" / "simulation_throughputs.json"


def _table(classes=40, holes=0.0, seed=1):
    """Rates with two hidden factors, as real ones nearly have."""
    rng = np.random.default_rng(seed)
    logs = rng.normal(2, 1.5, (classes, 1)) + rng.normal(0, 0.4, (classes, 1)) * np.array([0.5, 0.0, -0.5]) + np.log([1.0, 0.6, 0.2])
    rate = np.exp(logs + rng.normal(0, 0.05, logs.shape))
    rate[rng.random(rate.shape) < holes] = 0.0
    return Throughputs(TYPES, tuple(f"m{i}|1" for i in range(classes)), rate, rate)


def _said(kind, value, source="the user", basis="given"):
    return Figure(kind, Estimate.exact(value, "steps/s", source, basis=basis))


def test_a_claim_is_corrected_by_what_was_measured_on_another_type():
    found = combine([_said("v100", 20.0), _said("p100", 12.0), _said("v100", 14.0, "12 rounds", "live")], profiles(_table()))
    assert found.by_type["v100"].p50 == pytest.approx(14.0, rel=0.02)
    assert 12.0 * 14 / 20 * 0.85 < found.by_type["p100"].p50 < 12.0 * 0.9
    first = found.corrections[0]
    assert (first.type, first.source) == ("v100", "the user")
    assert first.factor == pytest.approx(0.7, rel=0.02)
    assert first.text.startswith("v100: the user says 20 steps/s, 14")
    assert "corrected by -30%; 12 rounds saw 14 on v100" in first.text
    assert "kept" in found.corrections[-1].text


def test_a_claim_nobody_checked_is_kept_with_a_wide_interval():
    found = combine([_said("v100", 20.0)], profiles(_table()))
    assert found.by_type["v100"].p50 == pytest.approx(20.0, rel=1e-3)
    assert found.by_type["v100"].p90 > 20.0 * 1.4
    assert found.by_type["k80"].basis == "analytic"
    assert "completed from v100 by 40 measured classes" in found.by_type["k80"].reason


@pytest.mark.parametrize("holes", [0.0, 0.15])
def test_completion_of_hidden_entries(holes):
    whole, other = _table(60, holes), _table(40, seed=2)
    known = profiles(whole)
    errors, inside = [], 0
    for row in other.rate:
        found = combine([_said("v100", row[0], "seen", "live")], known)
        errors.append(abs(found.by_type["k80"].p50 / row[2] - 1))
        inside += found.by_type["k80"].p10 <= row[2] <= found.by_type["k80"].p90
    assert np.median(errors) < 0.35
    two = [abs(combine([_said("v100", r[0], "seen", "live"), _said("p100", r[1], "seen", "live")], known).by_type["k80"].p50 / r[2] - 1) for r in other.rate]
    assert np.median(two) < np.median(errors) / 1.5
    assert 24 <= inside <= 40


def test_units_do_not_matter():
    known = profiles(_table())
    one = combine([_said("v100", 20.0), _said("v100", 14.0, "rounds", "live")], known)
    thousand = combine([_said("v100", 2e4), _said("v100", 1.4e4, "rounds", "live")], known)
    assert thousand.by_type["k80"].p50 / one.by_type["k80"].p50 == pytest.approx(1000, rel=0.02)


def test_a_new_class_joins_the_table_and_shares_with_nobody():
    table = Throughputs(TYPES, ("a|1",), np.array([[3.0, 2.0, 1.0]]), np.array([[3.0, 2.0, 1.0]]), np.ones((1, 1, 3)))
    rates = combine([_said("v100", 6.0, "seen", "live")], profiles(_table()))
    wider = table_with(table, "new|1", rates, only=("v100", "p100"))
    assert wider.classes == ("a|1", "new|1")
    assert wider.rate[1, 2] == 0.0
    assert wider.rate[1, 0] == pytest.approx(6.0, rel=0.01)
    assert not wider.shared[1].any()
    assert table_with(wider, "new|1", rates).rate[1, 2] > 0


@pytest.mark.parametrize(("figures", "words"), [
    ([], "Nothing is known"), ([_said("h100", 1.0)], "not one of v100, p100, k80"), ([_said("v100", 0.0)], "give steps per second above zero"),
])
def test_bad_figures_are_one_sentence(figures, words):
    with pytest.raises(BadInput, match=words):
        combine(figures, profiles(_table()))


def test_gavels_measured_table_with_a_model_left_out():
    if not GAVEL.exists():
        pytest.skip("needs the shared data of Gavel's measurements")
    raw = json.loads(GAVEL.read_text())
    keys = list(raw["v100"])
    rate = np.array([[raw[t][k]["null"] for t in TYPES] for k in keys])
    model = [ast.literal_eval(k)[0].split(" (")[0] for k in keys]
    error, inside, number = [], 0, 0
    for i, row in enumerate(rate):
        others = [j for j in range(len(keys)) if model[j] != model[i]]
        known = profiles(Throughputs(TYPES, tuple(keys[j] for j in others), rate[others], rate[others]))
        found = combine([_said("v100", row[0], "seen", "live")], known)
        for k in (1, 2):
            if row[k] > 0:
                estimate = found.by_type[TYPES[k]]
                error.append(abs(estimate.p50 / row[k] - 1))
                inside += estimate.p10 <= row[k] <= estimate.p90
                number += 1
    assert np.median(error) < 0.40
    assert 0.7 < inside / number < 0.92
