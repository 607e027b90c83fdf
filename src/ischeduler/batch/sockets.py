"""How long a request lives in the kernel."""

from __future__ import annotations

import socket


def mortal(timeout_s: float) -> list[tuple[int, int, int]]:
    """The socket options by which a request that nobody acknowledges dies within that many seconds; none where there are none.

    Without them the kernel sends again for many minutes, also after its process has given up or ended: a submission held up by a
    broken network would arrive when another worker has long sent the job again.
    """
    number = getattr(socket, "TCP_USER_TIMEOUT", None)
    return [] if number is None else [(socket.IPPROTO_TCP, number, int(timeout_s * 1000))]
