"""From the register to estimators that can be asked. Starts nothing: a container runs when it is first asked."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ischeduler.core.errors import ConfigError, EstimatorFailed, IschedError
from ischeduler.core.estimate import Estimate
from ischeduler.estimators.evidence import NoEvidence
from ischeduler.estimators.plugins import digests
from ischeduler.estimators.plugins.register import Register
from ischeduler.estimators.plugins.shadow import AnswerLog, ShadowedEstimator
from ischeduler.estimators.plugins.versions import Plugin, PluginVersion
from ischeduler.estimators.registry import Registry
from ischeduler.estimators.runtimes.limits import Limits, Runtime
from ischeduler.estimators.runtimes.plugin import PluginEstimator
from ischeduler.estimators.runtimes.tapis import TapisJobs
from ischeduler.ports import Clock, EstimateRequest, Estimator, EstimatorInfo

TapisClient = Callable[[], TapisJobs]


def add_plugins(registry: Registry, folder: Path, *, tapis: TapisClient | None = None, clock: Clock | None = None) -> None:
    """Put every plug-in of the register in ``folder`` into the registry; what cannot be used becomes a problem, a sentence each."""
    register = Register(folder)
    try:
        plugins = register.read()
    except ConfigError as error:
        registry.add_problem(str(error))
        return
    for name in plugins:
        try:
            registry.add(InstalledEstimator(name, register, tapis=tapis, clock=clock))
        except IschedError as error:
            registry.add_problem(f"Estimator plug-in '{name}' is left out: {error}")


class InstalledEstimator:
    """A plug-in as the register has it now: a promotion or a roll-back holds from the next question on, also in a running plane."""

    def __init__(
        self, name: str, register: Register, *, tapis: TapisClient | None = None, clock: Clock | None = None
    ) -> None:
        self._name, self._register, self._tapis, self._clock = name, register, tapis, clock
        self._seen = register.stamp()
        self._current = self._read()

    @property
    def info(self) -> EstimatorInfo:
        """What the active version said of itself."""
        return self._current.info

    @property
    def current(self) -> Estimator:
        """The active version, with the one in shadow beside it."""
        stamp = self._register.stamp()
        if stamp != self._seen:
            self._current, self._seen = self._read(), stamp
        return self._current

    def estimate(self, request: EstimateRequest) -> Estimate:
        """EstimatorFailed when it was removed meanwhile."""
        try:
            current = self.current
        except IschedError as error:
            raise EstimatorFailed(str(error)) from None
        if request.quantity not in current.info.quantities:
            raise NoEvidence(f"{current.info.name}@{current.info.version} does not answer {request.quantity}.")
        return current.estimate(request)

    def _read(self) -> Estimator:
        return estimator_of(self._register.get(self._name), self._register, tapis=self._tapis, clock=self._clock)


def estimator_of(
    plugin: Plugin, register: Register, *, tapis: TapisClient | None = None, clock: Clock | None = None
) -> Estimator:
    """What answers for a plug-in: its active version, with the one in shadow beside it."""
    active = of_version(plugin.version("active"), tapis=tapis, clock=clock)
    if not plugin.shadow:
        return active
    shadow = of_version(plugin.version("shadow"), tapis=tapis, clock=clock)
    return ShadowedEstimator(active, shadow, AnswerLog(register.answers / f"{plugin.name}.jsonl"))


def of_version(
    version: PluginVersion, *, memo: bool = True, tapis: TapisClient | None = None, clock: Clock | None = None
) -> PluginEstimator:
    """One version, asked in its own runtime."""
    runtime = runtime_of(version, tapis=tapis, clock=clock)
    check = _SOURCES.get(version.runtime)
    unchanged = None if check is None else lambda: _check_unchanged(version, check(version.spec))
    return PluginEstimator(version.info, runtime, version.digest, memo=memo, unchanged=unchanged)


def runtime_of(version: PluginVersion, *, tapis: TapisClient | None = None, clock: Clock | None = None) -> Runtime:
    """The runtime that a version names. ConfigError when its entry is malformed."""
    limits = Limits(version.time_limit_s, version.memory_limit_bytes)
    spec = version.spec
    try:
        return _runtime(version.runtime, spec, limits, tapis, clock)
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"the entry of {version.label} is malformed ({type(error).__name__}: {error}); add it again.") from None


def _runtime(kind: str, spec: Mapping[str, Any], limits: Limits, tapis: TapisClient | None, clock: Clock | None) -> Runtime:
    if kind == "python":
        from ischeduler.estimators.runtimes.python import PythonRuntime

        return PythonRuntime(spec["object"])
    if kind == "process":
        from ischeduler.estimators.runtimes.process import ProcessRuntime

        return ProcessRuntime(tuple(spec["command"]), spec.get("directory"), dict(spec.get("environment", {})), limits)
    if kind == "container":
        from ischeduler.estimators.runtimes.container import ContainerRuntime
        from ischeduler.estimators.runtimes.engines import Image

        variables = tuple((str(k), str(v)) for k, v in dict(spec.get("environment", {})).items())
        return ContainerRuntime(spec["engine"], Image(spec["image"], tuple(spec["command"]), variables), limits)
    if kind == "http":
        from ischeduler.estimators.runtimes.http import HttpRuntime

        names = ("token_file", "certificate", "key", "authority")
        return HttpRuntime(spec["url"], **{name: str(spec.get(name, "")) for name in names}, limits=limits)
    if kind == "tapis":
        from ischeduler.estimators.runtimes.tapis import TapisRuntime

        return TapisRuntime(spec["app"], spec["app_version"], tapis, clock, limits)
    raise ConfigError(f"runtime '{kind}' is unknown here; use the iScheduler that added it.")


def _check_unchanged(version: PluginVersion, digest: str) -> None:
    if digest != version.digest:
        raise EstimatorFailed(
            f"its files are not those that were added (expected {version.digest[:19]}, found {digest[:19]}); add it again."
        )


def process_digest(spec: Mapping[str, Any]) -> str:
    """Of a folder that was copied in, else of the command's files."""
    return digests.of_tree(Path(spec["tree"])) if spec.get("tree") else digests.of_command(spec["command"])


def python_digest(spec: Mapping[str, Any]) -> str:
    """Of the module's package (or its one file)."""
    name = str(spec["object"]).partition(":")[0].partition(".")[0]
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        found = None
    if found is None or not (found.origin or found.submodule_search_locations):
        raise EstimatorFailed(f"module '{name}' is not installed in {sys.prefix}; install it there first, e.g. with pip.")
    if found.submodule_search_locations:
        return digests.of_tree(Path(next(iter(found.submodule_search_locations))))
    return digests.of_file(Path(str(found.origin)))


_SOURCES: Mapping[str, Callable[[Mapping[str, Any]], str]] = {"process": process_digest, "python": python_digest}
"""Whose content is looked at again before the first question; an image's id is its content already."""
