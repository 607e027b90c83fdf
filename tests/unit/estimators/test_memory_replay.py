"""From an allocation log to bytes on a card: other batches, workspaces, several cards, the largest batch, calibration."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ischeduler.core.errors import BadInput
from ischeduler.core.sizes import GIB, MIB
from ischeduler.core.workload import Workload
from ischeduler.estimators.memory.allocator_conf import AllocatorConf
from ischeduler.estimators.memory.calibration import DeviceCalibration, Measured, learn
from ischeduler.estimators.memory.remedies import remedies
from ischeduler.estimators.memory.replay import replayed, tensor_sum
from ischeduler.estimators.memory.report import Setting, at_batch, largest_batch, memory_report
from ischeduler.estimators.memory.sharding import Sharding, replicated
from ischeduler.estimators.memory.spec import TraceReport
from ischeduler.estimators.memory.steplog import ALLOC, FREE, WORK, ConvolutionCall, StepLog, joined
from ischeduler.estimators.memory.workspaces import (
    CUBLAS_BYTES,
    CUBLAS_HOPPER_BYTES,
    Borrowers,
    Workspaces,
    generation_of,
)

CONV = ConvolutionCall("forward", (8, 64, 56, 56), (64, 64, 3, 3), (8, 64, 56, 56), 1, "fp32")
IO = 4 * (2 * 8 * 64 * 56 * 56 + 64 * 64 * 9)


def log_at(batch: int) -> StepLog:
    """Weights, a batch of inputs, a convolution, its result, and all of it gone again."""
    rows = (
        (ALLOC, 1, 100 * MIB, 0.0), (WORK, -1, 0, 0.0), (ALLOC, 2, batch * MIB, 0.0), (ALLOC, 3, 40 * batch * MIB, 0.0),
        (WORK, 0, 0, 0.0), (FREE, 2, 0, 0.0), (FREE, 3, 0, 0.0),
    )
    return StepLog(batch, False, rows, {1: 0, 2: 1, 3: 2}, (CONV.at_batch(batch),), 1)


LINES = joined(log_at(8), log_at(16))
TRACE = TraceReport(
    8, "fake-accelerator", "2.13.0", 26_214_400, 100 * MIB, 0, 0, 328 * MIB, 428 * MIB, 428 * MIB, 8 * MIB, log=LINES,
    units=(30 * MIB, 30 * MIB, 30 * MIB),
)


def test_two_traces_make_lines_and_survive_json() -> None:
    assert LINES.linear
    assert list(LINES.events(40)) == [(k, i, n) for k, i, n in log_at(40).events(40)]
    assert StepLog.from_json(LINES.to_json()) == LINES
    assert TraceReport.from_json(TRACE.to_json()) == TRACE


def test_another_path_is_no_line() -> None:
    other = replace(log_at(16), rows=log_at(16).rows[:-1])
    alone = joined(log_at(8), other)
    assert not alone.linear
    with pytest.raises(ValueError, match="batch 8 alone"):
        list(alone.events(16))
    with pytest.raises(ValueError, match="batch 8 alone"):
        at_batch(replace(TRACE, log=None), 16)


@settings(deadline=None)
@given(st.integers(1, 300))
def test_a_replay_at_another_batch_equals_a_trace_of_it(batch: int) -> None:
    assert replayed(LINES, batch).peak_allocated == replayed(log_at(batch), batch).peak_allocated
    moved = at_batch(TRACE, batch)
    assert 0 <= moved.allocated_bytes - (100 + 41 * batch) * MIB <= 3 * MIB  # rests up to 1 MiB are not split off
    assert moved.fixed_bytes + moved.activations_bytes == moved.allocated_bytes


def test_convolutions_borrow_a_copy_of_their_tensors_where_tensor_cores_work() -> None:
    assert Workspaces("ampere").convolution_bytes(CONV) == IO
    assert Workspaces("volta").convolution_bytes(CONV) == 0
    assert Workspaces("volta").convolution_bytes(replace(CONV, dtype="fp16")) == IO // 2
    assert Workspaces("ampere").convolution_bytes(replace(CONV, groups=64)) == 0
    assert Workspaces("ampere").convolution_bytes(replace(CONV, weight=(64, 64, 1, 1))) == 0


def test_workspaces_show_in_the_reserved_bytes_only_while_they_are_borrowed() -> None:
    rules = Workspaces("ampere")
    plain, with_them = replayed(LINES, 8), replayed(LINES, 8, workspaces=rules)
    assert with_them.peak_reserved >= plain.peak_reserved + rules.convolution_bytes(CONV)
    assert with_them.allocated == plain.allocated + CUBLAS_BYTES
    emptied = replayed(LINES, 8, workspaces=Workspaces("ampere", benchmark=True))
    assert emptied.reserved < with_them.reserved
    report = memory_report(TRACE, setting=Setting(rules))
    assert report.workspaces_bytes == with_them.peak_reserved - TRACE.reserved_bytes
    assert report.total.p50 == report.reserved_bytes + report.workspaces_bytes + report.context.p50
    assert "workspaces" in report.sentence()


@pytest.mark.parametrize(("name", "generation"), [
    ("a100-40g", "ampere"), ("NVIDIA_A100-SXM4-40GB", "ampere"), ("h100", "hopper"), ("gh200", "hopper"), ("v100-32g", "volta"),
    ("Tesla_T4", "turing"), ("l40s", "ada"), ("b200", "blackwell"), ("p100-16g", "pascal"), ("k80", "kepler"), ("rtx-3090", "ampere"),
    ("mi250", ""),
])
def test_generations_by_name(name: str, generation: str) -> None:
    assert generation_of(name) == generation
    assert Workspaces(generation).matmul_bytes == (CUBLAS_HOPPER_BYTES if generation in ("hopper", "blackwell") else CUBLAS_BYTES)


def test_the_search_of_algorithms_widens_the_interval() -> None:
    quiet = memory_report(TRACE, setting=Setting(Workspaces("volta"))).total
    risky = memory_report(TRACE, setting=Setting(Workspaces("volta", benchmark=True))).total
    assert risky.p90 > quiet.p90
    assert risky.p50 <= quiet.p50


def test_sharding_splits_what_stays_and_adds_what_is_gathered() -> None:
    trace = replace(TRACE, gradients_bytes=100 * MIB, optimizer_bytes=200 * MIB, reserved_bytes=900 * MIB, allocated_bytes=728 * MIB)
    alone, ddp, view, fsdp = (replicated(trace, Sharding(k, 4)) for k in ("", "ddp", "ddp-view", "fsdp2"))
    assert ddp.reserved - alone.reserved == ddp.extra == 100 * MIB
    assert view == alone
    assert (fsdp.weights, fsdp.gradients, fsdp.optimizer) == (25 * MIB, 25 * MIB, 50 * MIB)
    assert fsdp.extra == (60 + 10 + 30) * MIB
    assert fsdp.reserved == (900 - 300 + 100) * MIB
    assert replicated(trace, Sharding("fsdp2", 4, half_gather=True)).extra == (35 + 30) * MIB
    assert replicated(trace, Sharding("fsdp2", 1)).reserved == 900 * MIB
    with pytest.raises(BadInput, match="fsdp2"):
        Sharding("zero9", 2)


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 60))
def test_the_largest_batch_fits_and_the_next_does_not(gigabytes: int) -> None:
    memory = gigabytes * GIB
    setting = Setting(Workspaces("ampere"))
    found = largest_batch(TRACE, memory, setting)
    if found:
        assert memory_report(at_batch(TRACE, found), setting=setting).total.p90 <= memory
    following = found + (8 if found >= 16 else 1)
    assert memory_report(at_batch(TRACE, following), setting=setting).total.p90 > memory


def test_the_allocators_knobs_change_the_report() -> None:
    plain = memory_report(TRACE, setting=Setting(conf=AllocatorConf()))
    expandable = memory_report(TRACE, setting=Setting(conf=AllocatorConf(expandable_segments=True)))
    assert plain.reserved_bytes == TRACE.reserved_bytes
    assert expandable.reserved_bytes % (2 * MIB) == 0
    assert expandable.reserved_bytes != plain.reserved_bytes


def test_the_naive_sum_counts_everything_the_forward_pass_makes_once() -> None:
    twice = replace(LINES, rows=(*LINES.rows, *[(k, i + 10 if k != WORK else i, b, s) for k, i, b, s in LINES.rows[2:]]),
                    tags={**LINES.tags, 12: 1, 13: 2})
    assert tensor_sum(twice, 8) == (100 + 8 + 320) * MIB


class _Traces:
    """A trace by what the workload asks for: half precision halves activations, recomputation leaves a tenth."""

    def __init__(self) -> None:
        self.asked: list[Workload] = []

    def __call__(self, workload: Workload) -> TraceReport:
        self.asked.append(workload)
        activations = 400 * MIB * workload.batch
        activations = activations // 2 if workload.precision == "bf16" else activations
        activations = activations // 10 if workload.options.get("checkpointing") else activations
        optimizer = 100 * MIB if "8bit" in workload.optimizer else 400 * MIB
        total = 400 * MIB + optimizer + activations
        return TraceReport(workload.batch, "fake-accelerator", "2.13.0", 1, 200 * MIB, 200 * MIB, optimizer, activations, total, total, MIB)


def test_every_remedy_is_traced_and_judged() -> None:
    traces = _Traces()
    found = {r.name: r for r in remedies(traces, Workload(model="m", batch_size=32, optimizer="adamw"), 8 * GIB)}
    assert set(found) == {"accumulation of 4", "activation checkpointing", "bf16", "8-bit optimizer", "all of these"}
    assert [found[n].fits for n in ("accumulation of 4", "activation checkpointing", "bf16", "8-bit optimizer", "all of these")] == [
        True, True, False, False, True]
    assert found["accumulation of 4"].workload.batch == 8
    assert found["all of these"].workload.precision == "bf16"
    assert found["all of these"].workload.optimizer == "adamw8bit"
    assert found["all of these"].workload.options["checkpointing"] == "true"
    assert "more than 8 GB" in found["bf16"].sentence()
    assert len(traces.asked) == 6


def test_a_site_learns_its_context_and_its_spread() -> None:
    source = random.Random(3)
    points = [
        Measured(total=(1800 + 1.02 * size) * source.lognormvariate(0.0, 0.02) * MIB, reserved=size * MIB,
                 inputs=size / 100 * MIB, borrowers=Borrowers(size // 10 * MIB))
        for size in range(1000, 21_000, 100)
    ]
    learned = learn(points, "site")
    assert learned.context_bytes == pytest.approx(1800 * MIB, rel=0.1)
    covered = 0
    for point in points:
        low, middle, high = learned.quantiles(point.reserved, point.inputs, point.borrowers, benchmark=False)
        assert low <= middle <= high
        covered += low <= point.total <= high
    assert 0.75 <= covered / len(points) <= 0.85
    assert DeviceCalibration.from_json(learned.to_json()) == learned
    report = memory_report(TRACE, setting=Setting(calibration=learned))
    assert report.context.basis == "history"
    assert report.total.p50 == pytest.approx(report.reserved_bytes + report.workspaces_bytes + learned.context_bytes + learned.inputs_held * 8 * MIB)
    with pytest.raises(BadInput, match="at least 8"):
        learn(points[:3])
    with pytest.raises(BadInput, match="no memory calibration"):
        DeviceCalibration.from_json({"what": 1})
