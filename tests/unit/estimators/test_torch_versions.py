"""The private torch calls are named in one list, exist in the torch at hand, and that torch is one they were verified with."""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ischeduler.estimators.memory import torch_private
from ischeduler.estimators.memory.torch_private import PRIVATE, TESTED

pytest.importorskip("torch")
pytestmark = pytest.mark.torch
ROOT = Path(__file__).resolve().parents[3]
MODULE = ROOT / "src" / "ischeduler" / "estimators" / "memory" / "torch_private.py"


def private(words: str) -> set[str]:
    """The private parts of a dotted name."""
    return {w for w in words.split(".") if w.startswith("_") and not w.startswith("__")}


def chain(node: ast.expr) -> str:
    """'torch.cuda.memory._x' of such an attribute, '' where it starts otherwise."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def used(path: Path) -> Iterator[str]:
    """Private parts of torch's names in a file; in the module that gathers them, of every name that is not its own."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    own = {n.name for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
            yield from private(".".join([node.module or "", *(a.name for a in node.names)]))
        elif isinstance(node, ast.Attribute) and chain(node).startswith("torch."):
            yield from private(chain(node))
        elif path == MODULE and isinstance(node, ast.Attribute) and node.attr not in own:
            yield from private(node.attr)
        elif path == MODULE and isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
            yield from private(str(getattr(node.args[1], "value", "")))


def resolve(name: str) -> Any:
    """The object, from the longest module that its name starts with."""
    parts = name.split(".")
    for length in range(len(parts) - 1, 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        for part in parts[length:]:
            found = getattr(found, "__annotations__", {}).get(part) or getattr(found, part)
        return found
    raise AssertionError(name)


def test_every_private_call_is_named_in_the_list_and_nothing_else() -> None:
    found = {word for path in (ROOT / "src").rglob("*.py") for word in used(path)}
    assert found == {word for name in PRIVATE for word in private(name)}


@pytest.mark.parametrize("name", PRIVATE)
def test_the_torch_at_hand_has_it(name: str) -> None:
    assert resolve(name) is not None


def test_the_torch_at_hand_is_one_that_was_verified() -> None:
    import torch

    known = torch_private.tested_version(torch.__version__)
    assert known, f"run scripts/torch-matrix with torch {torch.__version__}, then name it in TESTED"
    assert not torch_private.tested_version("1.13.1")


MATRIX = Path(os.environ.get("TORCH_MATRIX_DIR", "/nonexistent"))

if MATRIX.is_dir():  # environments of scripts/torch-matrix, some gigabytes each: asked for, they must be there

    @pytest.mark.slow
    @pytest.mark.parametrize("version", [f"{major}.{minor}" for major, minor in TESTED])
    def test_resnet50_with_the_matrixs_torch(version: str) -> None:
        assert (MATRIX / version / "ready").exists(), f"run scripts/torch-matrix {version}"
        files = [str(ROOT / "tests" / "integration" / "test_trace.py"), str(Path(__file__))]
        command = [str(MATRIX / version / "bin" / "python"), "-m", "pytest", "-n", "0", "-k", "resnet50_stays or at_hand", *files]
        environment = {k: v for k, v in os.environ.items() if k != "TORCH_MATRIX_DIR"} | {"PYTHONPATH": str(ROOT / "src")}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500, check=False)
        assert done.returncode == 0, done.stdout[-2000:]
