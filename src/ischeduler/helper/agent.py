"""``isched agent``: a user's own hands on a login node. It calls out and is never called; it acts by the user's own commands.

One request after the other, in the order they were made. What was done and not yet told is told again until the service has it. A
submission that waited longer than it may is not begun. Whatever happens to this process, the plane finds every job by its key.
"""

from __future__ import annotations

import json
import os
import secrets
import shlex
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from ischeduler.batch.agent_hands import Hands
from ischeduler.batch.agent_words import failed
from ischeduler.core.errors import BatchUnavailable, ConfigError, IschedError
from ischeduler.core.mail import Mail
from ischeduler.ports import Clock

if TYPE_CHECKING:
    import httpx2

    from ischeduler.helper.session import Session

LONG_POLL_S, NEXT_S = 20.0, 60.0
"""How long the service may keep a poll open, and after how long without one it takes the agent for gone."""
_FIRST_WAIT_S, _LONGEST_WAIT_S = 1.0, 60.0
_LARGEST_BODY_BYTES = 900_000


class ServiceAway(IschedError):
    """The service did not answer, or not sensibly. The agent tries again."""


class AnotherAgent(IschedError):
    """Another agent of this user is at work on this cluster."""


class Stopped(Exception):
    """A signal came while nothing was being done but waiting for requests."""


class Line(Protocol):
    """The way to the service."""

    def poll(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Answers go out, requests come in. ServiceAway; ConfigError when the token is refused."""
        ...

    def leave(self, name: str) -> None:
        """Say good-bye. ServiceAway."""
        ...


@dataclass(frozen=True, slots=True)
class Round:
    """What one poll brought."""

    done: int = 0
    told: int = 0
    trouble: str = ""


class Agent:
    """One process's agent. ``monotonic`` is its own watch: the service's clock is never compared with this host's."""

    def __init__(
        self, line: Line, hands: Hands, clock: Clock, *, name: str, monotonic: Callable[[], float],
        beside: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self._line, self._hands, self._clock, self.name = line, hands, clock, name
        self._monotonic, self._beside = monotonic, beside
        self._answers: dict[int, dict[str, Any]] = {}
        self._failures = 0
        self._instead_of = ""
        self.waiting = False

    def round(self, wait_s: float = LONG_POLL_S) -> Round:
        """Tell what was done, fetch what is to do, and do it. AnotherAgent when somebody else is at work here."""
        telling = self._some_answers()
        waits_s = 0.0 if len(telling) < len(self._answers) else wait_s
        body = {
            "agent": self.name, "answers": [{"id": i, "answer": a} for i, a in telling.items()], "wait_s": waits_s, "next_s": NEXT_S,
            "instead_of": self._instead_of,
        }  # fmt: skip
        self.waiting = True
        try:
            found = self._line.poll(body)
        except ServiceAway as error:
            self._failures += 1
            return Round(trouble=str(error))
        finally:
            self.waiting = False
        self._failures = 0
        for number in found.get("settled") or []:
            self._answers.pop(int(number), None)
        if found.get("at_work") != self.name:
            if is_dead_here(str(found.get("at_work"))) and not self._instead_of:
                self._instead_of = str(found["at_work"])
                return self.round(wait_s)
            raise AnotherAgent(f"another agent of yours is at work ({found.get('at_work')}); stop it first, or let it do.")
        self._instead_of, arrived = "", self._monotonic()
        requests = [
            Mail(int(r["id"]), str(r["kind"]), r.get("body") or {}, float(r["ttl_s"])) for r in found.get("requests") or []
        ]
        for mail in requests:
            self._answers[mail.id] = self._do(mail, arrived)
        self._beside()
        return Round(len(requests), len(telling))

    def run(
        self,
        stop: Callable[[], bool],
        tell: Callable[[str], None],
        *,
        idle_s: float | None = None,
        at_most_s: float | None = None,
    ) -> int:
        """Rounds until ``stop``, until nothing has come for ``idle_s``, or for ``at_most_s``; how many requests were done."""
        begun = quiet_since = self._monotonic()
        total, said = 0, ""
        while not stop():
            now = self._monotonic()
            try:
                done = self.round(min(LONG_POLL_S, idle_s or LONG_POLL_S))
            except Stopped:
                break
            except AnotherAgent as other:
                if idle_s is not None or now - quiet_since > 1.5 * NEXT_S:
                    raise
                done = Round(trouble=f"{other} Waiting a while in case it was killed.")
            total += done.done
            if done.done:
                quiet_since = now
            if done.trouble and done.trouble != said:
                tell(done.trouble)
            said = done.trouble
            if done.trouble:
                self._clock.sleep(self.wait_s())
            finished = not self._answers and self._monotonic() - quiet_since >= (idle_s or 0.0)
            if (idle_s is not None and finished) or (at_most_s is not None and self._monotonic() - begun >= at_most_s):
                break
        return total

    def wait_s(self) -> float:
        """The back-off after failures in a row."""
        return min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2.0 ** min(max(0, self._failures - 1), 10))

    def leave(self) -> None:
        """Free the place for the next agent at once. Best effort."""
        try:
            self._line.leave(self.name)
        except (ServiceAway, ConfigError):
            return  # the place is free after a minute anyway

    def _do(self, mail: Mail, arrived: float) -> dict[str, Any]:
        if self._monotonic() - arrived > mail.ttl_s:
            return failed(BatchUnavailable("the request came too late and was not begun"))
        answer = self._hands.do(mail)
        if len(json.dumps(answer)) > _LARGEST_BODY_BYTES:
            return failed(BatchUnavailable("the answer is too long to be told"))
        return answer

    def _some_answers(self) -> dict[int, dict[str, Any]]:
        """As many as one body holds, oldest first."""
        chosen, size = dict[int, dict[str, Any]](), 0
        for number, answer in self._answers.items():
            size += len(json.dumps(answer)) + 40
            if chosen and (size > _LARGEST_BODY_BYTES or len(chosen) >= 50):
                break
            chosen[number] = answer
        return chosen


class HttpLine:
    """The service over HTTPS with the user's token. Proxies of the environment are used: the way out may lead through one."""

    def __init__(self, url: str, token: str, cluster: str, *, transport: httpx2.BaseTransport | None = None) -> None:
        if not url.startswith(("http://", "https://")):
            raise ConfigError("an agent needs service.url: the address of the service, e.g. https://isched.example.org.")
        self._base, self._cluster = url.rstrip("/"), cluster
        self._headers = {"Authorization": f"Bearer {token}"}
        self._transport = transport
        self._client: httpx2.Client | None = None

    def poll(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """``POST /v1/agents/CLUSTER/poll``."""
        return self._ask("POST", f"/v1/agents/{quote(self._cluster, safe='')}/poll", body).json()

    def leave(self, name: str) -> None:
        """``DELETE /v1/agents/CLUSTER``."""
        self._ask("DELETE", f"/v1/agents/{quote(self._cluster, safe='')}?agent={quote(name, safe='')}", None)

    def send(self, run: str, body: Mapping[str, Any]) -> int:
        """A run's events; the HTTP status. OSError when the service cannot be reached."""
        try:
            return self._request("POST", f"/v1/runs/{quote(run, safe='')}/events", body).status_code
        except ServiceAway as error:
            raise OSError(str(error)) from None

    def _ask(self, method: str, path: str, body: Any) -> httpx2.Response:
        response = self._request(method, path, body)
        if response.status_code in (401, 403):
            raise ConfigError(
                f"the service refused this token (HTTP {response.status_code}); make another with the scope write, and start again."
            )
        if response.status_code == 404:
            raise ConfigError(f"{self._base} has no mailbox for agents; is it a service of this version?")
        if response.status_code >= 300:
            raise ServiceAway(f"the service answered with HTTP {response.status_code}; trying again.")
        return response

    def _request(self, method: str, path: str, body: Any) -> httpx2.Response:
        import httpx2

        if self._client is None:
            self._client = httpx2.Client(timeout=LONG_POLL_S + 20.0, headers=self._headers, transport=self._transport)
        try:
            return self._client.request(method, self._base + path, json=body)
        except httpx2.HTTPError as error:
            raise ServiceAway(f"the service cannot be reached ({error or type(error).__name__}); trying again.") from None


def agent_name() -> str:
    """Host, process and a word of its own: a process number may come again, an agent's name must not."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


def is_dead_here(name: str) -> bool:
    """Whether that agent was a process of this host and is no more: then nobody need wait until it is missed."""
    host, _, rest = name.partition(":")
    pid = rest.partition(":")[0]
    return host == socket.gethostname() and pid.isdigit() and not Path(f"/proc/{pid}").exists()


def make_agent(session: Session, *, cluster: str | None = None, runs_dir: str | None = None) -> Agent:
    """This user's agent for the live cluster, or ``cluster``. ConfigError where something is missing."""
    import time

    from ischeduler.batch.agent_relay import Relay
    from ischeduler.batch.run_files import SharedRunFiles

    services, config = session.services, session.config
    batches = services.batches
    name = cluster or next(iter(batches), "")
    if name not in batches:
        trouble = services.troubles[-1] if services.troubles else f"reached from here: {', '.join(batches) or 'none'}"
        raise ConfigError(f"an agent works where the cluster's commands are, and '{name or 'none'}' is not at hand ({trouble}).")
    folder = Path(runs_dir).expanduser() if runs_dir else services.runs_dir
    line = HttpLine(str(config["service.url"]), read_token(str(config["service.token_file"])), name)
    relay = Relay(folder, config.state_dir / f"agent-{name}.json", line.send)
    hands = Hands(batches[name], SharedRunFiles(), folder, lambda: services.discover(name))
    return Agent(line, hands, services.clock, name=agent_name(), monotonic=time.monotonic, beside=relay.look)


def read_token(path: str) -> str:
    """The token in a file of mode 600. ConfigError otherwise."""
    from ischeduler.training.push import read_push_token

    if not path:
        raise ConfigError("an agent needs service.token_file: a file (mode 600) with a token of the scope write.")
    try:
        return read_push_token(Path(path).expanduser())
    except OSError as error:
        raise ConfigError(f"the token cannot be read: {error}") from None


def schedule_line(kind: str, arguments: tuple[str, ...], variables: Mapping[str, str], log: Path) -> str:
    """A crontab or scrontab entry that keeps an agent at work. ``variables`` may hold no secret; they name files."""
    words = [f"{k}={v}" for k, v in sorted(variables.items())]
    command = shlex.join(["env", *words, sys.executable, "-m", "ischeduler.cli.main", "agent", "--once", *arguments])
    command = command.replace("%", r"\%") + f" >> {shlex.quote(str(log))} 2>&1"
    if kind == "scrontab":
        return f"#SCRON --time=10 --open-mode=append --output={shlex.quote(str(log))}\n*/5 * * * * {command}"
    return f"* * * * * {command}"
