"""What goes into a checkpoint of a plain training loop: the objects' states, random generators, and where training was."""

from __future__ import annotations

import pickle
import random
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from ischeduler.training.files import say

GetSet = tuple[Callable[[], Any], Callable[[Any], None]]


def suffix() -> str:
    """`.pt` when the training uses torch, `.pkl` otherwise."""
    return ".pt" if "torch" in sys.modules else ".pkl"


def write_state(path: Path, state: dict[str, Any]) -> None:
    """Write with torch.save or pickle, by the file's suffix. Raises OSError or RuntimeError when the disk is full."""
    with open(path, "wb") as file:
        if path.suffix == ".pt":
            import torch

            torch.save(state, file)
        else:
            pickle.dump(state, file, protocol=pickle.HIGHEST_PROTOCOL)


def read_state(path: Path) -> dict[str, Any]:
    """Read a verified checkpoint onto the CPU.

    torch reads plain data only (weights_only) where that suffices. A user's own objects need full unpickling, which is
    done because the file lies in the user's own directory (mode 700) and its sha256 is the published one.
    """
    if path.suffix != ".pt":
        return pickle.loads(path.read_bytes())
    import torch

    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        return torch.load(path, map_location="cpu", weights_only=False)


def get_set(name: str, item: Any) -> GetSet:
    """How to read and restore one object's state. Raises TypeError for what has no state."""
    item = unwrapped(item)
    pair: tuple[Any, ...] = item if isinstance(item, tuple) else ()
    if len(pair) == 2 and all(callable(part) for part in pair):
        return pair[0], pair[1]
    get: Any = getattr(item, "state_dict", None)
    put: Any = getattr(item, "load_state_dict", None)
    if not (callable(get) and callable(put)):
        raise TypeError(
            f"{name}= must have state_dict() and load_state_dict(), or be a pair of functions (get, set); "
            f"got {type(item).__name__}."
        )
    return cast(GetSet, (get, put))


def unwrapped(item: Any) -> Any:
    """The model inside torch's (Distributed)DataParallel, so that a checkpoint fits any number of GPUs."""
    inner = getattr(item, "module", None)
    return inner if type(item).__name__ in ("DistributedDataParallel", "DataParallel") and inner is not None else item


def collect(objects: Mapping[str, GetSet]) -> dict[str, Any]:
    """All objects' states by name."""
    return {name: get() for name, (get, _) in objects.items()}


def restore(objects: Mapping[str, GetSet], states: Mapping[str, Any]) -> None:
    """Give all objects their states back. Raises ValueError when the checkpoint lacks one."""
    missing = sorted(set(objects) - set(states))
    if missing:
        raise ValueError(
            f"The checkpoint has no state for {', '.join(missing)}: it was written by another version of this script; "
            "give it the same objects, or start a new run."
        )
    for name, (_, put) in objects.items():
        put(states[name])


def rng_state() -> dict[str, Any]:
    """States of Python's, NumPy's and torch's global generators, as plain data, of those that are loaded."""
    state: dict[str, Any] = {"python": random.getstate()}
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        kind, keys, *rest = numpy.random.get_state(legacy=True)
        state["numpy"] = (str(kind), [int(key) for key in keys], *(_plain(value) for value in rest))
    torch = sys.modules.get("torch")
    if torch is not None:
        state["torch"] = torch.get_rng_state()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def set_rng_state(state: Mapping[str, Any]) -> None:
    """Restore what `rng_state` returned, as far as this process has the same generators."""
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and "numpy" in state:
        kind, keys, *rest = state["numpy"]
        numpy.random.set_state((kind, numpy.array(keys, dtype=numpy.uint32), *rest))
    if torch is None or "torch" not in state:
        return
    torch.set_rng_state(state["torch"])
    if "cuda" in state and torch.cuda.is_available():
        if len(state["cuda"]) == torch.cuda.device_count():
            torch.cuda.set_rng_state_all(state["cuda"])
        else:
            say("another number of GPUs than before: their random generators start afresh")


def _plain(value: Any) -> int | float:
    return float(value) if isinstance(value, float) else int(value)
