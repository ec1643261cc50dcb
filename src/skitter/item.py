"""Items, the results of callbacks: dicts, and dataclass, attrs, pydantic or msgspec instances.

The values of an item are JSON values, dates and times (ISO 8601), ``Decimal``, ``UUID``, enums, paths, IP addresses and
the URLs of pydantic (as strings), sets and tuples (as lists), bytes (as base64), and nested items. The class of a value may
be derived from one of these.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from pathlib import PurePath
from typing import Any
from uuid import UUID

import msgspec

from skitter.errors import StoreError
from skitter.plugins import FILE_MODULE
from skitter.request import Request, as_builtin


def is_item(candidate: Any) -> bool:
    """Return whether a callback's result is an item. A TypedDict is a dict; a request is not an item."""
    kind = candidate.__class__
    return kind is dict or (kind is not Request and _is_item_class(kind))


def _is_item_class(kind: type) -> bool:
    return (
        issubclass(kind, (Mapping, msgspec.Struct))
        or dataclasses.is_dataclass(kind)
        or hasattr(kind, "__attrs_attrs__")
        or hasattr(kind, "__pydantic_fields__")
    )


def encode_item(item: Any) -> bytes:
    """Return the item as one JSON object without a line break.

    Raises :class:`~skitter.errors.StoreError` with the name of a field whose value JSON cannot represent.
    """
    try:
        encoded = _encode(item)
    except UnicodeEncodeError:
        encoded = _encode(without_surrogates(item_fields(item)))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise _refusal(item, error) from None
    if encoded[:1] != b"{":
        raise StoreError(
            f"not an item: {type(item).__name__}",
            remedy="yield a dict, dataclass, attrs, pydantic or msgspec instance",
        )
    return encoded


def item_fields(item: Any, *, keep: tuple[type, ...] = ()) -> dict[str, Any]:
    """Return the item's fields as plain values: ``None``, booleans, numbers, strings, lists, tuples, dicts.

    ``keep``: types such as ``bytes`` and ``datetime`` whose values are not converted, at any depth. Keys are always strings.
    Raises :class:`~skitter.errors.StoreError` like :func:`encode_item`.
    """
    try:
        fields = _to_builtins(item, keep)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise _refusal(item, error) from None
    if not isinstance(fields, dict):
        raise _refusal(item, TypeError(f"not an item: {type(item).__name__}"))
    return fields


def _to_builtins(item: Any, keep: tuple[type, ...]) -> Any:
    try:
        return msgspec.to_builtins(item, builtin_types=keep, str_keys=True, enc_hook=_plain)
    except TypeError:  # msgspec refuses keys of the kept types, although it converts them in JSON
        if not keep:
            raise
        return _with_text_keys(msgspec.to_builtins(item, builtin_types=keep, enc_hook=_plain))


def _with_text_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            next(iter(msgspec.to_builtins({key: None}, str_keys=True))): _with_text_keys(inner)
            for key, inner in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_with_text_keys(inner) for inner in value]
    return value


def field_of(item: Any, name: str) -> Any:
    """Return the value of a field of an item; ``None`` if the item does not have it."""
    return item.get(name) if isinstance(item, (dict, Mapping)) else getattr(item, name, None)


def item_kind(item: Any) -> str:
    """Return the name of an item's class; empty for a dict."""
    if isinstance(item, UnpackedItem):
        return item.kind
    return "" if isinstance(item, dict) else type(item).__name__


def class_paths(item: Any) -> tuple[str, ...]:
    """Return the dotted paths of an item's class and of its base classes, without ``object``.

    The module of a class in a spider file has the name of the file.
    """
    return item.classes if isinstance(item, UnpackedItem) else _class_paths(item.__class__)


@lru_cache(maxsize=1000)
def _class_paths(kind: type) -> tuple[str, ...]:
    bases = [base for base in kind.__mro__ if base is not object]
    return tuple(f"{base.__module__.removeprefix(FILE_MODULE)}.{base.__qualname__}" for base in bases)


_PACKED: tuple[tuple[type, Callable[[Any], str], Callable[[str], Any]], ...] = (
    (datetime, datetime.isoformat, datetime.fromisoformat),
    (date, date.isoformat, date.fromisoformat),
    (time, time.isoformat, time.fromisoformat),
    (Decimal, str, Decimal),
    (UUID, str, UUID),
    (
        timedelta,
        lambda span: str(span // timedelta(microseconds=1)),
        lambda text: timedelta(microseconds=int(text)),
    ),
    (int, str, int),
)
"""Types that MessagePack would change or cannot encode, with their string forms. The position is the code of the type."""
_KEPT = (bytes, *(kind for kind, _, _ in _PACKED if kind is not int))


_DICT = ("builtins.dict",)


class _PackedItem(msgspec.Struct, array_like=True, frozen=True):
    kind: str
    fields: bytes
    classes: tuple[str, ...] = ()
    """Empty for a dict, and for items that older versions of skitter stored."""


def pack_items(items: Iterable[Any]) -> bytes:
    """Return the stored form of items, which :func:`unpack_items` reads.

    Raises :class:`~skitter.errors.StoreError` like :func:`encode_item`.
    """
    packed = []
    for item in items:
        fields = _packable(item_fields(item, keep=_KEPT))
        try:
            data = msgspec.msgpack.encode(fields)
        except UnicodeEncodeError:
            data = msgspec.msgpack.encode(without_surrogates(fields))
        classes = class_paths(item)
        packed.append(_PackedItem(item_kind(item), data, () if classes == _DICT else classes))
    return msgspec.msgpack.encode(packed)


class UnpackedItem(dict[str, Any]):
    """A stored item as a dict."""

    kind: str = ""
    """The name of the item's class; empty for a dict."""
    classes: tuple[str, ...] = _DICT
    """The dotted paths of the item's class and its base classes, see :func:`class_paths`."""


def unpack_items(packed: bytes) -> list[UnpackedItem]:
    """Return the items that :func:`pack_items` packed."""
    found = []
    for stored in msgspec.msgpack.decode(packed, type=list[_PackedItem]):
        item = UnpackedItem(msgspec.msgpack.decode(stored.fields, ext_hook=_unpacked))
        item.kind = stored.kind
        item.classes = stored.classes or ((stored.kind,) if stored.kind else _DICT)
        found.append(item)
    return found


def _packable(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _packable(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_packable(inner) for inner in value]
    if value is None or isinstance(value, (bool, str, bytes, float)):
        return value
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return value
    code = next(code for code, (kind, _, _) in enumerate(_PACKED) if isinstance(value, kind))
    return msgspec.msgpack.Ext(code, _PACKED[code][1](value).encode())


def _unpacked(code: int, data: memoryview) -> Any:
    return _PACKED[code][2](bytes(data).decode())


def is_selector(value: object) -> bool:
    """Return whether a value is a selector or a list of selectors, which is often a forgotten ``.get()``."""
    return type(value).__module__ in {"skitter.html.selector", "parsel.selector"}


_MODULES_OF_TEXTS = frozenset({"ipaddress", "pydantic.networks", "pydantic_core._pydantic_core"})
"""Modules whose values are IP addresses and URLs, which are written as text."""


def _plain(value: Any) -> Any:
    if hasattr(value, "__pydantic_fields__"):
        return value.model_dump()
    if isinstance(value, PurePath) or type(value).__module__ in _MODULES_OF_TEXTS:
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    if is_selector(value):
        raise TypeError(f"a selector, {value!r:.60}, without .get() or .getall()")
    try:
        return as_builtin(value)
    except TypeError:
        raise TypeError(f"a value of type {type(value).__qualname__}") from None


_encode = msgspec.json.Encoder(enc_hook=_plain).encode


def _refusal(item: Any, error: Exception) -> StoreError:
    path = ".".join(_path_to_fault(item))
    where = f", field {path}" if path else ""
    return StoreError(
        f"item {item_kind(item) or 'dict'}{where} cannot be written: {error}",
        remedy="give strings, numbers, dates, lists and dicts (of a selector, its .get())",
    )


def _path_to_fault(value: Any, depth: int = 0) -> list[str]:
    """Return the path to the innermost value that cannot be encoded."""
    for name, inner in _parts(value) if depth < 20 else ():
        try:
            _encode(inner)
        except (TypeError, ValueError, OverflowError, RecursionError):
            return [name, *_path_to_fault(inner, depth + 1)]
    return []


def _parts(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return [(str(key), inner) for key, inner in value.items()]
    if isinstance(value, (list, tuple, set, frozenset)):
        return [(str(place), inner) for place, inner in enumerate(value)]
    names = getattr(value, "__struct_fields__", None) or getattr(value, "__pydantic_fields__", None)
    if names is None and _is_item_class(type(value)):
        fields = getattr(value, "__attrs_attrs__", None) or dataclasses.fields(value)
        names = [field.name for field in fields]
    return [(name, getattr(value, name, None)) for name in names or ()]


def map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return a plain value with ``change`` applied to each string in it, at any depth, including keys."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, (list, tuple)):
        return [map_texts(inner, change) for inner in value]
    if isinstance(value, dict):
        return {map_texts(key, change): map_texts(inner, change) for key, inner in value.items()}
    return value


def without_surrogates(value: Any) -> Any:
    """Replace each lone surrogate by U+FFFD. JSON texts may contain lone surrogates, but UTF-8 cannot encode them."""
    return map_texts(value, lambda text: text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


class OutputRange(msgspec.Struct, array_like=True, frozen=True):
    """A byte range of a part file that holds the items of one outcome."""

    part: str
    start: int
    end: int
