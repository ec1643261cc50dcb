"""Scripts: the state transitions in Lua, each with the shared functions before it."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files

_PRELUDE = ("job", "beginnings", "slots", "seen", "requests")
_ALONE = {"open", "attach"}
"""Scripts without the prelude."""


class LuaScript:
    """One script as the server gets it."""

    __slots__ = ("sha", "source")

    def __init__(self, source: str) -> None:
        self.source = source
        self.sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()


@cache
def all_scripts(*, on_disk: bool = False) -> dict[str, LuaScript]:
    """Read all scripts of ``scripts/redis`` by their names. Blocks at the first call.

    ``on_disk``: as they are for a server that keeps its data on disk.
    """
    folder = files("skitter.frontier.scripts") / "redis"
    parts = [(folder / "prelude" / f"{name}.lua").read_text("utf-8") for name in _PRELUDE]
    prelude = "\n".join([f"local ON_DISK = {'true' if on_disk else 'false'}", *parts])
    scripts = {}
    for file in folder.iterdir():
        name, dot, kind = file.name.partition(".")
        if dot and kind == "lua":
            own = file.read_text("utf-8")
            scripts[name] = LuaScript(own if name in _ALONE else f"{prelude}\n{own}")
    return scripts
