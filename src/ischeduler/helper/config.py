"""Configuration with its origin: flag > ``ISCHED_*`` > project file > user file > ``/etc/ischeduler/config.toml`` > default.

The project file is ``ischeduler.toml`` or ``[tool.ischeduler]`` of ``pyproject.toml`` in the current folder. Files are read
with ``tomllib`` alone, so that asking for one value costs milliseconds.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ischeduler.core.errors import ConfigError
from ischeduler.helper.settings import BY_KEY, SETTINGS, Setting, read_value, write_value
from ischeduler.helper.suggest import did_you_mean

SYSTEM_FILE = Path("/etc/ischeduler/config.toml")
_URL_PASSWORD = re.compile(r"(://[^/@:]*:)[^@]*@")


@dataclass(frozen=True, slots=True)
class Value:
    """A setting's value and where it comes from: ``flag``, ``environment ISCHED_X``, a file's path, or ``default``."""

    value: Any
    origin: str


@dataclass(frozen=True, slots=True)
class Config:
    """All settings, each with its origin. ``workload`` is the project file's workload table, read by the Helper."""

    values: Mapping[str, Value]
    directory: Path
    workload: Mapping[str, Any] = field(default_factory=dict)
    workload_origin: str = ""

    def __getitem__(self, key: str) -> Any:
        """The value; KeyError for a key that does not exist."""
        return self.values[key].value

    @property
    def state_dir(self) -> Path:
        """This user's state folder (not created)."""
        return self._absolute(self["paths.state"]) if self["paths.state"] else _platform_state()

    @property
    def data_dir(self) -> Path:
        """Where run directories live; every node must see it."""
        return self._absolute(self["paths.data"]) if self["paths.data"] else Path.home() / ".isched"

    @property
    def database_url(self) -> str:
        """What the store is opened with."""
        url = self["database.url"] or str(self.state_dir / "ischeduler.db")
        return url if "://" in url else str(self._absolute(url))

    def _absolute(self, path: str) -> Path:
        return (self.directory / Path(path).expanduser()).absolute()

    def as_environment(self) -> dict[str, str]:
        """Every value that is not a default, as ``ISCHED_*`` variables with absolute paths: for a process in another folder."""
        texts = {BY_KEY[k].variable: write_value(BY_KEY[k], v.value) for k, v in self.values.items() if v.origin != "default"}
        if self["paths.state"]:
            texts[BY_KEY["paths.state"].variable] = str(self.state_dir)
        if self["paths.data"]:
            texts[BY_KEY["paths.data"].variable] = str(self.data_dir)
        if self["database.url"]:
            texts[BY_KEY["database.url"].variable] = self.database_url
        return texts

    def shown(self, key: str) -> Any:
        """The value as it may be shown: passwords in URLs are hidden."""
        value = self[key]
        return _URL_PASSWORD.sub(r"\1***@", value) if BY_KEY[key].secret and isinstance(value, str) else value


def load_config(
    flags: Mapping[str, Any] | None = None, *, directory: Path | None = None, environment: Mapping[str, str] | None = None
) -> Config:
    """Read every source. ConfigError names the file or variable that is wrong."""
    here = (directory or Path.cwd()).absolute()
    env = os.environ if environment is None else environment
    values = {s.key: Value(s.default, "default") for s in SETTINGS}
    workload: Mapping[str, Any] = {}
    workload_origin = ""
    for path, table in _files(here, env):
        settings, found = split_table(table, str(path))
        values |= {k: Value(v, str(path)) for k, v in settings.items()}
        if found and path.parent == here:
            workload, workload_origin = found, str(path)
    values |= _from_environment(env)
    for key, value in (flags or {}).items():
        if value is not None:
            values[key] = Value(read_value(_setting(key, "a flag"), value, "a flag"), "flag")
    return Config(values, here, workload, workload_origin)


def project_table(folder: Path) -> tuple[Path, Mapping[str, Any]] | None:
    """The project file of a folder and iScheduler's part of it, or None. Both files present: ``ischeduler.toml`` wins."""
    own = folder / "ischeduler.toml"
    if own.is_file():
        return own, read_toml(own)
    shared = folder / "pyproject.toml"
    if shared.is_file():
        table = read_toml(shared).get("tool", {}).get("ischeduler")
        if table is not None:
            return shared, table
    return None


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file. ConfigError when it cannot be read."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}.") from None


def split_table(table: Mapping[str, Any], origin: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings and workload fields of one table. Workload fields stand at its top or under ``[workload]``."""
    from ischeduler.helper.workload_fields import FIELDS

    workload: dict[str, Any] = dict(table.get("workload", {}))
    settings: dict[str, Any] = {}
    sections = {s.key.partition(".")[0] for s in SETTINGS}
    for name, value in table.items():
        if name == "workload":
            continue
        if name in sections and isinstance(value, Mapping):
            for key, inner in value.items():
                full = f"{name}.{key}"
                settings[full] = read_value(_setting(full, origin), inner, origin)
        elif name in FIELDS:
            workload[name] = value
        else:
            known = [*BY_KEY, *sections, *FIELDS, "workload"]
            raise ConfigError(f"'{name}' in {origin} is not a setting{did_you_mean(name, known)}.")
    return settings, workload


def _setting(key: str, origin: str) -> Setting:
    if key not in BY_KEY:
        raise ConfigError(f"'{key}' in {origin} is not a setting{did_you_mean(key, BY_KEY)}.")
    return BY_KEY[key]


def _files(here: Path, env: Mapping[str, str]) -> list[tuple[Path, Mapping[str, Any]]]:
    """Existing files, weakest first."""
    found: list[tuple[Path, Mapping[str, Any]]] = []
    for path in (Path(env.get("ISCHED_SYSTEM_CONFIG") or SYSTEM_FILE), user_file(env)):
        if path.is_file():
            found.append((path, read_toml(path)))
    project = project_table(here)
    if project:
        found.append(project)
    return found


def user_file(env: Mapping[str, str]) -> Path:
    """The user's own configuration file (it may not exist)."""
    if env.get("XDG_CONFIG_HOME"):
        return Path(env["XDG_CONFIG_HOME"]) / "ischeduler" / "config.toml"
    from platformdirs import user_config_path

    return user_config_path("ischeduler") / "config.toml"


def _platform_state() -> Path:
    from platformdirs import user_state_path

    return user_state_path("ischeduler")


def _from_environment(env: Mapping[str, str]) -> dict[str, Value]:
    """Settings given as ``ISCHED_*``. A misspelt one is an error; the names of the in-job protocol are not ours to judge."""
    variables = {s.variable: s for s in SETTINGS}
    found: dict[str, Value] = {}
    for name, text in env.items():
        if name in variables:
            setting = variables[name]
            origin = f"environment {name}"
            found[setting.key] = Value(read_value(setting, text, origin), origin)
        elif any(name.startswith(f"ISCHED_{section}_") for section in _SECTIONS):
            hint = did_you_mean(name, variables)
            raise ConfigError(f"the environment variable {name} is not a setting{hint}; unset it.")
    return found


_SECTIONS = tuple(sorted({s.key.partition(".")[0].upper() for s in SETTINGS}))
