"""From a traced step to what must fit: parts, intervals, other batches, main memory."""

from __future__ import annotations

from dataclasses import replace

import pytest
from estimator_worlds import WORK
from hypothesis import given
from hypothesis import strategies as st

from ischeduler.core.sizes import GIB, MIB
from ischeduler.estimators.memory.analytic import counted_report
from ischeduler.estimators.memory.host import host_memory
from ischeduler.estimators.memory.report import BatchModel, memory_report, smallest_accumulation
from ischeduler.estimators.memory.spec import TraceReport, TraceSpec

TRACE = TraceReport(
    32, "fake-accelerator", "2.13.0", 25_557_032, 98 * MIB, 97 * MIB, 97 * MIB, 2570 * MIB, 2862 * MIB, 3270 * MIB, 18 * MIB
)


def test_the_parts_add_up_and_the_total_holds_context() -> None:
    report = memory_report(TRACE)
    parts = report.weights_bytes, report.gradients_bytes, report.optimizer_bytes, report.activations_bytes
    assert sum(parts) == report.allocated_bytes
    assert report.total.p50 == report.reserved_bytes + report.context.p50
    assert report.total.p10 < report.total.p50 < report.total.p90
    assert report.sentence().startswith("weights 98 MB + gradients 97 MB + optimizer 97 MB + activations 2.5 GB")


def test_weaker_backends_are_less_sure() -> None:
    width = {}
    for backend in ("fake-accelerator", "fake-cpu", "parameters"):
        total = memory_report(replace(TRACE, backend=backend)).total
        width[backend] = total.p90 - total.p10
    assert width["fake-accelerator"] < width["fake-cpu"] < width["parameters"]
    assert memory_report(replace(TRACE, backend="parameters")).total.basis == "analytic"


def test_several_devices_add_gradient_buckets() -> None:
    assert memory_report(TRACE, devices=2).total.p50 - memory_report(TRACE).total.p50 == TRACE.gradients_bytes


@given(st.integers(1, 200), st.floats(2 * GIB, 200 * GIB))
def test_the_largest_batch_fits_and_the_next_does_not(batch: int, memory: float) -> None:
    model = BatchModel.through(memory_report(replace(TRACE, batch=batch)))
    largest = model.largest_batch(memory)
    if largest:
        assert model.bytes_at(largest) <= memory
    assert model.bytes_at(largest + (8 if largest >= 16 else 1)) > memory


def test_the_line_passes_through_its_report() -> None:
    report = memory_report(TRACE)
    assert BatchModel.through(report).bytes_at(32) == pytest.approx(report.total.p90)
    double = memory_report(replace(TRACE, batch=64, reserved_bytes=6230 * MIB))
    line = BatchModel.between(report, double)
    assert line.bytes_at(64) == pytest.approx(double.total.p90)


def test_accumulation_is_the_smallest_that_fits() -> None:
    model = BatchModel(2 * GIB, 0.25 * GIB)
    big = replace(WORK, batch_size=64)
    assert model.bytes_at(64) == 18 * GIB
    assert smallest_accumulation(model, big, 12 * GIB) == 2
    assert smallest_accumulation(model, big, 7 * GIB) == 4
    assert smallest_accumulation(model, big, 2 * GIB) is None


def test_main_memory_counts_what_is_there() -> None:
    cpu, gpu = host_memory(WORK, TRACE, False, 1), host_memory(WORK, TRACE, True, 1)
    assert cpu.p50 > TRACE.allocated_bytes
    assert gpu.p50 > 3 * GIB
    loaders = host_memory(replace(WORK, workers=8), TRACE, True, 1)
    assert loaders.p50 > gpu.p50 + 8 * 0.3 * GIB
    assert host_memory(WORK, TRACE, True, 4).p50 == pytest.approx(4 * gpu.p50)
    assert "without a data set" in gpu.reason
    data = host_memory(replace(WORK, options={"dataset_bytes": str(10 * GIB)}), TRACE, True, 1)
    assert data.p50 == gpu.p50 + 10 * GIB
    assert "without a data set" not in data.reason


@pytest.mark.parametrize(("optimizer", "options", "copies"), [
    ("sgd", {}, 0), ("sgd", {"optimizer.momentum": "0.9"}, 1), ("AdamW", {}, 2),
])
def test_counting_knows_the_optimizers_state(optimizer: str, options: dict[str, str], copies: int) -> None:
    report = counted_report(TraceSpec("m", 8, optimizer=optimizer, options=options), 1000, 4000, 4000)
    assert report.optimizer_bytes == copies * 4000
