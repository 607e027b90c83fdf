"""For PyTorch data loaders inside frameworks that own the loop: an order of batches that can be saved and resumed.

A loop of your own needs none of this: `checkpointing` does it in `run.steps(loader)`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ischeduler.training import loader as loaders


class ResumableLoader:
    """Wraps a torch DataLoader; `state_dict`/`load_state_dict` carry the place inside the epoch and the random order.

    All other attributes are the wrapped loader's.
    """

    def __init__(self, loader: Any, *, fast_skip: bool = False) -> None:
        self.wrapped = loader
        self.fast_skip = fast_skip
        self.batch = 0
        self._start: dict[str, Any] | None = None
        self._pending: dict[str, Any] | None = None

    def __len__(self) -> int:
        return len(self.wrapped)

    def __getattr__(self, name: str) -> Any:
        if name == "wrapped":  # not set yet while being copied or unpickled
            raise AttributeError(name)
        return getattr(self.wrapped, name)

    def __iter__(self) -> Iterator[Any]:
        pending, self._pending = self._pending, None
        skip = 0 if pending is None else pending["batch"]
        if pending is not None:
            loaders.set_order_state(self.wrapped, pending["start"] if skip and pending["start"] else pending["now"])
        self._start, self.batch = loaders.order_state(self.wrapped), skip
        iterator = loaders.from_batch(self.wrapped, skip, fast=self.fast_skip)
        if pending is not None and skip:
            loaders.set_order_state(self.wrapped, pending["now"])
        for batch in iterator:
            self.batch += 1
            yield batch

    def state_dict(self) -> dict[str, Any]:
        """Where the loader stands; at the end of an epoch this is the beginning of the next."""
        length = loaders.length(self.wrapped)
        batch = 0 if length is not None and self.batch >= length else self.batch
        return {"batch": batch, "start": self._start, "now": loaders.order_state(self.wrapped)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make the next pass begin where the state was taken."""
        self._pending = state
