"""What a shared service may show its estimators of somebody's workload: nothing by which that person's code would run inside it.

A model that is code of the user's (a module, a script, a saved object) is built by importing it, an environment names the
interpreter to do so with, and a model's arguments can name a file to unpickle. In one's own process that is one's own affair;
in a service that serves many it would hand the service to any of them.
"""

from __future__ import annotations

import re
from dataclasses import replace

from ischeduler.core.errors import BadInput
from ischeduler.core.workload import EnvironmentSpec, Workload
from ischeduler.estimators.models.references import LIBRARIES, parse

_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")
_ARGUMENT = re.compile(r"[a-z]+\.[A-Za-z_]\w*")
_READS_FILES = re.compile(r"pretrained|checkpoint|path|file|cache|url|hub|dir|state|trust|remote|weights", re.IGNORECASE)


def harmless(workload: Workload) -> Workload:
    """The workload for estimators: models of libraries by name, numeric arguments, no environment, no folder."""
    options = {name: value for name, value in workload.options.items() if _safe(name, value)}
    model = workload.model if model_is_a_librarys(workload.model) else ""
    return replace(workload, model=model, environment=EnvironmentSpec(), directory="", options=options)


def model_is_a_librarys(model: str) -> bool:
    """Whether a reference names a model of a library (``timm:resnet50``, or a bare name) and no code or file of the user's."""
    if not model:
        return False
    try:
        reference = parse(model)
    except BadInput:
        return False
    path_like = "/" in reference.name or ".." in reference.name or reference.name.startswith((".", "-"))
    return reference.kind in (*LIBRARIES, "bare") and not path_like


def _safe(name: str, value: str) -> bool:
    plain = bool(_NUMBER.fullmatch(value)) or value.lower() in ("true", "false")
    return plain and bool(_ARGUMENT.fullmatch(name)) and not _READS_FILES.search(name)
