"""The tracing subprocess: one JSON file in, one JSON file out.

It runs under the user's own Python, so that the user's torch answers, and needs nothing of ours but a few
standard-library modules. What it has learned is written as soon as it is known: a parent that has to stop it still gets that.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ischeduler.core.errors import BadInput
from ischeduler.estimators.memory.spec import TraceReport, TraceSpec


def main(spec_path: str, result_path: str) -> None:
    """Answer the request in ``spec_path`` into ``result_path``."""
    spec = TraceSpec.from_json(json.loads(Path(spec_path).read_text()))
    try:
        _answer(spec, result_path)
    except BadInput as error:
        _write(result_path, {"error": str(error)})
    except MemoryError:
        _write(result_path, {"error": f"Building '{spec.model}' ran out of memory; raise the limit or give its needs yourself."})
    except Exception as error:
        _write(result_path, {"error": _sentence(spec, error)})


def _answer(spec: TraceSpec, result_path: str) -> None:
    from ischeduler.estimators.models.build import library, loader

    library("torch")
    from ischeduler.estimators.memory import torch_private

    torch_private.install_device()
    torch_private.mend_torchvision()
    load, module = loader(spec)
    counted = _counted(spec, load)
    if counted is not None:
        _write(result_path, {"report": counted.to_json()})
    _write(result_path, {"report": _traced(spec, load, module, counted).to_json()})


def _traced(spec: TraceSpec, load: Callable[[], Any], module: Any, counted: TraceReport | None) -> TraceReport:
    """The best backend that works, with a note on each that did not."""
    from ischeduler.estimators.memory import step, torch_private
    from ischeduler.estimators.models.batches import task_of

    notes: list[str] = []
    for device in (torch_private.DEVICE, "cpu"):
        try:
            report = step.trace(spec, load, task_of(spec, module), device)
            return replace(report, notes=(*report.notes, *notes))
        except BadInput:
            raise
        except Exception as error:
            notes.append(_sentence(spec, error))
    if counted is None:
        raise BadInput(notes[0])
    return replace(counted, notes=(notes[0],))


def _counted(spec: TraceSpec, load: Callable[[], Any]) -> TraceReport | None:
    """Parameters only, built on the meta device; None where the constructor does not work there."""
    import torch

    from ischeduler.estimators.memory.analytic import counted_report

    try:
        with torch.device("meta"):
            model = load()
    except BadInput:
        raise
    except Exception:
        return None  # such a constructor computes; the trace has another way to build it
    parameters = list(model.parameters())
    trainable = sum(p.numel() * p.element_size() for p in parameters if p.requires_grad)
    weights = sum(t.numel() * t.element_size() for t in (*parameters, *model.buffers()))
    return counted_report(spec, sum(p.numel() for p in parameters), weights, trainable, torch.__version__)


def _sentence(spec: TraceSpec, error: Exception) -> str:
    name = type(error).__name__
    if name in ("DataDependentOutputException", "DynamicOutputShapeException", "GuardOnDataDependentSymNode"):
        operation = getattr(error, "func", "")
        return (
            f"'{spec.model}' decides by its data ({operation or 'tensor.item()'}), which cannot be traced; "
            "its activations are a formula, profile it for better."
        )
    words = " ".join(str(error).split())[:200]
    return f"A training step of '{spec.model}' failed while tracing: {name}: {words}."


def _write(path: str, answer: dict[str, Any]) -> None:
    part = f"{path}.part"
    Path(part).write_text(json.dumps(answer))
    os.replace(part, path)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
