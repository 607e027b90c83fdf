"""``isched estimator add``: from what a person names to a version in the register, pinned by digest and asked who it is."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ischeduler.core.errors import BadInput, EstimatorFailed
from ischeduler.estimators.plugins import digests, images
from ischeduler.estimators.plugins.build import build_note
from ischeduler.estimators.plugins.load import TapisClient, process_digest, python_digest, runtime_of
from ischeduler.estimators.plugins.project import MANIFEST, Project, read_project
from ischeduler.estimators.plugins.unpack import unpack
from ischeduler.estimators.plugins.versions import RUNTIMES, PluginVersion
from ischeduler.estimators.runtimes.bounded import check_arguments
from ischeduler.estimators.runtimes.engines import ENGINES, Engine, engine
from ischeduler.estimators.runtimes.http import check_url
from ischeduler.estimators.runtimes.plugin import describe
from ischeduler.ports import Clock, EstimatorInfo

_UNKNOWN = EstimatorInfo("unknown", "0", (), "analytic")


@dataclass(frozen=True, slots=True)
class Source:
    """What a person named. ``reference``: a project folder, a root file system archive, an image, a URL, ``module:Object``
    or a Tapis app (``APP@VERSION``), by ``runtime`` ('' chooses); ``command`` an argument list instead.
    """

    reference: str = ""
    runtime: str = ""
    engine: str = "auto"
    command: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    time_limit_s: float = 30.0
    memory_limit_bytes: int = 2**30


class Installer:
    """Puts copies of what is added into ``folder``."""

    def __init__(self, folder: Path, *, tapis: TapisClient | None = None, clock: Clock | None = None) -> None:
        self.folder = folder
        self._tapis = tapis
        self._clock = clock

    def version(self, source: Source, *, ask: bool = True) -> PluginVersion:
        """The version to register. BadInput for what cannot be one; EstimatorFailed when it does not say who it is."""
        kind = source.runtime or guessed_runtime(source)
        if kind not in RUNTIMES:
            raise BadInput(f"There is no runtime '{kind}'; expected one of {', '.join(RUNTIMES)}.")
        spec, digest = {
            "python": self._python, "process": self._process, "container": self._container, "http": self._http, "tapis": self._app,
        }[kind](source)
        version = PluginVersion(
            digest, kind, _UNKNOWN, spec, time.time(), source.reference or " ".join(source.command), source.time_limit_s,
            source.memory_limit_bytes,
        )
        return self._introduced(version) if ask else version

    def discard(self, version: PluginVersion) -> None:
        """Delete the copies made when a version was added. An image that was the user's own before stays."""
        places = [version.spec.get("tree", "")]
        if version.runtime == "container":
            chosen, image = ENGINES.get(str(version.spec["engine"])), str(version.spec["image"])
            if chosen is not None and chosen.keeps_images and image != version.digest:
                images.remove_image(
                    chosen.name, images.digest_tag(version.digest, version.spec["command"], version.spec["environment"])
                )
            elif chosen is not None and not chosen.keeps_images:
                places.append(image)
        own = (self.folder.resolve(), images.rootfs_folder(self.folder).resolve())
        for place in filter(None, places):
            if any(Path(place).resolve().is_relative_to(folder) for folder in own):
                shutil.rmtree(place, ignore_errors=True)

    def _introduced(self, version: PluginVersion) -> PluginVersion:
        """With what it says of itself. A service has no other digest than that of its description."""
        try:
            info = describe(runtime_of(version, tapis=self._tapis, clock=self._clock))
        except EstimatorFailed as error:
            raise EstimatorFailed(f"{version.origin or 'The plug-in'} was not added: {_lower(str(error))}") from None
        if info.basis == "given":
            raise BadInput(f"'{info.name}' says its basis is 'given', which is for figures that you declare yourself.")
        digest = version.digest
        if version.runtime in ("http", "tapis"):
            digest = digests.of_bytes(json.dumps([dict(version.spec), info.name, info.version]).encode())
        return replace(version, info=info, digest=digest)

    def _python(self, source: Source) -> tuple[dict[str, Any], str]:
        reference = source.reference
        if _is_project(reference):
            reference = read_project(Path(reference)).object
        spec = {"object": reference}
        return spec, python_digest(spec)

    def _process(self, source: Source) -> tuple[dict[str, Any], str]:
        if source.command:
            spec: dict[str, Any] = {"command": list(_resolved(source.command)), "directory": None}
            return spec, process_digest(spec)
        project = read_project(Path(source.reference))
        spec = self._copied(project)
        return spec, process_digest(spec)

    def _copied(self, project: Project) -> dict[str, Any]:
        """A project's sources under their digest, so that an older version is still there to go back to."""
        with tempfile.TemporaryDirectory(dir=_made(self.folder / "trees")) as scratch:
            staged = Path(scratch) / "tree"
            for source in project.sources:
                _copy_tree(project.folder / source, staged)
            digest = digests.of_tree(staged)
            home = self.folder / "trees" / digest.replace(":", "-")
            if not home.is_dir():
                staged.replace(home)
        paths = [str(home), *_package_roots(project)]
        return {
            "command": list(_resolved(project.command)), "directory": str(home), "tree": str(home),
            "environment": {"PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1", **project.environment},
        }

    def _container(self, source: Source) -> tuple[dict[str, Any], str]:
        chosen = engine(source.engine)
        path = Path(source.reference)
        if _is_project(source.reference):
            path = read_project(path).archive
            if not path.is_file():
                raise BadInput(f"{source.reference} was not built yet; run isched estimator build {source.reference} first.")
        if path.is_file():
            return self._archive(path, chosen, source)
        return self._image(source, chosen)

    def _archive(self, archive: Path, chosen: Engine, source: Source) -> tuple[dict[str, Any], str]:
        digest = digests.of_file(archive)
        command, variables = _started_by(archive, source.command)
        keeps = chosen.keeps_images
        image = images.import_archive(chosen.name, archive, digest, command, variables) if keeps else self._unpacked(archive, digest)
        return {"engine": chosen.name, "image": str(image), "command": list(command), "environment": variables}, digest

    def _image(self, source: Source, chosen: Engine) -> tuple[dict[str, Any], str]:
        """An image of podman's or docker's store, by id; for an engine that runs folders, exported and unpacked."""
        keeper = chosen if chosen.keeps_images else engine(_keeper())
        digest = images.image_id(keeper.name, source.reference)
        own, variables = images.image_config(keeper.name, source.reference)
        command = source.command or own
        if not command:
            raise BadInput(f"Image '{source.reference}' has no entry point; say how it is started: -- python3 -m our_estimator.")
        image = digest
        if not chosen.keeps_images:
            with tempfile.TemporaryDirectory() as scratch:
                archive = Path(scratch) / "rootfs.tar"
                images.export_image(keeper.name, digest, archive)
                image = str(self._unpacked(archive, digest))
        variables.pop("PATH", None)
        return {"engine": chosen.name, "image": image, "command": list(command), "environment": variables}, digest

    def _unpacked(self, archive: Path, digest: str) -> Path:
        folder = images.rootfs_folder(self.folder) / digest.replace(":", "-")
        unpack(archive, folder)
        return folder

    def _http(self, source: Source) -> tuple[dict[str, Any], str]:
        check_url(source.reference)
        files = {k: str(Path(v).expanduser().absolute()) for k, v in source.options.items() if v}
        return {"url": source.reference, **files}, digests.of_bytes(source.reference.encode())

    def _app(self, source: Source) -> tuple[dict[str, Any], str]:
        app, at, version = source.reference.rpartition("@")
        if not (app and at and version):
            raise BadInput(f"'{source.reference}' names no Tapis app; expected APP@VERSION, e.g. walltime-estimator@1.0.")
        return {"app": app, "app_version": version}, digests.of_bytes(source.reference.encode())


def guessed_runtime(source: Source) -> str:
    """The runtime when none is named: a command is a process, an https address http, a folder or anything else a container."""
    if source.command and not source.reference:
        return "process"
    if source.reference.startswith(("http://", "https://")):
        return "http"
    if not source.reference:
        raise BadInput("Name what to add: a project folder, an archive, an image, a URL, or -- and a command.")
    return "container"


def _is_project(reference: str) -> bool:
    return (Path(reference) / MANIFEST).is_file()


def _resolved(command: Sequence[str]) -> tuple[str, ...]:
    """With the program's and existing files' full paths: it may be started from any folder. ``python3`` is this Python."""
    first, *rest = check_arguments(command)
    program = sys.executable if first in ("python", "python3") else shutil.which(first)
    if program is None:
        raise BadInput(f"There is no program '{first}'; name one that is installed.")
    return (os.path.abspath(program), *(os.path.abspath(w) if not w.startswith("-") and os.path.isfile(w) else w for w in rest))


def _copy_tree(source: Path, target: Path) -> None:
    if not source.is_dir():
        raise BadInput(f"{source} does not exist; correct sources in {MANIFEST}.")
    for path in digests.tree(source):
        place = target / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, place)


def _package_roots(project: Project) -> list[str]:
    """Where the packages a project asks for are imported from, for the Python that a process starts."""
    import importlib.util

    roots: list[str] = []
    for name in project.packages:
        found = importlib.util.find_spec(name)
        if found is None or not found.origin:
            raise BadInput(f"package '{name}' is not installed; install it, or take it out of packages in {MANIFEST}.")
        levels = 2 if found.submodule_search_locations else 1
        roots.append(str(Path(found.origin).parents[levels - 1]))
    return list(dict.fromkeys(roots))


def _started_by(archive: Path, command: tuple[str, ...]) -> tuple[tuple[str, ...], dict[str, str]]:
    """How an archive's image is started: as said, or as the build's note beside it says."""
    try:
        note = json.loads(build_note(archive).read_text("utf-8"))
        return command or tuple(note["command"]), dict(note["environment"])
    except FileNotFoundError:
        pass
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{build_note(archive)} is damaged ({type(error).__name__}); build again.") from None
    if not command:
        raise BadInput(f"{archive} does not say how it is started; say it: -- python3 -m our_estimator.")
    return command, {}


def _keeper() -> str:
    from ischeduler.estimators.plugins.build import image_maker

    return image_maker() or "podman"


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def _lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]
