"""A plug-in in any runtime as an Estimator: asks, checks what comes back, and names the exact version and digest."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from ischeduler.core.errors import BadInput, EstimatorFailed
from ischeduler.core.estimate import Estimate
from ischeduler.estimators.evidence import NoEvidence
from ischeduler.estimators.runtimes.limits import Runtime, RuntimeFailed
from ischeduler.estimators.runtimes.messages import DESCRIBE_MESSAGE, read_answer, read_info, request_message
from ischeduler.ports import EstimateRequest, EstimatorInfo

ASIDE_S = 300.0
"""How long one that hung or is missing is not asked again: a plan asks for many partitions."""
REMEMBERED = 256
"""Answers kept in this process, so that the same question costs once."""
DIGEST_SHOWN = 12


def describe(runtime: Runtime) -> EstimatorInfo:
    """Who a plug-in says it is; EstimatorFailed with a sentence."""
    return read_info(runtime.exchange(DESCRIBE_MESSAGE))


def stamped(source: str, digest: str) -> str:
    """``NAME@VERSION+sha256:0123456789ab``, what stands in brackets after the version kept behind it."""
    own, bracket, rest = source.partition("(")
    short = digest.partition(":")[2][:DIGEST_SHOWN]
    return f"{own}+sha256:{short}{bracket}{rest}" if short else source


class PluginEstimator:
    """The Estimator of one version of a plug-in. ``info`` is what it said when it was added.

    ``unchanged``, where given, is asked once before the first question; it raises EstimatorFailed when what was added is not
    what lies there now. ``memo=False`` asks every time anew (for checks).
    """

    def __init__(
        self, info: EstimatorInfo, runtime: Runtime, digest: str = "", *, memo: bool = True,
        unchanged: Callable[[], None] | None = None, clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.info = info
        self.runtime = runtime
        self.digest = digest
        self._memo = memo
        self._unchanged = unchanged
        self._clock = clock
        self._kept: dict[bytes, Estimate | EstimatorFailed] = {}
        self._aside: tuple[float, str] | None = None
        self._lock = threading.Lock()

    def estimate(self, request: EstimateRequest) -> Estimate:
        """NoEvidence or EstimatorFailed with one sentence for every way it can go wrong. Always ends."""
        try:
            message = request_message(request, self.runtime.trust)
        except (TypeError, ValueError) as error:
            raise BadInput(f"The request cannot be written as JSON: {error}.") from None
        key = hashlib.sha256(message).digest()
        with self._lock:
            if key not in self._kept:
                self._remember(key, self._answer(request, message))
            found = self._kept[key]
            if not self._memo:
                self._kept.clear()
        if isinstance(found, EstimatorFailed):
            raise found.with_traceback(None)
        return found

    def _remember(self, key: bytes, answer: Estimate | EstimatorFailed) -> None:
        while len(self._kept) >= REMEMBERED:
            del self._kept[next(iter(self._kept))]
        self._kept[key] = answer

    def _answer(self, request: EstimateRequest, message: bytes) -> Estimate | EstimatorFailed:
        if self._aside is not None and self._clock() < self._aside[0]:
            return RuntimeFailed(self._aside[1], lasting=True)
        try:
            if self._unchanged is not None:
                self._unchanged()
                self._unchanged = None
            found = read_answer(self.runtime.exchange(message), request, self.info)
        except RuntimeFailed as failure:
            if failure.lasting:
                self._aside = (self._clock() + ASIDE_S, str(failure))
            return failure
        except (NoEvidence, EstimatorFailed) as failure:
            return failure
        return replace(found, source=stamped(found.source, self.digest))
