"""Address: what the URL of a broker frontier says."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from skitter.errors import FrontierError
from skitter.queues import DEFAULT_QUEUE
from skitter.secrets import BROKER_SECRET, refuse_raw_password, secret_outside

Host = tuple[str, int]

_OURS = {"channel", "state"}
_LONGEST = 64


class NameRule(msgspec.Struct, frozen=True):
    """What a kind of broker lets its URLs say."""

    example: str
    port: int
    """Of a host without one."""
    is_name: Callable[[str], bool]
    """Whether a name may be one of a topic or channel."""
    options: frozenset[str] = frozenset()
    """Options of its own."""


class BrokerAddress(msgspec.Struct, frozen=True):
    """Where a broker is, what is ours there, and where the state is."""

    rule: NameRule
    hosts: list[Host]
    topic: str
    channel: str
    state: str
    """URL of a state frontier."""
    secret: str = ""
    options: dict[str, str] = {}

    def hosts_of(self, option: str, port: int) -> list[Host]:
        """Read an option that names hosts."""
        return _hosts(self.rule, self.options.get(option, ""), port)

    def of_queue(self, queue: str) -> BrokerAddress:
        """Return the address of a named queue: a topic of its own, called after both."""
        if queue == DEFAULT_QUEUE:
            return self
        return msgspec.structs.replace(self, topic=_fit(f"{self.topic}-{queue}"))

    def wrong(self, why: str) -> FrontierError:
        """Return the error of a URL that cannot be used."""
        return _wrong(self.rule, why)


def parse_address(url: str, job: str, rule: NameRule) -> BrokerAddress:
    """Read the URL of a broker frontier.

    Without a topic it is ``skitter``, without a channel it is named after the job, so that each job gets all
    messages of the topic and lets go of those that are not its own. Raises
    :class:`~skitter.errors.FrontierError` for a URL that is wrong.
    """
    try:
        refuse_raw_password(url)
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
    except ValueError as error:
        raise _wrong(rule, str(error)) from error
    strange = options.keys() - _OURS - rule.options
    if strange:
        raise _wrong(rule, f"{min(strange)!r} is no option")
    secret, _, places = parts.netloc.rpartition("@")
    topic = parts.path.strip("/") or "skitter"
    channel = options.get("channel") or channel_of(job)
    for what, name in (("topic", topic), ("channel", channel)):
        if not rule.is_name(name):
            raise _wrong(rule, f"{name!r} is no name for a {what}")
    state = options.get("state", "")
    if not state:
        raise _wrong(rule, "it names no state: what the broker cannot know is kept in Redis or SQLite")
    rest = {name: value for name, value in options.items() if name not in _OURS}
    secret = unquote(secret) or secret_outside(BROKER_SECRET)
    return BrokerAddress(rule, _hosts(rule, places, rule.port), topic, channel, state, secret, rest)


def channel_of(job: str) -> str:
    """Return the channel of a job: its name, shortened and with its hash where a channel cannot be called so."""
    return _fit(job, re.sub(r"[^a-zA-Z0-9_-]", "_", job))


def _fit(wanted: str, name: str = "") -> str:
    """Return a name, shortened and with its hash where it is too long, or is not the one that was wanted."""
    name = name or wanted
    if name == wanted and len(name) <= _LONGEST:
        return name
    return f"{name[:40]}-{hashlib.blake2b(wanted.encode(), digest_size=6).hexdigest()}"


def _hosts(rule: NameRule, words: str, port: int) -> list[Host]:
    hosts = []
    for word in filter(None, words.split(",")):
        try:
            parts = urlsplit(f"//{word}")
            host, own = parts.hostname, parts.port
        except ValueError as error:
            raise _wrong(rule, str(error)) from error
        if not host or parts.path:
            raise _wrong(rule, f"{word!r} is no host")
        hosts.append((host, own or port))
    return hosts


def _wrong(rule: NameRule, why: str) -> FrontierError:
    return FrontierError(f"frontier URL is not understood: {why}", remedy=f"write {rule.example}")
