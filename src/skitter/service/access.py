"""Access: who may call, and how much a call may bring. Both are settled before anything of a call is looked at."""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import time
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

import msgspec

from skitter.errors import UsageError
from skitter.service.problems import problem_bytes

log = logging.getLogger("skitter.service")

ENVIRONMENT = "SKITTER_SERVE_TOKEN"
_SHORTEST = 16
_OPEN = "/health"
"""The one path that needs no token."""
_DEEPEST = 60

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


class Tokens:
    """The tokens that are good. Only their digests are kept, and all of them are compared, in constant time."""

    def __init__(self, tokens: list[str]) -> None:
        self._digests = [hashlib.sha256(token.encode()).digest() for token in tokens]

    @classmethod
    def found(cls, file: Path | None) -> Tokens:
        """Read the tokens: those of a file, one a line, or the one in the environment.

        Raises :class:`~skitter.errors.UsageError` if there is none, or one that could be guessed.
        """
        try:
            lines = (
                [os.environ.get(ENVIRONMENT, "")] if file is None else file.read_text("utf-8").splitlines()
            )
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(
                f"{file} cannot be read: {error}", remedy="name a file of tokens, one a line"
            ) from None
        tokens = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
        if not tokens:
            raise UsageError(
                "there is no token, and nobody may call without one",
                remedy=f"set {ENVIRONMENT}, or name a file of tokens, one a line, with --token-file",
            )
        if min(len(token) for token in tokens) < _SHORTEST:
            raise UsageError(
                f"a token has fewer than {_SHORTEST} characters",
                remedy='make one with: python -c "import secrets; print(secrets.token_urlsafe())"',
            )
        return cls(tokens)

    def accept(self, token: bytes) -> bool:
        """Tell whether a token is good."""
        digest = hashlib.sha256(token).digest()
        # A list, not a generator: which of them is meant must not show in the time it takes.
        return any([hmac.compare_digest(digest, known) for known in self._digests])  # noqa: C419 - see above


class Gate:
    """An ASGI application in front of another: refuses calls without a token, and bodies that are too large."""

    def __init__(self, app: App, tokens: Tokens, largest: int) -> None:
        self._app = app
        self._tokens = tokens
        self._largest = largest

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Pass a call on, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] == "http":  # there are no web sockets here
            await self._answer(
                scope, receive, _logged(scope, send) if log.isEnabledFor(logging.INFO) else send
            )

    async def _answer(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        if scope["path"] != _OPEN and not self._is_known(headers):
            await _refuse(send, 401, "A token is needed", "send Authorization: Bearer TOKEN")
            return
        body = await self._body(headers, receive)
        if body is None:
            limit = f"a call brings at most {self._largest} bytes"
            await _refuse(
                send, 413, "The body is too large", f"{limit}; the operator sets it with --max-body"
            )
            return
        if fault := _json_fault(headers, body):
            await _refuse(send, 400, fault, "send JSON (RFC 8259) in UTF-8")
            return
        await self._app(scope, _given(body, receive), send)

    def _is_known(self, headers: dict[bytes, bytes]) -> bool:
        kind, _, token = headers.get(b"authorization", b"").partition(b" ")
        return kind.lower() == b"bearer" and self._tokens.accept(token.strip())

    async def _body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes | None:
        """Read the body; ``None`` if it is larger than allowed, of which no more is read than that."""
        length = headers.get(b"content-length", b"")
        if length.isdigit() and int(length) > self._largest:
            return None
        chunks, size = [], 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return b""
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            if size > self._largest:
                return None
            if not message.get("more_body"):
                return b"".join(chunks)


def _json_fault(headers: dict[bytes, bytes], body: bytes) -> str:
    """Say what is wrong with a body that should be JSON: other readers take NaN and lone surrogates for JSON."""
    if not body or b"json" not in headers.get(b"content-type", b"").lower():
        return ""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        return f"The body is no JSON: {error}"
    return "The body is nested too deeply" if _is_deep(found) else ""


def _is_deep(value: Any, depth: int = 0) -> bool:
    if depth > _DEEPEST:
        return True
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(_is_deep(one, depth + 1) for one in inner)


def _logged(scope: MutableMapping[str, Any], send: Send) -> Send:
    """Return a ``send`` that logs the call with the status of its answer and the time until then."""
    began = time.perf_counter()

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            spent = 1000 * (time.perf_counter() - began)
            # The path as a literal: it is the caller's, and may hold line breaks.
            log.info("%s %r %s %.0f ms", scope["method"], scope["path"], message["status"], spent)
        await send(message)

    return sending


def _given(body: bytes, receive: Receive) -> Receive:
    """Return a ``receive`` that gives the body which was read already."""
    left = [{"type": "http.request", "body": body, "more_body": False}]

    async def give() -> Message:
        return left.pop() if left else await receive()

    return give


async def _refuse(send: Send, status: int, title: str, remedy: str) -> None:
    headers = [(b"content-type", b"application/problem+json")]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": problem_bytes(status, title, remedy=remedy)})
