"""The tracing subprocess: one JSON file in, one JSON file out.

It runs under the user's own Python, so that the user's torch answers, and needs nothing of ours but a few
standard-library modules. What it has learned is written as soon as it is known: a parent that has to stop it still gets that.
"""

from __future__ import annotations

import gc
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
    gc.disable()  # importing makes only what stays
    os.environ.setdefault("ISCHED_TRACE_FOLDER", os.path.dirname(os.path.abspath(result_path)))
    try:
        _answer(spec, result_path)
    except BadInput as error:
        _write(result_path, {"error": str(error)})
    except MemoryError:
        _write(result_path, {"error": f"Building '{spec.model}' ran out of memory; raise the limit or give its needs yourself."})
    except Exception as error:
        _write(result_path, {"error": _sentence(spec, error)})
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # the answer is written; taking the interpreter apart would cost half a second


def _answer(spec: TraceSpec, result_path: str) -> None:
    from ischeduler.estimators.models.build import library, loader

    library("torch")
    from ischeduler.estimators.memory import stand_ins, torch_private

    stand_ins.install()

    torch_private.install_device()
    torch_private.mend_torchvision()
    if spec.model.startswith("script:"):
        _collect_garbage_again()
        _scripted(spec, result_path)
        return
    load, module = loader(spec)
    _collect_garbage_again()
    found: list[TraceReport] = []

    def built(model: Any) -> None:
        found.append(_counted(spec, model))
        _write(result_path, {"report": found[-1].to_json()})

    _write(result_path, {"report": _traced(spec, load, module, built, found).to_json()})


def _collect_garbage_again() -> None:
    """From here on cycles hold tensors as they would in the training; what was imported is left alone."""
    gc.freeze()
    gc.enable()


def _scripted(spec: TraceSpec, result_path: str) -> None:
    from ischeduler.estimators.memory.script_run import Refused, Run

    try:
        Run(spec, lambda report: _write(result_path, {"report": report.to_json()})).start()
    except BadInput:
        raise
    except ModuleNotFoundError as error:
        raise BadInput(f"'{spec.model}' needs the package '{error.name}', which {sys.executable} lacks; install it.") from None
    except Exception as error:
        if any(isinstance(e, Refused) or "offline" in str(e).lower() for e in _chain(error)):
            raise BadInput(f"'{spec.model}' needs a download, which tracing does not make; fetch the files first.") from None
        raise


def _chain(error: BaseException | None) -> list[BaseException]:
    """An error and all that led to it."""
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        reason = getattr(error, "reason", None)
        error = error.__cause__ or error.__context__ or (reason if isinstance(reason, BaseException) else None)
    return found


def _traced(
    spec: TraceSpec, load: Callable[[], Any], module: Any, built: Callable[[Any], None], found: list[TraceReport]
) -> TraceReport:
    """The best backend that works, with a note on each that did not."""
    from ischeduler.estimators.memory import step, torch_private
    from ischeduler.estimators.models.batches import task_of

    notes: list[str] = []
    for device in (torch_private.DEVICE, "cpu"):
        try:
            report = step.trace(spec, load, task_of(spec, module), device, built)
            return replace(report, notes=(*report.notes, *notes))
        except BadInput:
            raise
        except Exception as error:
            notes.append(_sentence(spec, error))
    if not found:
        raise BadInput(notes[0])
    return replace(found[0], notes=(notes[0],))


def _counted(spec: TraceSpec, model: Any) -> TraceReport:
    """Parameters only: all that is known of a model whose step fails or never ends."""
    import torch

    from ischeduler.estimators.memory.analytic import counted_report

    parameters = list(model.parameters())
    trainable = sum(p.numel() * p.element_size() for p in parameters if p.requires_grad)
    weights = sum(t.numel() * t.element_size() for t in (*parameters, *model.buffers()))
    return counted_report(spec, sum(p.numel() for p in parameters), weights, trainable, torch.__version__)


def _sentence(spec: TraceSpec, error: Exception) -> str:
    name = type(error).__name__
    if name in ("DataDependentOutputException", "DynamicOutputShapeException", "GuardOnDataDependentSymNode"):
        operation = getattr(error, "func", "")
        rest = "profile it instead." if spec.model.startswith("script:") else "its activations are a formula, profile it for better."
        return f"'{spec.model}' decides by its data ({operation or 'tensor.item()'}), which cannot be traced; {rest}"
    words = " ".join(str(error).split())[:200]
    return f"A training step of '{spec.model}' failed while tracing: {name}: {words}."


def _write(path: str, answer: dict[str, Any]) -> None:
    part = f"{path}.part"
    Path(part).write_text(json.dumps(answer))
    os.replace(part, path)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
