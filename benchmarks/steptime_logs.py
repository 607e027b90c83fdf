"""Operation logs of the benchmark's models, traced once and kept in ``$XDG_CACHE_HOME/ischeduler/oplogs``."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from ischeduler.core.errors import EstimatorFailed
from ischeduler.core.sizes import GIB
from ischeduler.estimators.memory.spec import TraceSpec
from ischeduler.estimators.memory.tracer import Tracer, default_cache_dir
from ischeduler.estimators.steptime.oplog import LOG_VERSION, OpRow, at_batch, from_lists, to_lists

LIMIT_S = 600.0
_PACKAGES = ("torch", "torchvision", "timm", "transformers")


class Logs:
    """Logs by model. ``missing`` says why a model has none."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or default_cache_dir().parent / "oplogs"
        self.missing: dict[str, str] = {}
        self._tracer = Tracer(self.folder / "traces", time_limit_s=LIMIT_S, memory_limit_bytes=12 * GIB)
        self._known: dict[str, tuple[OpRow, ...]] = {}

    def rows(
        self, model: str, batch: int, *, options: Mapping[str, str] | None = None, precision: str = "fp32",
        input_shape: tuple[int, ...] = (), content: str = "",
    ) -> tuple[OpRow, ...]:
        """A training step's operations; () where it cannot be traced. ``content`` stands for a model whose reference is a folder."""
        spec = TraceSpec(model, batch, input_shape=input_shape, precision=precision, options=dict(options or {}))
        key = _key(spec, content)
        if key not in self._known:
            self._known[key] = self._kept(key) or self._traced(key, spec)
        return self._known[key]

    def _kept(self, key: str) -> tuple[OpRow, ...]:
        with contextlib.suppress(OSError, ValueError, TypeError):  # absent or unreadable: trace it
            return from_lists(json.loads((self.folder / f"{key}.json").read_text()))
        return ()

    def _traced(self, key: str, spec: TraceSpec) -> tuple[OpRow, ...]:
        try:
            report = self._tracer.report(spec)
        except EstimatorFailed as error:
            self.missing[spec.model] = str(error)
            return ()
        if not report.operations:
            self.missing[spec.model] = "; ".join(report.notes) or "no operations"
            return ()
        self.folder.mkdir(parents=True, exist_ok=True)
        part = self.folder / f"{key}.{os.getpid()}.part"
        part.write_text(json.dumps(to_lists(report.operations)))
        part.replace(self.folder / f"{key}.json")
        return report.operations


def rescaled(rows: tuple[OpRow, ...], traced_batch: int, batch: float) -> tuple[OpRow, ...]:
    """The log of one batch as that of another."""
    return rows if batch == traced_batch else at_batch(rows, batch / traced_batch)


def _key(spec: TraceSpec, content: str) -> str:
    plain = {
        "model": content or spec.model, "batch": spec.batch, "options": dict(spec.options), "precision": spec.precision,
        "input": list(spec.input_shape), "log": LOG_VERSION, "versions": [_version(p) for p in _PACKAGES],
    }
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:32]


def _version(package: str) -> str:
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return ""
