"""A whole centre on one machine: ``up`` starts it and stays until Ctrl-C; ``demo`` lets three users run five trainings on it while
a worker, the broker and slurmctld are killed, and ends with a report and pictures. What ``scripts/centre`` runs.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from screenshots import take
from stage import PEOPLE, Centre
from story import TRAINING_CPU_S, Story, report

FOLDER = Path("/var/lib/ischeduler/centre")


def say(words: str) -> None:
    """A line, at once."""
    print(words, flush=True)


def demo(centre: Centre, training_s: float) -> int:
    """The guided demo. 0 when everything held."""
    started = time.monotonic()
    story = Story(centre, say, training_s=training_s)
    held = story.tell()
    runs = {t.name: f"/runs/{t.run_id}" for t in story.trainings if t.owner == "bob"}
    pages = {"runs": "/runs?everybody=1", "admin": "/admin", "clusters": "/clusters"}
    shots = take(centre.url, centre.tokens["carol"], pages, centre.folder)
    shots += take(centre.url, centre.tokens["bob"], {"run": next(iter(runs.values()))}, centre.folder)
    path = report(story, centre.folder, time.monotonic() - started, shots)
    say(f"\nReport: {path}")
    for shot in shots:
        say(f"Picture: {shot}")
    if not shots:
        say("No Chromium here: no pictures (scripts/install-browser brings it).")
    return 0 if held else 1


def stay(centre: Centre) -> int:
    """Until Ctrl-C or SIGTERM."""
    say(f"\nThe centre is up: {centre.url} (dashboard and API). Sign in with a token:")
    for person in PEOPLE:
        path = centre.folder / "secrets" / f"{person}.token"
        say(f"  {person}: sudo cat {path}")
    say("Ctrl-C ends it and removes everything.")
    signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    try:
        while True:
            time.sleep(5)
            for name, part in centre.parts.items():
                if not part.pid:
                    say(f"{name} ended and is started again; its log: {part.log}")
                    centre.restart(name)
    except KeyboardInterrupt:
        say("\nending")
        return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="?", choices=["up", "demo"], default="up")
    parser.add_argument("--port", type=int, default=8642, help="port of the service (0: any)")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where logs, secrets and the report go; emptied first")
    parser.add_argument("--training-s", type=float, default=TRAINING_CPU_S, help="processor time of each of the demo's trainings, seconds")
    args = parser.parse_args()
    centre = Centre(args.folder, say, port=args.port)
    started = time.monotonic()
    try:
        centre.up()
        say(f"The centre is up after {time.monotonic() - started:.0f} s.")
        return demo(centre, args.training_s) if args.what == "demo" else stay(centre)
    except KeyboardInterrupt:
        say("\ninterrupted; cleaning up")
        return 130
    except RuntimeError as error:
        say(f"centre: {error}")
        for part in centre.parts.values():
            say(f"--- end of {part.log}\n{part.last_words()[-800:]}")
        return 1
    finally:
        centre.down()


if __name__ == "__main__":
    sys.exit(main())
