"""The Helper's line to a service: one JSON document asked, one given. Reads are tried again; a submission carries a key."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ischeduler.core import errors
from ischeduler.core.errors import ConfigError, IschedError, ServiceUnavailable

if TYPE_CHECKING:
    import httpx2

TIMEOUT_S = 60.0
CONNECT_S = 10.0
WAITS_S = (0.5, 1.0, 2.0)
"""Between tries of a request that may be repeated; a Retry-After of at most :data:`PATIENCE_S` is obeyed."""
PATIENCE_S = 20.0
_BUSY = (429, 502, 503, 504)


class Line:
    """Requests to one service as one user. ``transport`` replaces the network in tests; ``sleep`` the waiting."""

    def __init__(self, url: str, token: str, *, transport: Any = None, sleep: Callable[[float], None] = time.sleep) -> None:
        if not re.match(r"https?://[^\s/]+", url):
            raise ConfigError(f"service.url '{url}' is no address of a service; give one like https://isched.example.org.")
        self.url, self._token, self._transport, self._sleep = url.rstrip("/"), token, transport, sleep
        self._client: httpx2.Client | None = None

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        """The document at ``path`` below ``/v1``."""
        return self._ask("GET", path, params={k: v for k, v in query.items() if v is not None})

    def post(self, path: str, body: Mapping[str, Any] | None = None, *, key: str = "") -> dict[str, Any]:
        """The answer to a document. ``key`` makes it safe to repeat: the service does it once, however often it comes."""
        headers = {"Idempotency-Key": key} if key else {}
        return self._ask("POST", path, json=body, headers=headers, repeat=bool(key))

    def pages(self, path: str, name: str, **query: Any) -> list[Any]:
        """A list that comes a page at a time, whole."""
        found, cursor = list[Any](), None
        while True:
            page = self.get(path, cursor=cursor, **query)
            found += page[name]
            cursor = page.get("next")
            if not cursor:
                return found

    def _ask(self, method: str, path: str, *, repeat: bool = True, **given: Any) -> dict[str, Any]:
        waits = WAITS_S if repeat else ()
        for wait_s in (*waits, None):
            answer = self._once(method, path, last=wait_s is None, **given)
            if answer is None or (answer.status_code in _BUSY and wait_s is not None):
                self._sleep(max(wait_s or 0.0, _retry_after(answer)))
                continue
            if answer.status_code >= 300:
                raise error_of(answer.status_code, _json(answer), self.url)
            return _json(answer)
        raise AssertionError("the last try raises or returns")

    def _once(self, method: str, path: str, *, last: bool, **given: Any) -> Any:
        """The answer, or None where the network failed and another try is left."""
        import httpx2

        try:
            return self._open().request(method, f"/v1{path}", **given)
        except httpx2.TransportError as error:
            if last:
                raise ServiceUnavailable(
                    f"the service at {self.url} does not answer ({type(error).__name__}); its runs go on. Try again, or see isched doctor."
                ) from None
            return None

    def _open(self) -> httpx2.Client:
        if self._client is None:
            try:
                import httpx2
            except ImportError:
                raise ConfigError("service.url needs the HTTP client; install it with: pip install 'ischeduler[client]'.") from None

            self._client = httpx2.Client(
                base_url=self.url, headers={"Authorization": f"Bearer {self._token}", "Accept": "application/json"},
                timeout=httpx2.Timeout(TIMEOUT_S, connect=CONNECT_S), transport=self._transport, follow_redirects=False,
            )  # fmt: skip
        return self._client


def read_token(path: str) -> str:
    """The token in a file of mode 600. ConfigError with the way out otherwise."""
    from ischeduler.training.push import read_push_token

    if not path:
        raise ConfigError("service.token_file is not set; put a token of yours (the dashboard makes one) into a file of mode 600 and name it.")
    try:
        return read_push_token(Path(path).expanduser())
    except PermissionError as error:
        raise ConfigError(f"{error}.") from None
    except OSError as error:
        raise ConfigError(f"the token in {path} cannot be read ({error.strerror}); see service.token_file.") from None


def error_of(status: int, problem: Mapping[str, Any], url: str) -> IschedError:
    """The house's own error of a problem document (RFC 9457), so that a command ends as it would without a service."""
    slug = str(problem.get("type", "")).rpartition(":")[2]
    sentence = str(problem.get("detail") or f"the service at {url} answered with HTTP {status}.")
    if status == 401:
        return ConfigError(f"the service at {url} does not know your token ({sentence.rstrip('.')}); make a new one, see service.token_file.")
    kind = getattr(errors, "".join(word.capitalize() for word in slug.split("-")), None)
    if isinstance(kind, type) and issubclass(kind, IschedError):
        return kind(sentence)
    return ServiceUnavailable(sentence) if status in _BUSY or status >= 500 else errors.BadInput(sentence)


def _json(answer: Any) -> dict[str, Any]:
    try:
        found = answer.json()
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _retry_after(answer: Any) -> float:
    try:
        return min(PATIENCE_S, float(answer.headers.get("Retry-After", 0.0))) if answer is not None else 0.0
    except ValueError:
        return 0.0
