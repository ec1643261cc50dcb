"""Parsel, imported when it is first needed: it brings a tenth of a second of imports with it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import parsel


def parsel_selector(**options: Any) -> parsel.Selector:
    """Return ``parsel.Selector(**options)``."""
    import parsel  # noqa: PLC0415 - see above

    return parsel.Selector(**options)


def is_parsel(thing: object) -> bool:
    """Tell whether something is a selector of parsel."""
    loaded = sys.modules.get("parsel")
    return loaded is not None and isinstance(thing, loaded.Selector)
