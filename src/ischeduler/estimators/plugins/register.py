"""The register of installed plug-ins: one JSON file in the user's data folder, changed under a lock and replaced as a whole."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ischeduler.core.codec import from_plain, to_plain
from ischeduler.core.errors import ConfigError, NotFound
from ischeduler.estimators.plugins.versions import Plugin

SCHEMA = "isched.plugins/1"


class Register:
    """``folder`` is made when something is first written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def path(self) -> Path:
        """The file."""
        return self.folder / "register.json"

    @property
    def answers(self) -> Path:
        """Where answers given in shadow are recorded."""
        return self.folder / "answers"

    def stamp(self) -> int:
        """Changes with every change of the file (its inode and time: it is replaced as a whole)."""
        try:
            status = self.path.stat()
        except OSError:
            return 0
        return hash((status.st_mtime_ns, status.st_ino))

    def read(self) -> dict[str, Plugin]:
        """All plug-ins by name. ConfigError when the file is damaged or another version's."""
        try:
            data = json.loads(self.path.read_text("utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self.path} cannot be read ({error}); restore it, or move it away and add the plug-ins again.") from None
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            raise ConfigError(f"{self.path} is not of schema {SCHEMA}; use the iScheduler that wrote it, or move it away.")
        try:
            return {str(n): from_plain(Plugin, p) for n, p in data["plugins"].items()}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(f"{self.path} is damaged ({type(error).__name__}: {error}); restore it, or move it away.") from None

    def get(self, name: str) -> Plugin:
        """NotFound, with the names there are, when there is none."""
        plugins = self.read()
        if name not in plugins:
            raise NotFound(f"No plug-in '{name}' was added; there is {', '.join(plugins) or 'none'}. isched estimator add adds one.")
        return plugins[name]

    def change(self, name: str, how: Callable[[Plugin], Plugin]) -> Plugin:
        """Change one plug-in (an empty one where it is new) and write. What ``how`` raises leaves the file as it is."""
        with self._locked():
            plugins = self.read()
            changed = how(plugins.get(name, Plugin(name)))
            self._write({**plugins, name: changed})
        return changed

    def remove(self, name: str) -> Plugin:
        """Forget a plug-in; NotFound when there is none."""
        with self._locked():
            plugin = self.get(name)
            self._write({n: p for n, p in self.read().items() if n != name})
        return plugin

    def _write(self, plugins: Mapping[str, Plugin]) -> None:
        body: dict[str, Any] = {"schema": SCHEMA, "plugins": to_plain(plugins)}
        scratch = self.path.with_suffix(f".{os.getpid()}.tmp")
        with scratch.open("w", encoding="utf-8") as file:
            json.dump(body, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(self.path)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (self.folder / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
