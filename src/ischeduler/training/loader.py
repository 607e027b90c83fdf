"""The order of batches, made repeatable: where an epoch's data began, and how far it was consumed.

Works for any iterable whose order depends on the global generators, on a torch.Generator it carries, or on `set_epoch`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any

from ischeduler.training.state import rng_state, set_rng_state


def set_epoch(loader: Any, epoch: int) -> None:
    """Tell samplers that shuffle by epoch (DistributedSampler and its kin) which epoch this is."""
    for item in _parts(loader):
        tell = getattr(item, "set_epoch", None)
        if callable(tell):
            tell(epoch)


def order_state(loader: Any) -> dict[str, Any]:
    """All that the order of the next epoch, and its random augmentations, depend on."""
    return {"rng": rng_state(), "generators": [generator.get_state() for generator in _generators(loader)]}


def set_order_state(loader: Any, state: dict[str, Any]) -> None:
    """Restore what `order_state` returned."""
    set_rng_state(state["rng"])
    for generator, saved in zip(_generators(loader), state["generators"], strict=False):
        generator.set_state(saved)


def length(loader: Any) -> int | None:
    """Batches in an epoch, None where unknown."""
    try:
        return len(loader)
    except TypeError:
        return None


def from_batch(loader: Any, skip: int, *, fast: bool) -> Iterator[Any]:
    """The loader's batches after the first `skip`.

    Skipped batches are loaded and thrown away, so that data-loader workers' random streams are as they were. `fast`
    skips their indices only (torch DataLoader over a map-style dataset): the same samples follow, but random
    augmentations differ from those of an uninterrupted run.
    """
    if skip and fast and getattr(loader, "batch_sampler", None) is not None:
        with _skipping_sampler(loader, skip):
            iterator = iter(loader)
        # Samplers draw their order with the first index: ask for it now, before the caller restores later generators.
        return chain(list(islice(iterator, 1)), iterator)
    iterator = iter(loader)
    for _ in islice(iterator, skip):
        pass
    return iterator


class _Skip:
    """A batch sampler without its first batches, for one pass."""

    def __init__(self, inner: Any, skip: int) -> None:
        self._inner, self._skip = inner, skip

    def __iter__(self) -> Iterator[Any]:
        return islice(iter(self._inner), self._skip, None)

    def __len__(self) -> int:
        return max(0, len(self._inner) - self._skip)


@contextmanager
def _skipping_sampler(loader: Any, skip: int) -> Iterator[None]:
    """torch.utils.data.DataLoader forbids assigning batch_sampler, so its __setattr__ is passed by for a moment."""
    inner = loader.batch_sampler
    object.__setattr__(loader, "batch_sampler", _Skip(inner, skip))
    try:
        yield
    finally:
        object.__setattr__(loader, "batch_sampler", inner)


def _parts(loader: Any) -> list[Any]:
    batch_sampler = getattr(loader, "batch_sampler", None)
    candidates = (
        getattr(loader, "dataset", None),
        getattr(loader, "sampler", None),
        batch_sampler,
        getattr(batch_sampler, "sampler", None),
    )
    parts: list[Any] = []
    for item in candidates:
        if item is not None and all(item is not known for known in parts):
            parts.append(item)
    return parts


def _generators(loader: Any) -> list[Any]:
    found: list[Any] = []
    for item in (loader, *_parts(loader)):
        generator = getattr(item, "generator", None)
        usable = callable(getattr(generator, "get_state", None)) and callable(getattr(generator, "set_state", None))
        if usable and all(generator is not known for known in found):
            found.append(generator)
    return found
