"""Readers of ``scontrol -o show ...`` and ``sacctmgr -nP show ...``: text to plain records. Pure functions.

The one-line text has kept its keys over all versions in use. It is what every version has; where ``scontrol --json`` exists
(23.02 and later) :mod:`ischeduler.cidb.slurm_json` turns its answers into records with the same keys.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

Record = Mapping[str, str]
_KEY = re.compile(r"(?:^|\s)([A-Z][A-Za-z/:_]*)=")
NOTHING = frozenset({"", "(null)", "N/A", "NONE", "n/a", "n/s", "None", "UNLIMITED", "ALL"})


def one_line_records(text: str) -> list[dict[str, str]]:
    """Each line of ``scontrol -o show partition|node`` as key to value; values may hold blanks."""
    return [record for line in text.splitlines() if (record := _pairs(line))]


def _pairs(line: str) -> dict[str, str]:
    matches = list(_KEY.finditer(line))
    ends = [m.start() for m in matches[1:]] + [len(line)]
    found: dict[str, str] = {}
    for match, end in zip(matches, ends, strict=False):
        # The first of a key counts: a free text such as Reason may hold what looks like another.
        found.setdefault(match[1], line[match.end() : end].strip())
    return found


def config_values(text: str) -> dict[str, str]:
    """``scontrol show config`` as key to value."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        key, separator, value = line.partition("=")
        if separator and key.strip():
            found.setdefault(key.strip(), value.strip())
    return found


def version_of(config: Record) -> tuple[int, int]:
    """Slurm's version as numbers: ``22.05.8`` is (22, 5); (0, 0) where it is not said."""
    match = re.match(r"(\d+)\.(\d+)", config.get("SLURM_VERSION", ""))
    return (int(match[1]), int(match[2])) if match else (0, 0)


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


def number(text: str | None) -> int | None:
    """A whole number, or None."""
    value = value_or_none(text)
    return int(value) if value and value.isdigit() else None
