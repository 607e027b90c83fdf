"""The server's key, and everything secret that is derived from it. Nothing here is ever stored in clear or logged."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
from pathlib import Path

from ischeduler.core.errors import ConfigError

KEY_BYTES = 32


class Derived:
    """One key a purpose, by HMAC-SHA256 of the server's key (NIST SP 800-108 in its simplest form)."""

    def __init__(self, key: bytes) -> None:
        if len(key) < KEY_BYTES:
            raise ConfigError(f"the server's key has {len(key)} bytes; {KEY_BYTES} or more are needed: make it anew with isched admin key.")
        self._key = key

    def of(self, purpose: str) -> bytes:
        """The key for one purpose."""
        return hmac.digest(self._key, b"ischeduler:" + purpose.encode(), "sha256")

    def digest(self, purpose: str, text: str) -> str:
        """What is stored of a secret: 64 hexadecimal digits."""
        return hmac.new(self.of(purpose), text.encode("utf-8", "surrogateescape"), hashlib.sha256).hexdigest()

    def matches(self, purpose: str, text: str, stored: str) -> bool:
        """Whether a secret is the stored one, in constant time."""
        return hmac.compare_digest(self.digest(purpose, text), stored)


def read_key(path: Path) -> bytes:
    """The server's key from its file. ConfigError where it is missing, short, or readable by others."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise ConfigError(f"the server's key file {path} does not exist; make it with: isched admin key {path}") from None
    except OSError as error:
        raise ConfigError(f"the server's key file {path} cannot be read: {error.strerror}.") from None
    with open(handle, "rb") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & 0o077:
            raise ConfigError(f"{path} has mode {mode:o}, others can read the server's key; run: chmod 600 {path}")
        key = file.read().strip()
    if len(key) < KEY_BYTES:
        raise ConfigError(f"{path} holds {len(key)} bytes; a key has {KEY_BYTES} or more: make it anew with isched admin key.")
    return key


def make_key(path: Path) -> bytes:
    """A new key in a new file of mode 600. ConfigError where there is one: replacing it ends every token and session."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise ConfigError(f"{path} exists; a new key would end every token and session, so remove it yourself if that is meant.") from None
    key = secrets.token_hex(KEY_BYTES).encode()
    with open(handle, "wb") as file:
        file.write(key + b"\n")
    return key
