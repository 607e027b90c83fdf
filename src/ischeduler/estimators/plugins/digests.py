"""What a plug-in is, as one SHA-256: of a file, of a folder's files, of a command's files."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ischeduler.core.errors import BadInput

LEFT_OUT = ("__pycache__", ".git", ".venv", "dist", ".pytest_cache", ".ruff_cache")
LARGEST_TREE_BYTES = 256 * 2**20
_BLOCK = 2**20


def of_bytes(data: bytes) -> str:
    """``sha256:HEX``."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def of_file(path: Path) -> str:
    """A file's content."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            found.update(block)
    return f"sha256:{found.hexdigest()}"


def tree(folder: Path) -> Iterator[Path]:
    """A folder's plain files in order, without caches, builds and version control. Links are not followed."""
    for where, folders, files in os.walk(folder):
        folders[:] = sorted(f for f in folders if f not in LEFT_OUT)
        for name in sorted(files):
            path = Path(where) / name
            if not path.is_symlink() and path.is_file() and not name.endswith(".pyc"):
                yield path


def of_tree(folder: Path) -> str:
    """Names and contents of a folder's files, whatever their dates and owners. BadInput when it is too large for a plug-in."""
    return of_files((str(p.relative_to(folder)), p) for p in tree(folder))


def of_files(named: Iterable[tuple[str, Path]]) -> str:
    """Names and contents, in the given order."""
    found = hashlib.sha256()
    total = 0
    for name, path in named:
        total += path.stat().st_size
        if total > LARGEST_TREE_BYTES:
            raise BadInput(f"{path} is part of more than {LARGEST_TREE_BYTES // 2**20} MiB; is that folder really a plug-in?")
        found.update(f"{name}\0{of_file(path)}\0{os.access(path, os.X_OK)}\n".encode())
    return f"sha256:{found.hexdigest()}"


def of_command(command: Sequence[str]) -> str:
    """A command: its words, and the content of every file and folder among them (the program where it is found on PATH)."""
    found = hashlib.sha256()
    for place, word in enumerate(command):
        path = Path(shutil.which(word) or word) if place == 0 else Path(word)
        content = of_tree(path) if path.is_dir() else of_file(path) if path.is_file() else ""
        found.update(f"{word}\0{content}\n".encode())
    return f"sha256:{found.hexdigest()}"
