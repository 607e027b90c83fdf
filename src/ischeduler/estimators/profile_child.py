"""The profiling subprocess: a few real steps of the real model at the real batch; one JSON file in, one out."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ischeduler.core.errors import BadInput
from ischeduler.estimators.memory.spec import TraceSpec

_FEWEST = 2


def main(spec_path: str, result_path: str) -> None:
    """Answer the request in ``spec_path`` into ``result_path``."""
    request = json.loads(Path(spec_path).read_text())
    spec = TraceSpec.from_json(request["spec"])
    try:
        answer = {"profile": _profile(spec, request)}
    except BadInput as error:
        answer = {"error": str(error)}
    except MemoryError:
        answer = {"error": f"Profiling '{spec.model}' at batch {spec.batch} ran out of memory; use a smaller batch."}
    except Exception as error:
        words = " ".join(str(error).split())[:200]
        answer = {"error": f"A training step of '{spec.model}' failed: {type(error).__name__}: {words}."}
    part = f"{result_path}.part"
    Path(part).write_text(json.dumps(answer))
    os.replace(part, result_path)


def _profile(spec: TraceSpec, request: dict[str, Any]) -> dict[str, Any]:
    from ischeduler.estimators.models.build import library, loader

    torch = library("torch")
    from ischeduler.estimators.memory.torch_private import mend_torchvision
    from ischeduler.estimators.models.batches import task_of
    from ischeduler.estimators.models.optimizers import make_optimizer

    mend_torchvision()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    load, module = loader(spec)
    with torch.device(device):
        model = load()
    model.train()
    work = task_of(spec, module)(model)
    optimizer = make_optimizer(spec.optimizer, model, spec.arguments("optimizer"))
    with torch.device(device):
        batch = work.batch(spec.batch)
    loaded = time.time()
    times = _timed_steps(torch, spec, request, model, work, optimizer, batch, device)
    first, rest = times[0], times[1:] or times
    return {
        "step_time_s": statistics.median(rest) * request["grad_accum"], "steps": len(times),
        "startup_s": max(0.0, loaded - request["started"]) + max(0.0, first - statistics.median(rest)),
        "checkpoint_s": _checkpoint(torch, model, optimizer, request["folder"]), "device": device,
        "host_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "gpu_memory_bytes": torch.cuda.max_memory_reserved() if device == "cuda" else None,
        "cpus": len(os.sched_getaffinity(0)),
    }


def _timed_steps(
    torch: Any, spec: TraceSpec, request: dict[str, Any], model: Any, work: Any, optimizer: Any, batch: Any, device: str
) -> list[float]:
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(spec.precision)
    times: list[float] = []
    while len(times) < request["steps"]:
        started = time.perf_counter()
        with torch.autocast(device, dtype=dtype) if dtype is not None else contextlib.nullcontext():
            loss = work.loss(model, batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
        if time.time() > request["deadline"] and len(times) >= _FEWEST:
            break
    return times


def _checkpoint(torch: Any, model: Any, optimizer: Any, folder: str) -> float:
    """Seconds to write model and optimizer to the folder's file system, flushed."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        started = time.perf_counter()
        with open(Path(place) / "state.pt", "wb") as sink:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, sink)
            sink.flush()
            os.fsync(sink.fileno())
        return time.perf_counter() - started


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
