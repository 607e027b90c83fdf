"""The roofline's arithmetic, devices, and the correction by a measured step."""

from __future__ import annotations

from dataclasses import replace

import pytest
from estimator_worlds import CARD, CPU, GPU, WORK, finished, request
from hypothesis import given
from hypothesis import strategies as st

from ischeduler.core.cluster import Accelerator
from ischeduler.core.errors import EstimatorFailed
from ischeduler.core.workload import Workload
from ischeduler.estimators.memory.spec import TraceReport
from ischeduler.estimators.steptime.correction import DEVICE_SPREAD, NOISE, MeasuredStep, corrected_by
from ischeduler.estimators.steptime.devices import CpuCalibration, of_accelerator
from ischeduler.estimators.steptime.estimator import RooflineEstimator
from ischeduler.estimators.steptime.oplog import OpRow, at_batch, convolution_kind, grouped, kind_of
from ischeduler.estimators.steptime.roofline import phase_loads, step_seconds

ROWS = (
    OpRow("forward", "conv3x3", "fp32", 4e10, 1e8, 20), OpRow("forward", "elementwise", "fp32", 0, 2e8, 20),
    OpRow("backward", "conv3x3", "fp32", 8e10, 2e8, 20), OpRow("optimizer", "elementwise", "fp32", 0, 3e8, 1),
)


def report(batch: int = 32) -> TraceReport:
    return TraceReport(
        batch, "fake-accelerator", "2.13.0", 25_000_000, 10**8, 10**8, 10**8, 3 * 10**9, 3 * 10**9, 4 * 10**9, 10**7, operations=ROWS
    )


def traced(workload: Workload) -> TraceReport:
    return _REPORT if workload.batch == 32 else report(workload.batch)


_REPORT = report()
V100 = of_accelerator(CARD)
assert V100 is not None


@pytest.mark.parametrize(("name", "kind"), [
    ("aten::addmm", "matmul"), ("aten::native_batch_norm", "norm"), ("aten::max_pool2d_with_indices", "pool"),
    ("aten::_scaled_dot_product_flash_attention", "attention"), ("aten::relu", "elementwise"), ("aten::_softmax", "norm"),
])
def test_operations_are_classed_by_name(name: str, kind: str) -> None:
    assert kind_of(name) == kind


def test_convolutions_are_classed_by_shape() -> None:
    assert [convolution_kind(1, 64, (3, 3)), convolution_kind(1, 64, (1, 1)), convolution_kind(32, 64, (3, 3)),
            convolution_kind(64, 64, (3, 3))] == ["conv3x3", "conv", "group_conv", "depthwise_conv"]


def test_equal_launches_are_one_row() -> None:
    rows = grouped([("forward", "conv", "fp32", 1.0, 2.0)] * 3 + [("forward", "pool", "fp32", 0.0, 2.0)])
    assert [(r.kind, r.count) for r in rows] == [("conv", 3), ("pool", 1)]


@given(st.floats(1.0, 8.0))
def test_more_samples_and_slower_cards_take_longer(factor: float) -> None:
    seconds = step_seconds(ROWS, V100, "fp32")
    assert step_seconds(at_batch(ROWS, factor), V100, "fp32") >= seconds
    slower = replace(V100, plain_flops=V100.plain_flops / factor, bandwidth_bytes_s=V100.bandwidth_bytes_s / factor)
    assert step_seconds(ROWS, slower, "fp32") >= seconds
    assert step_seconds(ROWS, V100, "fp32", accumulate=4) > 3 * seconds


def test_no_step_beats_the_datasheet_by_more_than_winograd() -> None:
    flops = sum(r.flops * r.count for r in ROWS)
    assert step_seconds(ROWS, V100, "fp32") >= flops / (CARD.fp32_flops or 0) / 1.2


def test_tensor_float_speeds_convolutions_where_the_card_has_it() -> None:
    a100 = of_accelerator(Accelerator("a100-40g", 40 * 2**30, fp32_flops=19.5e12, bf16_flops=312e12, bandwidth_bytes_s=1.555e12))
    assert a100 is not None
    assert a100.tensor_float_flops == 156e12
    without = replace(a100, tensor_float_flops=None)
    assert step_seconds(ROWS, a100, "fp32") < step_seconds(ROWS, without, "fp32")
    assert V100.tensor_float_flops is None
    products = (OpRow("forward", "matmul", "fp32", 1e12, 1e8),)
    assert step_seconds(products, a100, "tf32") < step_seconds(products, a100, "fp32")


def test_an_undescribed_card_is_a_sentence() -> None:
    bare = replace(GPU, accelerator=Accelerator("mystery", 2**34))
    with pytest.raises(EstimatorFailed, match="mystery are unknown"):
        RooflineEstimator(traced).estimate(request("step_time", node_type=bare))


def test_one_measured_step_corrects_other_batches() -> None:
    estimator = RooflineEstimator(traced)
    plain = estimator.estimate(request("step_time"))
    half = step_seconds(at_batch(ROWS, 0.5), V100, "fp32")
    profile = finished(kind="profile", batch_size=16, step_time_s=3 * half)
    corrected = estimator.estimate(request("step_time", history=(profile,)))
    parts = [phase_loads(at_batch(ROWS, f), V100, "fp32") for f in (0.5, 1.0)]
    factor = corrected_by([MeasuredStep(tuple(parts[0][p] for p in ("forward", "backward", "optimizer")), 3 * half)])
    assert corrected.p50 == pytest.approx(factor.seconds(tuple(parts[1].values())))
    noise = (NOISE / DEVICE_SPREAD) ** 2  # the share of the logarithm that the prior keeps, as the device bounds this step
    assert corrected.p50 == pytest.approx(plain.p50 * 3 ** (1 / (1 + noise)), rel=1e-3)
    assert corrected.basis == "profile"
    assert corrected.p90 / corrected.p50 < plain.p90 / plain.p50
    assert "batch 16" in corrected.reason
    assert estimator.estimate(request("step_time", history=(finished(batch_size=16),))).basis == "history"


def test_cpu_nodes_use_the_calibration_or_say_they_guess() -> None:
    work = replace(WORK, gpus=None, cpus=28)
    asked = request("step_time", node_type=CPU, workload=work)
    guess = RooflineEstimator(traced).estimate(asked)
    measured = CpuCalibration(28, 1e12, 1.2e12, 1e11, 1e-5, measured_at=1.0)
    sure = RooflineEstimator(traced, {"cpu": measured}).estimate(asked)
    assert "typical server cores" in guess.reason
    assert "calibrated" in sure.reason
    assert sure.p90 / sure.p50 < guess.p90 / guess.p50
    few = RooflineEstimator(traced, {"cpu": measured}).estimate(replace(asked, workload=replace(work, cpus=7)))
    assert 2.5 < few.p50 / sure.p50 < 4.5


def test_more_devices_add_communication() -> None:
    estimator = RooflineEstimator(traced)
    one, two = estimator.estimate(request("step_time")), estimator.estimate(request("step_time", workload=replace(WORK, gpus=2)))
    assert one.p50 < two.p50 < 1.5 * one.p50


def test_nothing_traced_is_a_sentence() -> None:
    empty = replace(_REPORT, operations=(), notes=("it decides by its data",))
    with pytest.raises(EstimatorFailed, match="decides by its data"):
        RooflineEstimator(lambda _: empty).estimate(request("step_time"))
