"""What the wiring needs of a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol


class Settings(Protocol):
    """The configuration as this module needs it; the Helper's Config is one."""

    def __getitem__(self, key: str) -> Any:
        """A setting's value."""
        ...

    @property
    def state_dir(self) -> Path:
        """This user's state folder."""
        ...

    @property
    def data_dir(self) -> Path:
        """Where run directories live."""
        ...

    @property
    def database_url(self) -> str:
        """What the store is opened with."""
        ...

    def as_environment(self) -> Mapping[str, str]:
        """The settings as variables, for a process that shall have the same ones."""
        ...
