"""Checks before routing: authentication, authorization, the rate of requests, and the size and form of bodies.

Calls that change something are recorded in the audit log.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import math
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, NamedTuple

import msgspec
from starlette.requests import cookie_parser

from skitter.errors import SkitterError
from skitter.fetch.signatures import DIRECTORY_PATH
from skitter.service.api.access import SAFE_METHODS, ApiTokens, Caller, Forbidden
from skitter.service.api.problems import problem_bytes
from skitter.service.audit import AuditEntry, AuditLog, details_of
from skitter.service.sessions import SessionRecord, Sessions

log = logging.getLogger("skitter.service")

_WITHOUT_TOKEN = frozenset({"/health", DIRECTORY_PATH})
CONSOLE = "/console"
"""Path of the console's files. They contain no data, so they need no token."""
CSRF_HEADER = "X-CSRF-Token"
"""Header that has to repeat the value of the session in calls that change something."""
CALLER_KEY = "skitter.caller"
"""Key of the :class:`RequestIdentity` in the scope of a request."""
_MAX_DEPTH = 60
"""Maximum nesting depth of a JSON body."""

_BODY_SECONDS = 60.0
"""Time in which a body has to arrive, in seconds."""
_MAX_CALLERS = 10_000
"""Above this number of remembered callers, callers without recent requests are forgotten."""
_BURST_SECONDS = 2.0
"""Size of a burst, in seconds of the allowed rate."""
_SAFE_HEADERS = (
    (b"cache-control", b"no-store"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)
"""Headers of every response: items and logs contain untrusted text, which no browser should interpret or keep."""
_DATA_POLICY = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")
_CONSOLE_POLICY = (
    b"content-security-policy",
    b"default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
)
"""The console can only run its own script files, and cannot turn text into markup."""

AsgiMessage = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[AsgiMessage]]
Send = Callable[[AsgiMessage], Awaitable[None]]
AsgiApp = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


class RequestRate:
    """Limits the requests of each caller to a number per second, with bursts of two seconds.

    A caller is a token or, without a valid one, an address.
    """

    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._clock = clock
        self._free_at: dict[bytes, float] = {}
        """For each caller, the time at which its next request would be due at the allowed rate."""

    def seconds_to_wait(self, caller: bytes) -> float:
        """Count a request and return 0, or return the time until the next request is allowed."""
        now = self._clock()
        if len(self._free_at) > _MAX_CALLERS:
            self._free_at = {
                known_caller: due for known_caller, due in self._free_at.items() if due > now - _BURST_SECONDS
            }
        due = max(self._free_at.get(caller, 0.0), now - _BURST_SECONDS)
        if due > now:
            return due - now
        self._free_at[caller] = due + 1 / self._per_second
        return 0.0


class RequestIdentity(NamedTuple):
    """Who makes a request."""

    caller: Caller
    session: SessionRecord | None = None
    """The session, if the request has a cookie instead of a token."""


class AuthContext(NamedTuple):
    """What the middleware needs to identify callers."""

    tokens: ApiTokens
    sessions: Sessions
    audit: AuditLog


class AuthMiddleware:
    """An ASGI middleware that rejects requests of unknown callers, bodies that are too large, and too many requests.

    ``max_body``: maximum size of a body, in bytes.
    ``max_rate``: maximum requests per second of each token, and of each address without a valid token; ``None`` for no limit.
    """

    def __init__(
        self, app: AsgiApp, context: AuthContext, max_body: int, max_rate: float | None = None
    ) -> None:
        self.inner = app
        """The application that handles accepted requests."""
        self._context = context
        self._max_body = max_body
        self._rate = None if max_rate is None else RequestRate(max_rate)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] == "lifespan":
            await self.inner(scope, receive, send)
        elif scope["type"] == "http":  # there are no web sockets
            policy = _CONSOLE_POLICY if _is_console(scope["path"]) else _DATA_POLICY
            started = time.perf_counter()

            async def respond(message: AsgiMessage) -> None:
                if message["type"] == "http.response.start":
                    if log.isEnabledFor(logging.INFO):
                        call = f"{scope['method']} {scope['path']!r}"  # the path may contain line breaks
                        duration = 1000 * (time.perf_counter() - started)
                        log.info("%s %s %.0f ms", call, message["status"], duration)
                    message = {**message, "headers": [*message.get("headers", ()), *_SAFE_HEADERS, policy]}
                await send(message)

            await self._handle(scope, receive, respond)

    async def _handle(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        try:
            identity = await self._admit(scope, headers)
            body = await self._read(headers, receive)
            if identity is not None and scope["method"] not in SAFE_METHODS:
                send = self._recorded(scope, identity, headers, body, send)
            if identity is not None:
                _authorize(identity, headers, scope)
            _check_json(headers, body)
        except _Rejected as rejected:
            await _reject(send, rejected)
            return
        await self.inner(scope, _with_body(body, receive), send)

    async def _admit(
        self, scope: MutableMapping[str, Any], headers: dict[bytes, bytes]
    ) -> RequestIdentity | None:
        """Return who makes a request; ``None`` if it needs no token."""
        if scope["path"] in _WITHOUT_TOKEN or _is_console(scope["path"]):
            return None
        try:
            identity = await self._identify(headers)
        except SkitterError as error:
            raise _Rejected(503, "The store is unavailable", error.remedy) from None
        address = (scope.get("client") or ("",))[0]
        key = f"address {address}".encode() if identity is None else identity.caller.digest
        if self._rate is not None and (wait := self._rate.seconds_to_wait(key)):
            remedy = "send fewer requests; the operator sets this limit with --max-rate"
            raise _Rejected(429, "Too many requests", remedy, wait=wait)
        if identity is None:
            raise _Rejected(401, "A valid token is required", "send Authorization: Bearer TOKEN")
        scope[CALLER_KEY] = identity
        return identity

    async def _read(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        """Read the body. Stop reading if it is too large."""
        length = headers.get(b"content-length", b"")
        size = int(length) if length.isdigit() else 0
        body, has_more = bytearray(), True
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                while has_more and max(size, len(body)) <= self._max_body:
                    message = await receive()
                    if message["type"] != "http.request":
                        return b""
                    body += message.get("body", b"")
                    has_more = message.get("more_body", False)
        except TimeoutError:
            raise _Rejected(408, "The body did not arrive in time", "send it at once") from None
        if max(size, len(body)) > self._max_body:
            remedy = f"send at most {self._max_body} bytes; the operator sets this limit with --max-body"
            raise _Rejected(413, "The body is too large", remedy)
        return bytes(body)

    async def _identify(self, headers: dict[bytes, bytes]) -> RequestIdentity | None:
        """Return who makes a request, by its token or, without one, by its session."""
        kind, _, token = headers.get(b"authorization", b"").partition(b" ")
        if kind:
            caller = self._context.tokens.accept(token.strip()) if kind.lower() == b"bearer" else None
            return None if caller is None else RequestIdentity(caller)
        session = session_id(headers)
        record = await self._context.sessions.find(session) if session else None
        caller = None if record is None else self._context.tokens.of_session(record.token)
        return None if caller is None else RequestIdentity(caller, record)

    def _recorded(
        self,
        scope: MutableMapping[str, Any],
        identity: RequestIdentity,
        headers: dict[bytes, bytes],
        body: bytes,
        send: Send,
    ) -> Send:
        """Return a ``send`` that first adds the call to the audit log, so that no response is sent without an entry."""
        kind = headers.get(b"content-type", b"").decode("latin-1").lower()
        is_lost = False

        async def record_and_send(message: AsgiMessage) -> None:
            nonlocal is_lost
            if message["type"] == "http.response.start":
                entry = AuditEntry(
                    time=time.time(), caller=identity.caller.name, session=identity.session is not None,
                    method=scope["method"], path=scope["path"], status=message["status"], details=details_of(body, kind),
                )  # fmt: skip
                try:
                    await self._context.audit.add(entry)
                except SkitterError:
                    log.exception("%s %r is not in the audit log", entry.method, entry.path)
                    is_lost = True
                    detail = f"the call had the status {entry.status}, but it could not be recorded"
                    remedy = "ask the operator to look at the log of the node"
                    await _reject(send, _Rejected(503, "The audit log is unavailable", remedy, detail=detail))
            if not is_lost:
                await send(message)

        return record_and_send


def _check_json(headers: dict[bytes, bytes], body: bytes) -> None:
    """Check a JSON body. Reject NaN and lone surrogates, which pydantic would accept."""
    if not body or b"json" not in headers.get(b"content-type", b"").lower():
        return
    try:
        found = msgspec.json.decode(body)
        mistake = "The body is nested too deeply" if _is_too_deep(found) else ""
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        mistake = f"The body is not valid JSON: {error}"
    if mistake:
        raise _Rejected(400, mistake, "send JSON (RFC 8259) in UTF-8")


def _is_too_deep(value: Any, depth: int = 0) -> bool:
    if depth > _MAX_DEPTH:
        return True
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(_is_too_deep(element, depth + 1) for element in inner)


def _authorize(
    identity: RequestIdentity, headers: dict[bytes, bytes], scope: MutableMapping[str, Any]
) -> None:
    """Raise an error if a known caller may not make a request, or if another website made it with the caller's cookie."""
    method, path, session = scope["method"], scope["path"], identity.session
    if session is None and identity.caller.single_use and (method, path) != ("POST", "/session"):
        detail, remedy = "this token only opens a session", "open the URL of the console"
        raise _Rejected(403, Forbidden.title, remedy, detail=detail)
    sent = headers.get(CSRF_HEADER.lower().encode(), b"")
    if not (session is None or method in SAFE_METHODS or hmac.compare_digest(sent, session.csrf.encode())):
        detail = "the request does not come from the console"
        remedy = f"send the header {CSRF_HEADER}, see GET /session"
        raise _Rejected(403, Forbidden.title, remedy, detail=detail)
    try:
        identity.caller.authorize(method, path)
    except Forbidden as error:
        raise _Rejected(403, error.title, error.remedy, detail=str(error)) from None


def session_id(headers: dict[bytes, bytes]) -> str:
    """Return the session id of a request, or an empty string."""
    # SimpleCookie would find nothing if another application on the host has set a cookie that violates RFC 6265.
    return cookie_parser(headers.get(b"cookie", b"").decode("latin-1")).get(cookie_name(headers), "")


def cookie_name(headers: dict[bytes, bytes]) -> str:
    """Return the name of the session cookie, with the port: browsers send the cookies of a host to all of its ports."""
    port = headers.get(b"host", b"").rpartition(b":")[2]
    return f"skitter_session_{port.decode()}" if port.isdigit() else "skitter_session"


def _is_console(path: str) -> bool:
    return path == CONSOLE or path.startswith(f"{CONSOLE}/")


def _with_body(body: bytes, receive: Receive) -> Receive:
    """Return a ``receive`` function that returns a body that was already read."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_body() -> AsgiMessage:
        return messages.pop() if messages else await receive()

    return receive_body


class _Rejected(Exception):
    """Rejects a request with a status and an error."""

    def __init__(self, status: int, title: str, remedy: str, *, detail: str = "", wait: float = 0.0) -> None:
        super().__init__(title)
        self.status = status
        self.document = problem_bytes(status, title, detail=detail, remedy=remedy)
        self.wait = wait


async def _reject(send: Send, rejected: _Rejected) -> None:
    headers = [(b"content-type", b"application/problem+json")]
    if rejected.wait:
        headers.append((b"retry-after", str(math.ceil(rejected.wait)).encode()))
    if rejected.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": rejected.status, "headers": headers})
    await send({"type": "http.response.body", "body": rejected.document})
