"""A root file system made of the running Python alone: interpreter, standard library, shared libraries, and a plug-in's sources.

For sites where no base image can be pulled. The archive is reproducible: the same inputs give the same bytes.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ischeduler.core.errors import BadInput, IschedError
from ischeduler.estimators.plugins import digests
from ischeduler.estimators.plugins.project import INSIDE, Project

_LEFT_OUT = (
    "site-packages", "dist-packages", "test", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3", "pydoc_data", "__pycache__",
)
_PARTS_LEFT_OUT = ("_test", "_tkinter", "_ctypes_test", "xxlimited")
_FOLDERS = ("dev", "proc", "sys", "tmp", "etc", "home", "mnt/0", "root", "run", "usr/bin", "var/tmp", INSIDE[1:])
_FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n", "etc/hosts": "127.0.0.1 localhost\n", "etc/resolv.conf": "",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
_LOADED = re.compile(r"(?:=> )?(/\S+) \(0x[0-9a-f]+\)")


def write_rootfs(project: Project, target: Path) -> None:
    """Write the tar archive. BadInput or IschedError with a sentence when this Python cannot be taken along."""
    if shutil.which("ldd") is None:
        raise IschedError("A root file system cannot be made here: ldd (of the C library) is missing.")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="isched-build-") as scratch:
        root = Path(scratch) / "root"
        for folder in _FOLDERS:
            (root / folder).mkdir(parents=True, exist_ok=True)
        for name, text in _FILES.items():
            (root / name).write_text(text, encoding="utf-8")
        _python(root)
        _project(root, project)
        _compile(root)
        written = target.with_suffix(".tmp")
        _archive(root, written)
        written.replace(target)


def _archive(root: Path, target: Path) -> None:
    """Everything below ``root`` in order, without dates and owners."""
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(root.rglob("*")):
            entry = tarfile.TarInfo(str(path.relative_to(root)))
            if path.is_dir():
                entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if path.name == "tmp" else 0o755
                archive.addfile(entry)
                continue
            entry.size, entry.mode = path.stat().st_size, 0o755 if os.access(path, os.X_OK) else 0o644
            with path.open("rb") as file:
                archive.addfile(entry, file)


def _compile(root: Path) -> None:
    """Byte code beside the sources: the image is read-only, and would compile anew for every answer.

    In a process of its own with a fixed hash seed, so that the same sources give the same bytes.
    """
    command = [
        sys.executable, "-s", "-S", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", "-s", str(root), "-p", "/", str(root),
    ]
    environment = {"PATH": os.environ.get("PATH", os.defpath), "PYTHONHASHSEED": "0"}
    subprocess.run(  # a file that does not compile (a template, another Python's) stays as it is
        command, env=environment, cwd=root, capture_output=True, check=False, timeout=300, stdin=subprocess.DEVNULL
    )


def _copy(path: Path, target: Path, *, executable: bool | None = None) -> None:
    """A copy; the first of a name stays. Not executable unless the source is."""
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, target)
    target.chmod(0o755 if (os.access(path, os.X_OK) if executable is None else executable) else 0o644)


def _python(root: Path) -> None:
    """The interpreter at /usr/local/bin/python3 with its library beside it, and every shared library they load."""
    program = Path(sys.executable).resolve()
    library = Path(sysconfig.get_path("stdlib"))
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    _copy(program, root / "usr/local/bin/python3", executable=True)
    compiled = [program]
    for path in _standard_library(library):
        if path.suffix == ".so":
            compiled.append(path)
        _copy(path, root / "usr/local" / sys.platlibdir / version / path.relative_to(library))
    libraries = _shared_libraries(compiled)
    if not any(p.name.startswith("ld-") for p in libraries):
        raise IschedError(f"{program} is not linked against the GNU C library; build from a base image instead: --from containerfile.")
    for path in libraries:
        folder = str(path.parent)[1:] if path.name.startswith("ld-") else _library_folder()
        _copy(path, root / folder / path.name, executable=True)


def _standard_library(library: Path) -> Iterator[Path]:
    for where, folders, files in os.walk(library):
        folders[:] = sorted(f for f in folders if f not in _LEFT_OUT and not f.startswith("config-"))
        for name in sorted(files):
            path = Path(where) / name
            if path.suffix in (".py", ".so") and path.is_file() and not name.startswith(_PARTS_LEFT_OUT):
                yield path


def _library_folder() -> str:
    """Where the dynamic loader looks by itself: Debian's multiarch folder, elsewhere lib64."""
    multiarch = sysconfig.get_config_var("MULTIARCH")
    return f"lib/{multiarch}" if multiarch and Path(f"/lib/{multiarch}").is_dir() else "lib64"


def _shared_libraries(programs: list[Path]) -> list[Path]:
    """What ldd(1) says they load, as files."""
    done = subprocess.run(
        ["ldd", *map(str, programs)], capture_output=True, text=True, check=False, timeout=120, stdin=subprocess.DEVNULL
    )
    return sorted({Path(found) for found in _LOADED.findall(done.stdout)}, key=lambda p: p.name)


def _project(root: Path, project: Project) -> None:
    inside = root / INSIDE[1:]
    for source in project.sources:
        folder = project.folder / source
        if not folder.is_dir():
            raise BadInput(f"{folder} does not exist; correct sources in estimator.toml.")
        for path in digests.tree(folder):
            _copy(path, inside / path.relative_to(folder))
    for package in project.packages:
        for name, path in _package(package):
            _copy(path, inside / name)


def _package(name: str) -> Iterator[tuple[str, Path]]:
    """An installed package's files as they are imported here, without what it depends on."""
    found = importlib.util.find_spec(name)
    if found is None or not found.origin:
        raise BadInput(f"package '{name}' is not installed in {sys.prefix}; install it, or take it out of packages in estimator.toml.")
    origin = Path(found.origin)
    if not found.submodule_search_locations:
        yield origin.name, origin
        return
    for path in digests.tree(origin.parent):
        if path.suffix == ".so":
            raise BadInput(f"package '{name}' has compiled parts, which need a base image: isched estimator build --from containerfile.")
        yield f"{name}/{path.relative_to(origin.parent)}", path
