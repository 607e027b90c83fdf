"""A Python that ordinary users of the sandbox can run, with this project and its packages.

Root's interpreter often lies below a home directory of mode 700 (pyenv, uv, a clone in /root). Nothing is opened up
there; instead the sandbox gets its own ``python/``: a virtual environment over what everybody can read, and hard links
(copies across file systems), which cost no space, of what is closed.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
import sysconfig
from pathlib import Path

from ischeduler.sandbox.host import closed_ancestor

_VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
_LAUNCHER = """#!/bin/bash
# Keeps argv[0], by which Python finds its prefix and names sys.executable.
export LD_LIBRARY_PATH={lib}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}
exec -a "$0" {real} "$@"
"""


def ready(target: Path) -> Path:
    """The interpreter in ``target``, built there the first time; it stays as it is until the sandbox goes."""
    if not (target / "complete").exists():
        shutil.rmtree(target, ignore_errors=True)
        _build(target)
        (target / "complete").touch()
    return target / "bin" / "python"


def _open_to_all(paths: list[Path]) -> bool:
    return all(closed_ancestor(p) is None and closed_ancestor(p.parent) is None for p in paths)


def _standard_library() -> list[Path]:
    return [Path(sysconfig.get_path("stdlib")), Path(sys.base_prefix) / "bin"]


def _package_paths() -> list[Path]:
    """Directories of sys.path beyond the standard library: site-packages and editable projects."""
    standard = Path(sysconfig.get_path("stdlib")).resolve()
    left_out = {standard, standard / "lib-dynload"}
    if sys.prefix != sys.base_prefix:
        left_out.add(standard / "site-packages")
    found = [Path(p).resolve() for p in sys.path if p and Path(p).is_dir()]
    project = Path(__file__).resolve().parents[2]
    return list(dict.fromkeys([project, *(p for p in found if p not in left_out)]))


def _build(target: Path) -> None:
    library = target / "lib" / _VERSION
    (target / "bin").mkdir(parents=True)
    if _open_to_all(_standard_library()):
        _as_virtual_environment(target)
    else:
        _as_copy(target)
    packages = library / "site-packages"
    packages.mkdir(parents=True, exist_ok=True)
    paths = [p if _open_to_all([p]) else _mirror(p, target / "paths" / str(i)) for i, p in enumerate(_package_paths())]
    (packages / "project.pth").write_text("".join(f"{p}\n" for p in paths))
    for name in ("python3", _VERSION):
        (target / "bin" / name).symlink_to("python")
    _scripts(target)


def _as_virtual_environment(target: Path) -> None:
    base = Path(sys.executable).resolve()
    (target / "bin" / "python").symlink_to(base)
    (target / "pyvenv.cfg").write_text(f"home = {base.parent}\ninclude-system-site-packages = false\n")


def _as_copy(target: Path) -> None:
    """The standard library and the interpreter, linked; found through argv[0], libpython through LD_LIBRARY_PATH."""
    library, standard = target / "lib", Path(sysconfig.get_path("stdlib"))
    _mirror(standard, library / _VERSION, skip=("site-packages", "test", "idlelib"))
    for shared in Path(sysconfig.get_config_var("LIBDIR") or standard.parent).glob("libpython*.so*"):
        _link(str(shared.resolve()), str(library / shared.name))
    real = target / "bin" / f"{_VERSION}.real"
    _link(str(Path(sys.executable).resolve()), str(real))
    launcher = target / "bin" / "python"
    launcher.write_text(_LAUNCHER.format(lib=library, real=real))
    launcher.chmod(0o755)


def _mirror(source: Path, target: Path, skip: tuple[str, ...] = ()) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(source, target, copy_function=_link, ignore=shutil.ignore_patterns(*skip), dirs_exist_ok=True)
    for directory, _, _ in os.walk(target):
        os.chmod(directory, os.stat(directory).st_mode | 0o055)
    return target


def _link(source: str, target: str) -> None:
    """A hard link; a copy where that cannot be (other file system) or where others could not read the original."""
    if os.stat(source).st_mode & stat.S_IROTH:
        try:
            os.link(source, target, follow_symlinks=True)
            return
        except OSError:
            pass  # other file system, or no hard links here: copy
    shutil.copy2(source, target)
    os.chmod(target, os.stat(target).st_mode | 0o044)


def _scripts(target: Path) -> None:
    """Console scripts (isched, torchrun, ...) again, with the new interpreter in their first line."""
    for script in Path(sysconfig.get_path("scripts")).iterdir():
        copy = target / "bin" / script.name
        if copy.exists() or not script.is_file():
            continue
        first, _, rest = script.read_bytes().partition(b"\n")
        if first.startswith(b"#!") and b"python" in first:
            copy.write_bytes(f"#!{target}/bin/python\n".encode() + rest)
            copy.chmod(0o755)
