"""A small web server to be kept up, and a client that finds it by its endpoint file alone and counts when nobody answers."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

ANSWER = """\
import http.server, os, signal, sys, threading, time

class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(os.environ["ISCHED_TOKEN"].encode())

    def log_message(self, *words):
        pass

"""
"""The beginning of a server: whoever asks is told the incarnation."""
SERVER = ANSWER + """
time.sleep(float(sys.argv[2]))
server = http.server.ThreadingHTTPServer(("", int(sys.argv[1])), Answer)
if len(sys.argv) > 3 and not os.path.exists(sys.argv[3]):
    open(sys.argv[3], "w").close()
    threading.Timer(1.5, lambda: os._exit(7)).start()
server.serve_forever()
"""
"""Arguments: port, seconds until it is up, and (to fail once, a second and a half later) a file that says that it has failed."""


@dataclass
class Client:
    """Asks every ``every_s`` whoever `endpoint.json` names. ``asked`` is (when, who answered; '' for nobody)."""

    run_dir: Path
    every_s: float = 0.2
    asked: list[tuple[float, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(10)

    def _loop(self) -> None:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        while not self._stop.wait(self.every_s):
            if not (self.run_dir / "endpoint.json").exists():
                continue
            try:
                place = json.loads((self.run_dir / "endpoint.json").read_text())
                with opener.open(f"http://{place['host']}:{place['port']}/", timeout=2) as answer:
                    self.asked.append((time.time(), answer.read().decode()))
            except (OSError, urllib.error.URLError):
                self.asked.append((time.time(), ""))

    @property
    def who(self) -> list[str]:
        """The incarnations that answered, in order, each once in a row."""
        found: list[str] = []
        for _, answer in self.asked:
            if answer and (not found or found[-1] != answer):
                found.append(answer)
        return found

    @property
    def outages_s(self) -> list[float]:
        """Lengths of the times without an answer, each from the last answer before to the first after it."""
        found: list[float] = []
        last, missed = None, False
        for at, answer in self.asked:
            if answer:
                if missed and last is not None:
                    found.append(at - last)
                last, missed = at, False
            else:
                missed = True
        return found
