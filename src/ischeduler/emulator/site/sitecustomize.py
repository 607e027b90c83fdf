"""Put first on PYTHONPATH by ``isched emulate``: turns the emulation on when the training imports torch.

The training's own Python may lack ischeduler, so the package is found beside this file. A sitecustomize of the environment's own is run
as well.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_PACKAGE = os.path.dirname(os.path.dirname(_HERE))


class _AfterTorch(importlib.abc.MetaPathFinder):
    """Lets torch be imported as always, and turns the emulation on right after."""

    def find_spec(self, fullname, path=None, target=None):  # type: ignore[no-untyped-def]
        if fullname != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, loader):  # type: ignore[no-untyped-def]
        self._loader = loader

    def __getattr__(self, name):  # type: ignore[no-untyped-def]
        return getattr(self._loader, name)

    def create_module(self, spec):  # type: ignore[no-untyped-def]
        return self._loader.create_module(spec)

    def exec_module(self, module):  # type: ignore[no-untyped-def]
        self._loader.exec_module(module)
        _turn_on()


def _turn_on() -> None:
    if "ischeduler" not in sys.modules and importlib.util.find_spec("ischeduler") is None:
        spec = importlib.util.spec_from_file_location(
            "ischeduler", os.path.join(_PACKAGE, "__init__.py"), submodule_search_locations=[_PACKAGE]
        )
        assert spec is not None
        assert spec.loader is not None
        package = importlib.util.module_from_spec(spec)
        sys.modules["ischeduler"] = package
        spec.loader.exec_module(package)
    from ischeduler.emulator.install import install
    from ischeduler.emulator.spec import EmulationSpec

    wanted = EmulationSpec.from_environment()
    if wanted is not None:
        install(wanted)


def _run_the_other() -> None:
    """The sitecustomize that this one hides."""
    others = [p for p in sys.path if os.path.abspath(p or ".") != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if os.environ.get("ISCHED_EMULATE"):
    sys.meta_path.insert(0, _AfterTorch())
_run_the_other()
