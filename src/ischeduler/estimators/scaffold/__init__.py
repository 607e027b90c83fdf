"""A new plug-in's project, ready to be changed: ``isched estimator new``."""

from __future__ import annotations

import keyword
import re
from importlib import resources
from pathlib import Path
from string import Template

from ischeduler.core.errors import BadInput
from ischeduler.estimators.contract import QUANTITIES

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_FILES = {
    "estimator.toml": "estimator.toml", "pyproject.toml": "pyproject.toml", "Containerfile": "Containerfile",
    "README.md": "README.md", "gitignore": ".gitignore", "package_init.py": "src/{package}/__init__.py", "package_main.py": "src/{package}/__main__.py",
    "package_model.py": "src/{package}/model.py", "package_plugin.py": "src/{package}/plugin.py", "test_plugin.py": "tests/test_{package}.py",
}


def make(name: str, folder: Path, quantity: str = "step_time") -> list[Path]:
    """Write a project into ``folder``, which must be new or empty. BadInput with a sentence otherwise. The files written."""
    package = name.replace("-", "_")
    if not _NAME.fullmatch(name) or len(name) > 40 or keyword.iskeyword(package):
        raise BadInput(f"'{name}' cannot be an estimator's name; expected small letters, digits and dashes, e.g. per-image.")
    if quantity not in QUANTITIES:
        raise BadInput(f"Quantity '{quantity}' is unknown; expected one of {', '.join(QUANTITIES)}.")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BadInput(f"{folder} is there already and not empty; name another folder.")
    words = {"name": name, "package": package, "quantity": quantity, "unit": QUANTITIES[quantity].unit or "usd"}
    written: list[Path] = []
    for template, place in _FILES.items():
        path = folder / place.format(package=package)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_text(template, words), encoding="utf-8")
        written.append(path)
    return written


def _text(template: str, words: dict[str, str]) -> str:
    raw = resources.files(__name__).joinpath("templates", f"{template}.txt").read_text("utf-8")
    return Template(raw).substitute(words)
