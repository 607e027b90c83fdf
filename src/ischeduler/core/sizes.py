"""Memory sizes as Slurm and people write them. Everything inside the house is in bytes.

Slurm's default unit is MiB and its suffixes K, M, G, T are powers of 1024 (sbatch(1), --mem).
"""

from __future__ import annotations

import math
import re

from ischeduler.core.errors import BadInput

KIB, MIB, GIB, TIB = 2**10, 2**20, 2**30, 2**40
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([KMGTP])(?:i?B)?|(B))?", re.IGNORECASE)
_FACTOR = {"": MIB, "K": KIB, "M": MIB, "G": GIB, "T": TIB, "P": 2**50}


def parse_size(text: str) -> int:
    """Bytes of ``4000`` (MiB), ``16G``, ``1.5T``, ``24 GiB``, ``512B`` (bytes). Raises BadInput otherwise."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or not text.isascii() or math.isinf(float(match[1])):
        raise BadInput(f"'{text}' is not a memory size; expected a number with K, M, G or T, e.g. 16G (no suffix means MiB).")
    factor = 1 if match[3] else _FACTOR[(match[2] or "").upper()]
    return round(float(match[1]) * factor)


def format_slurm_size(size_bytes: int) -> str:
    """``--mem`` spelling in whole MiB, rounded up so that a request never shrinks."""
    return f"{max(1, math.ceil(size_bytes / MIB))}M"


def human_size(size_bytes: float) -> str:
    """``512 MB``, ``23.1 GB``: powers of 1024, one decimal below 100."""
    if size_bytes >= GIB:
        value = size_bytes / GIB
        return f"{value:.0f} GB" if value >= 99.95 or abs(value - round(value)) < 0.05 else f"{value:.1f} GB"
    return f"{size_bytes / MIB:.0f} MB"
