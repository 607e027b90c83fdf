"""What one call of the command line shares between its parts: settings given as flags, and the Helper's session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ischeduler.core.errors import BadInput

if TYPE_CHECKING:
    from ischeduler.helper.config import Config
    from ischeduler.helper.session import Session

_flags: dict[str, str] = {}


def begin(settings: Sequence[str]) -> None:
    """Remember ``--set KEY=VALUE`` options of this call."""
    _flags.clear()
    for text in settings:
        key, equals, value = text.partition("=")
        if not equals:
            raise BadInput(f"--set expects KEY=VALUE, not '{text}'.")
        _flags[key.strip()] = value


def config(flags: Mapping[str, Any] | None = None) -> Config:
    """The configuration, with this call's flags on top."""
    from ischeduler.helper.config import load_config

    given = {k: v for k, v in (flags or {}).items() if v is not None}
    return load_config(_flags | given)


def session(flags: Mapping[str, Any] | None = None) -> Session:
    """The Helper's session for this call."""
    from ischeduler.helper.session import open_session

    return open_session(config(flags))
