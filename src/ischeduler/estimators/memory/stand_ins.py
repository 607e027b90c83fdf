"""Keeps parts of torch that take seconds to import out of a process that will never use them.

``torch._dynamo`` (the compiler) and ``torch.distributed.tensor`` are imported by torch, torchvision and transformers only to
ask whether a compilation is going on, to exempt a function from it, or to compare a type. Stand-ins answer those questions;
anything else asked of one imports the real package, which then takes its place.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from types import ModuleType
from typing import Any

DYNAMO = "torch._dynamo"
DTENSOR = "torch.distributed.tensor"
_ROOTS = (DYNAMO, DTENSOR)
_ITEMS = f"{DYNAMO}._trace_wrapped_higher_order_op"
_LIGHT = (f"{DYNAMO}.config",)  # loads without the rest


def install() -> None:
    """Put the stand-ins in place of what is not loaded yet."""
    import torch

    wanted = [root for root in _ROOTS if root not in sys.modules]
    for name in _KNOWN:
        if _root(name) in wanted:
            sys.modules[name] = _StandIn(name)
    for root in wanted:
        _attach(torch, root, sys.modules[root])
    if wanted:
        sys.meta_path.insert(0, _Finder())


def _root(name: str) -> str:
    return next(r for r in _ROOTS if name == r or name.startswith(r + "."))


def _attach(torch: Any, name: str, module: ModuleType | None) -> None:
    """Set (or with None remove) a package as an attribute of its parent."""
    *path, last = name.split(".")[1:]
    parent = torch
    for part in path:
        parent = getattr(parent, part)
    if module is not None:
        setattr(parent, last, module)
    elif isinstance(getattr(parent, last, None), _StandIn):
        delattr(parent, last)


def _identity(fn: Any = None, *args: Any, **kwargs: Any) -> Any:
    return fn if fn is not None else _identity


class _TransformGetItemToIndex:
    """Made only where attention masks are compiled or mapped: then the real one is needed."""

    def __new__(cls) -> Any:
        return _real(_ITEMS).TransformGetItemToIndex()


class _ConstantSource:
    """The name of a constant met while tracing; read only where shapes are symbolic."""

    def __init__(self, source_name: str) -> None:
        self.source_name = source_name


_KNOWN: dict[str, dict[str, Any]] = {
    DYNAMO: {"disable": _identity, "is_compiling": lambda: False, "allow_in_graph": _identity,
             "assume_constant_result": _identity, "mark_static_address": lambda *a, **k: None,
             "graph_break": lambda *a, **k: None},
    f"{DYNAMO}.utils": {"is_compile_supported": lambda device: False},
    f"{DYNAMO}.source": {"ConstantSource": _ConstantSource, "RandomValueSource": type("RandomValueSource", (), {})},
    _ITEMS: {"TransformGetItemToIndex": _TransformGetItemToIndex},
    DTENSOR: {"DTensor": type("DTensor", (), {})},
}


class _StandIn(ModuleType):
    """A module that becomes real when asked for more than it knows."""

    def __getattr__(self, name: str) -> Any:
        known = _KNOWN[self.__name__]
        if name in known:
            return known[name]
        if name == "__path__" and self.__name__ in _ROOTS:
            return []  # a package: its parts are looked for by the finder below
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(_real(self.__name__), name)


class _Finder(importlib.abc.MetaPathFinder):
    """Any other part of such a package: the whole real one is loaded, and the part found there."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        root = next((r for r in _ROOTS if fullname.startswith(r + ".")), None)
        if root is None or not isinstance(sys.modules.get(root), _StandIn):
            return None
        if fullname in _LIGHT:
            return importlib.machinery.PathFinder.find_spec(fullname, [_folder(root)])
        _real(root)
        found = sys.modules.get(fullname)
        if found is not None:
            return importlib.machinery.ModuleSpec(fullname, _Loaded(found))
        return importlib.util.find_spec(fullname)


def _folder(root: str) -> str:
    import torch

    return os.path.join(os.path.dirname(torch.__file__), *root.split(".")[1:])


class _Loaded(importlib.abc.Loader):
    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        """It was run already."""


def _real(name: str) -> ModuleType:
    """Import the real package in place of its stand-ins."""
    import torch

    root = _root(name)
    for stand_in in _KNOWN:
        if _root(stand_in) == root and isinstance(sys.modules.get(stand_in), _StandIn):
            del sys.modules[stand_in]
    _attach(torch, root, None)
    _attach(torch, root, importlib.import_module(root))
    return importlib.import_module(name)
