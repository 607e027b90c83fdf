"""Unpacks a root file system for engines that run a folder. The archive may be anybody's: nothing of it may land outside."""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

from ischeduler.core.errors import BadInput
from ischeduler.estimators.runtimes.words import clean

LARGEST_BYTES = 32 * 2**30
_MUST_BE = ("dev", "proc", "sys", "tmp", "etc", "home", "mnt", "mnt/0")
_MUST_BE_FILES = ("etc/passwd", "etc/group", "etc/hosts", "etc/resolv.conf")


def unpack(archive: Path, folder: Path) -> None:
    """Unpack into ``folder`` (kept when it is there already). BadInput when the archive is not sound.

    Owners, special permissions, device nodes and pipes are not taken over; everybody may read what is unpacked.
    """
    if folder.is_dir():
        return
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    scratch = folder.with_name(f"{folder.name}.{os.getpid()}.tmp")
    try:
        scratch.mkdir()
        with tarfile.open(archive) as source:
            _members(source, scratch)
        _mount_points(scratch)
        scratch.replace(folder)
    except (tarfile.TarError, EOFError) as error:
        raise BadInput(f"{archive} is no sound root file system archive: {clean(error)}.") from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _members(source: tarfile.TarFile, root: Path) -> None:
    written = 0
    for member in source:
        parts = [p for p in member.name.split("/") if p not in ("", ".")]
        if not parts:
            continue
        target = _place(root, parts, member.name)
        if member.isdir():
            if not target.is_dir() or target.is_symlink():
                _clear(target)
                target.mkdir()
        elif member.issym():
            _clear(target)
            target.symlink_to(member.linkname)
        elif member.islnk():
            _link(root, target, member)
        elif member.isreg():
            written += member.size
            if written > LARGEST_BYTES:
                raise BadInput(f"The archive unpacks to more than {LARGEST_BYTES // 2**30} GiB; is that really an estimator?")
            _file(source, member, target)


def _place(root: Path, parts: list[str], name: str) -> Path:
    """Where a member goes. BadInput when its path leaves the folder, by itself or through a link."""
    if ".." in parts:
        raise BadInput(f"The archive's member {clean(name, 80)!r} would leave its folder.")
    place = root
    for part in parts[:-1]:
        place = place / part
        if place.is_symlink():
            raise BadInput(f"The archive's member {clean(name, 80)!r} goes through a link; pack it again by its real path.")
        place.mkdir(exist_ok=True)
    return place / parts[-1]


def _file(source: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    _clear(target)
    content = source.extractfile(member)
    assert content is not None
    with content, target.open("xb") as sink:
        shutil.copyfileobj(content, sink)
    target.chmod(0o755 if member.mode & 0o111 else 0o644)


def _link(root: Path, target: Path, member: tarfile.TarInfo) -> None:
    """A hard link, to something that was unpacked before."""
    origin = _place(root, [p for p in member.linkname.split("/") if p not in ("", ".")], member.name)
    if origin.is_symlink() or not origin.is_file():
        raise BadInput(f"The archive's member {clean(member.name, 80)!r} links to what is not in it.")
    if origin != target:
        _clear(target)
        os.link(origin, target)


def _clear(target: Path) -> None:
    if target.is_symlink() or target.is_file():
        target.unlink()
    elif target.is_dir():
        shutil.rmtree(target)


def _mount_points(root: Path) -> None:
    """What ch-run(1) expects in a root file system, as plain folders and files of it: a link would lead outside."""
    for path in [root, *_folders(root)]:
        path.chmod(0o755)
    for name in _MUST_BE:
        place = root / name
        if place.is_symlink() or place.is_file():
            place.unlink()
        place.mkdir(exist_ok=True)
    for name in _MUST_BE_FILES:
        place = root / name
        if place.is_symlink() or place.is_dir():
            _clear(place)
        place.touch()


def _folders(root: Path) -> Iterator[Path]:
    for where, folders, _ in os.walk(root):
        yield from (Path(where) / f for f in folders if not (Path(where) / f).is_symlink())
