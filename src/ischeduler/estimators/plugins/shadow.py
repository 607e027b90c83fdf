"""Two versions side by side: both answer, the old one is used, both are recorded."""

from __future__ import annotations

import json
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from ischeduler.core.errors import EstimatorFailed
from ischeduler.core.estimate import Estimate
from ischeduler.estimators.evidence import NoEvidence
from ischeduler.ports import EstimateRequest, Estimator

LARGEST_BYTES = 4 * 2**20
"""Beyond this the older half of a record is dropped."""


class Recorder(Protocol):
    """Takes what both said."""

    def write(self, entry: dict[str, Any]) -> None:
        """Best effort; never raises."""
        ...


class AnswerLog:
    """One JSON object a line in a file; a full disk is no reason to stop estimating."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()

    def write(self, entry: dict[str, Any]) -> None:
        """Append."""
        with self._lock:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._halve()
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(entry) + "\n")
            except (OSError, ValueError):
                return  # only a record: the answer itself has been given

    def read(self) -> list[dict[str, Any]]:
        """Every whole line."""
        try:
            lines = self.path.read_text("utf-8").splitlines()
        except OSError:
            return []  # nothing was recorded yet
        found: list[dict[str, Any]] = []
        for line in lines:
            try:
                found.append(json.loads(line))
            except ValueError:
                continue  # a line that was being written
        return found

    def _halve(self) -> None:
        if not self.path.exists() or self.path.stat().st_size < LARGEST_BYTES:
            return
        lines = self.path.read_text("utf-8").splitlines(keepends=True)
        scratch = self.path.with_suffix(".tmp")
        scratch.write_text("".join(lines[len(lines) // 2 :]), encoding="utf-8")
        scratch.replace(self.path)


class ShadowedEstimator:
    """Answers with ``active``; asks ``shadow`` at the same time, and tells ``recorder`` what both said.

    The shadow's answer never reaches anyone, and its failure neither; it cannot make an answer later than its own time limit.
    """

    def __init__(self, active: Estimator, shadow: Estimator, recorder: Recorder) -> None:
        self.active = active
        self.shadow = shadow
        self.info = active.info
        self._recorder = recorder

    def estimate(self, request: EstimateRequest) -> Estimate:
        """What the active one says, or raises."""
        with ThreadPoolExecutor(1) as pool:
            beside: Future[dict[str, Any]] | None = None
            if request.quantity in self.shadow.info.quantities:
                beside = pool.submit(_said, self.shadow, request)
            try:
                answer = self.active.estimate(request)
            except Exception as error:
                self._record(request, _refused(self.active, error), beside)
                raise
        self._record(request, _figures(answer), beside)
        return answer

    def _record(self, request: EstimateRequest, own: dict[str, Any], beside: Future[dict[str, Any]] | None) -> None:
        if beside is None:
            return
        work = request.workload
        self._recorder.write({
            "at": request.now, "quantity": request.quantity, "family": work.family, "batch_size": work.batch, "samples": work.samples,
            "epochs": work.epochs, "cluster": request.cluster.name if request.cluster else None,
            "node_type": request.node_type.name if request.node_type else None, "active": own, "shadow": beside.result(),
        })


def _said(estimator: Estimator, request: EstimateRequest) -> dict[str, Any]:
    try:
        return _figures(estimator.estimate(request))
    except Exception as error:  # other people's code: whatever it raises is recorded, not raised
        return _refused(estimator, error)


def _figures(answer: Estimate) -> dict[str, Any]:
    return {"source": answer.source, "p10": answer.p10, "p50": answer.p50, "p90": answer.p90, "unit": answer.unit}


def _refused(estimator: Estimator, error: Exception) -> dict[str, Any]:
    known = isinstance(error, (NoEvidence, EstimatorFailed))
    words = str(error) if known else f"{type(error).__name__}: {error}"
    return {"source": f"{estimator.info.name}@{estimator.info.version}", "error": words[:300]}
