"""What must never stand in a log: secrets by the name they travel under, by their looks, and those known by value. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

HIDDEN = "[redacted]"
_NAMES = re.compile(r"pass(word|wd|phrase)?$|secret|token$|authorization|cookie|api[_-]?key|jwt|credential|csrf|database_?url", re.IGNORECASE)
_LOOKS = (
    re.compile(r"\b(?:isc|isj|isw|isa)_[A-Za-z0-9_\-.~+/=]{6,}"),  # the service's own tokens
    re.compile(r"\beyJ[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]*"),  # JSON web tokens
    re.compile(r"MUNGE:[A-Za-z0-9+/=]+:?"),
    re.compile(r"(?i)(?<=bearer )[^\s\"',;]+"),
    re.compile(r"(?i)(?<=basic )[A-Za-z0-9+/=]{8,}"),
    re.compile(r"(?<=://)[^\s/@:]*:[^\s/@]+(?=@)"),  # user:password of a URL
    re.compile(r"(?i)(?<=[?&])(?:access_token|refresh_token|id_token|token|code|state|key|password|secret|signature)=[^&\s\"']+"),
    re.compile(r"(?i)\b(?:password|passwd|secret|token|api_key)=[^&\s\"',;]+"),
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)", re.DOTALL),
)
_SHORTEST_KNOWN = 8


class Redactor:
    """Cleans texts and structures. ``known`` are secrets of this process, hidden wherever they turn up."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._known = tuple(sorted({k for k in known if len(k) >= _SHORTEST_KNOWN}, key=len, reverse=True))

    def text(self, words: str) -> str:
        """The words without what looks like a secret or is a known one."""
        for secret in self._known:
            words = words.replace(secret, HIDDEN)
        for look in _LOOKS:
            words = look.sub(HIDDEN, words)
        return words

    def value(self, value: Any, name: str = "") -> Any:
        """Any structure: texts under a telling name are hidden whole, numbers and flags stay."""
        if isinstance(value, (str, bytes)):
            plain = value if isinstance(value, str) else value.decode("utf-8", "replace")
            return HIDDEN if plain and _NAMES.search(name) else self.text(plain)
        if isinstance(value, Mapping):
            return {self.text(str(k)): self.value(v, str(k)) for k, v in value.items()}
        if isinstance(value, (list, tuple, set, frozenset)):
            return [self.value(v, name) for v in value]
        if value is None or isinstance(value, (bool, int, float)):
            return value
        return self.text(str(value))
