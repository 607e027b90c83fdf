"""Keras and JAX models: counted and walked, labelled as such, never traced."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest

from ischeduler.core.errors import EstimatorFailed
from ischeduler.core.workload import Workload
from ischeduler.estimators.memory.estimator import TraceEstimator, tracing
from ischeduler.estimators.memory.tracer import Tracer

NET = """
import keras

def build_model(width=16):
    images = keras.Input((32, 32, 3))
    found = keras.layers.Conv2D(width, 3, padding="same", activation="relu")(images)
    return keras.Model(images, keras.layers.Dense(10)(keras.layers.GlobalAveragePooling2D()(found)))
"""

needs_keras = pytest.mark.skipif(importlib.util.find_spec("keras") is None, reason="keras is not installed")


@pytest.fixture
def estimator(tmp_path: Path) -> TraceEstimator:
    return TraceEstimator(tracing(Tracer(tmp_path / "traces")))


@needs_keras
def test_a_keras_model_is_walked_and_labelled(estimator: TraceEstimator, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET)
    work = Workload(model="net.py:build_model", framework="keras", batch_size=8, optimizer="adam", directory=str(tmp_path))
    report = estimator.report(work)
    parameters = 3 * 16 * 9 + 16 + 16 * 10 + 10
    layer = 32 * 32 * 16 * 4 * 8
    images = 32 * 32 * 3 * 4 * 8
    assert (report.weights_bytes, report.optimizer_bytes) == (4 * parameters, 8 * parameters)
    assert layer + images < report.activations_bytes < 2 * (layer + images) + 10_000
    assert report.total.basis == "analytic"
    assert report.total.p90 - report.context.p90 > 2 * (report.total.p50 - report.context.p50)
    assert estimator.report(replace(work, batch_size=16)).activations_bytes == 2 * report.activations_bytes


def test_other_frameworks_need_a_parameter_count(estimator: TraceEstimator) -> None:
    work = Workload(model="mine", framework="jax", batch_size=8)
    with pytest.raises(EstimatorFailed, match="set the option parameters"):
        estimator.report(work)
    counted = estimator.report(replace(work, options={"parameters": "1e6"}))
    assert counted.weights_bytes == 4_000_000
    assert counted.total.basis == "analytic"


@needs_keras
def test_an_unknown_keras_model_is_one_sentence(estimator: TraceEstimator) -> None:
    with pytest.raises(EstimatorFailed, match="has no model 'Nope'"):
        estimator.report(Workload(model="keras:Nope", framework="keras"))
    with pytest.raises(EstimatorFailed, match="framework = keras"):
        estimator.report(Workload(model="keras:ResNet50"))
