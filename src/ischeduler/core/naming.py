"""Names that two rooms must derive alike: the CI database's discovery and the batch adapters' queue snapshot."""

from __future__ import annotations

import re

_GPU = re.compile(r"(?:^|,)gpu(?::(?P<type>[^:,()=]+))??(?:[:=](?P<count>\d+))?(?=[,(]|$)")
_CARD = re.compile(r"(?:gpu[-_:])?((?:nvidia[-_])?(?:[abghlvpt]\d{2,4}[a-z]*|gh200|gb200|mi\d{3}[a-z]*|rtx[-_]?\w+|k80))", re.IGNORECASE)
_UNSAFE = re.compile(r"[^a-z0-9._]+")


def node_type_name(cpus: int, memory_mb: int, gres: str = "", features: tuple[str, ...] = ()) -> str:
    """A stable name for one hardware type: ``v100x2-48c-364g``, ``cpu-48c-188g``, ``gpux4-64c-503g``.

    ``cpus`` and ``memory_mb`` (MiB) are the node's own, ``gres`` is Slurm's text (``gpu:v100:2(S:0-1)``, ``gpu:2``, ``(null)``).
    An untyped GPU takes its model from the node's features where one of them names a card. Memory is rounded to whole GiB.
    """
    cards = gpus_of_gres(gres)
    words = [f"{_clean(kind or _card_of(features) or 'gpu')}x{count}" for kind, count in cards.items()]
    return f"{'+'.join(words) or 'cpu'}-{cpus}c-{round(memory_mb / 1024)}g"


def gpus_of_gres(gres: str) -> dict[str, int]:
    """GPU counts by Slurm's type ('' when untyped) of a GRES text such as ``gpu:a100:4(S:0-3),nvme:1`` or a GresUsed text."""
    found: dict[str, int] = {}
    text = "" if gres in ("(null)", "N/A") else gres
    for match in _GPU.finditer(re.sub(r"\((?:S|IDX):[^)]*\)", "", text)):
        kind, count = match["type"] or "", int(match["count"] or 1)
        if count:
            found[kind] = found.get(kind, 0) + count
    return found


def _card_of(features: tuple[str, ...]) -> str | None:
    return next((m[1] for f in features if (m := _CARD.fullmatch(f))), None)


def _clean(word: str) -> str:
    return _UNSAFE.sub("_", word.lower()).strip("_") or "gpu"
