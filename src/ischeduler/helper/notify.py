"""Telling people by e-mail, Slack and some hundred other ways (apprise) what became of their runs.

The addresses hold passwords and tokens, so they come from a file of mode 600 or from the environment, and are never logged, shown
or named in an error. Sending is best effort: in the background, bounded in number, in time and in what waits.
"""

from __future__ import annotations

import atexit
import functools
import logging
import os
import queue
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from ischeduler.core import meters
from ischeduler.core.errors import ConfigError
from ischeduler.core.run import Run
from ischeduler.ports import Notifier

VARIABLE = "ISCHED_NOTIFY_URLS"
EVERYBODY = "*"
MOST_WAITING, MOST_AN_HOUR, FLUSH_S = 100, 30, 10.0
"""Messages that may wait, messages an owner is sent in an hour, and how long a process that ends waits for the last ones."""
LONGEST_TEXT = 4000


class Sender(Protocol):
    """Sends one message to one owner's addresses; whether all took it."""

    def __call__(self, owner: str, subject: str, text: str) -> bool: ...


def read_addresses(path: Path | None, environment: Mapping[str, str]) -> Mapping[str, Sequence[str]]:
    """Addresses by owner, :data:`EVERYBODY` for all owners' runs: lines ``URL`` or ``alice,bob=URL`` of the file, and the variable's URLs.

    ConfigError, which names the line and never its text, when the file is open to others or a line is no address.
    """
    found: dict[str, list[str]] = {}
    lines = [(f"{VARIABLE}, item {i}", word) for i, word in enumerate(environment.get(VARIABLE, "").split(), 1)]
    if path is not None:
        lines += [(f"{path}, line {i}", line) for i, line in enumerate(_private_text(path).splitlines(), 1)]
    for where, line in lines:
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        owners, url = _split(line)
        if "://" not in url:
            raise ConfigError(f"{where} is no address; expected e.g. mailtos://user:password@example.org or alice=slack://...")
        for owner in owners:
            found.setdefault(owner, []).append(url)
    return found


def _split(line: str) -> tuple[list[str], str]:
    """``alice,bob=mailto://...``: owners come before an ``=`` that comes before the address."""
    head, equals, rest = line.partition("=")
    if equals and "://" not in head:
        return [o.strip() for o in head.split(",") if o.strip()], rest.strip()
    return [EVERYBODY], line


def _private_text(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & 0o077:
                raise ConfigError(f"{path} has mode {mode:o}, others can read the passwords in it; run: chmod 600 {path}")
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise ConfigError(f"{path} with the addresses for messages cannot be read ({reason}); set notify.urls_file aright.") from None


def apprise_sender(addresses: Mapping[str, Sequence[str]]) -> Sender:
    """Sends by apprise. ConfigError when the package is missing or an address is of a kind it does not know."""
    logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)  # its own log lines name addresses
    try:
        from apprise import Apprise
    except ImportError:
        raise ConfigError("messages need the apprise package; install it with: pip install 'ischeduler[notify]'.") from None
    book: dict[str, Apprise] = {}
    for owner, urls in addresses.items():
        book[owner] = Apprise()
        for number, url in enumerate(urls, 1):
            if not book[owner].add(url):
                kind = url.partition("://")[0]
                raise ConfigError(f"address {number} of {owner} ({kind}://...) is none that apprise takes; see its documentation.")

    def send(owner: str, subject: str, text: str) -> bool:
        targets = [book[name] for name in (owner, EVERYBODY) if name in book]
        taken = [bool(target.notify(body=text, title=subject)) for target in targets]  # all are asked, whatever the first says
        return all(taken)

    return send


class MessageNotifier:
    """Sends what the plane tells an owner, after ``first`` has kept it. Never raises, never waits while the process lives."""

    def __init__(self, send: Sender, owners: Iterable[str], *, first: Notifier, clock: Callable[[], float] = time.monotonic) -> None:
        self._send, self._owners, self._first, self._clock = send, frozenset(owners), first, clock
        self._waiting: queue.Queue[tuple[str, str, str]] = queue.Queue(MOST_WAITING)
        self._sent: dict[str, deque[float]] = {}
        self._thread: threading.Thread | None = None

    def notify(self, run: Run, subject: str, text: str) -> None:
        """Best effort; never raises."""
        self._first.notify(run, subject, text)
        if not self._owners & {run.owner, EVERYBODY}:
            return
        if not self._may(run.owner):
            meters.count("isched_notifications_total", outcome="dropped")
            return
        try:
            self._waiting.put_nowait((run.owner, subject[:200], text[:LONGEST_TEXT]))
        except queue.Full:
            meters.count("isched_notifications_total", outcome="dropped")
            return
        self._start()

    def flush(self, limit_s: float = FLUSH_S) -> bool:
        """Wait until nothing waits any more, ``limit_s`` at most; whether that came about."""
        until = time.monotonic() + limit_s
        while self._waiting.unfinished_tasks and time.monotonic() < until:
            time.sleep(0.02)
        return not self._waiting.unfinished_tasks

    def _may(self, owner: str) -> bool:
        now, sent = self._clock(), self._sent.setdefault(owner, deque())
        while sent and now - sent[0] > 3600.0:
            sent.popleft()
        if len(sent) >= MOST_AN_HOUR:
            return False
        sent.append(now)
        return True

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="isched-messages", daemon=True)
            self._thread.start()
            atexit.register(self.flush)

    def _work(self) -> None:
        while True:
            owner, subject, text = self._waiting.get()
            try:
                outcome = "sent" if self._send(owner, subject, text) else "failed"
            except Exception:  # whatever a messenger of others raises, its text may hold the address
                outcome = "failed"
            meters.count("isched_notifications_total", outcome=outcome)
            self._waiting.task_done()


def with_messages(first: Notifier, path: str, environment: Mapping[str, str] = os.environ) -> Notifier:
    """``first`` alone where no address is configured; else messages, too. ConfigError when the addresses cannot be read.

    apprise itself is loaded by the first message, in the background; an address of a kind it does not know shows there as a message
    that failed, and in ``isched doctor --server`` as a sentence.
    """
    if not path and not environment.get(VARIABLE):
        return first
    addresses = read_addresses(Path(path).expanduser() if path else None, environment)
    sender = functools.cache(lambda: apprise_sender(addresses))

    def send(owner: str, subject: str, text: str) -> bool:
        return sender()(owner, subject, text)

    return MessageNotifier(send, addresses, first=first) if addresses else first
