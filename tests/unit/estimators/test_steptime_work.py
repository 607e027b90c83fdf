"""From log rows to kernels: shapes, batches, what a convolution's backward pass is made of, and architectures by name."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ischeduler.estimators.steptime.architectures import architecture_of
from ischeduler.estimators.steptime.oplog import (
    BIAS,
    DATA_GRADIENT,
    WEIGHT_GRADIENT,
    OpRow,
    at_batch,
    from_lists,
    grouped,
    shape_of,
    to_lists,
)
from ischeduler.estimators.steptime.work import KINDS, features, kernels

LAYER = (32, 64, 28, 28, 128, 3, 3, 2, 1, BIAS)
FORWARD = OpRow("forward", "conv3x3", "fp32", 2.0 * 32 * 128 * 28 * 28 * 64 * 9, 1e8, 2, LAYER)
BACKWARD = OpRow("backward", "conv3x3", "fp32", 2 * FORWARD.flops, 2e8, 2, (*LAYER[:-1], BIAS | DATA_GRADIENT | WEIGHT_GRADIENT))
FIRST = OpRow("backward", "conv3x3", "fp32", FORWARD.flops, 1e8, 1, (*LAYER[:-1], WEIGHT_GRADIENT))
LINEAR = OpRow("forward", "matmul", "fp32", 2.0 * 4096 * 3072 * 768, 4.0 * (4096 * 768 + 768 * 3072 + 4096 * 3072), 1, (1, 4096, 3072, 768))


def tensor(*shape: int) -> SimpleNamespace:
    return SimpleNamespace(shape=shape)


def test_shapes_are_read_off_calls() -> None:
    images, weight, result = tensor(32, 64, 56, 56), tensor(128, 64, 3, 3), tensor(32, 128, 28, 28)
    assert shape_of("aten::convolution", (images, weight, tensor(128), [2, 2], [1, 1], [1, 1], False, [0, 0], 1), result) == LAYER
    back = (result, images, weight, [128], [2, 2], [1, 1], [1, 1], False, [0, 0], 1, [True, True, True])
    assert shape_of("aten::convolution_backward", back, ()) == BACKWARD.shape
    assert shape_of("aten::addmm", (tensor(3072), tensor(4096, 768), tensor(768, 3072)), None) == LINEAR.shape
    assert shape_of("aten::bmm", (tensor(8, 16, 64), tensor(8, 64, 32)), None) == (8, 16, 32, 64)
    assert shape_of("aten::relu", (images,), images) == ()


def test_a_backward_pass_is_two_kernels_and_a_bias_one_more() -> None:
    parts = kernels([FORWARD, BACKWARD])
    assert [w.kind for w in parts["forward"]] == ["forward_3x3_strided", "elementwise"]
    assert [w.kind for w in parts["backward"]] == ["data_3x3_strided", "weight_3x3_strided", "reduction"]
    assert sum(w.flops for w in parts["backward"]) == pytest.approx(BACKWARD.flops)
    assert sum(w.launches for w in parts["backward"]) == 1
    assert [w.kind for w in kernels([FIRST])["backward"]] == ["weight_3x3_strided"]


def test_rows_without_shape_still_count() -> None:
    old = OpRow("backward", "depthwise_conv", "fp32", 8.0, 6e3)
    assert [(w.kind, w.flops) for w in kernels([old])["backward"]] == [("data_depthwise", 4.0), ("weight_depthwise", 4.0)]
    assert kernels([OpRow("forward", "elementwise", "other", 0.0, 16.0)])["forward"] == ()


@given(st.floats(0.1, 8.0))
def test_weights_do_not_grow_with_the_batch(factor: float) -> None:
    layer, linear = at_batch([FORWARD, LINEAR], factor)
    assert layer.flops == pytest.approx(FORWARD.flops * factor)
    weights = 4.0 * 64 * 128 * 9
    assert layer.bytes == pytest.approx(weights + (FORWARD.bytes - weights) * factor)
    assert linear.bytes == pytest.approx(4.0 * 768 * 3072 + (LINEAR.bytes - 4.0 * 768 * 3072) * factor)
    update = OpRow("optimizer", "elementwise", "fp32", 0.0, 1e6)
    assert at_batch([update], factor) == (update,)


def test_what_launches_nothing_is_no_row() -> None:
    from ischeduler.estimators.steptime.oplog import kind_of

    rows = [("forward", kind_of(n), "fp32", 0.0, 1e6, ()) for n in ("prim::device", "aten::empty", "aten::relu", "aten::cat")]
    assert [r.kind for r in grouped(rows)] == ["elementwise", "copy"]


def test_logs_survive_json_and_older_ones_are_read() -> None:
    assert from_lists(to_lists([FORWARD, LINEAR])) == (FORWARD, LINEAR)
    assert from_lists([["forward", "pool", "fp32", 0.0, 8.0, 3]])[0].shape == ()


@given(st.integers(1, 512), st.integers(1, 512), st.integers(1, 256))
def test_features_only_ever_cost(channels: int, filters: int, size: int) -> None:
    row = OpRow("forward", "conv", "fp32", 1.0, 1e6, 1, (8, channels, size, size, filters, 1, 1, 1, 1, 0))
    work = kernels([row])["forward"][0]
    assert work.kind in KINDS
    assert all(f <= 0 for f in features(work, 80))
    assert features(work, 160)[2] <= features(work, 80)[2]


@pytest.mark.parametrize(("card", "name", "tensor_float"), [
    ("NVIDIA_A100-SXM4-40GB", "ampere", True), ("Tesla_V100-PCIE-32GB", "volta", False), ("k80", "kepler", False),
    ("Tesla_M40", "maxwell", False), ("p100-16g", "pascal", False), ("Quadro RTX 6000", "turing", False), ("h200-141g", "hopper", True),
    ("rtx3090", "ampere-graphics", True), ("l40s", "ada", True), ("AMD_Instinct_MI210", "cdna2", False), ("mi300x", "cdna3", False),
    ("b200", "blackwell", True), ("something else", "", False),
])
def test_architectures_by_name(card: str, name: str, tensor_float: bool) -> None:
    found = architecture_of(card)
    assert (found.name, found.tensor_float) == (name, tensor_float)
    assert found.units > 0
