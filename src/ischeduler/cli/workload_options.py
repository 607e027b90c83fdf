"""The options that describe a training, shared by every command that takes one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

Source = Annotated[
    str | None,
    typer.Argument(
        metavar="[SCRIPT|MODEL]", help="A training script (train.py) or a model reference (timm:resnet50).", show_default=False
    ),
]


def _option(name: str, help: str, metavar: str = "N", *others: str) -> Any:
    return typer.Option(None, name, *others, help=help, metavar=metavar, show_default=False)


OPTIONS: dict[str, tuple[Any, Any]] = {
    "model": (
        str | None,
        _option("--model", "timm:NAME, torchvision:NAME, transformers:NAME, module:function, train.py:function.", "REF"),
    ),
    "samples": (str | None, _option("--samples", "Training samples.")),
    "epochs": (str | None, _option("--epochs", "Epochs.")),
    "batch_size": (str | None, _option("--batch-size", "Samples a step and device; several to compare: 32,64.", "N[,N]")),
    "grad_accum": (str | None, _option("--grad-accum", "Batches accumulated before a step.")),
    "input_shape": (str | None, _option("--input-shape", "One sample's shape, e.g. 3,224,224.", "SHAPE")),
    "classes": (str | None, _option("--classes", "Output classes.")),
    "optimizer": (str | None, _option("--optimizer", "sgd, adam, adamw, ...", "NAME")),
    "precision": (str | None, _option("--precision", "fp32, tf32, fp16 or bf16.", "NAME")),
    "framework": (str | None, _option("--framework", "pytorch, keras, ...", "NAME")),
    "eval_samples": (str | None, _option("--eval-samples", "Samples evaluated after each epoch.")),
    "workers": (str | None, _option("--workers", "Data-loading processes.")),
    "nodes": (str | None, _option("--nodes", "Nodes to train on together.")),
    "gpus": (str | None, _option("--gpus", "GPUs a node; 0 for CPU nodes only.")),
    "cpus": (str | None, _option("--cpus", "Cores a node.")),
    "memory": (str | None, _option("--mem", "Host memory a node, e.g. 26G.", "SIZE", "--memory")),
    "name": (str | None, _option("--name", "What to call it.", "NAME")),
    "command": (str | None, _option("--command", "What to run, with {batch_size}, {epochs}, {grad_accum}, {samples}.", "LINE")),
    "checkpoints": (bool | None, typer.Option(None, "--checkpoints/--no-checkpoints", help="Can it resume?", show_default=False)),
    "service": (
        bool | None,
        typer.Option(None, "--service", help="A service (server, notebook): kept up from job to job until ended.", show_default=False),
    ),
    "ready_port": (str | None, _option("--ready-port", "Ready when it takes connections; 0: a free one, as {port} and ISCHED_PORT.")),
    "ready_url": (str | None, _option("--ready-url", "Ready when it answers 2xx: /PATH on its port, or a whole URL.", "URL")),
    "ready_file": (str | None, _option("--ready-file", "Ready when it writes this file.", "PATH")),
    "serve_for": (str | None, _option("--for", "End the service so long after it was first ready, e.g. 3d.", "TIME")),
    "options": (
        list[str] | None,
        typer.Option(None, "--option", metavar="NAME=VALUE", help="An argument of the model or optimizer."),
    ),
}


def takes_workload(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command every workload option in place of its ``workload`` parameter, which receives those that were given."""

    def call(**arguments: Any) -> Any:
        given = {name: arguments.pop(name) for name in OPTIONS}
        return function(**arguments, workload={k: v for k, v in given.items() if v not in (None, [])})

    own = inspect.signature(function, eval_str=True)
    parameters = [p for name, p in own.parameters.items() if name != "workload"]
    for name, (kind, default) in OPTIONS.items():
        parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind))
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
    call.__signature__ = own.replace(parameters=parameters)  # pyright: ignore[reportFunctionMemberAccess]
    call.__annotations__ = {p.name: p.annotation for p in parameters}
    call.__name__, call.__doc__ = function.__name__, function.__doc__
    return call
