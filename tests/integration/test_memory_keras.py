"""Keras models: traced on Keras' torch backend, else walked and labelled as such; JAX models are counted."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ischeduler.core.errors import EstimatorFailed
from ischeduler.core.workload import EnvironmentSpec, Workload
from ischeduler.estimators.memory.estimator import TraceEstimator, tracing
from ischeduler.estimators.memory.tracer import Tracer

NET = """
import keras

def build_model(width=16):
    images = keras.Input((32, 32, 3))
    found = keras.layers.Conv2D(width, 3, padding="same", activation="relu")(images)
    return keras.Model(images, keras.layers.Dense(10)(keras.layers.GlobalAveragePooling2D()(found)))
"""

NETS = """
import keras
from keras import layers

def images(width=8):
    x = inputs = keras.Input((32, 32, 3))
    for n in range(8):
        x = layers.Conv2D(width, 3, padding="same", use_bias=False)(x)
        x = layers.ReLU()(layers.BatchNormalization()(x))
    x = layers.Dropout(0.1)(layers.GlobalAveragePooling2D()(x))  # on large results the CPU's differs: it keeps a mask of floats
    return keras.Model(inputs, layers.Dense(10, activation="softmax")(x))

def words(width=32):
    inputs = keras.Input((None,), dtype="int32")
    x = layers.Embedding(100, width)(inputs)
    for n in range(2):
        x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, width // 4)(x, x))
        x = layers.LayerNormalization()(x + layers.Dense(width)(layers.Dense(4 * width, activation="gelu")(x)))
    return keras.Model(inputs, layers.Dense(100, activation="softmax")(x))
"""

PEAK = """
import json, sys, weakref
import keras, torch
from torch.utils._python_dispatch import TorchDispatchMode
keras.mixed_precision.set_global_policy(sys.argv[4])
import nets

class Live(TorchDispatchMode):
    now = peak = 0
    known = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                if storage._cdata not in self.known:
                    self.known.add(storage._cdata)
                    self.now += storage.nbytes()
                    self.peak = max(self.peak, self.now)
                    weakref.finalize(storage, self.gone, storage._cdata, storage.nbytes())
        return out

    def gone(self, key, size):
        self.known.discard(key)
        self.now -= size

net = getattr(nets, sys.argv[1])()
live = Live()
live.known |= {p.untyped_storage()._cdata for p in net.parameters()}
with live:
    out = net(torch.zeros(8, *json.loads(sys.argv[2]), dtype=getattr(torch, sys.argv[3])), training=True)
    keras.losses.sparse_categorical_crossentropy(torch.zeros(out.shape[:-1], dtype=torch.int64), out).mean().backward()
print(live.peak)
"""

needs_keras = pytest.mark.skipif(importlib.util.find_spec("keras") is None, reason="keras is not installed")


@pytest.fixture
def estimator(tmp_path: Path) -> TraceEstimator:
    return TraceEstimator(tracing(Tracer(tmp_path / "traces")))


@needs_keras
def test_a_keras_model_is_walked_and_labelled(estimator: TraceEstimator, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET)
    environment = EnvironmentSpec(variables={"KERAS_BACKEND": "tensorflow"})
    work = Workload(
        model="net.py:build_model", framework="keras", batch_size=8, optimizer="adam", directory=str(tmp_path), environment=environment
    )
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


def on_torch(folder: Path, name: str, **fields: object) -> Workload:
    (folder / "nets.py").write_text(NETS)
    environment = EnvironmentSpec(variables={"KERAS_BACKEND": "torch"})
    return replace(
        Workload(model=f"nets.py:{name}", framework="keras", batch_size=8, optimizer="adam", directory=str(folder), environment=environment),
        **fields,  # type: ignore[arg-type]
    )


@needs_keras
@pytest.mark.torch
@pytest.mark.parametrize(
    ("name", "shape", "kind", "precision"),
    [("images", [32, 32, 3], "float32", "fp32"), ("images", [32, 32, 3], "float32", "bf16"), ("words", [64], "int32", "fp32")],
)
def test_on_keras_torch_backend_a_model_is_traced(
    estimator: TraceEstimator, tmp_path: Path, name: str, shape: list[int], kind: str, precision: str
) -> None:
    """The traced peak is that of a real training step on the CPU, whose tensors are watched one by one."""
    pytest.importorskip("torch")
    work = on_torch(tmp_path, name, options={"sequence_length": "64"}, precision=precision)
    report = estimator.report(work)
    assert report.total.basis == "trace"
    assert report.optimizer_bytes == 2 * report.gradients_bytes
    env = {**os.environ, "KERAS_BACKEND": "torch", "PYTHONPATH": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""}
    policy = "mixed_bfloat16" if precision == "bf16" else "float32"
    done = subprocess.run(
        [sys.executable, "-c", PEAK, name, json.dumps(shape), kind, policy], env=env, capture_output=True, text=True, timeout=300, check=True
    )
    peak = int(done.stdout.split()[-1])
    assert report.activations_bytes + report.gradients_bytes == pytest.approx(peak, rel=0.1)
    double = estimator.report(replace(work, batch_size=16))
    assert 1.9 * report.activations_bytes <= double.activations_bytes <= 2.1 * report.activations_bytes


@needs_keras
@pytest.mark.torch
def test_a_keras_model_that_is_not_traced_is_walked_with_the_reason(estimator: TraceEstimator, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    report = estimator.report(on_torch(tmp_path, "images", options={"checkpointing": "true"}))
    assert report.total.basis == "analytic"
    open_shape = on_torch(tmp_path, "words")
    trace = estimator._trace(open_shape)
    assert trace.backend == "keras-walk"
    assert any("leaves the shape of its input open" in note for note in trace.notes)
