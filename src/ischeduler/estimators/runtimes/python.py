"""The ``python`` runtime: an object of an installed package, in this very process. Trusted code."""

from __future__ import annotations

import importlib
import json
from dataclasses import dataclass, field
from typing import Any, cast

from ischeduler.estimators.contract.serve import reply
from ischeduler.estimators.runtimes.limits import TRUSTED, RuntimeFailed
from ischeduler.ports import Estimator


@dataclass
class PythonRuntime:
    """``reference`` is ``module:Object``: an estimator, or a class or function without arguments that makes one.

    It has no limits of its own: code in this process cannot be stopped. Use ``process`` or ``container`` for those.
    """

    reference: str
    trust: str = TRUSTED
    _loaded: list[Estimator] = field(default_factory=list[Estimator])

    @property
    def place(self) -> str:
        """For sentences."""
        return "this Python"

    def exchange(self, message: bytes) -> bytes:
        """The answer of the object, through JSON like every other."""
        return json.dumps(reply(self._estimator(), message)).encode()

    def _estimator(self) -> Estimator:
        if not self._loaded:
            self._loaded.append(load_object(self.reference))
        return self._loaded[0]


def load_object(reference: str) -> Estimator:
    """RuntimeFailed with a sentence when it cannot be imported or is no estimator."""
    module, colon, name = reference.partition(":")
    if not (module and colon and name):
        raise RuntimeFailed(f"'{reference}' is no module:Object, e.g. our_package.estimators:PerImage.", lasting=True)
    try:
        thing: Any = getattr(importlib.import_module(module), name)
        if isinstance(thing, type) or not hasattr(thing, "estimate"):
            thing = thing()
    except Exception as error:  # whatever importing other people's code raises
        raise RuntimeFailed(f"'{reference}' did not load: {type(error).__name__}: {error}.", lasting=True) from None
    if not hasattr(thing, "info") or not hasattr(thing, "estimate"):
        raise RuntimeFailed(f"'{reference}' is no estimator: it needs an info and an estimate.", lasting=True)
    return cast("Estimator", thing)
