"""A user's estimator plug-ins: make, build, check, add, compare, publish, promote, roll back."""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ischeduler.core.cluster import NodeType
from ischeduler.core.errors import BadInput, NotFound
from ischeduler.core.history import HistoryRecord
from ischeduler.estimators.plugins.build import Built, build
from ischeduler.estimators.plugins.compare import ACTUAL, Comparison, compare
from ischeduler.estimators.plugins.install import Installer, Source
from ischeduler.estimators.plugins.load import of_version
from ischeduler.estimators.plugins.project import MANIFEST, read_project
from ischeduler.estimators.plugins.publish import Published, publish
from ischeduler.estimators.plugins.register import Register
from ischeduler.estimators.plugins.shadow import AnswerLog
from ischeduler.estimators.plugins.versions import Plugin, PluginVersion
from ischeduler.estimators.runtimes.trust import trust_words
from ischeduler.estimators.scaffold import make
from ischeduler.helper.session import Session
from ischeduler.ports import EstimateRequest, Estimator

FOLDER = "estimators"
COMPARED_RUNS = 50
_HISTORY = 2000


@dataclass(frozen=True, slots=True)
class PluginRow:
    """One version of an added plug-in. ``role`` is 'active', 'shadow', 'previous' or 'kept'; ``trust`` says what it may do."""

    name: str
    version: str
    digest: str
    runtime: str
    engine: str
    role: str
    basis: str
    quantities: tuple[str, ...]
    trust: str
    origin: str
    added_at: float


@dataclass(frozen=True, slots=True)
class Recorded:
    """Answers given while a version was in shadow: how many, refusals of the shadow, the median of shadow p50 / active p50."""

    answers: int
    refused: int
    ratio: float | None


class EstimatorDesk:
    """The plug-ins of one session's user."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.register = Register(session.config.data_dir / FOLDER)

    @property
    def _installer(self) -> Installer:
        return Installer(self.register.folder, clock=self._session.clock)

    def new(self, name: str, folder: Path | None = None, quantity: str = "step_time") -> list[Path]:
        """A project in ``folder`` (default: one of its name here)."""
        return make(name, folder or self._session.config.directory / name, quantity)

    def build(self, folder: Path, way: str = "auto", maker: str = "auto") -> Built:
        """An image and an archive of a project."""
        return build(read_project(folder), way=way, maker=maker)

    def add(self, source: Source) -> PluginRow:
        """Register: the first version of a name answers from now on, a later one goes into shadow."""
        version = self._installer.version(source)
        if any(e.info.name == version.info.name for e in self._others()):
            raise BadInput(f"There is an estimator '{version.info.name}' that is no plug-in of yours; give this one another name.")
        plugin = self.register.change(version.info.name, lambda p: p.with_version(version))
        return _row(plugin, version)

    def _others(self) -> list[Estimator]:
        own = self.register.read()
        return [e for e in self._session.services.estimators().registry if e.info.name not in own]

    def rows(self) -> list[PluginRow]:
        """Every version of every plug-in, newest last."""
        found = [(p, v) for p in self.register.read().values() for v in p.versions.values()]
        return [_row(p, v) for p, v in sorted(found, key=lambda pair: (pair[0].name, pair[1].added_at))]

    def promote(self, name: str) -> PluginRow:
        """The version in shadow answers from now on."""
        return self._changed(name, Plugin.promoted)

    def rollback(self, name: str) -> PluginRow:
        """The version in shadow is dropped, or the one used before answers again."""
        return self._changed(name, Plugin.rolled_back)

    def _changed(self, name: str, how: Any) -> PluginRow:
        self.register.get(name)
        plugin = self.register.change(name, how)
        return _row(plugin, plugin.version("active"))

    def remove(self, name: str) -> None:
        """Forget a plug-in and all its versions, and delete the copies made of them."""
        for version in self.register.remove(name).versions.values():
            self._installer.discard(version)

    def publish(self, reference: str, target: str) -> Published:
        """Push a version's image."""
        return publish(self.version(reference), target)

    def version(self, reference: str) -> PluginVersion:
        """``NAME``, ``NAME@shadow``, ``NAME@VERSION`` or ``NAME@sha256:...``."""
        name, _, which = reference.partition("@")
        return self.register.get(name).version(which)

    def estimator(self, reference: str) -> Estimator:
        """One to compare: a plug-in's version, or any estimator of the list."""
        name = reference.partition("@")[0]
        if name in self.register.read():
            return of_version(self.version(reference), clock=self._session.clock)
        if "@" in reference:
            raise NotFound(f"'{name}' is no plug-in that you added; only those have versions to choose from.")
        return self._session.services.estimators().registry.get(reference)

    @contextmanager
    def checked(self, source: Source) -> Iterator[Estimator]:
        """What to run the conformance suite on: one of the list, or something not yet added, asked anew every time."""
        name = source.reference.partition("@")[0]
        plain = not (source.runtime or source.command or source.options)
        if plain and name in self.register.read():
            yield of_version(self.version(source.reference), memo=False, clock=self._session.clock)
            return
        if plain and not _outside(source.reference):
            yield self._session.services.estimators().registry.get(source.reference)
            return
        if source.runtime == "python" and (Path(source.reference) / MANIFEST).is_file():
            project = read_project(Path(source.reference))
            sys.path[:0] = [str(project.folder / s) for s in project.sources]  # trusted code that need not be installed yet
        with tempfile.TemporaryDirectory(prefix="isched-check-") as scratch:
            installer = Installer(Path(scratch), clock=self._session.clock)
            yield of_version(installer.version(source), memo=False, clock=self._session.clock)

    def compare(
        self, first: str, second: str = "", quantities: Sequence[str] = (), limit: int = COMPARED_RUNS
    ) -> tuple[Comparison, Recorded]:
        """Two side by side on the user's finished runs; of one name alone, its active version and the one in shadow."""
        unknown = [q for q in quantities if q not in ACTUAL]
        if unknown:
            raise BadInput(f"'{unknown[0]}' is nothing that finished runs tell; expected some of {', '.join(ACTUAL)}.")
        if not second:
            if not self.register.get(first).shadow:
                raise BadInput(f"Nothing of '{first}' is in shadow; name a second estimator: isched estimator compare {first} OTHER.")
            second = f"{first}@shadow"
        records = self._session.services.store.history(owner=self._session.owner, limit=_HISTORY)
        result = compare(self.estimator(first), self.estimator(second), records, self._complete, quantities, limit)
        return result, self.recorded(first.partition("@")[0])

    def recorded(self, name: str) -> Recorded:
        """What was recorded while a version of that name was in shadow."""
        entries = AnswerLog(self.register.answers / f"{name}.jsonl").read()
        ratios = [
            e["shadow"]["p50"] / e["active"]["p50"] for e in entries
            if e.get("active", {}).get("p50") and e.get("shadow", {}).get("p50") is not None
        ]
        refused = sum("error" in e.get("shadow", {}) for e in entries)
        return Recorded(len(entries), refused, statistics.median(ratios) if ratios else None)

    def _complete(self, request: EstimateRequest, record: HistoryRecord) -> EstimateRequest:
        """The place a record names, from the CI database; a bare node type of that name where it is unknown."""
        try:
            cluster = self._session.services.cluster(record.cluster, learn=False)
        except NotFound:
            cluster = None
        partition = next((p for p in cluster.partitions if p.name == record.partition), None) if cluster else None
        node = next((n for n in cluster.node_types if n.name == record.node_type), None) if cluster else None
        nodes = max(1, record.nodes)
        gpus = record.gpus // nodes if record.gpus % nodes == 0 else record.gpus
        share = {"nodes": nodes, "gpus_per_node": gpus, **({"cpus_per_node": record.cpus} if record.cpus else {})}
        node = node or NodeType(record.node_type, cores=record.cpus or None)
        return replace(request, cluster=cluster, partition=partition, node_type=node, options={"resources": share})


def _row(plugin: Plugin, version: PluginVersion) -> PluginRow:
    info, container = version.info, str(version.spec.get("engine", ""))
    return PluginRow(
        info.name, info.version, version.digest, version.runtime, container, plugin.role(version.digest), info.basis, info.quantities,
        trust_words(version.runtime, container), version.origin, version.added_at,
    )


def _outside(reference: str) -> bool:
    """Whether it names something that is not in the list: a folder, a file, an address, an image."""
    path = Path(reference)
    return (path / MANIFEST).is_file() or path.exists() or any(sign in reference for sign in ":/")
