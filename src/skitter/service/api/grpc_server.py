"""The gRPC server of a node. Each call is made to the HTTP application in this process, which checks and records it.

So tokens, scopes, limits, the audit log and errors work as in the HTTP API.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import quote, unquote, urlencode

import grpc
import msgspec
from fastapi import FastAPI
from google.protobuf import json_format, struct_pb2, wrappers_pb2
from google.protobuf.message import Message
from grpc_reflection.v1alpha import reflection

from skitter.errors import UsageError
from skitter.service.api.auth import AsgiApp, AsgiMessage, AuthMiddleware
from skitter.service.api.grpc_schema import SERVICE, ApiOperation, ApiSchema, fields_of
from skitter.service.api.server import TlsFiles, listen

log = logging.getLogger("skitter.service")

_GRACE = 10.0
"""Time that calls have to end when the server stops, in seconds."""
_QUEUED_CHUNKS = 16
_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT, 401: grpc.StatusCode.UNAUTHENTICATED, 403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND, 408: grpc.StatusCode.DEADLINE_EXCEEDED, 409: grpc.StatusCode.FAILED_PRECONDITION,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED, 422: grpc.StatusCode.INVALID_ARGUMENT, 429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
}  # fmt: skip

Context = Any
"""A ``grpc.aio.ServicerContext``; grpcio has no type information."""


@asynccontextmanager
async def grpc_server(
    app: AuthMiddleware, host: str, port: int, max_body: int, tls: TlsFiles | None = None
) -> AsyncIterator[int]:
    """Serve an application over gRPC. Yields the port. ``max_body``: maximum size of a caller's message, in bytes.

    Without ``tls``, the server is plaintext.
    Raises :class:`~skitter.errors.UsageError` if the address cannot be used.
    """
    assert isinstance(app.inner, FastAPI)
    schema = ApiSchema(app.inner)
    grpc.aio.init_grpc_aio()  # never shut down: that would block the event loop
    server: Any = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", 2 * max_body),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),
        ]
    )
    handlers = {operation.name: _handler(app, operation) for operation in schema.operations}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    names = (SERVICE, reflection.SERVICE_NAME)
    reflection.enable_server_reflection(names, server, pool=schema.pool)
    try:
        listen(host, port).close()  # raises an error, whereas gRPC writes to standard error
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        if tls is None:
            bound: int = server.add_insecure_port(address)
        else:
            pair = await asyncio.to_thread(lambda: (tls.key.read_bytes(), tls.certificate.read_bytes()))
            bound = server.add_secure_port(address, grpc.ssl_server_credentials([pair]))
    except (OSError, RuntimeError) as error:
        raise UsageError(
            f"cannot listen on {host} port {port} for gRPC: {error}",
            remedy="choose another --grpc-port",
            field="grpc_port",
        ) from None
    await server.start()
    try:
        yield bound
    finally:
        await server.stop(_GRACE)


def _handler(app: AsgiApp, operation: ApiOperation) -> Any:
    async def respond(request: Message, context: Context) -> Any:
        body = b"".join([chunk async for chunk in _chunks(app, operation, request, context)])
        if not body or operation.response.DESCRIPTOR.full_name != "google.protobuf.Struct":
            return operation.response()
        return json_format.ParseDict(msgspec.json.decode(body), struct_pb2.Struct())

    async def stream(request: Message, context: Context) -> AsyncIterator[Any]:
        convert = _CONVERTERS[operation.stream_type]
        end = b"\n\n" if operation.stream_type == "text/event-stream" else b"\n"
        buffer = b""
        async for chunk in _chunks(app, operation, request, context):
            *messages, buffer = (buffer + chunk).split(end)
            for part in messages:
                if (message := convert(operation, part)) is not None:
                    yield message
        if buffer and (message := convert(operation, buffer)) is not None:
            yield message

    make: Callable[..., Any] = (
        grpc.unary_stream_rpc_method_handler if operation.stream_type else grpc.unary_unary_rpc_method_handler
    )
    return make(
        stream if operation.stream_type else respond,
        request_deserializer=operation.request.FromString,
        response_serializer=lambda message: message.SerializeToString(),
    )


def _event(operation: ApiOperation, block: bytes) -> Message | None:
    fields = dict(line.split(b": ", 1) for line in block.split(b"\n") if b": " in line)
    if b"event" not in fields:
        return None  # a comment that keeps the connection alive
    event: Any = operation.response()
    event.event = fields[b"event"].decode()
    json_format.ParseDict(msgspec.json.decode(fields.get(b"data", b"null")), event.data)
    message: Message = event
    return message


_CONVERTERS: dict[str, Callable[[ApiOperation, bytes], Message | None]] = {
    "application/x-ndjson": lambda _, line: (
        json_format.ParseDict(msgspec.json.decode(line), struct_pb2.Value()) if line else None
    ),
    "text/plain": lambda _, line: wrappers_pb2.StringValue(value=line.decode("utf-8", "replace")),
    "text/event-stream": _event,
}


async def _chunks(
    app: AsgiApp, operation: ApiOperation, request: Message, context: Context
) -> AsyncIterator[bytes]:
    """Make the HTTP call and yield the body of its response. An error ends the gRPC call."""
    fields = fields_of(request)
    for name in operation.path_names:
        if not fields.get(name) or "/" in fields[name]:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, f"{name}: empty, or contains a slash; correct it"
            )
    scope, body = _http_call(operation, fields, context)
    sent: asyncio.Queue[AsgiMessage | None] = asyncio.Queue(_QUEUED_CHUNKS)
    call = asyncio.create_task(_run(app, scope, _receiver(body), sent), name=f"gRPC {operation.name}")
    try:
        start = await sent.get()
        status = 500 if start is None else start["status"]
        if start is None or status >= 300:
            problem = b"".join([chunk async for chunk in _body(sent)]) if start is not None else b""
            await _abort(context, status, dict(start["headers"]) if start is not None else {}, problem)
        async for chunk in _body(sent):
            yield chunk
        if not await call:
            text = (
                "the response is incomplete, because the service has failed; see its log, or repeat the call"
            )
            await context.abort(grpc.StatusCode.INTERNAL, text)
    finally:
        call.cancel()
        with suppress(asyncio.CancelledError):
            await call


async def _run(
    app: AsgiApp,
    scope: dict[str, Any],
    receive: Callable[[], Awaitable[AsgiMessage]],
    sent: asyncio.Queue[AsgiMessage | None],
) -> bool:
    """Make the HTTP call. Put the messages of its response and ``None`` into a queue. Return whether it has succeeded."""
    has_succeeded = True
    try:
        await app(scope, receive, sent.put)
    except Exception:
        log.exception("a gRPC call failed")
        has_succeeded = False
    await sent.put(None)
    return has_succeeded


async def _body(sent: asyncio.Queue[AsgiMessage | None]) -> AsyncIterator[bytes]:
    while (message := await sent.get()) is not None:
        if chunk := message.get("body", b""):
            yield chunk


def _receiver(body: bytes) -> Callable[[], Awaitable[AsgiMessage]]:
    messages: list[AsgiMessage] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> AsgiMessage:
        if not messages:  # the caller stays until the call is cancelled
            await asyncio.Event().wait()
        return messages.pop()

    return receive


def _http_call(
    operation: ApiOperation, fields: dict[str, Any], context: Context
) -> tuple[dict[str, Any], bytes]:
    """Return the ASGI scope and the body of the HTTP call for a gRPC request."""
    headers = [
        (b"authorization", value.encode() if isinstance(value, str) else value)
        for name, value in context.invocation_metadata() or ()
        if name.lower() == "authorization"
    ]
    values = {name: fields[name] for name in operation.path_names}
    path = operation.path.format(**values)
    raw = operation.path.format(**{name: quote(value, safe="") for name, value in values.items()})
    query = {name: fields[name] for name in operation.query_names if name in fields}
    query = {name: str(value).lower() if isinstance(value, bool) else value for name, value in query.items()}
    body = b""
    if operation.body_type == "application/json":
        body = msgspec.json.encode(fields.get("body", {}))
        headers.append((b"content-type", b"application/json"))
    elif operation.body_type:
        body = str(fields.get("body", "")).encode()
        kind = str(fields.get("content_type", operation.body_type))
        headers.append((b"content-type", kind.encode("latin-1", "replace")))
    # The address of the caller, from ipv4:ADDRESS:PORT or ipv6:%5BADDRESS%5D:PORT.
    peer = unquote(context.peer().partition(":")[2].rpartition(":")[0]).strip("[]")
    scope = {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.4"}, "http_version": "1.1", "scheme": "http",
        "method": operation.http_method, "path": path, "raw_path": raw.encode(), "query_string": urlencode(query).encode(),
        "root_path": "", "headers": headers, "server": ("grpc", 0), "client": (peer, 0),
    }  # fmt: skip
    return scope, body


async def _abort(context: Context, status: int, headers: dict[bytes, bytes], problem: bytes) -> None:
    """End a call with the status of an HTTP response. The trailer ``problem-bin`` contains its problem document (RFC 9457)."""
    try:
        found = msgspec.json.decode(problem, type=dict)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        found = {}
    text = str(found.get("detail") or found.get("title") or f"status {status}")
    if remedy := found.get("remedy"):
        text = f"{text}; {remedy}"
    trailers: list[tuple[str, str | bytes]] = [("problem-bin", problem)]
    if b"retry-after" in headers:
        trailers.append(("retry-after", headers[b"retry-after"].decode()))
    await context.abort(_CODES.get(status, grpc.StatusCode.INTERNAL), text, tuple(trailers))
