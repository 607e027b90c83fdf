"""The users of :mod:`benchmarks.centre`: they delegate their runs, and then look at them as people and dashboards do."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

FIGURES = '[[given]]\nrun = "8h"\nhost_memory = "1G"\nwait = "1m"\n'
WORKLOAD = {"command": ["python", "train.py", "{epochs}"], "directory": "/tmp", "samples": 1000, "epochs": 48}
ASKED = (("list", 35), ("get", 40), ("events", 20), ("cancel", 5))
"""What a user asks next, in percent."""


@dataclass
class Measured:
    """Latencies in seconds by kind of request, and what was not answered well."""

    latencies_s: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    errors: list[str] = field(default_factory=list[str])

    def note(self, kind: str, seconds: float) -> None:
        self.latencies_s.setdefault(kind, []).append(seconds)

    def all(self, *without: str) -> list[float]:
        return sorted(s for kind, found in self.latencies_s.items() if kind not in without for s in found)


def quantile_ms(values: Sequence[float], share: float) -> float:
    """That quantile of sorted seconds, in milliseconds; NaN of none."""
    return 1000 * values[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


class Users:
    """All users over one HTTP client each; ``runs`` are theirs by user."""

    def __init__(self, url: str, headers: Sequence[str], seed: int) -> None:
        self._url, self._headers = url, headers
        self._dice = random.Random(seed)
        self.runs: list[list[str]] = [[] for _ in headers]
        self._plans: dict[int, str] = {}

    async def delegate(self, count: int, *, at_once: int = 4) -> Measured:
        """So many new runs, dealt out to the users in turn."""
        measured, gate = Measured(), asyncio.Semaphore(at_once)

        async def one(number: int, user: int) -> None:
            async with gate:
                await self._submit(user, number, measured)

        async def plan(user: int) -> None:
            async with gate:
                answer = await self._ask("plan", "POST", user, "/v1/plans", measured, {"workload": WORKLOAD, "assume": FIGURES})
                self._plans[user] = answer["id"]

        async with self._open() as self._client:
            start = sum(map(len, self.runs))
            await asyncio.gather(*(plan(u) for u in range(min(len(self.runs), start + count)) if u not in self._plans))
            await asyncio.gather(*(one(n, n % len(self.runs)) for n in range(start, start + count)))
        return measured

    async def _submit(self, user: int, number: int, measured: Measured) -> None:
        body = {"plan": self._plans[user], "choice": "goal"}
        answer = await self._ask("submit", "POST", user, "/v1/runs", measured, body, key=f"bench-{number}")
        self.runs[user].append(answer["run"]["id"])

    async def look(self, seconds: float, think_s: float) -> Measured:
        """Every user asks something, thinks, and asks again, for so long."""
        measured, until = Measured(), time.monotonic() + seconds

        async def user(number: int) -> None:
            await asyncio.sleep(self._dice.uniform(0.0, think_s))
            while time.monotonic() < until:
                kind = self._dice.choices([k for k, _ in ASKED], [w for _, w in ASKED])[0]
                await self._do(kind, number, measured)
                await asyncio.sleep(min(self._dice.expovariate(1 / think_s), max(0.0, until - time.monotonic())))

        async with self._open() as self._client:
            await asyncio.gather(*(user(n) for n in range(len(self.runs))))
        return measured

    async def _do(self, kind: str, user: int, measured: Measured) -> None:
        if kind == "list" or not self.runs[user]:
            await self._ask("list", "GET", user, "/v1/runs?limit=50", measured)
            return
        run = self._dice.choice(self.runs[user])
        if kind == "cancel":  # and a new one in its place, so that the number of active runs stays
            self.runs[user].remove(run)
            await self._ask("cancel", "POST", user, f"/v1/runs/{run}/cancel", measured)
            await self._submit(user, self._dice.randrange(2**40), measured)
        else:
            await self._ask(kind, "GET", user, f"/v1/runs/{run}" + ("/events" if kind == "events" else ""), measured)

    async def _ask(self, kind: str, method: str, user: int, path: str, measured: Measured, body: Any = None, key: str = "") -> Any:
        headers = {"Authorization": self._headers[user], **({"Idempotency-Key": key} if key else {})}
        begun = time.perf_counter()
        answer = await self._client.request(method, self._url + path, headers=headers, json=body)
        measured.note(kind, time.perf_counter() - begun)
        if answer.status_code >= 400:
            measured.errors.append(f"{method} {path}: {answer.status_code} {answer.text[:200]}")
            answer.raise_for_status()
        return answer.json()

    def _open(self) -> Any:
        import httpx2 as httpx

        return httpx.AsyncClient(timeout=300.0, limits=httpx.Limits(max_connections=64))
