"""Checkpoints on disk: published atomically, verified before they are trusted, pruned with care."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from ischeduler.training.files import TEMP_PREFIX, fsync_dir, fsync_file, remove_quietly, write_atomic
from ischeduler.training.lineage import CheckpointName, lineage
from ischeduler.training.rundir import RunDir
from ischeduler.training.token import Token, read_fence

_BLOCK_BYTES = 1 << 20


class Superseded(Exception):
    """A newer incarnation of the run exists: this one must publish nothing and stop."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What `checkpoints/NAME.json` says about its data file. `size` in bytes, `created_at` by the writer's clock."""

    name: CheckpointName
    file: str
    size: int
    sha256: str
    created_at: float

    def to_json(self) -> bytes:
        name = self.name
        head = {"v": 1, "token": str(name.token), "epoch": name.epoch, "step": name.step}
        rest = {key: value for key, value in asdict(self).items() if key != "name"}
        return (json.dumps({**head, **rest}) + "\n").encode()

    @classmethod
    def read(cls, path: Path) -> Manifest:
        """Raises OSError, or ValueError when the file is not a sound manifest for its name."""
        name = CheckpointName.parse(path.stem)
        try:
            value = json.loads(path.read_bytes())
            said = (value["epoch"], value["step"], value["token"])
            file, size, sha256 = value["file"], int(value["size"]), str(value["sha256"])
            created_at = float(value["created_at"])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"its manifest is not readable ({type(error).__name__})") from error
        if said != (name.epoch, name.step, str(name.token)) or not isinstance(file, str) or not file.startswith(f"{name}."):
            raise ValueError("its manifest belongs to another checkpoint")
        return cls(name, file, size, sha256, created_at)


@dataclass(frozen=True, slots=True)
class Skipped:
    """A checkpoint that was passed over, and why."""

    name: str
    why: str


class CheckpointStore:
    """The checkpoints one incarnation may read and the ones it writes.

    With `run_dir` the rules of the in-job protocol hold (fence, base, lineage). Without, `directory` is a plain local
    folder whose checkpoints all count.
    """

    def __init__(
        self, directory: Path, *, token: Token, keep: int = 3, suffix: str = ".pt", run_dir: RunDir | None = None
    ) -> None:
        if keep < 1:
            raise ValueError(f"keep={keep}: at least 1 checkpoint must be kept.")
        self.directory, self.token, self.keep, self.suffix, self.run_dir = directory, token, keep, suffix, run_dir
        self._bad: set[str] = set()
        self._published: dict[str, Manifest] = {}

    def candidates(self) -> list[CheckpointName]:
        """Names that may be resumed, best first; not verified yet. Data without manifest is named too, to be reported."""
        found: set[CheckpointName] = set()
        try:
            entries = os.listdir(self.directory)
        except FileNotFoundError:
            return []
        for entry in entries:
            name = CheckpointName.of_file(entry)
            if name is not None:
                found.add(name)
        if self.run_dir is None:
            return sorted(found, key=lambda name: (name.position, name.token), reverse=True)
        return lineage(found, self.run_dir.bases(), self.token)

    def newest_good(self) -> tuple[Manifest | None, list[Skipped]]:
        """The best checkpoint whose size and sha256 are as published, and those passed over before it."""
        skipped: list[Skipped] = []
        for name in self.candidates():
            try:
                return self.verified(name), skipped
            except (OSError, ValueError) as error:
                self._bad.add(str(name))
                skipped.append(Skipped(str(name), _reason(error)))
        return None, skipped

    def verified(self, name: CheckpointName) -> Manifest:
        """The manifest of a checkpoint that is intact. Raises OSError or ValueError saying what is wrong."""
        manifest = Manifest.read(self.directory / f"{name}.json")
        path = self.path(manifest)
        size = path.stat().st_size
        if size != manifest.size:
            raise ValueError(f"it has {size} bytes, {manifest.size} were published")
        if _sha256(path) != manifest.sha256:
            raise ValueError("its sha256 differs from the published one")
        return manifest

    def path(self, manifest: Manifest) -> Path:
        """Where the data of a checkpoint lies."""
        return self.directory / manifest.file

    def check_fence(self) -> None:
        """Raises Superseded when a newer incarnation has been seen. An unreadable fence is not a reason to stop."""
        if self.run_dir is None:
            return
        try:
            fence = read_fence(self.run_dir.path)
        except OSError:
            return
        if fence is not None and fence > self.token:
            raise Superseded(f"Attempt {self.token} is superseded by {fence}.")

    def save(self, epoch: int, step: int, write: Callable[[Path], None]) -> Manifest:
        """Publish one checkpoint; `write(path)` puts the data there. A position is published once.

        Raises Superseded, or whatever `write` and the file system raise; then nothing is published and no
        temporary file stays behind.
        """
        name = CheckpointName(epoch, step, self.token)
        known = self._published.get(str(name))
        if known is not None:
            return known
        self.check_fence()
        self._ensure_base()
        self.directory.mkdir(parents=True, exist_ok=True)
        temp = self.directory / f"{TEMP_PREFIX}{name}-{os.getpid()}{self.suffix}"
        try:
            manifest = self._publish(name, temp, write)
        finally:
            remove_quietly(temp)
        self._published[str(name)] = manifest
        self._bad.discard(str(name))
        self._prune_quietly()
        return manifest

    def _prune_quietly(self) -> None:
        """The checkpoint is published: neither a full directory listing nor a successor that has appeared undoes that."""
        with contextlib.suppress(OSError, Superseded):
            self.prune()

    def _publish(self, name: CheckpointName, temp: Path, write: Callable[[Path], None]) -> Manifest:
        write(temp)
        fsync_file(temp)
        manifest = Manifest(name, f"{name}{self.suffix}", temp.stat().st_size, _sha256(temp), round(time.time(), 3))
        self.check_fence()
        manifest_path = self.directory / f"{name}.json"
        manifest_path.unlink(missing_ok=True)  # an unsound one from an earlier life must not vouch for the new data
        os.replace(temp, self.directory / manifest.file)
        fsync_dir(self.directory)
        write_atomic(manifest_path, manifest.to_json())
        return manifest

    def _ensure_base(self) -> None:
        """Without base.json no successor would find our checkpoints; a full disk may have prevented it at the start."""
        if self.run_dir is not None and self._base_due:
            self.settle_base(self._base)

    _base_due = False
    _base: CheckpointName | None = None

    def settle_base(self, name: CheckpointName | None) -> None:
        """Write what this incarnation resumed from, once. On failure (OSError) it is written before the first save."""
        self._base, self._base_due = name, True
        if self.run_dir is not None and self.token not in self.run_dir.bases():
            self.run_dir.write_base(self.token, name)
        self._base_due = False

    def prune(self) -> None:
        """Delete what no one may resume any more. Never a base in use, never one of the newest `keep` sound ones.

        Best effort: what cannot be deleted now is tried again after the next checkpoint. Raises Superseded: a
        superseded incarnation deletes nothing, for its successor may rest on it.
        """
        self.check_fence()
        sound = [name for name in self.candidates() if str(name) not in self._bad]
        kept = {str(name) for name in self._with_manifest(sound)[: self.keep]}
        kept |= self._bases_in_use()
        for entry in sorted(os.listdir(self.directory), key=lambda entry: not entry.endswith(".json")):
            if self._is_surplus(entry, kept):
                remove_quietly(self.directory / entry)

    def _bases_in_use(self) -> set[str]:
        bases = {self._base}
        if self.run_dir is not None:
            bases |= {base for token, base in self.run_dir.bases().items() if token >= self.token}
        return {str(base) for base in bases if base is not None}

    def _with_manifest(self, names: list[CheckpointName]) -> list[CheckpointName]:
        return [name for name in names if (self.directory / f"{name}.json").exists()]

    def _is_surplus(self, entry: str, kept: set[str]) -> bool:
        if entry.startswith(TEMP_PREFIX):
            stem = entry.removeprefix(TEMP_PREFIX).rpartition("-")[0].removesuffix(".json")
            name = CheckpointName.try_parse(stem)
            return name is not None and name.token <= self.token
        name = CheckpointName.of_file(entry)
        return name is not None and str(name) not in kept and name.token <= self.token


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError):
        missing = str(error.filename or "")
        return "its manifest is missing" if missing.endswith(".json") else "its data file is missing"
    if isinstance(error, OSError):
        return f"it cannot be read ({error.strerror})"
    return str(error)
