"""ItemMeter: counts item fields for the monitors, and validates items against the job's schema.

The counts are added to the counters of the page, so they are committed together with its items.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import xxhash

from skitter.errors import SkitterError
from skitter.item import item_fields
from skitter.settings import Settings
from skitter.worker.bounded_counters import VALUES, VIOLATIONS

if TYPE_CHECKING:
    from skitter.item_schema import ItemSchema
    from skitter.worker.page import Page

COVERED = "coverage/"
"""Counters ``coverage/FIELD``: items with a value in a field."""
INVALID = "invalid"
"""Counter of items that violate the schema."""
MAX_FIELD = 60
"""Maximum length of a field name within the name of a counter of violations."""
Policy = Literal["keep", "drop", "fail"]


class InvalidItem(SkitterError):
    """An item violates the schema of its job, so its page fails (``invalid_items=fail``)."""


def make_item_meter(settings: Settings) -> ItemMeter | None:
    """Return the meter of a job; ``None`` if it has neither a schema nor a monitor that names a field.

    Raises :class:`~skitter.errors.SettingsError`.
    """
    if settings.item_schema is None and not settings.monitors:
        return None
    from skitter.item_schema import make_item_schema  # noqa: PLC0415 - few jobs have a schema or monitors
    from skitter.monitors import compile_monitors  # noqa: PLC0415 - few jobs have a schema or monitors

    schema = None if settings.item_schema is None else make_item_schema(settings.item_schema)
    figures = {figure for rule in compile_monitors(settings.monitors) for figure in rule.figures}
    coverage = sorted(figure.argument for figure in figures if figure.name == "coverage")
    values = sorted(figure.argument for figure in figures if figure.name == "new_values")
    if schema is None and not coverage and not values:
        return None
    return ItemMeter(coverage, values, schema, settings.invalid_items)


class ItemMeter:
    """Counts the items of a page.

    ``coverage`` and ``values``: the fields that monitors name. Other fields are not counted.
    """

    def __init__(
        self, coverage: Sequence[str], values: Sequence[str], schema: ItemSchema | None, policy: Policy
    ) -> None:
        self._coverage = [(COVERED + field, field.split(".")) for field in coverage]
        self._values = [(f"{VALUES}{field}/", field.split(".")) for field in values]
        self._schema = schema
        self._policy = policy

    def measure(self, items: list[Any], page: Page) -> list[Any]:
        """Count items. Return those to keep. Raises :class:`InvalidItem` if the page is to fail."""
        if self._schema is not None:
            items = self._valid(self._schema, items, page)
        if self._coverage or self._values:
            for item in items:
                self._count_fields(item, page)
        return items

    def _valid(self, schema: ItemSchema, items: list[Any], page: Page) -> list[Any]:
        kept = []
        for item in items:
            violations = schema.violations(item)
            if violations:
                page.count(INVALID)
                for field, kind in violations:
                    page.count_bounded(f"{VIOLATIONS}{field[:MAX_FIELD]}/{kind}")
                if self._policy == "fail":
                    field, kind = violations[0]
                    raise InvalidItem(f"{kind} in field {field!r}" if field else kind)
                if self._policy == "drop":
                    page.count("dropped_items/invalid")
                    continue
            kept.append(item)
        return kept

    def _count_fields(self, item: Any, page: Page) -> None:
        fields: Any = item if item.__class__ is dict else item_fields(item)
        for counter, path in self._coverage:
            if _has_value(_at(fields, path)):
                page.count(counter)
        for counter, path in self._values:
            value = _at(fields, path)
            if _has_value(value):
                for element in value if isinstance(value, (list, tuple)) else (value,):
                    page.count_bounded(counter + _digest(element))


def _at(fields: Any, path: Iterable[str]) -> Any:
    """Return the value at a path of nested objects; ``None`` if there is none."""
    for part in path:
        if not isinstance(fields, Mapping):
            return None
        fields = fields.get(part)
    return fields


def _has_value(value: Any) -> bool:
    return bool(value) if isinstance(value, (str, list, dict, tuple)) else value is not None


def _digest(value: Any) -> str:
    """Return a digest of 16 characters. Two values of a field collide with a probability of at most 1 in 10^13."""
    data = (
        value.encode("utf-8", "surrogatepass")
        if isinstance(value, str)
        else msgspec.json.encode(value, enc_hook=repr)
    )
    return xxhash.xxh3_64_hexdigest(data)
