"""Finds the frontier of a URL by its scheme: built-in frontiers, and entry points of the group ``skitter.frontiers``."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from skitter.errors import FrontierError, SkitterError
from skitter.frontier.contract import Frontier
from skitter.frontier.embedded.frontier import EmbeddedFrontier
from skitter.frontier.options import FrontierContext
from skitter.plugins import PluginKind, needing
from skitter.secrets import without_secrets

SERVER_SCHEMES = ("redis", "rediss", "redis+sentinel", "rediss+sentinel", "unix")
"""URL schemes of one Valkey or Redis server, found directly or by its sentinels."""
CLUSTER_SCHEMES = ("redis+cluster", "rediss+cluster")


def _on_redis(url: str, context: FrontierContext) -> Frontier:
    with _needing("redis", url):
        from skitter.frontier.redis.frontier import RedisFrontier  # noqa: PLC0415 - its client is an extra
    return RedisFrontier(url, context)


def _on_cluster(url: str, context: FrontierContext) -> Frontier:
    with _needing("redis", url):
        from skitter.frontier.redis.cluster_frontier import RedisClusterFrontier  # noqa: PLC0415 - its client is an extra
    return RedisClusterFrontier(url, context)


def _needing(extra: str, url: str) -> AbstractContextManager[None]:
    return needing(extra, f"frontier kind {url.partition(':')[0]!r}", FrontierError)


_BUILT_IN: dict[str, Callable[[str, FrontierContext], Frontier]] = {
    "memory": EmbeddedFrontier.from_url,
    "sqlite": EmbeddedFrontier.from_url,
    **dict.fromkeys(SERVER_SCHEMES, _on_redis),
    **dict.fromkeys(CLUSTER_SCHEMES, _on_cluster),
}


_SERVER = re.compile(r"[\w.-]+:\d+(/\d+)?")
"""The address of a server without a scheme."""
FRONTIERS = PluginKind("frontier", "skitter.frontiers", _BUILT_IN, FrontierError)


def load_frontier_modules(url: str) -> None:
    """Import the modules of a frontier on a server, so that processes that are forked later have them.

    Modules of other packages are not imported: they may open what processes must not share. Errors in the URL and missing
    packages are ignored, because :func:`make_frontier` raises them again.
    """
    scheme = url.partition(":")[0].lower()
    if scheme not in {"memory", "sqlite"} and FRONTIERS.is_own(scheme):  # these two have no server
        with suppress(SkitterError):
            make_frontier(url, FrontierContext("job"))


def location_of(url: str) -> str:
    """Return where the frontier of a URL is: equal for all spellings of one URL, and without secrets and options."""
    scheme = url.partition(":")[0].lower()
    with suppress(SkitterError):  # make_frontier reports the error
        if _BUILT_IN.get(scheme) in {_on_redis, _on_cluster}:
            with _needing("redis", url):
                from skitter.frontier.redis.address import parse_address, parse_cluster  # noqa: PLC0415 - as above
            return (parse_address if _BUILT_IN[scheme] is _on_redis else parse_cluster)(url).where
    return without_secrets(url)


def make_frontier(url: str, context: FrontierContext) -> Frontier:
    """Return the frontier of a URL, not yet open.

    Another package adds a frontier with an entry point that is named like the scheme. The entry point is a class with a
    class method ``from_url(url, context)``, or a function with the same parameters. A URL can also name such a class as
    ``package.module:Class``. Raises :class:`~skitter.errors.FrontierError` for an unknown scheme.
    """
    if Path(url).suffix in {".db", ".sqlite", ".sqlite3"} and ":" not in url:
        raise FrontierError(f"unknown frontier: {url!r}", remedy=f"for a SQLite file, write sqlite:{url}")
    if _SERVER.fullmatch(url) and FRONTIERS.named(url.partition(":")[0]) is None:
        raise FrontierError(f"unknown frontier: {url!r}", remedy=f"for a Redis server, write redis://{url}")
    part: Any = FRONTIERS.find(url)[0]
    is_class = isinstance(part, type)
    make: Callable[[str, FrontierContext], Frontier] = part.from_url if is_class else part
    return make(url, context)
