"""Datasheets of the cards that measurements name, where the catalog of clusters has none."""

from __future__ import annotations

from ischeduler.cidb.accelerators import by_gres
from ischeduler.core.cluster import Accelerator

# FLOP/s float32, half precision, bytes/s, GiB: the makers' datasheets.
_SHEETS: dict[str, tuple[str, str, float, float | None, float, int]] = {
    "m40": ("m40", "nvidia", 6.84e12, None, 2.88e11, 12),
    "p4": ("p4", "nvidia", 5.5e12, None, 1.92e11, 8),
    "l4": ("l4", "nvidia", 30.3e12, 121e12, 3.0e11, 24),
    "rtx3090": ("rtx3090", "nvidia", 35.6e12, 71.2e12, 9.36e11, 24),
    "mi100": ("mi100", "amd", 23.1e12, 184.6e12, 1.23e12, 32),
    "mi210": ("mi210", "amd", 22.6e12, 181e12, 1.64e12, 64),
    "mi250": ("mi250", "amd", 22.6e12, 181e12, 1.64e12, 64),
}


def card(name: str) -> Accelerator | None:
    """The datasheet of a card in any spelling (``Tesla_V100-PCIE-32GB``); None when nothing is known of it."""
    found, _ = by_gres(name)
    if found.fp32_flops:
        return found
    word = name.lower().replace("_", "-").rsplit("-", 1)[-1] if "instinct" in name.lower() else found.name
    for key, (own, vendor, plain, half, bandwidth, gib) in _SHEETS.items():
        if key in (word, found.name):
            return Accelerator(own, gib << 30, vendor, fp32_flops=plain, fp16_flops=half, bandwidth_bytes_s=bandwidth)
    return None
