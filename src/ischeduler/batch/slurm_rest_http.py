"""The conversation with slurmrestd: one user's token in a header, a time limit, and what its errors mean."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ischeduler.batch.slurm_rest_dialect import Dialect, choose
from ischeduler.batch.slurm_rest_tokens import TokenSource, checked_user
from ischeduler.batch.sockets import mortal
from ischeduler.core.errors import BatchUnavailable, ConfigError, IschedError

if TYPE_CHECKING:
    import httpx2

_DOCUMENTS = ("/openapi/v3", "/openapi")
_PERHAPS_THE_TOKEN = frozenset({-1, 1007, 5005})
"""Up to v0.0.38 a refused token is no 401: the controller hangs up, and slurmrestd tells that as one of these errors."""
_LARGEST_ANSWER_BYTES = 256 * 2**20


class NotSent(BatchUnavailable):
    """The request certainly did nothing: it never reached the server, or its token was refused."""


class Answered(BatchUnavailable):
    """The server answered with errors. ``text`` holds all it complained of, one a line; ``numbers`` Slurm's error numbers."""

    def __init__(self, what: str, text: str, numbers: frozenset[int]) -> None:
        super().__init__(f"slurmrestd could not {what}: {text.splitlines()[0] if text else 'it gave no reason'}")
        self.text, self.numbers = text, numbers


class SlurmRestHttp:
    """Asks one slurmrestd as one user. ``calls`` counts requests by kind.

    Proxies of the environment are not used: a token must not travel through one. No connection is kept, since one that the server
    closed meanwhile would make the next submission uncertain.
    """

    def __init__(
        self, url: str, user: str, tokens: TokenSource, *, timeout_s: float = 60.0, transport: httpx2.BaseTransport | None = None,
    ) -> None:  # fmt: skip
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"'{url}' is not the address of a slurmrestd; expected http://HOST:PORT or https://HOST:PORT.")
        self.url, self.user = url.rstrip("/"), checked_user(user)
        self._tokens, self._timeout_s, self._transport = tokens, timeout_s, transport
        self._dialect: Dialect | None = None
        self.calls: Counter[str] = Counter()

    def dialect(self) -> Dialect:
        """The version spoken, negotiated once. BatchUnavailable when the server does not answer or offers none."""
        if self._dialect is None:
            self._dialect = choose(self._document())
        return self._dialect

    def slurm(self, path: str) -> str:
        """The path of a question to the controller."""
        return f"/slurm/{self.dialect().version}/{path}"

    def accounting(self, path: str) -> str:
        """The path of a question to slurmdbd."""
        return f"/slurmdb/{self.dialect().version}/{path}"

    def ask(self, kind: str, method: str, path: str, *, body: Any = None) -> dict[str, Any]:
        """The answer's document. NotSent, Answered (with its errors), or BatchUnavailable for a broken conversation."""
        self.calls[kind] += 1
        response = self._send(method, path, body)
        return self._judge(kind, response.status_code, response.content)

    def _send(self, method: str, path: str, body: Any) -> httpx2.Response:
        import httpx2

        try:
            headers = {"X-SLURM-USER-NAME": self.user, "X-SLURM-USER-TOKEN": self._tokens.token(self.user), "Connection": "close"}
        except IschedError as error:
            raise NotSent(str(error)) from None
        transport = self._transport or httpx2.HTTPTransport(trust_env=False, socket_options=mortal(self._timeout_s))
        try:
            with httpx2.Client(timeout=self._timeout_s, trust_env=False, transport=transport) as client:
                response = client.request(method, self.url + path, json=body, headers=headers)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            raise NotSent(
                f"slurmrestd at {self.url} cannot be reached ({error or type(error).__name__}); try again later."
            ) from None
        except httpx2.HTTPError as error:
            raise BatchUnavailable(
                f"slurmrestd at {self.url} broke off ({error or type(error).__name__}); try again later."
            ) from None
        if len(response.content) > _LARGEST_ANSWER_BYTES:
            raise BatchUnavailable(
                f"slurmrestd at {self.url} answered with more than {_LARGEST_ANSWER_BYTES >> 20} MiB; nothing was read."
            )
        return response

    def _judge(self, kind: str, status: int, content: bytes) -> dict[str, Any]:
        if status in (401, 403):
            self._tokens.forget(self.user)
            raise NotSent(f"slurmrestd at {self.url} refused the token of {self.user} (HTTP {status}); a new one is asked for.")
        try:
            found = json.loads(content)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            said = content[:200].decode("utf-8", "replace").strip().replace("\n", " ")
            raise BatchUnavailable(f"slurmrestd gave no JSON to '{kind}' (HTTP {status}: {said or 'nothing'}); ask again later.")
        errors = found.get("errors") or []
        if errors or status >= 400:
            text, numbers = complaints(errors)
            if not numbers or numbers & _PERHAPS_THE_TOKEN:
                self._tokens.forget(self.user)
            raise Answered(kind, text or f"HTTP {status}", numbers)
        return found

    def _document(self) -> dict[str, Any]:
        self.calls["openapi"] += 1
        status = 0
        for path in _DOCUMENTS:
            response = self._send("GET", path, None)
            status = response.status_code
            if status == 200:
                return self._judge("describe itself", status, response.content)
        raise BatchUnavailable(f"slurmrestd at {self.url} shows no description of itself (HTTP {status}); is it slurmrestd?")


def complaints(errors: Sequence[Any]) -> tuple[str, frozenset[int]]:
    """All that an answer complains of, one a line, the most telling first, and Slurm's error numbers."""
    lines, numbers = list[str](), set[int]()
    for entry in errors:
        if not isinstance(entry, Mapping):
            continue
        words = [str(entry[k]) for k in ("error", "description") if entry.get(k) and entry[k] != "Unspecified error"]
        lines.append(": ".join(dict.fromkeys(words)))
        for name in ("error_number", "error_code"):
            if isinstance(entry.get(name), int):
                numbers.add(entry[name])
    return "\n".join(dict.fromkeys(line for line in lines if line)), frozenset(numbers)
