"""A user's corrections of what is known of a cluster: facts by path, or its text in their editor."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ischeduler.core.cluster import Cluster
from ischeduler.core.errors import BadInput

if TYPE_CHECKING:
    from ischeduler.helper.session import Session


def set_facts(session: Session, name: str, facts: Sequence[str]) -> tuple[Cluster, list[str]]:
    """Set ``PATH=VALUE`` facts (``charge.usd_per_unit=0.003``); the cluster and the paths. BadInput or NotFound name the wrong one."""
    changes: dict[str, str] = {}
    for text in facts:
        path, equals, value = text.partition("=")
        if not equals:
            raise BadInput(f"--fact expects PATH=VALUE, e.g. charge.usd_per_unit=0.003, not '{text}'.")
        changes[path.strip()] = value.strip()
    known = session.services.cluster(name).name
    return session.services.cidb.edit(known, changes), list(changes)


def edit_in_editor(session: Session, name: str) -> tuple[Cluster, list[str]]:
    """Open the cluster's text in $VISUAL or $EDITOR; what was changed becomes edits. A text with a mistake is kept to mend."""
    database, known = session.services.cidb, session.services.cluster(name).name
    before = {e.path: e.value for e in database.edits(known)}
    text = database.export_yaml(known)
    with tempfile.TemporaryDirectory(prefix="isched-edit-") as folder:
        path = Path(folder) / f"{known}.yaml"
        path.write_text(text, encoding="utf-8")
        _open(path)
        changed = path.read_text(encoding="utf-8")
    try:
        cluster = database.edit_text(known, changed)
    except BadInput as error:
        kept = session.config.state_dir / f"{known}.yaml"
        kept.write_text(changed, encoding="utf-8")
        raise BadInput(f"{error} Your text is kept in {kept}.") from None
    after = {e.path: e.value for e in database.edits(known)}
    return cluster, [p for p, value in after.items() if before.get(p, object()) != value]


def _open(path: Path) -> None:
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not editor:
        raise BadInput(
            "no editor is set; export EDITOR=nano, or set one fact: isched clusters edit NAME --fact charge.usd_per_unit=0.003."
        )
    try:
        code = subprocess.run([*shlex.split(editor), str(path)], check=False).returncode
    except OSError as error:
        raise BadInput(f"the editor '{editor}' cannot be started: {error.strerror}; set EDITOR to another one.") from None
    if code != 0:
        raise BadInput(f"the editor ended with code {code}; nothing was changed.")
