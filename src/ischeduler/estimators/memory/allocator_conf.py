"""``PYTORCH_CUDA_ALLOC_CONF``: the caching allocator's knobs, in PyTorch's own syntax (``max_split_size_mb:128,...``).

Source: PyTorch documentation, "CUDA semantics", Optimizing memory usage with PYTORCH_CUDA_ALLOC_CONF, and
c10/cuda/CUDAAllocatorConfig.cpp.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from ischeduler.core.errors import BadInput

MIB = 2**20
_LEAST_SPLIT_MIB = 20
_KNOWN = ("max_split_size_mb", "expandable_segments", "garbage_collection_threshold", "roundup_power2_divisions")
_IGNORED = ("backend", "pinned_use_cuda_host_register", "pinned_num_register_threads", "pinned_use_background_threads",
            "max_non_split_rounding_mb", "per_process_memory_fraction")


@dataclass(frozen=True, slots=True)
class AllocatorConf:
    """``max_split_size`` in bytes (None: no limit); ``garbage_collection_threshold`` a share of the capacity (0: never);
    ``roundup_divisions`` cuts each power of two into that many sizes (0: no rounding).
    """

    max_split_size: int | None = None
    expandable_segments: bool = False
    garbage_collection_threshold: float = 0.0
    roundup_divisions: int = 0

    @classmethod
    def parse(cls, text: str) -> AllocatorConf:
        """The knobs in a string; BadInput with a sentence for what PyTorch would refuse too, or what is not modelled."""
        found: dict[str, str] = {}
        for part in (p.strip() for p in text.split(",")):
            if not part:
                continue
            name, colon, value = part.partition(":")
            if not colon or not value.strip():
                raise BadInput(f"'{part}' in PYTORCH_CUDA_ALLOC_CONF is not NAME:VALUE; write e.g. max_split_size_mb:128.")
            found[name.strip()] = value.strip()
        return cls._of(found)

    @classmethod
    def _of(cls, found: dict[str, str]) -> AllocatorConf:
        for name in found:
            if name not in (*_KNOWN, *_IGNORED):
                near = difflib.get_close_matches(name, _KNOWN, n=1)
                hint = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(_KNOWN)}."
                raise BadInput(f"'{name}' in PYTORCH_CUDA_ALLOC_CONF is unknown; {hint}")
        if found.get("backend", "native") != "native":
            raise BadInput(f"The allocator backend {found['backend']} is not modelled; use backend:native or profile the run.")
        split = found.get("max_split_size_mb")
        return cls(
            None if split is None else _split_size(split), _flag(found.get("expandable_segments", "False")),
            _threshold(found.get("garbage_collection_threshold")), _divisions(found.get("roundup_power2_divisions")),
        )

    def rounded(self, size_bytes: int) -> int:
        """What a request occupies: a multiple of 512 bytes, or the next division of a power of two where so configured."""
        plain = max(512, -(-size_bytes // 512) * 512)
        if self.roundup_divisions <= 1 or size_bytes <= 512 * self.roundup_divisions:
            return plain
        power = 1 << (size_bytes - 1).bit_length() - 1
        step = power // self.roundup_divisions
        return power if size_bytes == power else power + -(-(size_bytes - power) // step) * step if step else plain


def _number(text: str, name: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadInput(f"{name}:{text} in PYTORCH_CUDA_ALLOC_CONF is not a number; write e.g. {name}:0.8.") from None


def _split_size(text: str) -> int:
    size = int(_number(text, "max_split_size_mb"))
    if size <= _LEAST_SPLIT_MIB:
        raise BadInput(f"max_split_size_mb must be more than {_LEAST_SPLIT_MIB}, not {text}.")
    return size * MIB


def _threshold(text: str | None) -> float:
    if text is None:
        return 0.0
    value = _number(text, "garbage_collection_threshold")
    if not 0 < value < 1:
        raise BadInput(f"garbage_collection_threshold must lie between 0 and 1, not {text}.")
    return value


def _flag(text: str) -> bool:
    if text not in ("True", "False"):
        raise BadInput(f"expandable_segments must be True or False, not {text}.")
    return text == "True"


def _divisions(text: str | None) -> int:
    if text is None:
        return 0
    value = int(_number(text, "roundup_power2_divisions"))
    if value < 1 or value & (value - 1):
        raise BadInput(f"roundup_power2_divisions must be a power of two, not {text}.")
    return value
