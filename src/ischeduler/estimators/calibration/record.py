"""Calibration records: what was measured on one device with one software stack, as JSON with its provenance.

Keyed by (accelerator, driver, CUDA, torch). Records of the user lie in ``$XDG_DATA_HOME/ischeduler/calibration``; those that come
with the package in ``records/`` beside this module.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ischeduler.core.codec import from_plain, to_plain
from ischeduler.core.errors import BadInput, EstimatorFailed
from ischeduler.estimators.memory.calibration import DeviceCalibration
from ischeduler.estimators.steptime.coefficients import Coefficients
from ischeduler.estimators.steptime.devices import CpuCalibration

SCHEMA = "isched.calibration/1"
SHIPPED = Path(__file__).parent / "records"


@dataclass(frozen=True, slots=True)
class OperationTime:
    """One micro-benchmark: median ``seconds`` of an operation; FLOPs and bytes as the trace counts them."""

    kind: str
    phase: str
    dtype: str
    shape: tuple[int, ...]
    flops: float
    bytes: float
    seconds: float


@dataclass(frozen=True, slots=True)
class StepTime:
    """A training step of a model. ``benchmark`` is cudnn.benchmark; memory in bytes at its peak, None where the device does not tell.

    ``failed`` is why there are no times ('out of memory'), '' where there are.
    """

    model: str
    batch: int
    precision: str
    benchmark: bool
    forward_s: float | None = None
    backward_s: float | None = None
    optimizer_s: float | None = None
    step_s: float | None = None
    allocated_bytes: int | None = None
    reserved_bytes: int | None = None
    device_bytes: int | None = None
    failed: str = ""


@dataclass(frozen=True)
class CalibrationRecord:
    """``accelerator`` is our key of the card ('' on CPU); ``node_type`` names the node type it speaks for, '' for this CPU model.

    ``context_bytes`` is what the driver shows before the first tensor; ``coefficients`` the fitted roofline (JSON of
    :class:`~ischeduler.estimators.steptime.coefficients.Coefficients`); ``memory`` how workspaces behave and how far device totals
    stray, learned from ``steps``; ``provenance`` says source, licence, command, versions.
    """

    accelerator: str
    torch: str
    measured_at: float
    driver: str = ""
    cuda: str = ""
    node_type: str = ""
    cpu: CpuCalibration | None = None
    context_bytes: int | None = None
    coefficients: Mapping[str, Any] | None = None
    operations: tuple[OperationTime, ...] = ()
    steps: tuple[StepTime, ...] = ()
    provenance: Mapping[str, str] = field(default_factory=dict[str, str])
    memory: DeviceCalibration | None = None

    @property
    def key(self) -> tuple[str, str, str, str]:
        """(accelerator or CPU model, driver, CUDA, torch)."""
        return self.accelerator or (self.cpu.cpu_model if self.cpu else ""), self.driver, self.cuda, self.torch

    @property
    def file_name(self) -> str:
        """One file a key: a newer measurement replaces the older."""
        words = "-".join(w for w in (*self.key, self.node_type) if w)
        return re.sub(r"[^\w.+-]+", "-", words).strip("-").lower()[:120] + ".json"

    def fitted(self) -> Coefficients | None:
        """The coefficients, checked; None where none were fitted."""
        return None if self.coefficients is None else Coefficients.from_json(self.coefficients)


def user_folder() -> Path:
    """``$XDG_DATA_HOME/ischeduler/calibration``."""
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "ischeduler" / "calibration"


def to_json(record: CalibrationRecord) -> dict[str, Any]:
    """The document."""
    return {"schema": SCHEMA, **to_plain(record)}


def from_json(document: Mapping[str, Any]) -> CalibrationRecord:
    """The inverse; BadInput with a sentence on anything else."""
    if not isinstance(document, Mapping) or document.get("schema") != SCHEMA:
        raise BadInput(f"This is no calibration record: its schema must be {SCHEMA}; make one with isched calibrate.")
    try:
        record = from_plain(CalibrationRecord, {k: v for k, v in document.items() if k != "schema"})
    except (KeyError, TypeError, ValueError, BadInput) as error:
        raise BadInput(f"The calibration record is damaged ({error}); make it again with isched calibrate.") from None
    record.fitted()
    return record


def read(path: Path) -> CalibrationRecord:
    """A record's file; BadInput names the file."""
    try:
        return from_json(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read as a calibration record ({error}); make it again with isched calibrate.") from None
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None


def write(record: CalibrationRecord, folder: Path | None = None) -> Path:
    """Keep a record, atomically; its path. EstimatorFailed when the folder cannot be written."""
    place = folder or user_folder()
    path = place / record.file_name
    try:
        place.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.part")
        part.write_text(json.dumps(to_json(record), indent=1), encoding="utf-8")
        part.replace(path)
    except OSError as error:
        raise EstimatorFailed(f"The calibration cannot be kept in {place}: {error}; make room or set XDG_DATA_HOME.") from None
    return path


def standing(record: CalibrationRecord, folder: Path | None = None) -> CalibrationRecord | None:
    """The record of the same device and software that is kept already; None where there is none, or none that can be read."""
    try:
        return read((folder or user_folder()) / record.file_name)
    except BadInput:
        return None


def records(folders: Iterable[Path] | None = None) -> tuple[list[CalibrationRecord], list[str]]:
    """(readable records, newest first; sentences about files that are damaged)."""
    found: list[CalibrationRecord] = []
    troubles: list[str] = []
    for path in _files(folders if folders is not None else (user_folder(), SHIPPED)):
        try:
            found.append(read(path))
        except BadInput as error:
            troubles.append(str(error))
    return sorted(found, key=lambda r: -r.measured_at), troubles


def _files(folders: Iterable[Path]) -> Iterator[Path]:
    for folder in folders:
        with contextlib.suppress(OSError):
            yield from sorted(folder.glob("*.json"))


def best_for_accelerator(
    candidates: Iterable[CalibrationRecord], accelerator: str, *, driver: str = "", cuda: str = "", torch: str = ""
) -> CalibrationRecord | None:
    """The record of that card whose stack agrees in most of (torch, CUDA, driver), then the newest; None without one."""
    same = [r for r in candidates if r.accelerator == accelerator and r.coefficients is not None]

    def closeness(record: CalibrationRecord) -> tuple[int, float]:
        agree = [bool(a) and a == b for a, b in ((torch, record.torch), (cuda, record.cuda), (driver, record.driver))]
        return sum(agree), record.measured_at

    return max(same, key=closeness, default=None)


def best_for_cpu(candidates: Iterable[CalibrationRecord], node_type: str, cpu_model: str | None) -> CalibrationRecord | None:
    """The newest record of processors that names the node type, else one of the same CPU model; None without one."""
    of_cpu = [r for r in candidates if r.cpu is not None]
    named = [r for r in of_cpu if r.node_type and r.node_type == node_type]
    same = [r for r in of_cpu if cpu_model and r.cpu is not None and r.cpu.cpu_model == cpu_model]
    return max(named or same, key=lambda r: r.measured_at, default=None)
