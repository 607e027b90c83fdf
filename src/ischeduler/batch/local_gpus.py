"""The NVIDIA cards of this machine, as the local batch system hands them out: whole cards, by CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass

from ischeduler.core.errors import BadInput
from ischeduler.core.sizes import MIB

TIMEOUT_S = 10.0
QUERY = ("nvidia-smi", "--query-gpu=index,name,memory.total", "--format=csv,noheader,nounits")


@dataclass(frozen=True, slots=True)
class Cards:
    """Cards of one kind: what ``CUDA_VISIBLE_DEVICES`` calls them, the driver's name of the product, and a card's memory."""

    indices: tuple[str, ...] = ()
    product: str = ""
    memory_bytes: int = 0


def find_cards(setting: str = "auto") -> Cards:
    """``auto`` asks nvidia-smi; ``none`` and ``0`` hand out nothing; ``v100-32g:2`` (or ``2``) declares cards.

    Where several kinds are built in, those of the first one's kind are handed out. BadInput for any other text.
    """
    if setting == "auto":
        return parse_cards(_ask())
    product, _, count = setting.rpartition(":")
    if setting in ("none", "0", ""):
        return Cards()
    if not count.isdigit() or int(count) > 64:
        raise BadInput(f"local.gpus cannot be '{setting}'; expected auto, none, a number of cards, or a kind and a number (v100-32g:2).")
    return Cards(tuple(str(n) for n in range(int(count))), product)


def parse_cards(text: str) -> Cards:
    """nvidia-smi's answer, ``index, name, MiB`` a line; lines that say anything else are passed over."""
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    rows = [row for row in rows if len(row) == 3 and row[0].isdigit()]
    if not rows:
        return Cards()
    _, product, memory = rows[0]
    same = tuple(index for index, name, _ in rows if name == product)
    return Cards(same, product, int(memory) * MIB if memory.isdigit() else 0)


def _ask() -> str:
    if shutil.which(QUERY[0]) is None:
        return ""
    try:
        return subprocess.run(QUERY, capture_output=True, text=True, timeout=TIMEOUT_S, check=True, stdin=subprocess.DEVNULL).stdout
    except (OSError, subprocess.SubprocessError):
        return ""  # a driver that does not answer has no cards to hand out
