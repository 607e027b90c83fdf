"""Several ranks on emulated cards: NCCL's place is taken by gloo, gradients by one number, and their exchange by its time.

Ranks still wait for one another, as they must; what a ring all-reduce of the gradients takes on the modelled link is added to each
device's clock (Patarasuk and Yuan, 2009: 2 (n - 1) / n times the bytes over the bandwidth).
"""

from __future__ import annotations

from typing import Any

import torch

from ischeduler.emulator.device import Devices


def patch(devices: Devices, link_bytes_s: float) -> None:
    """Make ``init_process_group("nccl")`` and DistributedDataParallel work without cards."""
    import torch.distributed as dist

    if not dist.is_available():
        return
    begin = dist.init_process_group

    def on_gloo(backend: Any = None, *args: Any, **kwargs: Any) -> Any:
        kwargs.pop("device_id", None)
        return begin("gloo", *args, **kwargs)

    dist.init_process_group = on_gloo
    dist.distributed_c10d.init_process_group = on_gloo
    _patch_ddp(devices, link_bytes_s)


def is_used() -> bool:
    """Whether this process is one of several ranks: then its backward passes wait for the others'."""
    import torch.distributed as dist

    return dist.is_available() and dist.is_initialized()


def _patch_ddp(devices: Devices, link_bytes_s: float) -> None:
    from torch.nn.parallel import DistributedDataParallel

    ddp: Any = DistributedDataParallel
    begin, register = ddp.__init__, ddp.register_comm_hook

    def without_devices(self: Any, module: Any, device_ids: Any = None, output_device: Any = None, *args: Any, **kwargs: Any) -> None:
        begin(self, module, None, None, *args, **kwargs)
        register(self, (devices, link_bytes_s), _exchange)

    ddp.__init__ = without_devices
    ddp.register_comm_hook = lambda self, state, hook: None


def _exchange(state, bucket):  # type: ignore[no-untyped-def] # DDP refuses a hook whose annotations are strings
    """Wait for the other ranks with one number; the bucket's own bytes cost time alone."""
    import torch.distributed as dist

    devices, link_bytes_s = state
    gradients, ranks = bucket.buffer(), dist.get_world_size()
    device = devices.all[devices.current]
    device.clock.run(2 * (ranks - 1) / ranks * gradients.numel() * gradients.element_size() / link_bytes_s)
    waits = dist.all_reduce(torch.ones(1), async_op=True)
    assert waits is not None  # this process is one of the group
    return waits.get_future().then(lambda _: gradients)
