"""Which architecture a card is of, how many units it has, and which arithmetic it can do: datasheets, by the card's name.

Sources: NVIDIA's architecture white papers (Kepler GK110/210 to Hopper), AMD's CDNA white papers. Units are streaming
multiprocessors or compute units that one device of the framework has (half a K80, one die of an MI250X).
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Architecture:
    """``matrix`` half-precision matrix units; ``tensor_float`` whether float32 convolutions run on them by default."""

    name: str
    units: int
    matrix: bool
    tensor_float: bool


_CARDS: tuple[tuple[str, str, int], ...] = (
    (r"\bk[124]0[cm]?\b|\bk80|gk210", "kepler", 13), (r"\bm40|\bm60|\bm4\b|titan-?x\b|gtx-?9\d\d", "maxwell", 24),
    (r"p100", "pascal", 56), (r"p40|gtx-?1080-?ti|titan-?xp", "pascal", 30), (r"\bp4\b|gtx-?10\d\d|p[456]000", "pascal", 20),
    (r"\bt4\b", "turing", 40), (r"titan-?v|gv100|v100", "volta", 80), (r"quadro.?rtx|rtx-?(20\d\d|[4568]000)(?!.?ada)|gtx-?16|titan-?rtx", "turing", 72),
    (r"a100|a800", "ampere", 108), (r"\ba30\b", "ampere", 56), (r"a40|a6000|rtx-?30\d\d|a10g?\b|a5000|a4000|\ba2\b|\ba16\b", "ampere-graphics", 82),
    (r"\bl40s?|rtx-?40\d\d|ada", "ada", 128), (r"\bl4\b", "ada", 58), (r"h100|h200|h800|gh200|h20\b", "hopper", 132),
    (r"b100|b200|b300|gb200|gb300", "blackwell", 148), (r"rtx-?50\d\d|rtx-?pro", "blackwell-graphics", 170),
    (r"mi50|mi60|vega", "gcn", 60), (r"mi100", "cdna", 120), (r"mi2\d\d", "cdna2", 104), (r"mi3\d\d", "cdna3", 304),
)
_NO_MATRIX = ("kepler", "maxwell", "pascal", "gcn", "")
_TENSOR_FLOAT = ("ampere", "ampere-graphics", "ada", "hopper", "blackwell", "blackwell-graphics")
_TYPICAL_UNITS = 80


def architecture_of(card: str) -> Architecture:
    """By a card's name in any spelling; the name is '' for one that is not known."""
    word = card.lower().replace("_", "-").replace(" ", "-")
    for pattern, name, units in _CARDS:
        if re.search(pattern, word):
            return Architecture(name, units, name not in _NO_MATRIX, name in _TENSOR_FLOAT)
    return Architecture("", _TYPICAL_UNITS, False, False)
