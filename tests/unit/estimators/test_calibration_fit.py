"""The fit finds the figures that made the times, and predicts kernels it has not seen."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from ischeduler.core.cluster import Accelerator
from ischeduler.core.errors import BadInput
from ischeduler.estimators.calibration.fit import START, Point, Stiffness, fit_phase
from ischeduler.estimators.calibration.fitted_record import fit_record
from ischeduler.estimators.calibration.record import CalibrationRecord, StepTime
from ischeduler.estimators.steptime.coefficients import Shares
from ischeduler.estimators.steptime.devices import Device, of_accelerator
from ischeduler.estimators.steptime.oplog import DATA_GRADIENT, WEIGHT_GRADIENT, OpRow
from ischeduler.estimators.steptime.roofline import loads_of
from ischeduler.estimators.steptime.work import Work, kernels

pytestmark = pytest.mark.torch
TRUTH = replace(
    START, flops={m: {k: v * 0.7 for k, v in f.items()} for m, f in START.flops.items()},
    bytes={k: v * (1.3 if k == "norm" else 0.8) for k, v in START.bytes.items()}, exponents={"forward": (0.2, 0.1, 0.3)}, dispatch_s=3e-5,
)


def device(name: str = "v100-32g") -> Device:
    pytest.importorskip("torch")
    found = of_accelerator(Accelerator(name, 2**35, fp32_flops=1.4e13, fp16_flops=1.1e14, bandwidth_bytes_s=9e11))
    assert found is not None
    return found


def layers(chance: random.Random, batch: int, phase: str = "forward") -> list[OpRow]:
    """A network of random convolutions and norms."""
    rows: list[OpRow] = []
    flags = 0 if phase == "forward" else DATA_GRADIENT | WEIGHT_GRADIENT
    for _ in range(12):
        channels, filters, size, kernel = (chance.choice(c) for c in ((16, 64, 256), (32, 128, 512), (7, 14, 56), (1, 3)))
        rows.append(OpRow(phase, "conv3x3" if kernel == 3 else "conv", "fp32", 0.0, 1e6, 2,
                          (batch, channels, size, size, filters, kernel, kernel, 1, 1, flags)))
        rows.append(OpRow(phase, "norm", "fp32", 0.0, 8.0 * batch * filters * size * size, 2))
    return rows


def seconds(works: tuple[Work, ...], card: Device, shares: Shares) -> float:
    known = replace(card, coefficients=replace(card.coefficients, phases={"forward": shares, "backward": shares}))
    return loads_of({"forward": works}, known, "fp32")["forward"].seconds


def test_a_fit_predicts_networks_it_has_not_seen() -> None:
    card, chance = device(), random.Random(1)
    networks = [kernels(layers(chance, b))["forward"] for b in (1, 4, 16, 64) for _ in range(6)]
    points = [Point(card, w, "fp32", seconds(w, card, TRUTH)) for w in networks]
    _, own = fit_phase(points[:-6], stiffness=Stiffness(1e-6, 1e-5, 1e-6, 1e-6))
    misses = [abs(math.log(seconds(p.kernels, card, own[card.name]) / p.seconds)) for p in points[-6:]]  # type: ignore[arg-type]
    before = [abs(math.log(seconds(p.kernels, card, START) / p.seconds)) for p in points[-6:]]  # type: ignore[arg-type]
    assert max(misses) < 0.05
    assert min(before) > 0.15


def test_a_card_with_little_leans_on_the_others() -> None:
    rich, poor, chance = device("v100-32g"), device("v100-16g"), random.Random(2)
    networks = [kernels(layers(chance, 32))["forward"] for _ in range(20)]
    points = [Point(rich, w, "fp32", seconds(w, rich, TRUTH)) for w in networks]
    few = [Point(poor, networks[0], "fp32", 1.5 * seconds(networks[0], poor, TRUTH))]
    _, own = fit_phase([*points, *few], stiffness=Stiffness(1e-6, 1e-3, 1e-6, 1e-6))
    ratio = seconds(networks[7], poor, own["v100-16g"]) / seconds(networks[7], rich, own["v100-32g"])
    assert 1.2 < ratio < 1.6


def test_nothing_to_fit_is_a_sentence() -> None:
    with pytest.raises(BadInput, match="nothing to fit"):
        fit_phase([])


def test_a_record_is_fitted_with_models_left_out() -> None:
    card, logs = device(), {}
    steps: list[StepTime] = []
    for number, model in enumerate(("a", "b", "c", "d")):
        for batch in (8, 32):
            chance = random.Random(number)
            rows = logs[model, batch] = [*layers(chance, batch), *layers(random.Random(number), batch, "backward")]
            works = kernels(rows)
            known = replace(card, coefficients=replace(card.coefficients, phases={"forward": TRUTH, "backward": TRUTH}))
            loads = loads_of({p: works[p] for p in ("forward", "backward")}, known, "fp32")
            steps.append(StepTime(model, batch, "fp32", False, loads["forward"].seconds, loads["backward"].seconds))
    steps.append(StepTime("e", 8, "fp32", False, failed="out of memory"))
    record = CalibrationRecord(card.name, "2.13.0", 1.0, steps=tuple(steps))
    found = fit_record(record, card, lambda row: logs[row.model, row.batch]).fitted()
    assert found is not None
    assert found.origin == "4 models measured"
    assert found.residual[1] - found.residual[0] < card.coefficients.residual[1] - card.coefficients.residual[0]
    with pytest.raises(BadInput, match="3 models"):
        fit_record(replace(record, steps=record.steps[:2]), card, lambda row: logs[row.model, row.batch])
