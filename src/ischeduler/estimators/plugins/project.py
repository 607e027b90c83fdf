"""A plug-in's project folder: its manifest ``estimator.toml`` and what is in it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ischeduler.core.errors import BadInput

MANIFEST = "estimator.toml"
INSIDE = "/plugin"
"""Where a project's sources lie in an image."""


@dataclass(frozen=True, slots=True)
class Project:
    """``command`` starts it (its first word a program inside the image), ``object`` is the Python entry point.

    ``sources`` are the folders put on ``PYTHONPATH``; ``packages`` are importable packages an image needs besides them.
    """

    folder: Path
    name: str
    version: str
    command: tuple[str, ...]
    object: str = ""
    sources: tuple[str, ...] = ("src",)
    packages: tuple[str, ...] = ()
    base: str = ""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def archive(self) -> Path:
        """Where a build leaves the root file system."""
        return self.folder / "dist" / f"{self.name}-{self.version}.rootfs.tar"

    @property
    def tag(self) -> str:
        """The image's local name."""
        return f"localhost/isched-estimator/{self.name.lower()}:{self.version}"


def read_project(folder: Path) -> Project:
    """BadInput with a sentence when the folder has no valid ``estimator.toml``."""
    path = folder / MANIFEST
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise BadInput(f"{folder} has no {MANIFEST}; make a project with isched estimator new NAME.") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadInput(f"{path} cannot be read: {error}.") from None
    words = {key: _text(path, data, key) for key in ("name", "version")}
    command = _texts(path, data, "command")
    if not command:
        raise BadInput(f"{path} has no command; expected a list such as ['python3', '-m', 'my_estimator'].")
    environment = data.get("environment", {})
    if not isinstance(environment, dict):
        raise BadInput(f"environment in {path} must be a table of texts.")
    known = {"name", "version", "command", "object", "sources", "packages", "base", "environment"}
    unknown = sorted(set(data) - known)
    if unknown:
        raise BadInput(f"{path} has '{unknown[0]}', which means nothing; expected some of {', '.join(sorted(known))}.")
    return Project(
        folder.absolute(), words["name"], words["version"], command, str(data.get("object", "")),
        _texts(path, data, "sources") or ("src",), _texts(path, data, "packages"), str(data.get("base", "")),
        {str(k): str(v) for k, v in environment.items()},
    )


def _text(path: Path, data: Mapping[str, Any], key: str) -> str:
    value = data.get(key)
    if not isinstance(value, str) or not value or not all(c.isalnum() or c in "._-" for c in value):
        raise BadInput(f"{key} in {path} is {value!r}; expected letters, digits, dots, dashes or underscores.")
    return value


def _texts(path: Path, data: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = data.get(key, [])
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise BadInput(f"{key} in {path} must be a list of texts.")
    return tuple(value)
