"""The CI database: clusters by version, with their layers, the user's edits, and what the batch system said about this user."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, Engine, delete, insert, select, text, update

from ischeduler.cidb.catalog import catalog_files, parse_cluster
from ischeduler.cidb.combine import combine, same_facts, without_user
from ischeduler.cidb.edits import Override, changed_paths, check_override
from ischeduler.cidb.provenance import StaleWarning, stale_warnings
from ischeduler.cidb.rows import read_versions, write_version
from ischeduler.cidb.tables import CLUSTERS, FACTS, LAYERS, OVERRIDES, SYSTEMS, VERSIONS
from ischeduler.cidb.user_facts import read_user, write_user
from ischeduler.core.cluster import Cluster
from ischeduler.core.codec import dumps, from_plain, to_plain
from ischeduler.core.errors import NotFound

SHIPPED, IMPORTED = "shipped", "import"
_LOCK = 0x15C1DB  # PostgreSQL advisory lock: any number, the same for every process of ours


@dataclass(frozen=True, slots=True)
class VersionInfo:
    """One version of a cluster: its number, when it was made (epoch seconds), and by what."""

    number: int
    made_at: float
    source: str


class CIDatabase:
    """Clusters in the database behind ``engine``, whose tables exist already (:func:`ischeduler.store.migrate.prepare`).

    ``user`` is whose accounts and access are read and saved; ``clock`` dates versions and edits.
    """

    def __init__(self, engine: Engine, *, user: str = "", clock: Callable[[], float] = time.time) -> None:
        self.engine = engine
        self.user = user
        self._clock = clock
        self._writing = engine.execution_options(isched_write=True)

    @contextmanager
    def _write(self) -> Iterator[Connection]:
        """One writer at a time: SQLite locks the file, and PostgreSQL a number (changes here are rare and touch many tables)."""
        with self._writing.begin() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
            yield connection

    def clusters(self) -> list[Cluster]:
        """Every cluster as it is now, by name."""
        with self.engine.connect() as connection:
            return self._read(connection, self._heads(connection))

    def get(self, name: str, at_version: int | None = None) -> Cluster:
        """One cluster, now or as it was at a version; NotFound with the names there are. Old versions carry no user's facts."""
        with self.engine.connect() as connection:
            heads = {n: (row, number) for row, n, number in self._all_heads(connection)}
            if name not in heads:
                raise NotFound(f"there is no cluster '{name}'; known are {', '.join(sorted(heads)) or 'none'}.")
            if at_version is None or at_version == heads[name][1]:
                return self._read(connection, [(heads[name][0], name)])[0]
            row = connection.execute(_version_query(name).where(VERSIONS.c.number == at_version)).first()
            if row is None:
                raise NotFound(f"{name} has no version {at_version}; the newest is {heads[name][1]}.")
            return read_versions(connection, [(row.id, name)])[0]

    def versions(self, name: str) -> list[VersionInfo]:
        """All versions of a cluster, oldest first."""
        with self.engine.connect() as connection:
            rows = connection.execute(_version_query(name).order_by(VERSIONS.c.number)).all()
        return [VersionInfo(row.number, row.made_at, row.source) for row in rows]

    def save(self, cluster: Cluster, source: str) -> Cluster:
        """Make a definition the cluster's base (as an import does); live facts and edits still lie over it."""
        return self._save_layer("catalog", cluster, IMPORTED, source)

    def sync(self, name: str, discovered: Cluster, *, like: str | None = None) -> Cluster:
        """Take what discovery saw as the cluster's live layer and return the result.

        ``like`` names a cluster whose prices and site rules hold here too, used when ``name`` has no definition of its own.
        A new version is made only when a fact changed; dates and the user's access are refreshed always.
        """
        if like is not None:
            self._adopt(name, like)
        return self._save_layer("live", replace(discovered, name=name), "discovery", f"discovered from {discovered.batch}")

    def edit(self, name: str, changes: Mapping[str, Any], *, author: str = "") -> Cluster:
        """Correct facts by path, for good: edits win over catalog and discovery until :meth:`revert`.

        Values may be texts as people write them (``2h``, ``16G``, ``unknown``). NotFound or BadInput name the wrong one.
        """
        shown = self.get(name)
        plain = {path: check_override(shown, path, value) for path, value in changes.items()}
        who, now = author or self.user, self._clock()
        with self._write() as connection:
            for path, value in plain.items():
                connection.execute(delete(OVERRIDES).where(OVERRIDES.c.cluster == name, OVERRIDES.c.path == path))
                row = {"cluster": name, "path": path, "value": value, "author": who, "edited_at": now}
                connection.execute(insert(OVERRIDES).values(row))
            self._renew(connection, name, f"edited by {who or 'user'}: {', '.join(plain)}")
        return self.get(name)

    def edit_text(self, name: str, text: str, *, author: str = "") -> Cluster:
        """Store as edits what a person changed in :meth:`export_yaml`'s text."""
        changes = changed_paths(self.get(name), parse_cluster(text, f"{name}.yaml"))
        return self.edit(name, changes, author=author) if changes else self.get(name)

    def revert(self, name: str, paths: Iterable[str] | None = None) -> Cluster:
        """Undo edits: those of the paths, or all."""
        chosen = None if paths is None else list(paths)
        with self._write() as connection:
            query = delete(OVERRIDES).where(OVERRIDES.c.cluster == name)
            connection.execute(query if chosen is None else query.where(OVERRIDES.c.path.in_(chosen)))
            self._renew(connection, name, "edits undone")
        return self.get(name)

    def edits(self, name: str) -> list[Override]:
        """The corrections in force, by path."""
        with self.engine.connect() as connection:
            return _overrides(connection, [name]).get(name, [])

    def export_yaml(self, name: str, at_version: int | None = None) -> str:
        """The cluster as text; :meth:`import_yaml` reads it back."""
        from ischeduler.cidb.document import document_of
        from ischeduler.cidb.yaml_text import write_yaml

        return write_yaml(document_of(self.get(name, at_version)))

    def import_yaml(self, text: str, source: str = "imported") -> Cluster:
        """Add or replace a cluster's definition from text; BadInput with one sentence where it is wrong."""
        return self.save(parse_cluster(text, source), source)

    def remove(self, name: str) -> None:
        """Forget a cluster with all versions and edits; NotFound when there is none. A shipped one returns with the next load."""
        self.get(name)
        with self._write() as connection:
            for table in (LAYERS, OVERRIDES):
                connection.execute(delete(table).where(table.c.cluster == name))
            connection.execute(delete(CLUSTERS).where(CLUSTERS.c.name == name))

    def stale(self, now: float) -> list[StaleWarning]:
        """Warnings for facts that are too old for their kind, of all clusters."""
        return [warning for cluster in self.clusters() for warning in stale_warnings(cluster, now)]

    def load_catalog(self) -> list[str]:
        """Bring the shipped definitions in where they are new or changed; the names of those. Imported ones are left alone.

        Files are compared by digest, so that a start with nothing new parses nothing.
        """
        with self.engine.connect() as connection:
            query = select(LAYERS.c.cluster, LAYERS.c.digest, LAYERS.c.origin).where(LAYERS.c.kind == "catalog")
            stored = {row.cluster: row for row in connection.execute(query)}
        changed: list[str] = []
        for file in catalog_files():
            old = stored.get(file.name)
            if old is None or (old.origin == SHIPPED and old.digest != file.digest):
                self._save_layer("catalog", file.cluster(), SHIPPED, "shipped catalog", digest=file.digest)
                changed.append(file.name)
        return changed

    def _adopt(self, name: str, like: str) -> None:
        model = self.get(like)
        with self.engine.connect() as connection:
            if "catalog" in _layers(connection, [name]).get(name, {}):
                return
        self.save(without_user(replace(model, name=name)), f"like {like}")

    def _save_layer(self, kind: str, cluster: Cluster, origin: str, source: str, *, digest: str = "") -> Cluster:
        shared = without_user(cluster)
        doc = to_plain(shared)
        row = {
            "cluster": cluster.name,
            "kind": kind,
            "origin": origin,
            "digest": digest or hashlib.sha256(dumps(doc).encode()).hexdigest(),
            "saved_at": self._clock(),
            "doc": doc,
        }
        with self._write() as connection:
            connection.execute(delete(LAYERS).where(LAYERS.c.cluster == cluster.name, LAYERS.c.kind == kind))
            connection.execute(insert(LAYERS).values(row))
            if kind == "live" and self.user:
                write_user(connection, self.user, cluster, self._clock())
            self._renew(connection, cluster.name, source)
        return self.get(cluster.name)

    def _renew(self, connection: Connection, name: str, source: str) -> None:
        """Work the layers out and store the result: as a new version, or where only dates changed in the current one."""
        layers = _layers(connection, [name]).get(name, {})
        if not layers:
            raise NotFound(f"there is no cluster '{name}'; list them with: isched clusters")
        result = combine(layers.get("catalog"), layers.get("live"), _overrides(connection, [name]).get(name, []))
        current = next((v for v, n, _ in self._all_heads(connection) if n == name), None)
        if current is not None and same_facts(read_versions(connection, [(current, name)])[0], result):
            _redate(connection, current, result)
        else:
            self._add_version(connection, result, source)

    def _add_version(self, connection: Connection, cluster: Cluster, source: str) -> None:
        system = _key_of(connection, SYSTEMS, cluster.centre or "local", {})
        defaults = {"system_id": system, "current_version": 0}
        key = _key_of(connection, CLUSTERS, cluster.name, defaults)
        change = update(CLUSTERS).where(CLUSTERS.c.id == key)
        connection.execute(change.values(system_id=system, current_version=CLUSTERS.c.current_version + 1))
        number = connection.execute(select(CLUSTERS.c.current_version).where(CLUSTERS.c.id == key)).scalar_one()
        row = {
            "cluster_id": key,
            "number": number,
            "made_at": self._clock(),
            "source": source,
            "centre": cluster.centre,
            "batch": cluster.batch,
            "batch_version": cluster.version,
            "as_of": cluster.as_of,
        }
        made = connection.execute(insert(VERSIONS).values(row)).inserted_primary_key
        assert made is not None
        write_version(connection, int(made[0]), cluster)

    def _read(self, connection: Connection, heads: Sequence[tuple[int, str]]) -> list[Cluster]:
        found = read_versions(connection, heads)
        return read_user(connection, self.user, found) if self.user else found

    def _heads(self, connection: Connection) -> list[tuple[int, str]]:
        return [(row, name) for row, name, _ in self._all_heads(connection)]

    def _all_heads(self, connection: Connection) -> list[tuple[int, str, int]]:
        current = (VERSIONS.c.cluster_id == CLUSTERS.c.id) & (VERSIONS.c.number == CLUSTERS.c.current_version)
        query = select(VERSIONS.c.id, CLUSTERS.c.name, VERSIONS.c.number).join(CLUSTERS, current).order_by(CLUSTERS.c.name)
        return [(row.id, row.name, row.number) for row in connection.execute(query)]


def _version_query(name: str) -> Any:
    joined = VERSIONS.c.cluster_id == CLUSTERS.c.id
    columns = (VERSIONS.c.id, VERSIONS.c.number, VERSIONS.c.made_at, VERSIONS.c.source)
    return select(*columns).join(CLUSTERS, joined).where(CLUSTERS.c.name == name)


def _layers(connection: Connection, names: Sequence[str]) -> dict[str, dict[str, Cluster]]:
    found: dict[str, dict[str, Cluster]] = {}
    for row in connection.execute(select(LAYERS).where(LAYERS.c.cluster.in_(names))):
        found.setdefault(row.cluster, {})[row.kind] = from_plain(Cluster, row.doc)
    return found


def _overrides(connection: Connection, names: Sequence[str]) -> dict[str, list[Override]]:
    found: dict[str, list[Override]] = {}
    for row in connection.execute(select(OVERRIDES).where(OVERRIDES.c.cluster.in_(names)).order_by(OVERRIDES.c.path)):
        found.setdefault(row.cluster, []).append(Override(row.path, row.value, row.author, row.edited_at))
    return found


def _key_of(connection: Connection, table: Any, name: str, defaults: Mapping[str, Any]) -> int:
    """The id of the row of that name, made where it is missing."""
    query = select(table.c.id).where(table.c.name == name)
    found = connection.execute(query).scalar()
    if found is None:
        made = connection.execute(insert(table).values(name=name, **defaults)).inserted_primary_key
        assert made is not None
        found = made[0]
    return int(found)


def _redate(connection: Connection, version: int, cluster: Cluster) -> None:
    connection.execute(update(VERSIONS).where(VERSIONS.c.id == version).values(as_of=cluster.as_of))
    for as_of, paths in _by_date(cluster).items():
        change = update(FACTS).where(FACTS.c.version_id == version, FACTS.c.path.in_(paths))
        connection.execute(change.values(as_of=as_of))


def _by_date(cluster: Cluster) -> dict[float, list[str]]:
    found: dict[float, list[str]] = {}
    for path, provenance in cluster.provenance.items():
        found.setdefault(provenance.as_of, []).append(path)
    return found
