"""Optional push of the spool to a service over HTTP. Never in the training's way: a thread, bounded, with back-off."""

from __future__ import annotations

import http.client
import json
import os
import random
import stat
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ischeduler.training.files import say
from ischeduler.training.spool import SpoolEvent, SpoolReader
from ischeduler.training.token import Token

_BATCH_EVENTS = 200
_TAPIS_END, _TAPIS_DATA_CHARS = "/sendEvent", 16384
"""Tapis takes one text an event, of so many characters at most, and its token in a header of its own."""
_BATCH_BYTES = 512 * 1024
_TIMEOUT_S = 10.0
_FIRST_WAIT_S = 2.0
_LONGEST_WAIT_S = 300.0

Post = Callable[[str, bytes, Mapping[str, str]], int]


class PushRefused(Exception):
    """The service answered that it does not want these events (HTTP 4xx other than 408 and 429)."""


def read_push_token(path: Path) -> str:
    """The bearer token. Raises PermissionError when others could read the file, OSError when it cannot be read."""
    descriptor = os.open(path, os.O_RDONLY)
    with open(descriptor, encoding="utf-8") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & 0o077:
            raise PermissionError(f"{path} has mode {mode:o}, others can read the token in it; run: chmod 600 {path}")
        return file.read().strip()


def as_json(event: SpoolEvent) -> dict[str, Any]:
    """An event in the form it has in the spool."""
    return {
        "v": 1,
        "run": event.run,
        "token": str(event.token),
        "seq": event.seq,
        "t": event.t,
        "kind": event.kind,
        "data": event.data,
    }


class Pusher:
    """Sends one incarnation's spool to `url` as `{"run", "events": [...]}`, in order, each event at least once.

    The receiver drops repeats by (token, seq). Failures wait twice as long each time, up to five minutes, with jitter.
    """

    def __init__(
        self, url: str, run_dir: Path, run: str, token: Token, *, secret: str | None, every_s: float, post: Post | None = None
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"ISCHED_PUSH_URL must begin with http:// or https://, got '{url[:60]}'.")
        self._url, self._run, self._token, self._every_s = url, run, token, every_s
        self._tapis = url.endswith(_TAPIS_END)
        shown = {} if not secret else {"X-Tapis-Token": secret} if self._tapis else {"Authorization": f"Bearer {secret}"}
        self._headers = {"Content-Type": "application/json"} | shown
        self._reader = SpoolReader(run_dir)
        self._waiting: list[SpoolEvent] = []
        self._stop = threading.Event()
        self._post = post or _post
        self._thread = threading.Thread(target=self._loop, name="isched-push", daemon=True)
        self.sent = 0
        self.failures = 0

    def start(self) -> None:
        self._thread.start()

    def finish(self, timeout_s: float) -> None:
        """Send what is left, for at most `timeout_s`; the spool keeps the rest for the plane."""
        self._stop.set()
        self._thread.join(timeout_s)

    def wait_s(self) -> float:
        """Seconds until the next try: the interval, or the back-off with jitter."""
        if self.failures == 0:
            return self._every_s
        return min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2 ** min(self.failures - 1, 10)) * random.uniform(0.5, 1.0)

    def push_once(self) -> bool:
        """Send what is new; False when the service could not be reached. Raises PushRefused."""
        self._waiting += [event for event in self._reader.poll() if event.token == self._token]
        while self._waiting:
            count, body = self._batch()
            try:
                code = self._post(self._url, body, self._headers)
            except OSError:
                self.failures += 1
                return False
            if 400 <= code < 500 and code not in (408, 429):
                raise PushRefused(f"the service refused this run's events (HTTP {code})")
            if code >= 300:
                self.failures += 1
                return False
            self.sent += count
            self.failures = 0
            del self._waiting[:count]
        return True

    def _batch(self) -> tuple[int, bytes]:
        """How many events go next, and the body with them: no more than a service takes at once, and one at least."""
        texts: list[str] = []
        most, size = (_TAPIS_DATA_CHARS - 2 if self._tapis else _BATCH_BYTES), 0
        for event in self._waiting[:_BATCH_EVENTS]:
            text = json.dumps(as_json(event))
            size += len(text) + 2
            if texts and size > most:
                break
            texts.append(text)
        listed = ", ".join(texts)
        if self._tapis:
            data = f"[{listed}]" if len(listed) <= most else "[]"  # one event that is too long for Tapis stays in the spool
            return len(texts), json.dumps({"eventData": data, "eventDetail": "isched"}).encode()
        return len(texts), f'{{"run": {json.dumps(self._run)}, "events": [{listed}]}}'.encode()

    def _loop(self) -> None:
        try:
            while not self._stop.is_set():
                self._try_once()
                self._stop.wait(self.wait_s())
            self._try_once()
        except PushRefused as error:
            say(f"{error}; nothing more is pushed, the spool keeps the events")

    def _try_once(self) -> None:
        before = self.failures
        try:
            self.push_once()
        except OSError as error:
            self.failures += 1
            if before == 0:
                say(f"the spool cannot be read for pushing ({error.strerror})")
            return
        if self.failures and not before:
            say("the service cannot be reached; training goes on, the spool keeps the events")


def pusher_from_environ(environ: Mapping[str, str], run_dir: Path, run: str, token: Token, every_s: float) -> Pusher | None:
    """A pusher when ISCHED_PUSH_URL is set; a wrong setting is said once and pushing is left out."""
    url = environ.get("ISCHED_PUSH_URL")
    if not url:
        return None
    file = environ.get("ISCHED_PUSH_TOKEN_FILE")
    try:
        secret = read_push_token(Path(file)) if file else environ.get("ISCHED_PUSH_TOKEN") or None
        return Pusher(url, run_dir, run, token, secret=secret, every_s=every_s)
    except (OSError, ValueError) as error:
        say(f"events are not pushed: {error}")
        return None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the bearer token to another host."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


def _post(url: str, body: bytes, headers: Mapping[str, str]) -> int:
    """The HTTP status. Raises OSError when the service cannot be reached (urllib's errors are OSErrors)."""
    request = urllib.request.Request(url, data=body, headers=dict(headers), method="POST")
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=_TIMEOUT_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except http.client.HTTPException as error:  # a garbled answer
        raise OSError(str(error)) from error
