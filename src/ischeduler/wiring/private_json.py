"""Small JSON files that one user alone may read: caches, and what jobs are told."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ischeduler.core.errors import ConfigError


def read_json(path: Path) -> dict[str, Any]:
    """What the file holds; {} where it is missing or torn: it is only a cache."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write a cache; nothing happens where it cannot be written."""
    try:
        _replace_private(path, data)
    except OSError:
        return


def _replace_private(path: Path, data: Mapping[str, Any]) -> None:
    """Readable by this user alone."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    scratch = path.with_suffix(f".{os.getpid()}.tmp")
    with open(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump(data, file)
    scratch.replace(path)


def write_private(path: Path, data: Mapping[str, Any]) -> None:
    """ConfigError where it cannot be written: jobs would wait for nothing."""
    try:
        _replace_private(path, data)
    except OSError as error:
        raise ConfigError(f"plane.from_jobs needs {path} ({error.strerror}); set paths.state to a folder that you may write.") from None
