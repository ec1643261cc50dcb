"""The gRPC description of the API, derived from its OpenAPI description: one method for each operation.

Every new operation of the HTTP API thus becomes a method. Field numbers are computed from the names of fields, so a field
keeps its number when other fields are added or removed.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from fastapi import FastAPI
from fastapi.routing import APIRoute
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    empty_pb2,
    json_format,
    message_factory,
    struct_pb2,
    wrappers_pb2,
)
from google.protobuf.message import Message

SERVICE = "skitter.v1.Skitter"
_PACKAGE = "skitter.v1"
_FILE = "skitter/v1/skitter.proto"
_IMPORTS = ("google/protobuf/empty.proto", "google/protobuf/struct.proto", "google/protobuf/wrappers.proto")
_COOKIE_OPERATIONS = frozenset({("POST", "/session"), ("DELETE", "/session")})
_LARGEST_TAG = (1 << 29) - 1
_RESERVED_TAGS = range(19_000, 20_000)
_LARGEST_INTEGER = 1 << 53
"""From this number on, a double cannot represent every integer."""

_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "string": _Field.TYPE_STRING,
    "integer": _Field.TYPE_INT64,
    "number": _Field.TYPE_DOUBLE,
    "boolean": _Field.TYPE_BOOL,
}
_STREAMS = {
    "application/x-ndjson": ".google.protobuf.Value",
    "text/plain": ".google.protobuf.StringValue",
    "text/event-stream": f".{_PACKAGE}.Event",
}
"""The message for each line or event of a response, by its media type."""


class ApiOperation(NamedTuple):
    """One operation of the API, as an HTTP call and as a gRPC method."""

    name: str
    http_method: str
    path: str
    path_names: tuple[str, ...]
    query_names: tuple[str, ...]
    body_type: str
    """Media type of the body of a request; empty without a body."""
    stream_type: str
    """Media type of a response that is a stream; empty for a single message."""
    request: type[Message]
    response: type[Message]


class ApiSchema:
    """The operations of an application, and their descriptors in ``pool``."""

    def __init__(self, app: FastAPI) -> None:
        self._components: Mapping[str, Any] = app.openapi().get("components", {}).get("schemas", {})
        self._file = descriptor_pb2.FileDescriptorProto(
            name=_FILE, package=_PACKAGE, syntax="proto3", dependency=_IMPORTS
        )
        event = self._file.message_type.add(name="Event")
        _add_field(event, "event", {"type": "string"})
        _add_field(event, "data", {})
        service = self._file.service.add(name=SERVICE.rpartition(".")[2])
        declared = [self._declare(service, *operation) for operation in _operations(app)]
        self.pool = descriptor_pool.DescriptorPool()
        for module in (empty_pb2, struct_pb2, wrappers_pb2):
            self.pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
        self.pool.AddSerializedFile(self._file.SerializeToString())
        self.operations = [
            operation._replace(request=self._class_of(request), response=self._class_of(response))
            for operation, request, response in declared
        ]

    def proto(self) -> str:
        """Return the description as the text of a ``.proto`` file (proto3)."""
        head = [f'syntax = "proto3";\n\npackage {_PACKAGE};\n', *(f'import "{name}";' for name in _IMPORTS)]
        methods = [
            f"  rpc {method.name}({_short(method.input_type)})"
            f" returns ({'stream ' * method.server_streaming}{_short(method.output_type)});"
            for service in self._file.service
            for method in service.method
        ]
        messages = [
            "\n".join(
                (f"message {message.name} {{", *(f"  {_field_line(field)}" for field in message.field), "}\n")
            )
            for message in self._file.message_type
        ]
        service = f"\nservice {SERVICE.rpartition('.')[2]} {{\n" + "\n".join(methods) + "\n}\n"
        return "\n".join((*head, service, *messages))

    def _class_of(self, name: str) -> type[Message]:
        found: type[Message] = message_factory.GetMessageClass(
            self.pool.FindMessageTypeByName(name.lstrip("."))
        )
        return found

    def _declare(
        self,
        service: descriptor_pb2.ServiceDescriptorProto,
        method: str,
        route: APIRoute,
        operation: Mapping[str, Any],
    ) -> tuple[ApiOperation, str, str]:
        name = "".join(part.capitalize() for part in route.name.split("_"))
        request = self._file.message_type.add(name=f"{name}Request")
        places: dict[str, list[str]] = {"path": [], "query": []}
        for parameter in operation.get("parameters", ()):
            if parameter["in"] in places:
                places[parameter["in"]].append(parameter["name"])
                _add_field(request, parameter["name"], parameter.get("schema", {}))
        content = operation.get("requestBody", {}).get("content", {})
        body_type = next(iter(content), "")
        if body_type == "application/json":
            schema = content[body_type]["schema"]
            schema = self._components.get(schema.get("$ref", "").rpartition("/")[2], schema)
            body = self._file.message_type.add(name=f"{name}Body")
            for field, inner in schema.get("properties", {}).items():
                _add_field(body, field, inner)
            _add_message(request, "body", f".{_PACKAGE}.{name}Body")
        elif body_type:
            _add_field(request, "body", {"type": "string"})
            _add_field(request, "content_type", {"type": "string"})
        responses = [found for status, found in operation["responses"].items() if status.startswith("2")]
        kinds = [kind for found in responses for kind in found.get("content", ()) if kind in _STREAMS]
        media = kinds[0] if kinds else ""
        response = _STREAMS.get(media) or (
            ".google.protobuf.Empty" if set(operation["responses"]) & {"204"} else ".google.protobuf.Struct"
        )
        service.method.add(
            name=name,
            input_type=f".{_PACKAGE}.{name}Request",
            output_type=response,
            server_streaming=bool(media),
        )
        found = ApiOperation(
            name, method, route.path_format, tuple(places["path"]), tuple(places["query"]), body_type, media, Message, Message
        )  # fmt: skip
        return found, f"{_PACKAGE}.{name}Request", response


def _field_line(field: descriptor_pb2.FieldDescriptorProto) -> str:
    kind = _short(field.type_name) or _Field.Type.Name(field.type).removeprefix("TYPE_").lower()
    label = "repeated " if field.label == _Field.LABEL_REPEATED else "optional " * field.proto3_optional
    return f"{label}{kind} {field.name} = {field.number};"


def _short(type_name: str) -> str:
    return type_name.lstrip(".").removeprefix(f"{_PACKAGE}.")


def _operations(app: FastAPI) -> Iterator[tuple[str, APIRoute, Mapping[str, Any]]]:
    paths = app.openapi()["paths"]
    for route in app.routes:
        if isinstance(route, APIRoute) and route.include_in_schema:
            for method in sorted(route.methods or ()):
                if (method, route.path_format) not in _COOKIE_OPERATIONS:
                    yield method, route, paths[route.path_format][method.lower()]


def _tag(name: str) -> int:
    tag = zlib.crc32(name.encode()) % _LARGEST_TAG + 1
    return tag - 1000 if tag in _RESERVED_TAGS else tag


def _add_field(message: descriptor_pb2.DescriptorProto, name: str, schema: Mapping[str, Any]) -> None:
    """Add a field for a JSON schema. Values other than scalars and lists of scalars become a ``google.protobuf.Value``."""
    choices = [choice for choice in schema.get("anyOf", ()) if choice.get("type") != "null"]
    is_nullable = "anyOf" in schema
    if len(choices) == 1:
        schema = choices[0]
    kind = schema.get("type", "")
    if kind in _SCALARS:
        field = message.field.add(
            name=name, number=_tag(name), type=_SCALARS[kind], label=_Field.LABEL_OPTIONAL
        )
        field.proto3_optional = True  # distinguishes an absent value from an empty one
        field.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{name}")
    elif kind == "array" and not is_nullable and (inner := schema.get("items", {}).get("type")) in _SCALARS:
        message.field.add(name=name, number=_tag(name), type=_SCALARS[inner], label=_Field.LABEL_REPEATED)
    elif kind == "object":
        _add_message(message, name, ".google.protobuf.Struct")
    else:  # also a list that may be null, which is not the same as an empty one
        _add_message(message, name, ".google.protobuf.Value")


def _add_message(message: descriptor_pb2.DescriptorProto, name: str, kind: str) -> None:
    message.field.add(
        name=name, number=_tag(name), type=_Field.TYPE_MESSAGE, type_name=kind, label=_Field.LABEL_OPTIONAL
    )


def fields_of(message: Message) -> dict[str, Any]:
    """Return the fields that are set, as JSON values."""
    return {field.name: _value_of(value) for field, value in message.ListFields()}


def _value_of(value: Any) -> Any:
    if isinstance(value, Message):
        if value.DESCRIPTOR.full_name.startswith("google.protobuf."):
            return _with_integers(json_format.MessageToDict(value))
        return fields_of(value)
    return list(value) if hasattr(value, "append") else value


def _with_integers(value: Any) -> Any:
    """Return a JSON value with integers: numbers of a ``google.protobuf.Value`` are doubles."""
    if isinstance(value, dict):
        return {key: _with_integers(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_with_integers(inner) for inner in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < _LARGEST_INTEGER:
        return int(value)
    return value
