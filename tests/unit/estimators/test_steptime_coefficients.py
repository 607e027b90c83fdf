"""The shipped prior: complete, positive, monotone on every architecture, with its provenance; damaged figures are a sentence."""

from __future__ import annotations

import json
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ischeduler.core.cluster import Accelerator
from ischeduler.core.errors import BadInput
from ischeduler.estimators.steptime.coefficients import Coefficients, Load, Shares
from ischeduler.estimators.steptime.devices import of_accelerator
from ischeduler.estimators.steptime.oplog import OpRow, at_batch
from ischeduler.estimators.steptime.prior import measured_architectures, prior_of
from ischeduler.estimators.steptime.roofline import phase_loads, step_seconds
from ischeduler.estimators.steptime.work import KINDS

ROWS = (
    OpRow("forward", "conv3x3", "fp32", 4e10, 1e8, 20, (32, 64, 56, 56, 64, 3, 3, 1, 1, 0)),
    OpRow("forward", "matmul", "fp32", 2e10, 5e7, 4, (1, 4096, 3072, 768)), OpRow("backward", "norm", "fp32", 0, 2e8, 20),
    OpRow("optimizer", "elementwise", "fp32", 0, 3e8, 1),
)


@pytest.mark.parametrize("architecture", [*measured_architectures(), ""])
def test_every_architecture_is_complete(architecture: str) -> None:
    found = prior_of(architecture)
    for shares in found.phases.values():
        assert set(shares.bytes) == set(KINDS)
        assert all(set(shares.flops[mode]) == set(KINDS) for mode in ("plain", "tensor"))
    low, high = found.residual
    assert low < 0 < high
    assert found.corrected[0] < 0 < found.corrected[1]


def test_an_unmeasured_architecture_is_less_certain() -> None:
    width = {a: prior_of(a).residual[1] - prior_of(a).residual[0] for a in ("volta", "nothing known")}
    assert width["nothing known"] > 1.3 * width["volta"]


def test_the_prior_says_where_it_comes_from() -> None:
    document = json.loads(resources.files("ischeduler.estimators.steptime").joinpath("prior.json").read_text())
    origins = {d["name"].split()[0]: d["licence"] for d in document["provenance"]["data"]}
    assert origins == {"NeuSight": "MIT", "timm": "Apache-2.0", "Gavel": "MIT"}
    assert {"command", "date", "residuals"} <= set(document["provenance"])


@pytest.mark.parametrize("name", ["k80", "m40", "p100-16g", "v100-32g", "t4", "a100-40g", "rtx3090", "l40s", "h100-80g", "h200-141g", "mi250x", "b200"])
@given(factor=st.floats(1.05, 8.0))
def test_more_samples_take_longer_everywhere(name: str, factor: float) -> None:
    device = of_accelerator(Accelerator(name, 2**34, fp32_flops=1e13, fp16_flops=6e13, bandwidth_bytes_s=9e11))
    assert device is not None
    assert step_seconds(at_batch(ROWS, factor), device, "fp32") > step_seconds(ROWS, device, "fp32")
    assert step_seconds(ROWS, device, "fp32", accumulate=2) > step_seconds(ROWS, device, "fp32")
    assert all(load.seconds >= max(load.device_s, load.launch_s) for load in phase_loads(ROWS, device, "fp32").values())


@given(st.floats(1e-6, 1.0), st.floats(1e-6, 1.0))
def test_queues_overlap_launch_and_work(device_s: float, launch_s: float) -> None:
    seconds = Load(device_s, launch_s).seconds
    assert max(device_s, launch_s) <= seconds * (1 + 1e-9)
    assert seconds <= 1.13 * max(device_s, launch_s)


def test_coefficients_survive_json() -> None:
    found = prior_of("volta")
    again = Coefficients.from_json(json.loads(json.dumps(found.to_json())))
    assert again.to_json() == found.to_json()


def test_damaged_coefficients_are_a_sentence() -> None:
    plain = prior_of("volta").phases["forward"].to_json()
    with pytest.raises(BadInput, match="calibrate"):
        Shares.from_json({**plain, "kernel_s": -1.0})
    with pytest.raises(BadInput, match="calibrate"):
        Shares.from_json({k: v for k, v in plain.items() if k != "bytes"})
    with pytest.raises(BadInput, match="calibrate"):
        Coefficients.from_json({"phases": {}})
