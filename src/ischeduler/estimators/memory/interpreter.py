"""Which Python answers for a workload, and which packages it has, without importing any of them."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ischeduler.core.errors import EstimatorFailed
from ischeduler.core.workload import EnvironmentSpec

PACKAGES = ("torch", "timm", "torchvision", "transformers")
KERAS = ("keras", "tensorflow", "tensorflow-cpu", "jax")
_ASK = (
    "import importlib.metadata as m, json\n"
    "def v(n):\n"
    "    try: return m.version(n)\n"
    "    except m.PackageNotFoundError: return None\n"
    f"print(json.dumps({{n: v(n) for n in {PACKAGES + KERAS!r}}}))"
)


@dataclass(frozen=True)
class Interpreter:
    """A Python executable; ``versions`` maps each of :data:`PACKAGES` and :data:`KERAS` to what is installed there."""

    path: str
    versions: tuple[tuple[str, str | None], ...]

    def version(self, package: str) -> str | None:
        """The installed version, or None."""
        return dict(self.versions).get(package)


def of_environment(environment: EnvironmentSpec) -> str:
    """The workload's own interpreter where it is named by a path and exists here, else this one."""
    for prefix in (environment.venv, environment.conda):
        if prefix and (python := Path(prefix).expanduser() / "bin" / "python").exists():
            return str(python)
    return sys.executable


@cache
def interpreter(path: str) -> Interpreter:
    """What that Python has installed; asked once a process. EstimatorFailed when it does not run."""
    if path == sys.executable:
        return Interpreter(path, tuple((name, _own_version(name)) for name in PACKAGES + KERAS))
    try:
        done = subprocess.run([path, "-c", _ASK], capture_output=True, text=True, timeout=30, check=True)
        return Interpreter(path, tuple(json.loads(done.stdout).items()))
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise EstimatorFailed(f"The workload's Python {path} does not run ({error}); correct its environment.") from None


def _own_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
