"""Schema: the JSON Schema of recipes, for editors; kept in the package as ``schema.json``."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from skitter.frontends.recipe.model import Recipe

ADDRESS = "https://json-schema.org/draft/2020-12/schema"


def make_schema() -> dict[str, Any]:
    """Make the schema from the model."""
    return {"$schema": ADDRESS, "title": "skitter recipe", **msgspec.json.schema(Recipe)}


@cache
def kept_schema() -> dict[str, Any]:
    """Return the schema that is published with this version."""
    text = (files("skitter.frontends.recipe") / "schema.json").read_bytes()
    found: dict[str, Any] = msgspec.json.decode(text)
    return found
