"""Reads the URL of a broker frontier."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from skitter.errors import FrontierError
from skitter.queues import DEFAULT_QUEUE
from skitter.secrets import BROKER_SECRET, refuse_raw_password, secret_from_environment

HostPort = tuple[str, int]

_COMMON_OPTIONS = {"channel", "state"}
_MAX_NAME_LENGTH = 64


class UrlRules(msgspec.Struct, frozen=True):
    """What the URLs of one kind of broker may contain."""

    example: str
    """A valid URL, for error messages."""
    port: int
    """Default port."""
    is_name: Callable[[str], bool]
    """Whether a text is valid as the name of a topic or channel."""
    options: frozenset[str] = frozenset()
    """Names of options besides ``state`` and ``channel``."""

    @property
    def scheme(self) -> str:
        """The scheme of the URLs."""
        return self.example.partition("://")[0]


class BrokerAddress(msgspec.Struct, frozen=True):
    """The parts of a broker frontier's URL."""

    rules: UrlRules
    hosts: list[HostPort]
    topic: str
    channel: str
    state: str
    """URL of the state frontier."""
    secret: str = ""
    options: dict[str, str] = {}

    def hosts_of(self, option: str, port: int) -> list[HostPort]:
        """Return the hosts that an option lists; ``port``: default port."""
        return _parse_hosts(self.rules, self.options.get(option, ""), port, option)

    def of_queue(self, queue: str) -> BrokerAddress:
        """Return the address of the topic of a queue: ``TOPIC-QUEUE``, or ``TOPIC`` for the default queue."""
        if queue == DEFAULT_QUEUE:
            return self
        return msgspec.structs.replace(self, topic=_shortened(f"{self.topic}-{queue}"))

    @property
    def uses_tls(self) -> bool:
        """Whether the URL asks for encryption."""
        return self.options.get("tls", "no") != "no"

    def invalid(self, reason: str, field: str) -> FrontierError:
        """Return the error for an address that the broker cannot use. ``field``: the part of the URL at fault."""
        return _invalid(self.rules, reason, field)


def parse_address(url: str, job: str, rules: UrlRules) -> BrokerAddress:
    """Parse the URL of a broker frontier.

    A dotted path may precede it: ``package.module:make_frontier:zset://HOST/TOPIC``. The default topic is ``skitter``.
    The default channel is named after the job, so that two jobs do not take each other's messages.

    Raises :class:`~skitter.errors.FrontierError` for an invalid URL.
    """
    _, found, rest = url.partition(f":{rules.scheme}://")
    if found:
        url = f"{rules.scheme}://{rest}"
    try:
        refuse_raw_password(url)
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
    except ValueError as error:
        raise _invalid(rules, str(error)) from error
    unknown = options.keys() - _COMMON_OPTIONS - rules.options
    if unknown:
        raise _invalid(rules, f"unknown option {min(unknown)!r}", min(unknown))
    secret, _, places = parts.netloc.rpartition("@")
    topic = parts.path.strip("/") or "skitter"
    channel = options.get("channel") or channel_of(job)
    for field, name in (("topic", topic), ("channel", channel)):
        if not rules.is_name(name):
            raise _invalid(rules, f"invalid {field} name: {name!r}", field)
    state = options.get("state", "")
    if not state:
        raise _invalid(rules, "the option 'state' is missing: the URL of a Redis or SQLite frontier", "state")
    own_options = {name: value for name, value in options.items() if name not in _COMMON_OPTIONS}
    secret = unquote(secret) or secret_from_environment(BROKER_SECRET)
    hosts = _parse_hosts(rules, places, rules.port, "hosts")
    return BrokerAddress(rules, hosts, topic, channel, state, secret, own_options)


def channel_of(job: str) -> str:
    """Return the channel of a job: its name, or a shortened name with a hash if the name is not a valid channel."""
    return _shortened(job, re.sub(r"[^a-zA-Z0-9_-]", "_", job))


def _shortened(name: str, valid: str = "") -> str:
    """Return ``name`` if it is short and valid; otherwise a shortened ``valid``, made unique with a hash."""
    valid = valid or name
    if valid == name and len(name) <= _MAX_NAME_LENGTH:
        return name
    return f"{valid[:40]}-{hashlib.blake2b(name.encode(), digest_size=6).hexdigest()}"


def _parse_hosts(rules: UrlRules, text: str, port: int, field: str) -> list[HostPort]:
    hosts = []
    for word in filter(None, text.split(",")):
        try:
            parts = urlsplit(f"//{word}")
            host, own_port = parts.hostname, parts.port
        except ValueError as error:
            raise _invalid(rules, str(error), field) from error
        if not host or parts.path:
            raise _invalid(rules, f"invalid host: {word!r}", field)
        hosts.append((host, own_port or port))
    return hosts


def _invalid(rules: UrlRules, reason: str, field: str = "") -> FrontierError:
    return FrontierError(f"invalid frontier URL: {reason}", field=field, remedy=f"write {rules.example}")
