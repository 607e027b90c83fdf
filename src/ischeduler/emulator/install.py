"""Turns the emulation on in this process: called as soon as torch has been imported."""

from __future__ import annotations

import atexit
import json
import os
import time
from pathlib import Path
from typing import Any

from ischeduler.core.errors import BadInput
from ischeduler.emulator import cuda, distributed
from ischeduler.emulator.clock import DeviceClock, HostTime, Own, Shared
from ischeduler.emulator.device import Devices, EmulatedDevice
from ischeduler.emulator.operations import Operations
from ischeduler.emulator.optimizers import Optimizers
from ischeduler.emulator.places import Places
from ischeduler.emulator.replay import Replay
from ischeduler.emulator.shared_memory import OwnLedger, SharedLedger
from ischeduler.emulator.spec import EmulationSpec
from ischeduler.emulator.tables import read_table
from ischeduler.emulator.timing import ByOperation, ByTable, Transfers, say
from ischeduler.estimators.memory.torch_private import mend_torchvision


def install(spec: EmulationSpec) -> Devices:
    """Make this process believe in the cards; BadInput where their times are not known. Call once."""
    from ischeduler.estimators.steptime.architectures import architecture_of
    from ischeduler.estimators.steptime.devices import of_accelerator

    mend_torchvision()
    transfers = Transfers(spec.transfer_bytes_s)
    device = of_accelerator(spec.card)
    if spec.table:
        timing: ByTable | ByOperation = ByTable(read_table(Path(spec.table), spec.table_gpu, spec.table_model), transfers)
    elif device is not None:
        timing = ByOperation(device, spec.precision, transfers)
    else:
        raise BadInput(f"the datasheet of {spec.card.name} has no bandwidth or speed, so its times are unknown; give a table.")
    host = HostTime()
    devices = Devices([_device(spec, index, host) for index in range(_visible(spec.count))], host)
    architecture = architecture_of(spec.card.name)
    cuda.patch(devices, spec.card.name, cuda.CAPABILITIES.get(architecture.name, (7, 0)), architecture.units)
    distributed.patch(devices, spec.link_bytes_s)
    if spec.preprocess_s > 0:
        _slow_loading(spec.preprocess_s)
    operations = Operations(devices, timing)
    replay = Replay(devices, timing)
    replay.install()
    Optimizers(devices, timing, replay).install()
    Places(devices, timing, replay).__enter__()
    operations.__enter__()
    atexit.register(_report, spec, devices, operations, replay, time.monotonic())
    return devices


def _visible(count: int) -> int:
    """As many as CUDA_VISIBLE_DEVICES (or Slurm's GRES) leaves to this process."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return count if named is None else min(count, len([n for n in named.split(",") if n.strip()])) or 1


def _device(spec: EmulationSpec, index: int, host: HostTime) -> EmulatedDevice:
    if not spec.shared:
        return EmulatedDevice(index, spec.memory_bytes, spec.context_bytes, DeviceClock(Own(), host), OwnLedger())
    named = [n.strip() for n in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if n.strip()]
    card = named[index] if index < len(named) else str(index)
    folder, machine = Path(spec.shared), os.environ.get("SLURMD_NODENAME") or os.uname().nodename
    return EmulatedDevice(
        index, spec.memory_bytes, spec.context_bytes, DeviceClock(Shared(folder / f"{machine}-{card}.clock"), host),
        SharedLedger(folder / f"{machine}-{card}.memory"),
    )  # fmt: skip


def _slow_loading(sample_s: float) -> None:
    """Each sample that a loader fetches takes that much longer, in whichever process fetches it."""
    from torch.utils.data._utils import fetch

    fetcher: Any = fetch._MapDatasetFetcher
    plain = fetcher.fetch

    def slower(self: Any, indices: Any) -> Any:
        time.sleep(sample_s * (len(indices) if isinstance(indices, (list, tuple)) else 1))
        return plain(self, indices)

    fetcher.fetch = slower


def _report(spec: EmulationSpec, devices: Devices, operations: Operations, replay: Replay, began: float) -> None:
    """What was emulated, and whether the host kept up."""
    first = devices.all[0]
    first.clock.synchronize()
    wall_s = time.monotonic() - began
    found = {
        "accelerator": spec.card.name, "source": f"table {spec.table_gpu}/{spec.table_model}" if spec.table else "estimator",
        "wall_s": wall_s, "busy_s": sum(d.clock.busy_s for d in devices.all), "waited_s": devices.host.waited_s,
        "peak_allocated_bytes": first.allocator.peak_allocated, "peak_reserved_bytes": first.allocator.peak_reserved,
        "computed_on_host": operations.computed, "replayed": sorted(replay.models),
    }  # fmt: skip
    if spec.report:
        with open(spec.report, "a", encoding="utf-8") as file:
            file.write(json.dumps(found) + "\n")
    if found["busy_s"]:
        say(
            f"{spec.card.name} was busy {found['busy_s']:.1f} of {wall_s:.1f} s; peak {first.allocator.peak_allocated / 2**30:.2f} GiB "
            f"allocated, {first.allocator.peak_reserved / 2**30:.2f} GiB reserved; times from {found['source']}"
        )
