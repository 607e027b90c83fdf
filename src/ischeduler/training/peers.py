"""Agreement between the ranks of a distributed training, so that none stops or saves alone and leaves the others hanging.

torch is looked up only when the training has loaded it and initialised torch.distributed.
"""

from __future__ import annotations

import pickle
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

_CHECK_EVERY_S = 1.0
_MOST_STEPS = 100


class Peers:
    """The other ranks, or nobody. All methods are collective: every rank must call them in the same order."""

    def __init__(self) -> None:
        self._interval_steps = 1
        self._since_steps = 0
        self._works: deque[Any] = deque(maxlen=4)

    @property
    def count(self) -> int:
        """World size; 1 without torch.distributed."""
        dist = _distributed()
        return 1 if dist is None else int(dist.get_world_size())

    def rank(self, otherwise: int) -> int:
        """This process's rank in the group, `otherwise` where there is no group."""
        dist = _distributed()
        return otherwise if dist is None else int(dist.get_rank())

    def due(self) -> bool:
        """True when this step boundary is one at which the ranks compare notes (about once a second)."""
        self._since_steps += 1
        return self.count == 1 or self._since_steps >= self._interval_steps

    def agree(self, code: int, step_s: float | None) -> int:
        """The largest `code` of all ranks; the same answer everywhere. `step_s` sets how many steps pass until the next."""
        self._since_steps = 0
        dist = _distributed()
        if dist is None or self.count == 1:
            return code
        torch = sys.modules["torch"]
        wanted = 1 if not step_s else max(1, min(_MOST_STEPS, int(_CHECK_EVERY_S / step_s)))
        votes = torch.tensor([code, wanted], dtype=torch.int64, device=_device(dist, torch))
        self._await(dist.all_reduce, votes, op=dist.ReduceOp.MAX)
        agreed, self._interval_steps = (int(value) for value in votes.tolist())
        return agreed

    def share(self, value: Any) -> Any:
        """Rank 0's value (picklable), on every rank."""
        dist = _distributed()
        if dist is None or self.count == 1:
            return value
        torch = sys.modules["torch"]
        device, first = _device(dist, torch), dist.get_rank() == 0
        sent = _packed(value, torch, device) if first else None
        size = torch.tensor([0 if sent is None else len(sent)], dtype=torch.int64, device=device)
        self._await(dist.broadcast, size, src=0)
        box = torch.empty(int(size), dtype=torch.uint8, device=device) if sent is None else sent
        self._await(dist.broadcast, box, src=0)
        return value if first else _unpacked(box)

    def gather(self, value: Any) -> list[Any]:
        """All ranks' values (picklable), in rank order, on every rank."""
        dist = _distributed()
        if dist is None or self.count == 1:
            return [value]
        torch = sys.modules["torch"]
        device = _device(dist, torch)
        sent = _packed(value, torch, device)
        sizes = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(self.count)]
        self._await(dist.all_gather, sizes, torch.tensor([len(sent)], dtype=torch.int64, device=device))
        longest = max(int(size) for size in sizes)
        boxes = [torch.empty(longest, dtype=torch.uint8, device=device) for _ in range(self.count)]
        self._await(dist.all_gather, boxes, torch.nn.functional.pad(sent, (0, longest - len(sent))))
        return [_unpacked(box[: int(size)]) for box, size in zip(boxes, sizes, strict=True)]

    def _await(self, collective: Callable[..., Any], *args: Any, **named: Any) -> None:
        """Run one collective and keep its handle for a while.

        A Gloo thread that drops the last reference to a tensor takes Python's lock; where the interpreter is ending by then, the process aborts.
        """
        work = collective(*args, **named, async_op=True)
        work.wait()
        self._works.append(work)


def _packed(value: Any, torch: Any, device: Any) -> Any:
    return torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8).to(device)


def _unpacked(box: Any) -> Any:
    return pickle.loads(bytes(box.tolist()))


def _distributed() -> Any | None:
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return None
    return dist


def _device(dist: Any, torch: Any) -> Any:
    return torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")
