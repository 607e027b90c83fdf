"""The file that makes a directory a sandbox of ours: its name, shape and ports."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from ischeduler.core.codec import from_plain, to_plain
from ischeduler.sandbox.errors import SandboxError
from ischeduler.sandbox.layout import Layout, Ports
from ischeduler.sandbox.spec import SandboxSpec

KIND = "ischeduler-sandbox"


@dataclass(frozen=True, slots=True)
class Marker:
    """``created_at`` is in epoch seconds; ``accounts_ready`` once slurmdbd has been told of users and QOS."""

    name: str
    spec: SandboxSpec
    ports: Ports
    created_at: float
    accounts_ready: bool = False
    kind: str = KIND
    v: int = 1


def read_marker(layout: Layout) -> Marker | None:
    """The marker of that directory; None when there is none. Raises SandboxError when the file is not ours or is broken."""
    try:
        data = json.loads(layout.marker.read_text())
        if data["kind"] != KIND:
            raise KeyError("kind")
        return from_plain(Marker, data)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise SandboxError(f"{layout.marker} is not a marker of ours ({error}); look at it and remove {layout.root}.") from error


def write_marker(layout: Layout, marker: Marker) -> None:
    """Replaces the marker atomically."""
    layout.root.mkdir(mode=0o755, parents=True, exist_ok=True)
    partial = layout.marker.with_suffix(".tmp")
    partial.write_text(json.dumps(to_plain(marker), indent=1))
    partial.replace(layout.marker)


def sandboxes_in(base: Path) -> list[Marker]:
    """Markers of all sandboxes in that directory; directories of others are skipped."""
    found = [read_marker(Layout(path.parent)) for path in sorted(base.glob("*/sandbox.json"))]
    return [m for m in found if m is not None]


def claim_refusal(layout: Layout) -> str:
    """Why this directory must not be touched: it holds something that is not a sandbox of ours. Empty when it is free or ours."""
    if layout.marker.exists() or not layout.root.exists():
        return ""
    if not layout.root.is_dir() or any(layout.root.iterdir()):
        return f"{layout.root} exists and was not made by a sandbox; choose another name or directory"
    return ""
