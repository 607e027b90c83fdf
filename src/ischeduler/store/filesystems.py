"""What kind of file system holds a path: SQLite's write-ahead log needs shared memory, which network file systems lack."""

from __future__ import annotations

from pathlib import Path

NETWORK_TYPES = frozenset(
    {
        "nfs",
        "nfs4",
        "lustre",
        "gpfs",
        "beegfs",
        "cifs",
        "smb3",
        "smbfs",
        "ceph",
        "afs",
        "panfs",
        "wekafs",
        "9p",
        "pvfs2",
        "orangefs",
    }
)
_MOUNTS = Path("/proc/self/mountinfo")


def file_system_type(path: Path, mounts: str | None = None) -> str | None:
    """The type of the mount that holds ``path`` (``ext4``, ``nfs4``), or None where the system does not say.

    ``mounts`` is the text of /proc/self/mountinfo (proc(5)), read when not given.
    """
    if mounts is None:
        if not _MOUNTS.exists():
            return None
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="replace")
    target = path.absolute()
    best: tuple[int, str] | None = None
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split()
        if len(fields) < 5 or not right:
            continue
        point = Path(_unescape(fields[4]))
        if target.is_relative_to(point) and (best is None or len(point.parts) >= best[0]):
            best = (len(point.parts), right.split()[0])
    return best[1] if best else None


def is_network(kind: str | None) -> bool:
    """Whether several hosts may share such a file system. FUSE mounts count, since most of those in centres are remote."""
    return kind is not None and (kind in NETWORK_TYPES or kind.startswith("fuse."))


def _unescape(text: str) -> str:
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, char)
    return text
