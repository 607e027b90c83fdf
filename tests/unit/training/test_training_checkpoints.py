"""Checkpoints on disk: atomic, verified, pruned with care, and never published by who was superseded."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ischeduler.training.checkpoints import CheckpointStore, Superseded
from ischeduler.training.lineage import CheckpointName
from ischeduler.training.rundir import Claim, RunDir
from ischeduler.training.token import Token, raise_fence


def data(text: str):
    return lambda path: path.write_text(text) and None


def store(run: Path, token: int = 1, keep: int = 3) -> CheckpointStore:
    run_dir = RunDir(run)
    run_dir.prepare(Token(token))
    return CheckpointStore(run_dir.checkpoints, token=Token(token), keep=keep, run_dir=run_dir)


def started(run: Path, token: int, keep: int = 3) -> tuple[CheckpointStore, CheckpointName | None]:
    """A new incarnation up to its first step: claim, fence, choice, base."""
    made = store(run, token, keep)
    RunDir(run).claim(Token(token), Claim.mine(str(token)))
    raise_fence(run, Token(token))
    manifest, _ = made.newest_good()
    made.settle_base(None if manifest is None else manifest.name)
    return made, None if manifest is None else manifest.name


def names(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.json"))


def test_publish_and_read_back(tmp_path: Path) -> None:
    first, base = started(tmp_path, 1)
    assert base is None
    manifest = first.save(2, 40, data("weights"))
    assert str(manifest.name) == "e00002-s000000040-t1.0"
    value = json.loads((tmp_path / "checkpoints" / f"{manifest.name}.json").read_text())
    assert value["created_at"] > 0
    assert {key: value[key] for key in ("v", "token", "epoch", "step", "size", "file", "sha256")} == {
        "v": 1,
        "token": "1.0",
        "epoch": 2,
        "step": 40,
        "size": 7,
        "file": f"{manifest.name}.pt",
        "sha256": hashlib.sha256(b"weights").hexdigest(),
    }
    second, base = started(tmp_path, 2)
    assert base == manifest.name
    found, skipped = second.newest_good()
    assert found == manifest
    assert skipped == []
    assert second.path(manifest).read_text() == "weights"


def corrupt_truncate(folder: Path, name: str) -> None:
    os.truncate(folder / f"{name}.pt", 3)


def corrupt_flip(folder: Path, name: str) -> None:
    path = folder / f"{name}.pt"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def corrupt_no_manifest(folder: Path, name: str) -> None:
    (folder / f"{name}.json").unlink()


def corrupt_no_data(folder: Path, name: str) -> None:
    (folder / f"{name}.pt").unlink()


def corrupt_manifest(folder: Path, name: str) -> None:
    (folder / f"{name}.json").write_text('{"v":1,"tok')


def corrupt_foreign_manifest(folder: Path, name: str) -> None:
    shutil.copy(folder / f"{names(folder)[0]}.json", folder / f"{name}.json")


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (corrupt_truncate, "it has 3 bytes, 4 were published"),
        (corrupt_flip, "its sha256 differs from the published one"),
        (corrupt_no_manifest, "its manifest is missing"),
        (corrupt_no_data, "its data file is missing"),
        (corrupt_manifest, "its manifest is not readable"),
        (corrupt_foreign_manifest, "its manifest belongs to another checkpoint"),
    ],
)
def test_a_corrupt_newest_falls_back_to_the_previous_and_says_why(tmp_path: Path, harm, why: str) -> None:
    first, _ = started(tmp_path, 1)
    good = first.save(1, 10, data("good"))
    bad = first.save(2, 20, data("baad"))
    harm(first.directory, str(bad.name))
    found, skipped = store(tmp_path, 2).newest_good()
    assert found == good
    assert [item.name for item in skipped] == [str(bad.name)]
    assert why in skipped[0].why


def test_all_corrupt_means_from_scratch(tmp_path: Path) -> None:
    first, _ = started(tmp_path, 1)
    for step in (10, 20):
        corrupt_flip(first.directory, str(first.save(0, step, data("x")).name))
    found, skipped = store(tmp_path, 2).newest_good()
    assert found is None
    assert len(skipped) == 2


def test_a_failed_write_publishes_nothing_and_leaves_no_litter(tmp_path: Path) -> None:
    first, _ = started(tmp_path, 1)
    good = first.save(1, 10, data("good"))

    def fails(path: Path) -> None:
        path.write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        first.save(2, 20, fails)
    assert sorted(os.listdir(first.directory)) == [f"{good.name}.json", f"{good.name}.pt"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 256 KiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    folder = tmp_path / "small"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_really_full_disk(small_disk: Path) -> None:
    first, _ = started(small_disk / "run", 1, keep=1)
    good = first.save(1, 10, lambda path: path.write_bytes(b"a" * 100_000) and None)
    with pytest.raises(OSError, match="No space") as caught:
        first.save(2, 20, lambda path: path.write_bytes(b"b" * 200_000) and None)
    assert caught.value.errno == errno.ENOSPC
    assert not list(first.directory.glob(".tmp-*"))
    assert store(small_disk / "run", 2).newest_good()[0] == good
    later = first.save(3, 30, lambda path: path.write_bytes(b"c" * 100_000) and None)
    assert store(small_disk / "run", 2).newest_good()[0] == later


def test_who_is_superseded_publishes_nothing(tmp_path: Path) -> None:
    first, _ = started(tmp_path, 1)
    first.save(1, 10, data("a"))
    started(tmp_path, 2)
    with pytest.raises(Superseded, match=r"1\.0 is superseded by 2\.0"):
        first.save(2, 20, data("b"))
    assert names(first.directory) == ["e00001-s000000010-t1.0"]


def test_the_fence_is_read_again_after_writing(tmp_path: Path) -> None:
    first, _ = started(tmp_path, 1)

    def overtaken(path: Path) -> None:
        path.write_text("late")
        raise_fence(tmp_path, Token(2))

    with pytest.raises(Superseded):
        first.save(1, 10, overtaken)
    assert os.listdir(first.directory) == []


def test_a_checkpoint_that_slips_past_the_fence_is_not_taken(tmp_path: Path) -> None:
    """The very race: fence read, then the successor starts and settles, then the rename."""
    zombie, _ = started(tmp_path, 1)
    zombie.save(1, 10, data("ten"))
    heir, base = started(tmp_path, 2)
    assert base.step == 10
    zombie.check_fence = lambda: None
    zombie.save(2, 20, data("late"))
    assert heir.candidates()[0].step == 10
    heir.save(1, 15, data("fifteen"))
    third, base = started(tmp_path, 3)
    assert str(base) == "e00001-s000000015-t2.0"
    assert [str(n) for n in third.candidates()] == ["e00001-s000000015-t2.0", "e00001-s000000010-t1.0"]


def test_a_superseded_writer_deletes_nothing(tmp_path: Path) -> None:
    zombie, _ = started(tmp_path, 1, keep=1)
    zombie.save(1, 10, data("ten"))
    _, base = started(tmp_path, 2)
    with pytest.raises(Superseded):
        zombie.prune()
    zombie.check_fence = lambda: None
    zombie.save(2, 20, data("late"))
    assert str(base) in names(zombie.directory)


def test_the_last_k_and_the_base_are_kept(tmp_path: Path) -> None:
    first, _ = started(tmp_path, 1, keep=2)
    for step in (10, 20, 30):
        first.save(0, step, data("x"))
    assert names(first.directory) == ["e00000-s000000020-t1.0", "e00000-s000000030-t1.0"]
    second, base = started(tmp_path, 2, keep=2)
    for step in (40, 50, 60):
        second.save(0, step, data("x"))
    assert names(first.directory) == [str(base), "e00000-s000000050-t2.0", "e00000-s000000060-t2.0"]
    assert sorted(path.suffix for path in first.directory.iterdir()) == [".json"] * 3 + [".pt"] * 3


def test_keep_must_be_positive(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="keep=0"):
        CheckpointStore(tmp_path, token=Token(1), keep=0)


def test_litter_of_dead_incarnations_is_cleared(tmp_path: Path) -> None:
    first, _ = started(tmp_path, 1)
    first.save(0, 10, data("x"))
    for litter in (".tmp-e00000-s000000020-t1.0-77.pt", ".tmp-e00000-s000000020-t1.0.json-77", "e00000-s000000020-t1.0.pt"):
        (first.directory / litter).write_text("half")
    (first.directory / "mine.txt").write_text("the user's own")
    second, _ = started(tmp_path, 2)
    second.save(0, 11, data("y"))
    assert names(first.directory) == ["e00000-s000000010-t1.0", "e00000-s000000011-t2.0"]
    assert not list(first.directory.glob(".tmp*"))
    assert (first.directory / "mine.txt").exists()


def test_corrupt_ones_do_not_count_as_kept(tmp_path: Path) -> None:
    first, _ = started(tmp_path, 1, keep=3)
    for step in (10, 20, 30):
        first.save(0, step, data("x"))
    for step in (20, 30):
        corrupt_flip(first.directory, f"e00000-s{step:09d}-t1.0")
    second, base = started(tmp_path, 2, keep=2)
    assert base.step == 10
    second.save(0, 11, data("y"))
    assert names(first.directory) == ["e00000-s000000010-t1.0", "e00000-s000000011-t2.0"]


def test_a_position_is_saved_once(tmp_path: Path) -> None:
    first, _ = started(tmp_path, 1)
    assert first.save(1, 10, data("a")) == first.save(1, 10, data("never written"))
    assert first.path(first.save(1, 10, data("b"))).read_text() == "a"


def test_without_base_json_nothing_is_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk was full at the start: a checkpoint that no successor could find would be worthless."""
    first = store(tmp_path)
    monkeypatch.setattr(RunDir, "write_base", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
    with pytest.raises(OSError, match="full"):
        first.settle_base(None)
    with pytest.raises(OSError, match="full"):
        first.save(1, 10, data("a"))
    monkeypatch.undo()
    first.save(1, 10, data("a"))
    assert RunDir(tmp_path).bases() == {Token(1): None}


def test_a_local_folder_has_no_lineage(tmp_path: Path) -> None:
    one = CheckpointStore(tmp_path / "c", token=Token(0), keep=2)
    assert one.newest_good() == (None, [])
    for step in (1, 2, 3):
        one.save(0, step, data(str(step)))
    again = CheckpointStore(tmp_path / "c", token=Token(0), keep=2)
    found, _ = again.newest_good()
    assert found.name.step == 3
    corrupt_flip(tmp_path / "c", str(found.name))
    again = CheckpointStore(tmp_path / "c", token=Token(0), keep=2)
    assert again.newest_good()[0].name.step == 2
    again.save(0, 3, data("new"))
    assert again.path(again.newest_good()[0]).read_text() == "new"


@settings(max_examples=40, deadline=None)
@given(
    moves=st.lists(
        st.one_of(
            st.tuples(st.just("save"), st.integers(1, 5)),
            st.tuples(st.just("restart"), st.just(0)),
            st.tuples(st.just("zombie"), st.integers(1, 5)),
            st.tuples(st.just("harm"), st.integers(0, 5)),
        ),
        max_size=20,
    ),
    keep=st.integers(1, 3),
)
def test_whatever_happens_a_run_never_goes_back_behind_its_base(tmp_path_factory, moves, keep: int) -> None:
    """Saves, restarts, zombies that slip past the fence, bit flips in the newest: an intact checkpoint is always found
    while one that has not been harmed was published and kept, and never one of a zombie."""
    run = tmp_path_factory.mktemp("run")
    token = 1
    current, _ = started(run, token, keep)
    old: list[CheckpointStore] = []
    step, sound = 0, {}
    for kind, number in moves:
        if kind == "save":
            step += number
            sound[str(current.save(0, step, data(f"{token}:{step}")).name)] = f"{token}:{step}"
        elif kind == "restart":
            token += 1
            old.append(current)
            current, base = started(run, token, keep)
            step = base.step if base else 0
            assert base is None or str(base) in sound
        elif kind == "zombie" and old:
            zombie = old[number % len(old)]
            zombie.check_fence = lambda: None
            zombie.save(9, 10_000 + step + number, data("zombie"))
        elif kind == "harm":
            found, _ = store(run, token + 1, keep).newest_good()
            if found is not None and number == 0:
                corrupt_flip(current.directory, str(found.name))
                sound.pop(str(found.name))
    found, _ = store(run, token + 1, keep).newest_good()
    assert found is None or current.path(found).read_text() == sound[str(found.name)]
