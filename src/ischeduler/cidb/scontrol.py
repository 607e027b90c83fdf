"""Readers of ``scontrol -o show ...`` and ``sacctmgr -nP show ...``: text to plain records. Pure functions.

The one-line text of scontrol has kept its keys over all versions in use, where its JSON has changed shape with each data parser
and is missing before 23.02; the same facts come from both, so discovery reads the text everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_KEY = re.compile(r"(?:^|\s)([A-Z][A-Za-z/:_]*)=")
NOTHING = frozenset({"", "(null)", "N/A", "NONE", "n/a", "n/s", "None", "UNLIMITED", "ALL"})


def one_line_records(text: str) -> list[dict[str, str]]:
    """Each line of ``scontrol -o show partition|node`` as key to value; values may hold blanks."""
    return [_pairs(line) for line in text.splitlines() if "=" in line]


def _pairs(line: str) -> dict[str, str]:
    matches = list(_KEY.finditer(line))
    ends = [m.start() for m in matches[1:]] + [len(line)]
    return {m[1]: line[m.end() : end].strip() for m, end in zip(matches, ends, strict=True)}


def config_values(text: str) -> dict[str, str]:
    """``scontrol show config`` as key to value."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        key, separator, value = line.partition("=")
        if separator and key.strip():
            found.setdefault(key.strip(), value.strip())
    return found


def parsable_rows(text: str, columns: Sequence[str]) -> list[dict[str, str]]:
    """Rows of ``sacctmgr -nP`` with the format's columns; rows of another width are left out."""
    rows = [line.split("|") for line in text.splitlines() if line.strip()]
    return [dict(zip(columns, row, strict=True)) for row in rows if len(row) == len(columns)]


def value_or_none(text: str | None) -> str | None:
    """The value, or None for all of Slurm's ways of saying nothing."""
    return None if text is None or text.strip() in NOTHING else text.strip()


def names(text: str | None) -> tuple[str, ...]:
    """A comma list as names; ALL and nothing are the empty tuple."""
    value = value_or_none(text)
    return tuple(part.strip() for part in value.split(",") if part.strip()) if value else ()


def tres(text: str | None) -> dict[str, str]:
    """``cpu=4,mem=8000M,gres/gpu=2`` as name to amount."""
    value = value_or_none(text)
    return dict(part.split("=", 1) for part in value.split(",") if "=" in part) if value else {}
