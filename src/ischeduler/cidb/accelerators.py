"""Datasheet figures of accelerators, and which of them a Slurm GRES type means."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import Any

from ischeduler.cidb.yaml_text import read_yaml
from ischeduler.core.cluster import Accelerator
from ischeduler.core.sizes import GIB, MIB

_NOISE = re.compile(
    r"^(nvidia|amd|intel|tesla|quadro|geforce)[-_ ]|[-_ ](sxm\d?|pcie|pg\d+\w*|hbm\d\w?|nvl|oam)\b", re.IGNORECASE
)
_MIG = re.compile(r"(?:^|[-_ ])(?P<slices>\d)g\.(?P<memory>\d+)gb", re.IGNORECASE)
_MEMORY = re.compile(r"[-_ ](\d+)gb?(?![a-z0-9])", re.IGNORECASE)


@cache
def accelerators() -> Mapping[str, Accelerator]:
    """The shipped table by our keys (``v100-32g``). Peaks are dense ones; ``memory_bytes`` is what the driver shows where known."""
    text = resources.files("ischeduler.cidb").joinpath("accelerators.yaml").read_text(encoding="utf-8")
    return {name: _accelerator(name, row) for name, row in read_yaml(text).items()}


def _accelerator(name: str, row: Mapping[str, Any]) -> Accelerator:
    def tera(key: str) -> float | None:
        return row[key] * 1e12 if row.get(key) is not None else None

    memory = row["driver_mib"] * MIB if row.get("driver_mib") else row["memory_gb"] * GIB
    bandwidth = row["bandwidth_gb_s"] * 1e9 if row.get("bandwidth_gb_s") else None
    return Accelerator(
        name=name,
        memory_bytes=int(memory),
        vendor=row.get("vendor", "nvidia"),
        gres=None,
        fp32_flops=tera("fp32_tflops"),
        tf32_flops=tera("tf32_tflops"),
        fp16_flops=tera("fp16_tflops"),
        bf16_flops=tera("bf16_tflops"),
        bandwidth_bytes_s=bandwidth,
    )


def by_gres(gres: str, features: tuple[str, ...] = ()) -> tuple[Accelerator, str]:
    """The accelerator that a GRES type names, and a doubt in words ('' when there is none).

    ``gres`` is Slurm's type (``v100``, ``nvidia_a100_80gb_pcie``, ``a100_3g.20gb``; '' when untyped, then a node feature may
    name the card). Of a card sold in several sizes the smallest is taken, with the doubt said; an unknown one has 0 bytes.
    """
    hints = [gres] if gres else [f for f in features if _family(f)]
    for hint in hints:
        sliced = _MIG.search(hint)
        if sliced is not None:
            return _slice(hint, sliced, gres), ""
        found = _family(hint)
        sizes = {n: a for n, a in found.items() if _size_of(hint) in (None, _gigabytes(n))} or found
        if sizes:
            return _smallest(sizes, gres, features)
    name = _plain(gres) or "gpu"
    return Accelerator(name, 0, "unknown", gres or None), f"the card of GRES type '{gres or 'gpu'}' is not known"


def _smallest(found: Mapping[str, Accelerator], gres: str, features: tuple[str, ...]) -> tuple[Accelerator, str]:
    named = {
        n: a
        for n, a in found.items()
        if any(_size_of(f) == _gigabytes(n) for f in features if _plain(f).startswith(n.split("-")[0]))
    }
    found = named or found
    card = min(found.values(), key=lambda a: a.memory_bytes)
    doubt = "" if len(found) == 1 else f"{gres or card.name} is sold as {', '.join(sorted(found))}; the smallest is assumed"
    return replace(card, gres=gres or None), doubt


def _family(text: str) -> dict[str, Accelerator]:
    """Table entries whose name begins with the card's family: ``v100`` -> both V100s."""
    word = _plain(_MEMORY.sub("", " " + text))
    return {n: a for n, a in accelerators().items() if word and (n == word or n.rpartition("-")[0] == word)}


def _plain(text: str) -> str:
    word = text.strip().lower().replace("_", "-").replace(" ", "-").removeprefix("gpu-")
    for _ in range(3):
        word = _NOISE.sub("", word).strip("-")
    return word.replace("rtx-", "rtx")


def _gigabytes(name: str) -> int | None:
    match = re.search(r"-(\d+)g$", name)
    return int(match[1]) if match else None


def _size_of(text: str) -> int | None:
    match = _MEMORY.search(" " + text)
    return int(match[1]) if match else None


def _slice(text: str, match: re.Match[str], gres: str) -> Accelerator:
    card = _plain(_MEMORY.sub("", " " + text[: match.start()])) or "gpu"
    name = f"{card}-mig-{match['slices']}g.{match['memory']}gb"
    return Accelerator(name, int(match["memory"]) * GIB, "nvidia", gres or None)
