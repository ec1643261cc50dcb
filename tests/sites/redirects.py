"""Redirects to pages, to invalid URLs, to other hosts, and in loops."""

from sites.cases import reason
from skitter.testing import Answer

HOPS = 60
"""Length of a chain that no crawler should follow completely."""

CHAIN = 5

LED_ASTRAY = reason("redirect")

TARGETS = ["301", "302", "303", "307", "308", "relative", "fragment", "chain", "other-host"]
"""``/target/NAME.html`` is a page, and ``/r/NAME`` redirects to it."""


def location_of(path, origins):
    """Return status and Location of a path that redirects, or ``None`` for any other path."""
    kind, _, name = path.removeprefix("/r/").partition("/")
    if kind == "chain":
        step = int(name or 0)
        return 302, f"/r/chain/{step + 1}" if step < CHAIN else "/target/chain.html"
    if kind == "hop":
        step = int(name or 0)
        return 302, f"/r/hop/{step + 1}" if step < HOPS else "/decoy/after-all-hops.html"
    table = {
        **{status: (int(status), f"/target/{status}.html") for status in TARGETS[:5]},
        "relative": (301, "../target/relative.html"),
        "fragment": (302, "/target/fragment.html#part"),
        "other-host": (302, f"http://{origins[1]}/target/other-host.html"),
        "known": (301, "/"),
        "self": (301, "/r/self"),
        "loop/a": (302, "/r/loop/b"),
        "loop/b": (302, "/r/loop/a"),
        "unparsable": (302, "http://[::1/"),
        "other-scheme": (302, "ftp://outside.invalid/file"),
    }
    return table.get(path.removeprefix("/r/"))


LINKED = [f"/r/{name}" for name in [*TARGETS, "known", "self", "loop/a", "hop", "unparsable", "other-scheme"]]

ASTRAY = [
    {"/r/self"},
    {"/r/loop/a", "/r/loop/b"},
    {"/r/hop", *(f"/r/hop/{step}" for step in range(1, HOPS + 1))},
    {"/r/unparsable"},
    {"/r/other-scheme"},
]
"""In each set, exactly one URL becomes a dead letter."""


def redirect(path, origins):
    found = location_of(path, origins)
    return None if found is None else Answer(status=found[0], headers={"Location": found[1]})
