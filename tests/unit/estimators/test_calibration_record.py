"""Calibration records: kept, read back, chosen by the stack, and used by the estimator."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from estimator_worlds import CARD, CPU, GPU, WORK, request

from ischeduler.core.errors import BadInput, EstimatorFailed
from ischeduler.estimators.calibration import record as kept
from ischeduler.estimators.calibration.record import CalibrationRecord, OperationTime, StepTime
from ischeduler.estimators.memory.calibration import Behaviour, DeviceCalibration
from ischeduler.estimators.memory.spec import TraceReport
from ischeduler.estimators.steptime.devices import CpuCalibration
from ischeduler.estimators.steptime.estimator import RooflineEstimator
from ischeduler.estimators.steptime.oplog import OpRow
from ischeduler.estimators.steptime.prior import prior_of

PROCESSORS = CpuCalibration(28, 1e12, 1.2e12, 1e11, 1e-5, 5.0, "Xeon")
SLOW = replace(prior_of("volta"), phases={
    p: replace(s, bytes={k: v / 2 for k, v in s.bytes.items()}, flops={m: {k: v / 2 for k, v in f.items()} for m, f in s.flops.items()})
    for p, s in prior_of("volta").phases.items()
})
RECORD = CalibrationRecord(
    CARD.name, "2.6.0", 10.0, "550.54", "12.4", context_bytes=5 * 10**8, coefficients=SLOW.to_json(),
    operations=(OperationTime("matmul", "forward", "fp32", (1, 8, 8, 8), 1024.0, 768.0, 1e-5),),
    steps=(StepTime("timm:resnet50", 32, "bf16", True, 0.1, 0.2, 0.01, 0.31, 10**9, 2 * 10**9, 3 * 10**9),
           StepTime("timm:vgg16", 128, "fp32", False, failed="out of memory")),
    provenance={"source": "measured"}, memory=DeviceCalibration(5e8, 1.0, source="a test"),
)
ROWS = (OpRow("forward", "elementwise", "fp32", 0.0, 4e9, 50), OpRow("backward", "elementwise", "fp32", 0.0, 8e9, 50))
REPORT = TraceReport(32, "fake-accelerator", "2.13.0", 10**6, 4 * 10**6, 4 * 10**6, 0, 10**9, 10**9, 10**9, 10**7, operations=ROWS)


def test_a_record_survives_the_disk(tmp_path: Path) -> None:
    path = kept.write(RECORD, tmp_path)
    assert kept.read(path) == RECORD
    assert path.name == "v100-32g-550.54-12.4-2.6.0.json"
    assert kept.write(replace(RECORD, measured_at=11.0), tmp_path) == path
    found, troubles = kept.records([tmp_path])
    assert ([r.measured_at for r in found], troubles) == ([11.0], [])


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": "isched.calibration/1", "torch": 3}', "\xff"])
def test_a_damaged_record_is_a_sentence_and_hides_no_other(tmp_path: Path, text: str) -> None:
    kept.write(RECORD, tmp_path)
    (tmp_path / "zz.json").write_text(text, encoding="latin-1")
    with pytest.raises(BadInput, match=r"zz\.json.*calibrate"):
        kept.read(tmp_path / "zz.json")
    found, troubles = kept.records([tmp_path, tmp_path / "absent"])
    assert (len(found), len(troubles)) == (1, 1)


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EstimatorFailed, match="XDG_DATA_HOME"):
        kept.write(RECORD, tmp_path / "file")


def test_the_closest_stack_wins_then_the_newest() -> None:
    same_torch = replace(RECORD, torch="2.7.0", measured_at=1.0)
    newest = replace(RECORD, torch="2.5.0", measured_at=20.0)
    none = replace(RECORD, coefficients=None, measured_at=99.0)
    found = [RECORD, same_torch, newest, none]
    assert kept.best_for_accelerator(found, CARD.name, torch="2.7.0") is same_torch
    assert kept.best_for_accelerator(found, CARD.name) is newest
    assert kept.best_for_accelerator(found, "h100-80g") is None


def test_processors_are_found_by_node_type_then_by_model() -> None:
    by_model = CalibrationRecord("", "2.13.0", 9.0, cpu=PROCESSORS)
    named = replace(by_model, node_type="cpu", measured_at=1.0)
    assert kept.best_for_cpu([by_model, named], "cpu", "Xeon") is named
    assert kept.best_for_cpu([by_model], "other", "Xeon") is by_model
    assert kept.best_for_cpu([by_model], "other", None) is None


def test_the_estimator_uses_what_was_measured() -> None:
    shipped = RooflineEstimator(lambda _: REPORT, kept=list).estimate(request("step_time"))
    ours = RooflineEstimator(lambda _: REPORT, kept=lambda: [RECORD]).estimate(request("step_time"))
    assert ours.p50 == pytest.approx(2 * shipped.p50, rel=0.05)
    assert "calibrated on v100-32g with torch 2.6.0" in ours.reason
    assert ours.as_of == RECORD.measured_at
    asked = request("step_time", node_type=replace(CPU, cpu_model="Xeon"), workload=replace(WORK, gpus=None, cpus=28))
    cpu = RooflineEstimator(lambda _: REPORT, kept=lambda: [CalibrationRecord("", "2.13.0", 9.0, cpu=PROCESSORS)])
    assert "calibrated by a micro-benchmark" in cpu.estimate(asked).reason


def test_loading_and_several_cards_are_part_of_the_step() -> None:
    estimator = RooflineEstimator(lambda _: REPORT, kept=list)
    plain = estimator.estimate(request("step_time"))
    starved = replace(WORK, options={"loader_workers": "2", "decode_s": "0.1"})
    answer = estimator.estimate(request("step_time", workload=starved))
    assert answer.p50 == pytest.approx(32 * 0.1 / 2)
    assert "loading sets the pace" in answer.reason
    pair = estimator.estimate(request("step_time", workload=replace(WORK, gpus=2), node_type=replace(GPU, accelerators_per_node=2)))
    assert plain.p50 < pair.p50 < 1.2 * plain.p50
    assert "scaling efficiency" in pair.reason


def test_a_measured_context_reaches_the_memory_estimator(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    from ischeduler.estimators.builtins import measured_contexts
    from ischeduler.estimators.calibration.record import CalibrationRecord, write

    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert measured_contexts() == {}
    write(CalibrationRecord("v100-32g", "2.12.0", 1.0, context_bytes=500))
    write(CalibrationRecord("v100-32g", "2.13.0", 2.0, context_bytes=700))
    write(CalibrationRecord("a100-40g", "2.13.0", 2.0))
    (found,) = measured_contexts().values()
    assert (found.context_bytes, found.source) == (700.0, "isched calibrate, torch 2.13.0")
    learned = DeviceCalibration(600.0, 2.0, searching=Behaviour(4.0, 0.5, points=20), source="20 steps")
    write(CalibrationRecord("v100-32g", "2.11.0", 0.5, memory=learned))
    assert measured_contexts() == {"v100-32g": learned}  # steps say more than a newer context alone
