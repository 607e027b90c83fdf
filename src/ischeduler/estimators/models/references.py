"""What the words for a model mean, read without importing any framework, and a fingerprint of its source.

``timm:resnet50``, ``torchvision:resnet50``, ``transformers:bert-base-uncased`` (configuration only, random weights),
``my_module:build_model``, ``train.py:build_model``, ``script:train.py`` (a whole training script, run up to its second step),
``object:FILE`` (a saved Python object), or a bare name, which is looked
up in timm, torchvision and transformers in that order.
"""

from __future__ import annotations

import hashlib
import inspect
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ischeduler.core.errors import BadInput

LIBRARIES = ("timm", "torchvision", "transformers", "keras")
_NAME = re.compile(r"[\w.+/-]+")
_ATTRIBUTE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_FORMS = "expected timm:NAME, torchvision:NAME, transformers:NAME, my_module:build_model, train.py:build_model or a bare name"
_MAX_HASHED_FILES = 200


@dataclass(frozen=True)
class Reference:
    """``kind`` is of :data:`LIBRARIES`, 'module', 'file', 'script', 'object' or 'bare'; ``place`` the module or file, ``name`` the rest."""

    kind: str
    place: str
    name: str


def parse(reference: str) -> Reference:
    """The parts of a reference; BadInput on a form that is none of ours."""
    text = reference.strip()
    if not text:
        raise BadInput(f"The workload names no model; {_FORMS}.")
    place, colon, name = text.rpartition(":")
    if not colon:
        if not _NAME.fullmatch(text):
            raise BadInput(f"'{reference}' is not a model reference; {_FORMS}.")
        return Reference("bare", "", text)
    if place in LIBRARIES:
        if not _NAME.fullmatch(name):
            raise BadInput(f"'{reference}' names no model of {place}; {_FORMS}.")
        return Reference(place, place, name)
    if text.startswith("script:"):
        return Reference("script", text[len("script:") :], "")
    if text.startswith("object:"):
        return Reference("object", text[len("object:") :], "")
    if not _ATTRIBUTE.fullmatch(name):
        raise BadInput(f"'{name}' in '{reference}' is not a function's name; {_FORMS}.")
    if place.endswith(".py"):
        return Reference("file", place, name)
    if not _ATTRIBUTE.fullmatch(place):
        raise BadInput(f"'{place}' in '{reference}' is neither a module nor a .py file; {_FORMS}.")
    return Reference("module", place, name)


def of_object(model: Any, folder: Path) -> str:
    """A reference to a Python object: an importable function or class by its name, a module instance saved into ``folder``.

    BadInput for a lambda or a function made inside another one: a subprocess cannot find it again.
    """
    if isinstance(model, str):
        return model
    if inspect.isfunction(model) or inspect.isclass(model):
        name, module = model.__qualname__, sys.modules.get(model.__module__)
        path = getattr(module, "__file__", None)
        if "<" in name or path is None:
            raise BadInput(f"'{name}' cannot be found again by another process; define it at the top level of a file.")
        return f"{Path(path).resolve()}:{name}"
    return _saved(model, folder)


def _saved(model: Any, folder: Path) -> str:
    import io

    import torch

    if not isinstance(model, torch.nn.Module):
        raise BadInput(f"A model is a torch.nn.Module, a function that builds one, or a reference, not {type(model).__name__}.")
    buffer = io.BytesIO()
    try:
        torch.save(model, buffer)
    except Exception as error:  # whatever a user's __reduce__ raises
        raise BadInput(f"This model cannot be pickled ({error}); give a function that builds it instead.") from None
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{hashlib.sha256(buffer.getvalue()).hexdigest()[:24]}.model"
    path.write_bytes(buffer.getvalue())
    return f"object:{path}"


def source_fingerprint(reference: Reference, directory: str) -> str:
    """A hash that changes when the user's model code may have: the file, and the Python files beside it.

    Library models change with their package's version, which is part of the caller's key.
    """
    path = _source_file(reference, directory)
    if path is None:
        return ""
    digest = hashlib.sha256(str(path).encode())
    if path.is_file():
        digest.update(path.read_bytes())
    if path.suffix == ".py":
        for beside in sorted(path.parent.glob("*.py"))[:_MAX_HASHED_FILES]:
            status = beside.stat()
            digest.update(f"{beside.name}:{status.st_size}:{status.st_mtime_ns}".encode())
    return digest.hexdigest()


def _source_file(reference: Reference, directory: str) -> Path | None:
    base = Path(directory or ".").resolve()
    if reference.kind in ("file", "object", "script"):
        return base / reference.place
    if reference.kind == "module":
        stem = base / Path(*reference.place.split("."))
        return stem / "__init__.py" if stem.is_dir() else stem.with_suffix(".py")
    return None
