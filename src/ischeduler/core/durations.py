"""Slurm durations and their human spelling.

Slurm reads a bare number as minutes, ``MM:SS``, ``HH:MM:SS``, ``D-HH``, ``D-HH:MM``, ``D-HH:MM:SS`` and ``UNLIMITED``
(or ``INFINITE``, ``-1``). Source: sbatch(1), option --time. People also write ``90s``, ``1h30m``, ``2d``: accepted by
:func:`parse_human`, never sent to Slurm.
"""

from __future__ import annotations

import math
import re

from ischeduler.core.errors import BadInput

UNLIMITED = math.inf
_SLURM = re.compile(r"(?:(?P<d>\d{1,9})-)?(?P<rest>\d{1,12}(?::\d{1,12}){0,2})")
_HUMAN = re.compile(r"(\d{1,12}(?:\.\d{1,20})?)\s*(d|h|m|s)", re.IGNORECASE)
_BARE_MINUTES = re.compile(r"(\d)\s*h\s*(\d{1,2})$", re.IGNORECASE)
_UNIT_S = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_EXPECTED = "expected minutes, MM:SS, HH:MM:SS, D-HH[:MM[:SS]] or UNLIMITED"


def parse_slurm(text: str) -> float:
    """Seconds of a Slurm duration; ``UNLIMITED`` is infinity. Raises BadInput on anything Slurm would refuse."""
    word = text.strip()
    if word.upper() in {"UNLIMITED", "INFINITE", "-1"}:
        return UNLIMITED
    match = _SLURM.fullmatch(word)
    if match is None or not word.isascii():
        raise BadInput(f"'{text}' is not a Slurm duration; {_EXPECTED}.")
    parts = [int(p) for p in match["rest"].split(":")]
    if match["d"] is not None:
        hours, minutes, seconds = [*parts, 0, 0][:3]
        return float(int(match["d"]) * 86400 + hours * 3600 + minutes * 60 + seconds)
    if len(parts) == 1:
        return float(parts[0] * 60)
    if len(parts) == 2:
        return float(parts[0] * 60 + parts[1])
    return float(parts[0] * 3600 + parts[1] * 60 + parts[2])


def format_slurm(seconds: float) -> str:
    """``D-HH:MM:SS`` or ``HH:MM:SS``, as Slurm prints it; a fraction of a second is rounded up (limits must not shrink)."""
    if seconds == UNLIMITED:
        return "UNLIMITED"
    whole = max(0, math.ceil(seconds))
    days, rest = divmod(whole, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, secs = divmod(rest, 60)
    clock = f"{hours:02d}:{minutes:02d}:{secs:02d}"
    return f"{days}-{clock}" if days else clock


def parse_human(text: str) -> float:
    """Seconds of ``90s``, ``1h30m``, ``2h00`` (as :func:`human` writes it), ``2d``, or of anything :func:`parse_slurm` reads."""
    word = _BARE_MINUTES.sub(r"\1h\2m", text.strip())
    pieces = _HUMAN.findall(word)
    if pieces and not _HUMAN.sub("", word).strip():
        return sum(float(n) * _UNIT_S[u.lower()] for n, u in pieces)
    try:
        return parse_slurm(word)
    except BadInput:
        raise BadInput(f"'{text}' is not a duration; expected e.g. 90s, 1h30m, 2d or a Slurm duration.") from None


def human(seconds: float) -> str:
    """A short spelling for people: ``45s``, ``40m``, ``2h00``, ``3d04h``; ``unlimited`` for infinity."""
    if seconds < 0:
        return "-" + human(-seconds)
    if math.isinf(seconds):
        return "unlimited"
    if seconds < 99.5:
        return f"{seconds:.0f}s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes}m"
    hours, minutes = divmod(minutes, 60)
    if hours < 72:
        return f"{hours}h{minutes:02d}"
    days, hours = divmod(round(seconds / 3600), 24)
    return f"{days}d{hours:02d}h"
