"""Webhooks: events of one's runs, signed and sent to one's own address; tried again, later each time, until they are taken.

The signature is that of the Standard Webhooks specification (standardwebhooks.com): ``webhook-id``, ``webhook-timestamp`` and
``webhook-signature: v1,BASE64(HMAC-SHA256(secret, id.timestamp.body))``. The secret is derived from the server's key and the
webhook's id, so that it is stored nowhere.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hmac
import ipaddress
import json
import logging
import random
import socket
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool

from ischeduler.core.codec import to_plain
from ischeduler.core.errors import BadInput, IschedError
from ischeduler.ports import Clock
from ischeduler.service.auth.secrets import Derived
from ischeduler.store.webhooks import Webhook, Webhooks

LOG = logging.getLogger("ischeduler.service")
EVERY_S, TIMEOUT_S, BATCH = 2.0, 10.0, 500
SETTLED_S = 5.0
"""A row is told that long after it was first seen to be there: by then none with a smaller number is still being written."""
FIRST_WAIT_S, LONGEST_WAIT_S, GIVE_UP_AFTER = 5.0, 3600.0, 30
PREFIX = "whsec_"


class Unreachable(IschedError):
    """The receiver did not take the events; they are sent again later."""


def secret_of(derived: Derived, webhook_id: str) -> str:
    """The webhook's secret as its owner is told it."""
    return PREFIX + base64.b64encode(derived.of(f"webhook:{webhook_id}")).decode()


def signature(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """``v1,...`` of a message; what a receiver computes, too."""
    key = base64.b64decode(secret.removeprefix(PREFIX))
    said = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(key, said, "sha256")).decode()


def resolve(url: str, inside: Sequence[str]) -> tuple[str, str, int]:
    """Host, one address of it, and port. BadInput for an address inside: a webhook must not reach what only the service can.

    The connection goes to the address returned, not to the name again: a name whose answer changes in between gains nothing.
    ``inside`` are hosts that may be private all the same.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        raise BadInput(f"'{url[:80]}' is no address; a webhook's is https://HOST/PATH.") from None
    if parts.scheme not in ("http", "https") or not host or parts.username is not None:
        raise BadInput("a webhook's address is https://HOST/PATH, without a user's name in it.")
    try:
        found = [str(a[4][0]) for a in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    except (OSError, UnicodeError):
        raise BadInput(f"the webhook's host '{host[:80]}' is not known.") from None
    if host not in inside:
        for address in found:
            if not is_outside(address):
                raise BadInput(f"'{host[:80]}' is an address inside; a webhook may only reach hosts of the open network.")
    return host, found[0], port


def is_outside(address: str) -> bool:
    """Whether an address is one of the open network: no loopback, link-local, private, multicast or reserved one."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(ip, "ipv4_mapped", None) or getattr(ip, "sixtofour", None)
    return ip.is_global and not ip.is_multicast and (mapped is None or is_outside(str(mapped)))


class Sender:
    """Runs beside the requests: looks every two seconds which webhooks are due and sends each what is new."""

    def __init__(self, webhooks: Webhooks, derived: Derived, clock: Clock, *, inside: Sequence[str] = ()) -> None:
        self._webhooks, self._derived, self._clock, self._inside = webhooks, derived, clock, tuple(inside)
        self._task: asyncio.Task[None] | None = None
        self._rows: deque[tuple[float, int]] = deque()

    async def start(self) -> None:
        """Begin to send."""
        self._task = asyncio.create_task(self._loop(), name="isched-webhooks")

    async def stop(self) -> None:
        """End; what was not sent is sent by the next process."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _loop(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S * random.uniform(0.8, 1.2))
            try:
                await self.round()
            except IschedError as error:
                LOG.warning("webhooks: %s", error)

    async def round(self) -> int:
        """Send what is due; how many messages were taken."""
        upto = self._settled(await run_in_threadpool(self._webhooks.newest_row))
        due = await run_in_threadpool(self._webhooks.claim_due, TIMEOUT_S * 3)
        taken = await asyncio.gather(*(self._serve(hook, upto) for hook in due))
        return sum(taken)

    def _settled(self, newest: int) -> int:
        """The largest row seen that long ago."""
        now = self._clock.now()
        self._rows.append((now, newest))
        while len(self._rows) > 1 and self._rows[1][0] <= now - SETTLED_S:
            self._rows.popleft()
        at, row = self._rows[0]
        return row if at <= now - SETTLED_S else 0

    async def _serve(self, hook: Webhook, upto: int) -> int:
        cursor, told = await run_in_threadpool(self._webhooks.news, hook, upto, BATCH)
        if not told:
            await run_in_threadpool(self._webhooks.advance, hook, cursor, self._clock.now())
            return 0
        try:
            await self._send(hook, cursor, told)
        except (Unreachable, BadInput) as error:
            wait_s = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(hook.failures, 12)) * random.uniform(0.7, 1.0)
            await run_in_threadpool(
                self._webhooks.failed, hook, str(error), self._clock.now() + wait_s, hook.failures + 1 >= GIVE_UP_AFTER
            )
            return 0
        await run_in_threadpool(self._webhooks.advance, hook, cursor, self._clock.now())
        return 1

    async def _send(self, hook: Webhook, cursor: int, told: Sequence[Mapping[str, Any]]) -> None:
        body = json.dumps({"schema": "isched.webhook-message/1", "events": to_plain(list(told))}, separators=(",", ":")).encode()
        message_id, now = f"msg-{hook.id}-{cursor}", int(self._clock.now())
        headers = {
            "content-type": "application/json", "user-agent": "ischeduler-webhook", "webhook-id": message_id,
            "webhook-timestamp": str(now),
            "webhook-signature": signature(secret_of(self._derived, hook.id), message_id, now, body),
        }  # fmt: skip
        status = await post(hook.url, body, headers, self._inside)
        if not 200 <= status < 300:
            raise Unreachable(f"the receiver answered {status}.")


async def post(url: str, body: bytes, headers: Mapping[str, str], inside: Sequence[str]) -> int:
    """The status of a POST to the address that was checked, with the name kept for TLS and Host. No redirect is followed."""
    import httpx2 as httpx

    host, address, port = await run_in_threadpool(resolve, url, inside)
    parts = urlsplit(url)
    target = httpx.URL(url).copy_with(host=address, port=port)
    name = host if parts.port is None else f"{host}:{port}"
    extensions = {"sni_hostname": host} if parts.scheme == "https" else {}
    try:
        async with httpx.AsyncClient(timeout=TIMEOUT_S, follow_redirects=False, trust_env=False) as client:
            request = client.build_request("POST", target, content=body, headers={**headers, "host": name}, extensions=extensions)
            answer = await client.send(request, stream=True)
            await answer.aclose()
            return answer.status_code
    except httpx.HTTPError as error:
        raise Unreachable(f"the receiver cannot be reached ({type(error).__name__}).") from None
