"""What a training is, and what it cannot be."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ischeduler.core.blocker import Blocker
from ischeduler.core.errors import BadInput
from ischeduler.core.workload import Workload


@given(st.integers(0, 10**7), st.integers(1, 1024), st.integers(1, 8), st.integers(1, 4), st.none() | st.integers(0, 8), st.integers(1, 90))
def test_steps_see_every_sample_and_waste_less_than_one_step(
    samples: int, batch: int, accum: int, nodes: int, gpus: int | None, epochs: int,
) -> None:
    w = Workload(samples=samples, batch_size=batch, grad_accum=accum, nodes=nodes, gpus=gpus, epochs=epochs)
    a_step = batch * accum * w.devices
    assert w.steps_per_epoch * a_step >= samples
    assert (w.steps_per_epoch - 1) * a_step < max(samples, 1)
    assert w.steps == w.steps_per_epoch * epochs


def test_variants_have_one_batch_size_each_and_no_doubles() -> None:
    w = Workload(batch_size=[32, 64, 32])  # pyright: ignore[reportArgumentType]
    assert [v.batch for v in w.variants()] == [32, 64]
    assert Workload(batch_size=(32,)).batch == 32
    with pytest.raises(BadInput, match="has 2 batch sizes; choose one"):
        _ = w.batch


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"epochs": 0}, "epochs must be at least 1"), ({"batch_size": 0}, "batch_size 0 must be at least 1"),
        ({"batch_size": ()}, "batch_size is empty"), ({"samples": -1}, "samples must be at least 0"),
        ({"gpus": -1}, "gpus must be at least 0"), ({"cpus": 0}, "cpus must be at least 1"), ({"memory_bytes": 0}, "memory_bytes"),
        ({"precision": "fp8"}, "precision 'fp8' is unknown; expected one of fp32"), ({"nodes": 0}, "nodes must be at least 1"),
    ],
)  # fmt: skip
def test_impossible_trainings_are_refused_in_one_sentence(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput) as error:
        Workload(**fields)
    assert words in str(error.value)


def test_a_family_is_what_counts_as_similar() -> None:
    assert Workload(model="timm:resnet50", command=("python", "train.py")).family == "timm:resnet50"
    assert Workload(command=("python", "a/train.py", "--x")).family == "a/train.py"
    assert Workload(name="mine").family == "mine"
    assert Workload().family == "unnamed"


def test_a_blocker_is_one_sentence() -> None:
    full = Blocker("gpu_memory", "card has 32 GB, 9 GB more needed", "41 GB", "batch 48 fits, or gradient accumulation 2")
    assert full.sentence() == "needs 41 GB, card has 32 GB, 9 GB more needed: batch 48 fits, or gradient accumulation 2"
    assert Blocker("account", "account not permitted", "", "").sentence() == "account not permitted"
