"""Traces a workload's step in a subprocess of the user's own Python, and remembers the answer on disk."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import ischeduler
from ischeduler.core.errors import EstimatorFailed
from ischeduler.core.sizes import GIB, human_size
from ischeduler.estimators.memory.analytic import counted_report
from ischeduler.estimators.memory.interpreter import KERAS, PACKAGES, Interpreter, interpreter
from ischeduler.estimators.memory.limits import Outcome, run_limited
from ischeduler.estimators.memory.spec import TRACER_VERSION, TraceReport, TraceSpec
from ischeduler.estimators.models.references import parse, source_fingerprint
from ischeduler.estimators.steptime.oplog import LOG_VERSION

# The user's Python may lack this package: load it by its path, and nothing that lies beside it.
CHILD_BOOT = """
import importlib, importlib.util, os, sys
init, child, spec_path, result_path = sys.argv[1:5]
spec = importlib.util.spec_from_file_location("ischeduler", init, submodule_search_locations=[os.path.dirname(init)])
package = importlib.util.module_from_spec(spec)
sys.modules["ischeduler"] = package
spec.loader.exec_module(package)
importlib.import_module(child).main(spec_path, result_path)
"""
_CHILD = "ischeduler.estimators.memory.child"
_KERAS_CHILD = "ischeduler.estimators.memory.keras_child"
_KERAS_TRACE = "ischeduler.estimators.memory.keras_trace"
_KERAS = ("keras", "tensorflow")


def default_cache_dir() -> Path:
    """``$XDG_CACHE_HOME/ischeduler/traces``."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "ischeduler" / "traces"


class Tracer:
    """Answers :class:`TraceSpec` with :class:`TraceReport`, within limits, from its cache where it can.

    A failure is remembered for the life of the object (not on disk): many partitions ask for the same step.
    """

    def __init__(
        self, cache_dir: Path | None = None, *, time_limit_s: float = 120.0, memory_limit_bytes: int = 8 * GIB
    ) -> None:
        self.cache_dir = cache_dir or default_cache_dir()
        self.time_limit_s = time_limit_s
        self.memory_limit_bytes = memory_limit_bytes
        self.traced = 0
        self._memory: dict[tuple[TraceSpec, str], TraceReport | EstimatorFailed] = {}

    def report(self, spec: TraceSpec, python: str = sys.executable) -> TraceReport:
        """The trace. BadInput for an impossible reference; EstimatorFailed with a sentence when nothing can be said."""
        key = (replace(spec, options=_Frozen(spec.options)), python)
        answer = self._memory.get(key)
        if answer is None:
            try:
                answer = self._from_disk_or_traced(spec, python)
            except EstimatorFailed as error:
                answer = error
            self._memory[key] = answer
        if isinstance(answer, EstimatorFailed):
            raise answer
        return answer

    def _from_disk_or_traced(self, spec: TraceSpec, python: str) -> TraceReport:
        parse(spec.model)
        who = interpreter(python)
        framework = spec.options.get("framework", "pytorch")
        if framework in _KERAS and "parameters" not in spec.options:
            return self._keras(spec, who, traced=framework == "keras" and _keras_backend(spec, who) == "torch")
        if framework != "pytorch":
            return self._counted(spec, f"a {framework} model is not traced")
        if who.version("torch") is None:
            return self._without_torch(spec, who)
        return self._kept(spec, who, _CHILD, PACKAGES)

    def _kept(self, spec: TraceSpec, who: Interpreter, child: str, packages: tuple[str, ...]) -> TraceReport:
        """From disk where the same model, source and ``packages`` were traced before."""
        fingerprint = source_fingerprint(parse(spec.model), spec.directory)
        path = self.cache_dir / f"{_key(spec, who, fingerprint, packages)}.json"
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # unreadable is the same as absent
            return TraceReport.from_json(json.loads(path.read_text()))
        report, keep = self._trace(spec, who, child)
        if keep:
            with contextlib.suppress(OSError):  # a full or read-only disk only costs the next call's time
                _store(path, report)
        return report

    def _keras(self, spec: TraceSpec, who: Interpreter, *, traced: bool) -> TraceReport:
        """Traced on the torch backend where that is the user's, else (or where that fails) walked."""
        if not traced:
            return self._trace(spec, who, _KERAS_CHILD)[0]
        try:
            return self._kept(spec, who, _KERAS_TRACE, PACKAGES + KERAS)
        except EstimatorFailed as error:
            report = self._trace(spec, who, _KERAS_CHILD)[0]
            return replace(report, notes=(*report.notes, str(error)))

    def _without_torch(self, spec: TraceSpec, who: Interpreter) -> TraceReport:
        count = spec.options.get("parameters")
        if count is None:
            raise EstimatorFailed(
                f"PyTorch is not installed in {who.path}, so '{spec.model}' cannot be traced; pip install 'ischeduler[torch]', "
                "or set the option parameters to the model's parameter count."
            )
        return self._counted(spec, f"PyTorch is not installed in {who.path}")

    def _counted(self, spec: TraceSpec, why: str) -> TraceReport:
        count = spec.options.get("parameters")
        if count is None:
            raise EstimatorFailed(f"'{spec.model}' cannot be traced ({why}); set the option parameters to the model's parameter count.")
        weights = int(float(count)) * 4
        report = counted_report(spec, int(float(count)), weights, weights)
        return replace(report, notes=(f"{why}: sizes from the given parameter count",))

    def _trace(self, spec: TraceSpec, who: Interpreter, child: str = _CHILD) -> tuple[TraceReport, bool]:
        self.traced += 1
        with tempfile.TemporaryDirectory(prefix="isched-trace-") as folder:
            paths = [Path(folder) / name for name in ("spec.json", "result.json", "log")]
            paths[0].write_text(json.dumps(spec.to_json()))
            command = [who.path, "-c", CHILD_BOOT, str(ischeduler.__file__), child, str(paths[0]), str(paths[1])]
            outcome = run_limited(
                command, time_limit_s=self.time_limit_s, memory_limit_bytes=self.memory_limit_bytes,
                directory=spec.directory or None, environment=_environment(), log=paths[2],
            )
            answer = json.loads(paths[1].read_text()) if paths[1].exists() else {}
        return self._judge(spec, outcome, answer)

    def _judge(self, spec: TraceSpec, outcome: Outcome, answer: dict[str, object]) -> tuple[TraceReport, bool]:
        if "error" in answer:
            raise EstimatorFailed(str(answer["error"]))
        problem = self._problem(spec, outcome)
        if "report" not in answer:
            raise EstimatorFailed(problem or f"Tracing '{spec.model}' gave no answer: {outcome.output[-300:]}")
        report = TraceReport.from_json(answer["report"])  # type: ignore[arg-type]
        if problem:
            return replace(report, notes=(*report.notes, f"{problem} Activations are a formula.")), False
        return report, True

    def _problem(self, spec: TraceSpec, outcome: Outcome) -> str:
        if outcome.stopped == "time":
            return (f"Tracing '{spec.model}' took longer than {self.time_limit_s:.0f} s and was stopped; "
                    "raise the limit, profile it, or give its needs yourself.")
        if outcome.stopped == "memory" or (outcome.code != 0 and "MemoryError" in outcome.output):
            return (f"Tracing '{spec.model}' needed more than {human_size(self.memory_limit_bytes)} and was stopped; "
                    "raise the limit, profile it, or give its needs yourself.")
        if outcome.code != 0:
            last = outcome.output.splitlines()[-1][:200] if outcome.output else "it printed nothing"
            return f"Tracing '{spec.model}' ended with code {outcome.code} ({last}); profile it or give its needs yourself."
        return ""


class _Frozen(dict[str, str]):
    """Options as part of a key."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(sorted(self.items())))


def _environment() -> dict[str, str]:
    """The user's, but offline, without a card, and single-threaded: nothing is computed."""
    extra = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1",
             "PYTHONWARNINGS": "ignore", "TOKENIZERS_PARALLELISM": "false"}
    return {**os.environ, **extra}


def _keras_backend(spec: TraceSpec, who: Interpreter) -> str:
    """What Keras would use: as it is told, by its settings file (which it writes itself), else the first that is there."""
    told = spec.options.get("keras_backend")
    if told:
        return told
    there = {"tensorflow": who.version("tensorflow") or who.version("tensorflow-cpu"), "jax": who.version("jax"), "torch": who.version("torch")}
    home = Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras")
    with contextlib.suppress(OSError, ValueError, AttributeError):  # a file that Keras itself could not read
        written = str(json.loads((home / "keras.json").read_text()).get("backend"))
        if there.get(written):
            return written
    return next((backend for backend, version in there.items() if version), "")


def _key(spec: TraceSpec, who: Interpreter, fingerprint: str, packages: tuple[str, ...]) -> str:
    versions = [v for v in who.versions if v[0] in packages]
    plain = {**spec.to_json(), "python": who.path, "versions": versions, "source": fingerprint, "tracer": TRACER_VERSION,
             "operations": LOG_VERSION}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:32]


def _store(path: Path, report: TraceReport) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.part")
    part.write_text(json.dumps(report.to_json()))
    part.replace(path)
