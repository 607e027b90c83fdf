"""Coefficients that come with the package, by architecture: fitted on licensed measurements (``prior.json`` says which).

An architecture nobody measured gets the mean of all, and the interval that leaving whole devices out of the fit has shown.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

from ischeduler.estimators.steptime.coefficients import Coefficients


@cache
def _document() -> dict[str, Any]:
    return json.loads(resources.files("ischeduler.estimators.steptime").joinpath("prior.json").read_text(encoding="utf-8"))


@cache
def prior_of(architecture: str) -> Coefficients:
    """The architecture's coefficients; those of no architecture in particular where it was not measured."""
    known = _document()["architectures"]
    if architecture and architecture not in known:
        return prior_of("")
    return Coefficients.from_json({**known[architecture], "provenance": _document()["provenance"]})


def measured_architectures() -> tuple[str, ...]:
    """Those with coefficients of their own."""
    return tuple(sorted(name for name in _document()["architectures"] if name))


def is_prior(coefficients: Coefficients) -> bool:
    """Whether these came with the package, and were measured neither here nor on the CPU at hand."""
    return any(coefficients is prior_of(name) for name in ("", *measured_architectures()))
