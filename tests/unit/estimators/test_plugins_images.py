"""Root file systems: unpacked without letting anything out, built the same twice; and a new project's files."""

from __future__ import annotations

import io
import os
import stat
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from ischeduler.core.errors import BadInput, IschedError, NotFound
from ischeduler.estimators.conformance import broken, check_plugin
from ischeduler.estimators.contract import QUANTITIES
from ischeduler.estimators.plugins import build as building
from ischeduler.estimators.plugins import digests
from ischeduler.estimators.plugins.build import Built, build
from ischeduler.estimators.plugins.install import Installer, Source
from ischeduler.estimators.plugins.load import of_version
from ischeduler.estimators.plugins.project import read_project
from ischeduler.estimators.plugins.unpack import unpack
from ischeduler.estimators.scaffold import make


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644, data: bytes = b"inside") -> tuple[tarfile.TarInfo, bytes]:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.mode = kind, link, mode
    made.size = len(data) if kind == tarfile.REGTYPE else 0
    return made, data if kind == tarfile.REGTYPE else b""


def archive(path: Path, *entries: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w") as file:
        for made, data in entries:
            file.addfile(made, io.BytesIO(data))
    return path


def test_what_charliecloud_needs_is_there_and_everybody_may_read(tmp_path: Path) -> None:
    source = archive(tmp_path / "a.tar", entry("usr", tarfile.DIRTYPE, mode=0o700), entry("usr/x", mode=0o600), entry("usr/run", mode=0o4755),
                     entry("./lib/y"), entry("lib64", tarfile.SYMTYPE, "lib"), entry("usr/z", tarfile.LNKTYPE, "usr/x"), entry("usr/dev", tarfile.CHRTYPE))
    root = tmp_path / "out" / "root"
    unpack(source, root)
    assert {p.name for p in root.iterdir()} >= {"dev", "proc", "sys", "tmp", "etc", "home", "mnt", "usr", "lib", "lib64"}
    assert (root / "etc" / "passwd").is_file()
    assert stat.S_IMODE((root / "usr").stat().st_mode) == 0o755
    assert stat.S_IMODE((root / "usr" / "x").stat().st_mode) == 0o644
    assert stat.S_IMODE((root / "usr" / "run").stat().st_mode) == 0o755
    assert (root / "usr" / "z").read_bytes() == b"inside"
    assert not (root / "usr" / "dev").exists()
    assert list(root.parent.iterdir()) == [root]


@pytest.mark.parametrize("entries", [
    [entry("../out.txt")], [entry("a/../../out.txt")], [entry("out", tarfile.SYMTYPE, ".."), entry("out/out.txt")],
    [entry("etc", tarfile.SYMTYPE, "OUTSIDE"), entry("etc/out.txt")], [entry("hard", tarfile.LNKTYPE, "../secret")],
    [entry("s", tarfile.SYMTYPE, "OUTSIDE/secret"), entry("hard", tarfile.LNKTYPE, "s")], [entry("d", tarfile.SYMTYPE, "OUTSIDE"), entry("h", tarfile.LNKTYPE, "d/secret")],
])
def test_nothing_gets_outside(tmp_path: Path, entries: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    for made, _ in entries:
        made.linkname = made.linkname.replace("OUTSIDE", str(outside))
    with pytest.raises(BadInput, match="archive's member"):
        unpack(archive(tmp_path / "a.tar", *entries), tmp_path / "out" / "root")
    assert sorted(p.name for p in outside.iterdir()) == ["secret"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.tar", "out", "outside"]
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("name", ["dev", "tmp", "mnt", "etc", "etc/passwd", "etc/resolv.conf", "mnt/0"])
def test_a_mount_point_that_is_a_link_is_replaced(tmp_path: Path, name: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    unpack(archive(tmp_path / "a.tar", entry(name, tarfile.SYMTYPE, str(outside))), tmp_path / "root")
    assert not (tmp_path / "root" / name).is_symlink()
    assert list(outside.iterdir()) == []


def test_absolute_names_land_inside(tmp_path: Path) -> None:
    unpack(archive(tmp_path / "a.tar", entry("/opt/x")), tmp_path / "root")
    assert (tmp_path / "root" / "opt" / "x").read_bytes() == b"inside"


@pytest.mark.parametrize("data", [b"", b"nonsense" * 100])
def test_what_is_no_archive_is_a_sentence(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.tar").write_bytes(data)
    with pytest.raises(BadInput, match="no sound root file system archive"):
        unpack(tmp_path / "a.tar", tmp_path / "root")
    assert not (tmp_path / "root").exists()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make("per-image", tmp_path / "per-image")
    return tmp_path / "per-image"


@pytest.fixture
def without_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "image_maker", lambda name="auto": "")


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> list[Built]:
    """The same project, built in two folders without an engine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(building, "image_maker", lambda name="auto": "")
        found: list[Built] = []
        for _ in range(2):
            folder = tmp_path_factory.mktemp("build") / "per-image"
            make("per-image", folder)
            found.append(build(read_project(folder), way="python"))
        return found


def test_the_same_project_gives_the_same_archive(twice: list[Built]) -> None:
    first, second = twice
    assert first.archive != second.archive
    assert first.digest == second.digest == digests.of_file(Path(second.archive))
    assert first.notes == ("neither podman nor docker works here: the archive is for charliecloud and apptainer",)
    with tarfile.open(first.archive) as file:
        names = set(file.getnames())
    assert {"usr/local/bin/python3", "plugin/per_image/model.py", "etc/passwd"} <= names
    assert not [n for n in names if "site-packages" in n]


def test_what_is_built_runs_as_it_is(twice: list[Built], tmp_path: Path) -> None:
    """Without a container: the interpreter inside finds its own library."""
    root = tmp_path / "root"
    unpack(Path(twice[0].archive), root)
    loader = next((p for p in root.glob("lib*/ld-linux*") if p.is_file()), None)
    assert loader is not None
    libraries = ":".join(str(p) for p in root.glob("lib*/*-linux-gnu")) or str(root / "lib64")
    ask = "import json, ssl, sqlite3, sys; print(json.__file__, sys.version)"
    done = subprocess.run(
        [str(loader), "--library-path", libraries, str(root / "usr/local/bin/python3"), "-S", "-c", ask], capture_output=True, text=True,
        env={"PYTHONHOME": str(root / "usr/local")}, check=False,
    )
    assert sys.version.split()[0] in done.stdout, done.stderr
    assert done.stdout.startswith(str(root))


def test_ways_to_build_that_cannot_be_had_are_said(folder: Path, without_engines: None, monkeypatch: pytest.MonkeyPatch) -> None:
    project = read_project(folder)
    with pytest.raises(IschedError, match="neither podman nor docker"):
        build(project, way="containerfile")
    monkeypatch.setattr(building, "write_rootfs", lambda project, target: archive(_made(target), entry("x")))
    fallen_back = build(project)
    assert fallen_back.way == "python"
    assert "not from the Containerfile" in fallen_back.notes[0]
    with pytest.raises(BadInput, match="no way to build"):
        build(project, way="magic")


def _made(target: Path) -> Path:
    target.parent.mkdir()
    return target


def test_an_engine_that_builds_nothing_is_refused() -> None:
    with pytest.raises(NotFound, match="'charliecloud' builds no images"):
        building.image_maker("charliecloud")


@pytest.mark.parametrize(("text", "words"), [
    ("", "name in"), ('name = "a b"\nversion = "1"\ncommand = ["x"]', "name in"), ('name = "a"\nversion = "1"', "no command"),
    ('name = "a"\nversion = "1"\ncommand = "x"', "list of texts"), ("nonsense", "cannot be read"),
    ('name = "a"\nversion = "1"\ncommand = ["x"]\ncolour = "red"', "'colour', which means nothing"),
])
def test_a_bad_manifest_is_a_sentence(folder: Path, text: str, words: str) -> None:
    (folder / "estimator.toml").write_text(text)
    with pytest.raises(BadInput, match=words):
        read_project(folder)


def test_digests_are_of_content_and_not_of_dates(folder: Path) -> None:
    before = digests.of_tree(folder)
    os.utime(folder / "README.md", (1, 1))
    (folder / "src" / "__pycache__").mkdir()
    (folder / "src" / "__pycache__" / "x.pyc").write_text("x")
    assert digests.of_tree(folder) == before
    (folder / "README.md").write_text("other")
    assert digests.of_tree(folder) != before


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_a_new_project_conforms_for_every_quantity(tmp_path: Path, quantity: str) -> None:
    make("mine", tmp_path / "mine", quantity)
    version = Installer(tmp_path / "data").version(Source(str(tmp_path / "mine"), "process"))
    assert broken(check_plugin(of_version(version, memo=False))) == []


def test_a_new_projects_own_tests_pass(folder: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "passed" in done.stdout


@pytest.mark.parametrize("name", ["Per Image", "1st", "-x", "class", "a" * 50, "../x", ""])
def test_a_bad_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput, match="cannot be an estimator's name"):
        make(name, tmp_path / "x")


def test_nothing_is_overwritten(folder: Path) -> None:
    with pytest.raises(BadInput, match="not empty"):
        make("per-image", folder)
    with pytest.raises(BadInput, match="'colour' is unknown"):
        make("per-image", folder / "new", "colour")
