"""What batch, accumulation and learning rate become on another number of accelerators."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ischeduler.core.elastic import Elastic, resized, share_of
from ischeduler.core.errors import BadInput
from ischeduler.core.workload import Workload


def workload(batch: int = 32, gpus: int = 4, accum: int = 1, **elastic: object) -> Workload:
    given: dict[str, object] = {"world_sizes": tuple(range(1, 65)), **elastic}
    return Workload(model="m", samples=10_000, batch_size=batch, gpus=gpus, grad_accum=accum, elastic=Elastic(**given))  # type: ignore[arg-type]


@given(st.integers(1, 256), st.integers(1, 16), st.integers(1, 8), st.integers(1, 64))
def test_a_kept_batch_is_kept_exactly_and_no_device_gets_a_larger_one(batch: int, gpus: int, accum: int, world: int):
    whole = batch * gpus * accum
    if whole % world:
        with pytest.raises(BadInput, match="cannot be shared"):
            share_of(workload(batch, gpus, accum), world)
        return
    share = share_of(workload(batch, gpus, accum), world)
    assert share.batch_size * share.grad_accum * share.world_size == whole == share.global_batch
    assert 1 <= share.batch_size <= batch
    assert share.lr_scale == 1.0


@pytest.mark.parametrize(("rate", "factor"), [("linear", 0.5), ("sqrt", math.sqrt(0.5)), ("none", 1.0)])
def test_a_scaled_batch_takes_the_learning_rate_along(rate: str, factor: float):
    share = share_of(Workload(
        model="m", batch_size=32, gpus=4, elastic=Elastic((2,), "scale", rate)), 2)  # fmt: skip
    assert (share.batch_size, share.grad_accum, share.global_batch) == (32, 1, 64)
    assert share.lr_scale == pytest.approx(factor)


@given(st.lists(st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=6))
def test_however_often_it_is_resized_it_is_what_was_declared_on_that_size(sizes: list[int]):
    first = workload(32, 4)
    now = first
    for world in sizes:
        now = resized(now, world)
        assert now.elastic is not None
        assert now.elastic.base == (4, 32, 1)
        assert (now.batch, now.grad_accum, now.devices) == (share_of(first, world).batch_size, share_of(first, world).grad_accum, world)
        assert now.steps_per_epoch == first.steps_per_epoch
    assume(4 in sizes)
    assert (resized(now, 4).batch, resized(now, 4).grad_accum) == (32, 1)


def test_what_is_not_allowed_is_one_sentence():
    with pytest.raises(BadInput, match="may run on 4, 8 accelerators"):
        share_of(workload(world_sizes=(8,)), 2)
    with pytest.raises(BadInput, match="one node"):
        resized(Workload(model="m", nodes=2, elastic=Elastic((1,))), 1)
    for fields, words in (({"batch": "grow"}, "no rule for the batch"), ({"rate": "cubic"}, "no rule for the learning"), ({"rate": "linear"}, "batch is kept"), ({"world_sizes": (0,)}, "cannot run on 0")):
        with pytest.raises(BadInput, match=words):
            Elastic(**fields)  # type: ignore[arg-type]
