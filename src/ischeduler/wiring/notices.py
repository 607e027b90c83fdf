"""Words for the owner, in a file of the state folder."""

from __future__ import annotations

import json
import time
from pathlib import Path

from ischeduler.core.run import Run


class LogNotifier:
    """Appends what the plane tells the owner to a file in the state folder; a full disk is no reason to stop."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def notify(self, run: Run, subject: str, text: str) -> None:
        """Best effort; never raises."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"at": time.time(), "run": run.id, "subject": subject, "text": text}) + "\n")
        except OSError:
            return  # telling is best effort: the same words stand in the run itself
