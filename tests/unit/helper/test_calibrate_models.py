"""The long calibration without a card: made-up steps of traced models, learned, kept, and found by the next estimate."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest

from ischeduler.cidb.accelerators import by_gres
from ischeduler.core.errors import BadInput, EstimatorFailed
from ischeduler.core.sizes import MIB
from ischeduler.estimators.calibration import record as kept
from ischeduler.estimators.calibration.campaign import Campaign, Configuration
from ischeduler.estimators.calibration.microbench import Operations
from ischeduler.estimators.calibration.record import StepTime
from ischeduler.estimators.memory.replay import replayed
from ischeduler.estimators.memory.spec import TraceReport
from ischeduler.estimators.memory.steplog import ALLOC, FREE, WORK, ConvolutionCall, StepLog, joined
from ischeduler.estimators.memory.workspaces import Workspaces
from ischeduler.estimators.steptime.devices import of_accelerator
from ischeduler.helper.calibrate import _of_card  # pyright: ignore[reportPrivateUsage]
from ischeduler.helper.calibrate_models import ONE_JOB, calibrate_models

CONTEXT = 900 * MIB
CALL = ConvolutionCall("forward", (8, 64, 56, 56), (64, 64, 3, 3), (8, 64, 56, 56), 1, "fp32")
FAMILIES = ("timm:alpha", "timm:beta", "timm:gamma", "timm:delta", "timm:epsilon")


def report_of(row: StepTime) -> TraceReport:
    """A trace whose size depends on the model."""
    grown = 1 + FAMILIES.index(row.model)

    def at(batch: int) -> StepLog:
        rows = ((ALLOC, 1, 50 * grown * MIB, 0.0), (ALLOC, 2, 3 * grown * batch * MIB, 0.0), (WORK, 0, 0, 0.0), (FREE, 2, 0, 0.0), (WORK, -1, 0, 0.0))
        return StepLog(batch, False, rows, {}, (CALL.at_batch(batch),), 1)

    return TraceReport(8, "fake-accelerator", "2.13.0", 1, 50 * MIB, 0, 0, 24 * MIB, 74 * MIB, 74 * MIB, 5 * MIB, log=joined(at(8), at(16)))


def step(wanted: Configuration, campaign: Campaign, device: str) -> StepTime:
    """Measured so: the replay, the context, and nothing else."""
    row = StepTime(wanted.model, wanted.batch, wanted.precision, wanted.benchmark, forward_s=0.01, backward_s=0.02, optimizer_s=0.001, step_s=0.031)
    if wanted.batch > 100:
        return replace(row, failed="out of memory", step_s=None)
    log = report_of(row).log
    assert log is not None
    return replace(row, device_bytes=CONTEXT + replayed(log, row.batch, workspaces=Workspaces("ampere", wanted.benchmark)).peak_reserved)


def card():
    found = of_accelerator(by_gres("a100")[0])
    assert found is not None
    return found


CAMPAIGN = replace(ONE_JOB, models=FAMILIES, batches=(8, 128), operations=Operations((), (), ()))


@pytest.mark.torch
def test_what_was_measured_is_learned_and_found_by_the_next_estimate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    from ischeduler.estimators.builtins import measured_contexts

    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    said: list[str] = []
    found = calibrate_models(5.0, say=said.append, campaign=CAMPAIGN, card=card(), step=step, report_of=report_of)
    assert (found.measured, found.failed, found.memory_points) == (20, 20, 20)
    assert found.context_bytes == pytest.approx(CONTEXT, rel=0.01)
    assert (found.searched, found.kept) == (0.0, 0.0)  # nothing beyond the rules was there to find
    assert any("models" in line for line in found.lines())
    record = kept.read(Path(found.path))
    assert record.provenance["command"] == "isched calibrate --models"
    assert measured_contexts()[card().name] == record.memory
    # The made-up traces have no operations: the step times could not be fitted, which was said.
    assert any("A fit needs the steps of 3 models" in words for words in said)
    assert record.coefficients is None


@pytest.mark.torch
def test_a_job_that_ends_while_it_fits_has_lost_no_measurement(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")

    def killed(row: StepTime) -> TraceReport:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        calibrate_models(5.0, tmp_path, campaign=CAMPAIGN, card=card(), step=step, report_of=killed)
    (path,) = tmp_path.glob("*.json")
    assert sum(not r.failed for r in kept.read(path).steps) == 20


@pytest.mark.torch
def test_the_short_and_the_long_calibration_lose_nothing_of_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    quick = kept.CalibrationRecord(card().name, torch.__version__, 1.0, context_bytes=CONTEXT, coefficients=card().coefficients.to_json())
    kept.write(quick, tmp_path)
    long = kept.read(Path(calibrate_models(5.0, tmp_path, campaign=CAMPAIGN, card=card(), step=step, report_of=report_of).path))
    assert (long.context_bytes, long.coefficients) == (CONTEXT, quick.coefficients)
    assert long.memory is not None
    monkeypatch.setattr("ischeduler.estimators.calibration.quick.calibrate_accelerator", lambda card, seconds: replace(quick, measured_at=9.0))
    said: list[str] = []
    again = _of_card("NVIDIA A100-SXM4-40GB", 1.0, tmp_path, said.append)
    assert kept.read(Path(again.path)) == long
    assert any("stays in its place" in words for words in said)


@pytest.mark.torch
def test_what_cannot_be_measured_is_said_in_a_sentence(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    failing = lambda wanted, campaign, device: StepTime(wanted.model, wanted.batch, wanted.precision, wanted.benchmark, failed="no timm")  # noqa: E731
    with pytest.raises(EstimatorFailed, match=r"No model's step could be measured on .* \(no timm\)"):
        calibrate_models(5.0, tmp_path, campaign=CAMPAIGN, card=card(), step=failing, report_of=report_of)
    with pytest.raises(BadInput, match="between 1 and 1440"):
        calibrate_models(0.0, tmp_path)
    if not torch.cuda.is_available():
        with pytest.raises(BadInput, match="PyTorch sees none here"):
            calibrate_models(5.0, tmp_path)


def test_a_deadline_leaves_few_of_every_model() -> None:
    first = [c.model for c in list(ONE_JOB.configurations())[: 2 * len(ONE_JOB.models)]]
    assert set(first) == set(ONE_JOB.models)
