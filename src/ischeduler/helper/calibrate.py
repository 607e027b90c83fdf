"""Calibrate the computer at hand: ten seconds of micro-benchmarks, kept for later estimates of step times."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ischeduler.core.errors import BadInput, EstimatorFailed
from ischeduler.estimators.calibration import record as kept
from ischeduler.estimators.calibration.record import CalibrationRecord

LONGEST_S = 600.0
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Calibration:
    """One device's result in words and figures. FLOP/s and bytes/s as reached, not as on the datasheet; ``path`` is the record."""

    device: str
    kind: str
    product_flops: float
    convolution_flops: float
    bandwidth_bytes_s: float
    operation_s: float
    torch: str
    driver: str
    cuda: str
    node_type: str
    measured_at: float
    path: str


def calibrate(seconds: float = 10.0, node_type: str = "", folder: Path | None = None, say: Say = lambda words: None) -> list[Calibration]:
    """Measure the processors this process may use, then the first accelerator it sees; keep both.

    ``node_type`` names the node type of the cluster that this is. EstimatorFailed without PyTorch. An accelerator whose
    datasheet is unknown is said and left out.
    """
    if not 1.0 <= seconds <= LONGEST_S:
        raise BadInput(f"A calibration cannot take {seconds:g} s; give between 1 and {LONGEST_S:g} seconds.")
    from ischeduler.estimators.calibration.quick import calibrate_processors

    card = _accelerator_name()
    share = seconds / 2 if card else seconds
    say(f"measuring {len(os.sched_getaffinity(0))} cores for about {share:.0f} s")
    found = [_of_processors(calibrate_processors(share, node_type), folder)]
    if card:
        try:
            found.append(_of_card(card, share, folder, say))
        except EstimatorFailed as error:
            say(str(error))
    return found


def _accelerator_name() -> str:
    try:
        import torch
    except ImportError:
        raise EstimatorFailed("Calibration needs PyTorch; pip install 'ischeduler[torch]'.") from None
    return str(torch.cuda.get_device_name(0)) if torch.cuda.is_available() else ""


def _of_processors(record: CalibrationRecord, folder: Path | None) -> Calibration:
    path, cpu = kept.write(record, folder), record.cpu
    if cpu is None:
        raise EstimatorFailed("The micro-benchmark of the processors gave no figures; run isched calibrate again.")
    return Calibration(
        f"{cpu.cpu_model or 'cpu'}, {cpu.cores} cores", "cpu", cpu.matmul_flops, cpu.conv_flops, cpu.bandwidth_bytes_s, cpu.operation_s,
        record.torch, "", "", record.node_type, record.measured_at, str(path),
    )


def _of_card(name: str, seconds: float, folder: Path | None, say: Say) -> Calibration:
    from ischeduler.cidb.accelerators import by_gres
    from ischeduler.estimators.calibration.quick import calibrate_accelerator

    card, doubt = by_gres(name)
    if doubt:
        say(doubt)
    say(f"measuring {name} for about {seconds:.0f} s")
    record = calibrate_accelerator(card, seconds)
    rows = [o for o in record.operations if o.dtype == "fp32"]
    before = kept.standing(record, folder)
    if before is not None and before.steps:
        say("the longer calibration of this card, with whole models, stays in its place")
        record = before
    return Calibration(
        card.name, "accelerator", _best(rows, "matmul"), _best(rows, "conv"), max((o.bytes / o.seconds for o in rows), default=0.0),
        min((o.seconds for o in rows), default=0.0), record.torch, record.driver, record.cuda, "", record.measured_at,
        str(kept.write(record, folder)),
    )


def _best(rows: list[kept.OperationTime], kind: str) -> float:
    return max((o.flops / o.seconds for o in rows if o.kind.startswith(kind)), default=0.0)
