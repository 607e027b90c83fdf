"""A small OpenID Connect provider on a port of this machine, for tests: discovery, keys, authorization with PKCE, tokens.

It signs in whoever ``subject`` says, without a question, and mis-behaves on demand (``fault``).
"""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

FAULTS = ("", "nonce", "audience", "issuer", "expired", "key", "none", "no_id_token", "away")
"""What the identity token is made wrong in; ``none`` is an unsigned one, ``key`` signed by somebody else."""


class StandInProvider:
    """State of the provider. ``claims`` are added to each identity token."""

    def __init__(self) -> None:
        from cryptography.hazmat.primitives.asymmetric import rsa

        self.client_id, self.client_secret = "isched", "client secret for tests"
        self.subject, self.claims, self.fault = "subject-1", dict[str, Any](preferred_username="alice", name="Alice"), ""
        self._key, self._other = (rsa.generate_private_key(65537, 2048) for _ in range(2))
        self._codes: dict[str, Mapping[str, str]] = {}
        self.url = ""
        self.exchanges = 0

    def discovery(self) -> dict[str, Any]:
        """The discovery document."""
        return {
            "issuer": self.url, "authorization_endpoint": f"{self.url}/authorize", "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys", "code_challenge_methods_supported": ["S256"], "response_types_supported": ["code"],
        }  # fmt: skip

    def keys(self) -> dict[str, Any]:
        """The public key as a JWK set."""
        from jwt.algorithms import RSAAlgorithm

        return {"keys": [json.loads(RSAAlgorithm.to_jwk(self._key.public_key())) | {"kid": "k1", "use": "sig", "alg": "RS256"}]}

    def authorize(self, asked: Mapping[str, str]) -> str:
        """Where the browser is sent. ValueError for a request that a strict provider refuses."""
        if asked.get("client_id") != self.client_id or asked.get("response_type") != "code":
            raise ValueError("client")
        if asked.get("code_challenge_method") != "S256" or not asked.get("code_challenge") or not asked.get("state"):
            raise ValueError("pkce")
        code = secrets.token_urlsafe(16)
        self._codes[code] = dict(asked)
        return f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}"

    def token(self, form: Mapping[str, str], authorization: str) -> dict[str, Any]:
        """Tokens for a code, once. ValueError for anything wrong: client, code, verifier, redirect."""
        expected = "Basic " + base64.b64encode(f"{self.client_id}:{self.client_secret}".encode()).decode()
        asked = self._codes.pop(form.get("code", ""), None)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(form.get("code_verifier", "").encode()).digest()).decode().rstrip("=")
        if authorization != expected or asked is None or asked["code_challenge"] != challenge:
            raise ValueError("grant")
        if form.get("redirect_uri") != asked["redirect_uri"] or form.get("grant_type") != "authorization_code":
            raise ValueError("redirect")
        self.exchanges += 1
        answer = {"access_token": secrets.token_urlsafe(16), "token_type": "Bearer", "expires_in": 300}
        return answer if self.fault == "no_id_token" else answer | {"id_token": self._id_token(asked.get("nonce", ""))}

    def _id_token(self, nonce: str) -> str:
        import jwt

        now = int(time.time())
        claims = {
            "iss": "http://elsewhere" if self.fault == "issuer" else self.url, "sub": self.subject,
            "aud": "another" if self.fault == "audience" else self.client_id, "iat": now - 7200 if self.fault == "expired" else now,
            "exp": now - 3600 if self.fault == "expired" else now + 300, "nonce": "another" if self.fault == "nonce" else nonce, **self.claims,
        }  # fmt: skip
        if self.fault == "none":
            return jwt.encode(claims, "", algorithm="none", headers={"kid": "k1"})
        return jwt.encode(claims, self._other if self.fault == "key" else self._key, algorithm="RS256", headers={"kid": "k1"})


@contextmanager
def stand_in_provider() -> Iterator[StandInProvider]:
    """A running provider."""
    provider = StandInProvider()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            asked = {k: v[0] for k, v in parse_qs(parts.query).items()}
            if provider.fault == "away":
                self._answer(503, {})
            elif parts.path == "/authorize":
                self._redirect(asked)
            else:
                known = {"/.well-known/openid-configuration": provider.discovery, "/keys": provider.keys}.get(parts.path)
                self._answer(200 if known else 404, known() if known else {})

        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers.get("content-length", "0"))).decode())
            try:
                answer = provider.token({k: v[0] for k, v in form.items()}, self.headers.get("authorization", ""))
            except ValueError as error:
                self._answer(400, {"error": "invalid_grant", "error_description": str(error)})
                return
            self._answer(200, answer)

        def _redirect(self, asked: Mapping[str, str]) -> None:
            try:
                where = provider.authorize(asked)
            except ValueError as error:
                self._answer(400, {"error": str(error)})
                return
            self.send_response(302)
            self.send_header("Location", where)
            self.end_headers()

        def _answer(self, status: int, body: Any) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
