"""Authentication by tokens, and limits on the rate of requests and on the size and form of bodies, checked before routing."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import math
import os
import time
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

import msgspec

from skitter.errors import UsageError
from skitter.service.api.problems import problem_bytes
from skitter.service.config import AUTH_VARIABLE

log = logging.getLogger("skitter.service")

_MIN_LENGTH = 16
"""Characters of a token."""
_PUBLIC_PATH = "/health"
"""The only path that needs no token."""
_MAX_DEPTH = 60
"""Nesting of a JSON body."""

_BODY_SECONDS = 60.0
"""Time in which a body has to arrive."""
_BURST_SECONDS = 2.0
"""Requests of this time may come at once."""
_SAFE_HEADERS = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)
"""Headers of every response: items and logs contain text of strangers, which no browser should interpret or keep."""

AsgiMessage = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[AsgiMessage]]
Send = Callable[[AsgiMessage], Awaitable[None]]
AsgiApp = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


class ApiTokens:
    """The valid tokens. Only their digests are kept; all of them are compared, in constant time."""

    def __init__(self, tokens: list[str]) -> None:
        self._digests = [hashlib.sha256(token.encode()).digest() for token in tokens]

    @classmethod
    def load(cls, file: Path | None) -> ApiTokens:
        """Read the tokens from a file, one per line, or the single token in the environment.

        Raises :class:`~skitter.errors.UsageError` if there is no token, or a token that is too short.
        """
        try:
            lines = (
                [os.environ.get(AUTH_VARIABLE, "")] if file is None else file.read_text("utf-8").splitlines()
            )
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(
                f"cannot read the token file {file}: {error}",
                remedy="name a text file with one token per line",
                field="token_file",
            ) from None
        tokens = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
        if not tokens:
            raise UsageError(
                "no API token is configured",
                remedy=f"set {AUTH_VARIABLE}, or name a file with one token per line: --token-file FILE",
                field=AUTH_VARIABLE if file is None else "token_file",
            )
        if (length := min(len(token) for token in tokens)) < _MIN_LENGTH:
            raise UsageError(
                f"an API token has only {length} characters; the minimum is {_MIN_LENGTH}",
                remedy='create one with: python -c "import secrets; print(secrets.token_urlsafe())"',
                field=AUTH_VARIABLE if file is None else "token_file",
            )
        return cls(tokens)

    def accept(self, token: bytes) -> bytes | None:
        """Return the digest of a valid token, which identifies its caller, or ``None``."""
        digest = hashlib.sha256(token).digest()
        # A list, not a generator: the time must not depend on which token matches.
        is_known = any([hmac.compare_digest(digest, known) for known in self._digests])  # noqa: C419 - see above
        return digest if is_known else None


class RequestRate:
    """Limits the requests of each caller to a number per second, with bursts of two seconds."""

    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._clock = clock
        self._free_at: dict[bytes, float] = {}
        """For each caller, when a request at the allowed rate would be due."""

    def seconds_to_wait(self, caller: bytes) -> float:
        """Count a request and return 0, or return the time until the next request is allowed."""
        now = self._clock()
        due = max(self._free_at.get(caller, 0.0), now - _BURST_SECONDS)
        if due > now:
            return due - now
        self._free_at[caller] = due + 1 / self._per_second
        return 0.0


class AuthMiddleware:
    """An ASGI middleware that rejects requests without a valid token, with bodies that are too large, and too many requests.

    :param max_body: largest body, in bytes
    :param max_rate: requests per second of each token; ``None`` for no limit
    """

    def __init__(self, app: AsgiApp, tokens: ApiTokens, max_body: int, max_rate: float | None = None) -> None:
        self._app = app
        self._tokens = tokens
        self._max_body = max_body
        self._rate = None if max_rate is None else RequestRate(max_rate)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":  # there are no web sockets
            send = _with_safe_headers(send)
            send = _logged(scope, send) if log.isEnabledFor(logging.INFO) else send
            await self._handle(scope, receive, send)

    async def _handle(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        if scope["path"] != _PUBLIC_PATH:
            caller = self._caller(headers)
            if caller is None:
                await _reject(send, 401, "A valid token is required", "send Authorization: Bearer TOKEN")
                return
            if self._rate is not None and (wait := self._rate.seconds_to_wait(caller)):
                remedy = "send fewer requests; the operator sets this limit with --max-rate"
                await _reject(send, 429, "Too many requests", remedy, wait)
                return
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                body = await self._body(headers, receive)
        except TimeoutError:
            await _reject(send, 408, "The body did not arrive in time", "send it at once")
            return
        if body is None:
            remedy = f"send at most {self._max_body} bytes; the operator sets this limit with --max-body"
            await _reject(send, 413, "The body is too large", remedy)
            return
        if mistake := _json_mistake(headers, body):
            await _reject(send, 400, mistake, "send JSON (RFC 8259) in UTF-8")
            return
        await self._app(scope, _with_body(body, receive), send)

    def _caller(self, headers: dict[bytes, bytes]) -> bytes | None:
        kind, _, token = headers.get(b"authorization", b"").partition(b" ")
        return self._tokens.accept(token.strip()) if kind.lower() == b"bearer" else None

    async def _body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes | None:
        """Read the body; return ``None`` for a body that is too large, which is not read to its end."""
        length = headers.get(b"content-length", b"")
        if length.isdigit() and int(length) > self._max_body:
            return None
        chunks, size = [], 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return b""
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            if size > self._max_body:
                return None
            if not message.get("more_body"):
                return b"".join(chunks)


def _json_mistake(headers: dict[bytes, bytes], body: bytes) -> str:
    """Return a description of the error in a JSON body. The check also rejects NaN and lone surrogates."""
    if not body or b"json" not in headers.get(b"content-type", b"").lower():
        return ""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        return f"The body is not valid JSON: {error}"
    return "The body is nested too deeply" if _is_too_deep(found) else ""


def _is_too_deep(value: Any, depth: int = 0) -> bool:
    if depth > _MAX_DEPTH:
        return True
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(_is_too_deep(one, depth + 1) for one in inner)


def _with_safe_headers(send: Send) -> Send:
    async def send_safely(message: AsgiMessage) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *_SAFE_HEADERS]}
        await send(message)

    return send_safely


def _logged(scope: MutableMapping[str, Any], send: Send) -> Send:
    """Return a ``send`` that logs the request with the status of the response and its duration."""
    started = time.perf_counter()

    async def send_and_log(message: AsgiMessage) -> None:
        if message["type"] == "http.response.start":
            duration = 1000 * (time.perf_counter() - started)
            # The path as a literal: it may contain line breaks of the caller.
            log.info("%s %r %s %.0f ms", scope["method"], scope["path"], message["status"], duration)
        await send(message)

    return send_and_log


def _with_body(body: bytes, receive: Receive) -> Receive:
    """Return a ``receive`` that returns a body that was already read."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_body() -> AsgiMessage:
        return messages.pop() if messages else await receive()

    return receive_body


async def _reject(send: Send, status: int, title: str, remedy: str, wait: float = 0.0) -> None:
    headers = [(b"content-type", b"application/problem+json")]
    if wait:
        headers.append((b"retry-after", str(math.ceil(wait)).encode()))
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": problem_bytes(status, title, remedy=remedy)})
