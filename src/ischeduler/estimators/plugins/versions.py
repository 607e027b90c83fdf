"""One version of an installed plug-in, and which versions of it are used, in shadow, and to go back to. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ischeduler.core.errors import BadInput, NotFound
from ischeduler.ports import EstimatorInfo

RUNTIMES = ("python", "process", "container", "http", "tapis")
KEPT_FOR_ROLLBACK = 10


@dataclass(frozen=True, slots=True)
class PluginVersion:
    """``digest`` (``sha256:HEX``) names exactly what was added; ``spec`` is what its runtime needs; ``origin`` where it came from."""

    digest: str
    runtime: str
    info: EstimatorInfo
    spec: Mapping[str, Any]
    added_at: float
    origin: str = ""
    time_limit_s: float = 30.0
    memory_limit_bytes: int = 2**30

    @property
    def label(self) -> str:
        """``NAME@VERSION+sha256:0123456789ab``."""
        return f"{self.info.name}@{self.info.version}+{self.digest[:19]}"


@dataclass(frozen=True, slots=True)
class Plugin:
    """All versions of one name. ``active`` answers; ``shadow`` answers beside it and is only recorded."""

    name: str
    versions: Mapping[str, PluginVersion] = field(default_factory=dict[str, PluginVersion])
    active: str = ""
    shadow: str = ""
    previous: tuple[str, ...] = ()

    def with_version(self, version: PluginVersion) -> Plugin:
        """The first version is used at once, a later one goes into shadow. BadInput when it is in use already."""
        if version.digest == self.active:
            raise BadInput(f"{version.label} is in use already; change the plug-in, then add it again.")
        versions = {**self.versions, version.digest: version}
        if not self.active:
            return replace(self, versions=versions, active=version.digest)
        used = self.versions[self.active]
        if used.runtime == version.runtime == "python" and used.spec == version.spec:
            versions.pop(self.active)  # one Python holds one version of a module: the old one is gone already
            return replace(self, versions=versions, active=version.digest, previous=())
        return replace(self, versions=versions, shadow=version.digest)

    def promoted(self) -> Plugin:
        """The one in shadow is used from now on. BadInput when there is none."""
        if not self.shadow:
            raise BadInput(f"Nothing of '{self.name}' is in shadow; add a new version first: isched estimator add.")
        previous = (*self.previous, self.active)[-KEPT_FOR_ROLLBACK:]
        return replace(self, active=self.shadow, shadow="", previous=previous)

    def rolled_back(self) -> Plugin:
        """The one in shadow is dropped, or else the one used before comes back. BadInput when there is neither."""
        if self.shadow:
            return replace(self, shadow="")
        if not self.previous:
            raise BadInput(f"'{self.name}' has no earlier version to go back to.")
        return replace(self, active=self.previous[-1], previous=self.previous[:-1])

    def version(self, wanted: str) -> PluginVersion:
        """By role ('active', 'shadow'), by digest or its beginning, or by version (the newest added). NotFound otherwise."""
        digest = {"": self.active, "active": self.active, "shadow": self.shadow}.get(wanted, "")
        if digest:
            return self.versions[digest]
        hexes = wanted.removeprefix("sha256:")
        fitting = [v for v in self.versions.values() if v.info.version == wanted]
        if not fitting and len(hexes) >= 6:
            fitting = [v for v in self.versions.values() if v.digest.removeprefix("sha256:").startswith(hexes)]
        if not fitting:
            known = ", ".join(v.label for v in self.versions.values())
            raise NotFound(f"'{self.name}' has no version '{wanted}'; it has {known}.")
        return max(fitting, key=lambda v: v.added_at)

    def role(self, digest: str) -> str:
        """'active', 'shadow', 'previous' or 'kept'."""
        if digest == self.active:
            return "active"
        if digest == self.shadow:
            return "shadow"
        return "previous" if digest in self.previous else "kept"
