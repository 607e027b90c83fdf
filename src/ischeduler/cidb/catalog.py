"""The catalog of real clusters shipped with the package: ``catalog/*.yaml``, one a cluster."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import resources

from ischeduler.core.cluster import Cluster
from ischeduler.core.errors import NotFound


@dataclass(frozen=True, slots=True)
class CatalogFile:
    """One shipped definition; ``digest`` tells whether a stored copy is of the same text (and of the same card table)."""

    name: str
    text: str
    digest: str

    def cluster(self) -> Cluster:
        """Parse it."""
        return parse_cluster(self.text, f"catalog/{self.name}.yaml")


def parse_cluster(text: str, name: str = "the text") -> Cluster:
    """A cluster of a YAML text; BadInput with one sentence where it is wrong."""
    # Here and not above: pydantic and YAML take longer to import than a stored catalog takes to read.
    from ischeduler.cidb.document import cluster_of
    from ischeduler.cidb.yaml_text import read_yaml

    return cluster_of(read_yaml(text, name), name)


def catalog_files() -> list[CatalogFile]:
    """All shipped definitions by name."""
    folder = resources.files("ischeduler.cidb")
    cards = folder.joinpath("accelerators.yaml").read_bytes()
    found: list[CatalogFile] = []
    for item in folder.joinpath("catalog").iterdir():
        if item.name.endswith(".yaml"):
            text = item.read_text(encoding="utf-8")
            digest = hashlib.sha256(cards + text.encode()).hexdigest()
            found.append(CatalogFile(item.name.removesuffix(".yaml"), text, digest))
    return sorted(found, key=lambda f: f.name)


def load_catalog() -> list[Cluster]:
    """All shipped clusters, parsed."""
    return [f.cluster() for f in catalog_files()]


def catalog_cluster(name: str) -> Cluster:
    """One shipped cluster; NotFound with the names there are."""
    files = {f.name: f for f in catalog_files()}
    if name not in files:
        raise NotFound(f"the catalog has no cluster '{name}'; it has {', '.join(files)}.")
    return files[name].cluster()
