"""What a workload's options change in the traced step: recomputation, frozen parts, 8-bit states, another batch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ischeduler.core.errors import EstimatorFailed
from ischeduler.core.sizes import MIB
from ischeduler.estimators.memory.report import at_batch
from ischeduler.estimators.memory.spec import TraceSpec
from ischeduler.estimators.memory.tracer import Tracer

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

DEEP = """
from torch import nn

def build_model(width=256, depth=8):
    blocks = [nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(depth)]
    return nn.Sequential(nn.Sequential(*blocks), nn.Linear(width, 10))
"""


@pytest.fixture(scope="module")
def tracer(tmp_path_factory: pytest.TempPathFactory) -> Tracer:
    return Tracer(tmp_path_factory.mktemp("traces"))


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> TraceSpec:
    folder = tmp_path_factory.mktemp("deep")
    (folder / "net.py").write_text(DEEP)
    return TraceSpec("net.py:build_model", 4096, directory=str(folder), input_shape=(256,), optimizer="adamw", second_batch=8192)


def test_another_batch_is_replayed_as_if_it_had_been_traced(tracer: Tracer, deep: TraceSpec) -> None:
    report = tracer.report(deep)
    assert report.log is not None
    assert report.log.linear
    other = tracer.report(replace(deep, batch=6144, second_batch=0))
    moved = at_batch(report, 6144)
    assert (moved.allocated_bytes, moved.reserved_bytes) == (other.allocated_bytes, other.reserved_bytes)
    assert len(report.units) == 8


def test_recomputation_trades_activations_for_time(tracer: Tracer, deep: TraceSpec) -> None:
    plain = tracer.report(deep)
    saved = tracer.report(replace(deep, options={"checkpointing": "true"}))
    assert saved.activations_bytes < 0.4 * plain.activations_bytes
    assert saved.weights_bytes == plain.weights_bytes
    flops = [sum(r.flops * r.count for r in report.operations) for report in (plain, saved)]
    assert 1.1 < flops[1] / flops[0] < 1.4  # one more forward pass, but for the last layer of each block


def test_frozen_parameters_need_neither_gradient_nor_state(tracer: Tracer, deep: TraceSpec) -> None:
    frozen = tracer.report(replace(deep, options={"train_only": "1.*"}))
    head = (256 * 10 + 10) * 4
    assert frozen.gradients_bytes == head
    assert frozen.optimizer_bytes == pytest.approx(2 * head, rel=0.02)
    assert frozen.activations_bytes < 0.3 * tracer.report(deep).activations_bytes
    with pytest.raises(EstimatorFailed, match="matches no parameter"):
        tracer.report(replace(deep, options={"train_only": "adapter"}))


def test_eight_bit_states_are_a_quarter(tracer: Tracer, deep: TraceSpec) -> None:
    full, eight = (tracer.report(replace(deep, optimizer=name)).optimizer_bytes for name in ("adamw", "adamw8bit"))
    assert eight == pytest.approx(full / 4, rel=0.03)


def test_optimizers_work_on_groups_as_on_cuda(tracer: Tracer, deep: TraceSpec) -> None:
    """Adam's step makes one more copy of all weights at once (foreach), which is the peak of a small batch."""
    small = tracer.report(replace(deep, batch=1, second_batch=0))
    assert small.activations_bytes == pytest.approx(small.weights_bytes, abs=2 * MIB)


def test_attention_in_five_dimensions_keeps_its_scores(tracer: Tracer, tmp_path: Path) -> None:
    """No fused kernel takes it, so CUDA computes it in plain operations."""
    (tmp_path / "net.py").write_text(
        "import torch\nfrom torch import nn\nfrom torch.nn import functional as F\n"
        "class Net(nn.Module):\n"
        "    def __init__(self, dims=4):\n"
        "        super().__init__()\n"
        "        self.dims, self.mix = dims, nn.Linear(64, 64)\n"
        "    def forward(self, x):\n"
        "        q = self.mix(x).unsqueeze(1)\n"
        "        q = q.unsqueeze(1) if self.dims == 5 else q\n"
        "        return F.scaled_dot_product_attention(q, q, q).flatten(1)\n"
    )
    base = TraceSpec("net.py:Net", 16, directory=str(tmp_path), input_shape=(512, 64))
    fused, plain = (tracer.report(replace(base, options={"model.dims": str(d)})).activations_bytes for d in (4, 5))
    assert plain - fused > 2 * 16 * 512 * 512 * 4 * 0.9
