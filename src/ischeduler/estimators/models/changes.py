"""What a workload's options change in a built model: frozen parameters, activation checkpointing. Lives in the subprocess."""

from __future__ import annotations

import fnmatch
from functools import partial
from typing import Any

import torch

from ischeduler.core.errors import BadInput
from ischeduler.estimators.memory.spec import TraceSpec

_LEAST_BLOCKS = 2


def prepare(model: Any, spec: TraceSpec) -> None:
    """Apply ``train_only`` and ``checkpointing``. BadInput where a pattern matches nothing or there is nothing to recompute."""
    patterns = [p.strip() for p in spec.options.get("train_only", "").split(",") if p.strip()]
    if patterns:
        _freeze(model, patterns)
    if str(spec.options.get("checkpointing", "")).lower() in ("1", "true", "yes", "on"):
        _checkpoint(model, spec.model)


def _freeze(model: Any, patterns: list[str]) -> None:
    trained = 0
    for name, parameter in model.named_parameters():
        wanted = any(fnmatch.fnmatchcase(name, p) or p in name for p in patterns)
        parameter.requires_grad_(wanted)
        trained += wanted
    if not trained:
        some = ", ".join(name for name, _ in list(model.named_parameters())[:3])
        raise BadInput(f"train_only = '{', '.join(patterns)}' matches no parameter; names look like {some}.")


def blocks(model: Any) -> list[Any]:
    """The model's repeated blocks: the members of its longest lists of modules, outermost first."""
    found: list[Any] = []

    def walk(module: Any) -> None:
        for child in module.children():
            members = list(child.children())
            is_list = isinstance(child, (torch.nn.ModuleList, torch.nn.Sequential))
            if is_list and len(members) >= _LEAST_BLOCKS and any(list(m.children()) for m in members):
                found.extend(m for m in members if any(True for _ in m.parameters()))
            else:
                walk(child)

    walk(model)
    return found


def _checkpoint(model: Any, name: str) -> None:
    for method, arguments in (("gradient_checkpointing_enable", ()), ("set_grad_checkpointing", (True,))):
        own = getattr(model, method, None)
        if own is not None:
            try:
                own(*arguments)
                return
            except (AssertionError, ValueError, NotImplementedError):
                pass  # it has the method but not the ability
    found = blocks(model)
    if not found:
        raise BadInput(f"'{name}' has no repeated blocks to recompute; leave checkpointing out or split it into a Sequential.")
    for block in found:
        _recompute(block)


def _recompute(block: Any) -> None:
    from torch.utils import checkpoint

    forward = block.forward

    def again(*args: Any, **kwargs: Any) -> Any:
        return checkpoint.checkpoint(partial(forward, **kwargs), *args, use_reentrant=False)

    block.forward = again
