"""The real optimizer object for a name: its state is measured, not guessed."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from ischeduler.core.errors import BadInput

ALIASES = {"momentum": "sgd", "sgd-momentum": "sgd"}
STATE_COPIES = {"sgd": 0.0, "momentum": 1.0, "sgd-momentum": 1.0, "rmsprop": 1.0, "adagrad": 1.0, "adam": 2.0, "adamw": 2.0,
                "nadam": 2.0, "radam": 2.0, "adamax": 2.0, "lion": 1.0, "adadelta": 2.0}
"""Copies of the trainable weights an optimizer keeps, for the analytic fallback."""

EIGHT_BIT = {"adam8bit": 2, "adamw8bit": 2, "lion8bit": 1, "sgd8bit": 1, "rmsprop8bit": 1}
"""bitsandbytes' optimizers, and how many states each keeps."""


def make_optimizer(name: str, model: Any, arguments: Mapping[str, Any]) -> Any:
    """``torch.optim``'s optimizer of that name (any case; 'momentum' is SGD with 0.9); BadInput when there is none."""
    from torch import optim

    word = name.lower()
    if word in EIGHT_BIT:
        from ischeduler.estimators.models.eight_bit import EightBit

        return EightBit([p for p in model.parameters() if p.requires_grad], states=EIGHT_BIT[word])
    known = {n.lower(): v for n, v in vars(optim).items() if isinstance(v, type) and issubclass(v, optim.Optimizer)}
    kind = known.get(ALIASES.get(word, word))
    if kind is None or kind is optim.Optimizer:
        near = difflib.get_close_matches(word, known, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"expected one of {', '.join(sorted(set(known) - {'optimizer'}))}."
        raise BadInput(f"optimizer '{name}' is not in torch.optim; {hint}")
    extra = {"momentum": 0.9} if word in ALIASES else {}
    extra |= {"lr": 0.01} if word not in ("adadelta",) else {}
    parameters = [p for p in model.parameters() if p.requires_grad]
    try:
        return kind(parameters, **{**extra, **arguments})
    except (TypeError, ValueError) as error:
        raise BadInput(f"optimizer '{name}' does not take {dict(arguments)}: {error}; correct the optimizer options.") from None


def state_copies(name: str, arguments: Mapping[str, Any]) -> float:
    """How many copies of the trainable weights the optimizer's state is, by name; 2 (Adam's) when unknown."""
    word = name.lower()
    if word in EIGHT_BIT:
        return EIGHT_BIT[word] * (0.25 + 1 / 256)
    if word == "sgd" and arguments.get("momentum"):
        return 1.0
    return STATE_COPIES.get(word, 2.0)
