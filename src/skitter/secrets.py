"""Secrets: reads them from the environment and from files, and removes them from stored and displayed text."""

from __future__ import annotations

import os
import re
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, unquote_to_bytes

import msgspec

from skitter.errors import FrontierError, SettingsError, SkitterError
from skitter.web.urls import host_of, normalize, scheme_of, split_userinfo

FRONTIER_PASSWORD = "SKITTER_FRONTIER_PASSWORD"  # noqa: S105 - the name of a variable
"""Environment variable with the password of a Valkey or Redis frontier whose URL contains none.
The variable with the suffix ``_FILE`` names a file with the password, as containers provide secrets."""
SENTINEL_PASSWORD = "SKITTER_SENTINEL_PASSWORD"  # noqa: S105 - the name of a variable
"""Environment variable with the password of the sentinels themselves."""
BROKER_SECRET = "SKITTER_BROKER_SECRET"  # noqa: S105 - the name of a variable
"""Environment variable with the credentials of a broker: a token, or ``USER:PASSWORD``."""

# User and password between :// and @. The second alternative matches a password with unencoded delimiters (/ ? # @), which
# urlsplit would read as part of the host or the path: refuse_raw_password rejects it before such an error can repeat it.
_ACCESS = re.compile(r"(?<=://)(?:([^/?#]*)@(?=[^/?#@])|(?!\[)([^/?#@:]*:(?!\d*(?:[/?#,]|$)).*)@)", re.DOTALL)
# Query options whose names indicate a secret, with the & that follows.
_OPTION = re.compile(
    r"(?<=[?&])((?:\w*_)?(?:key|secret|token)|\w*(?:password|passphrase)|connection_string|authMechanismProperties)"
    r"=[^&]*(&?)",
    re.IGNORECASE,
)
# A percent-encoded URL as the value of an option, such as the state of a broker. It may contain secrets, too.
_URL_IN_OPTION = re.compile(r"(?<==)[^&#]*%3A%2F%2F[^&#]*", re.IGNORECASE)
_BROKER = re.compile(r"(?:nsq|nats):|.*?[?&]state=", re.DOTALL)
"""URL of a frontier whose queue is in a broker. Other packages can add kinds; the URL of each kind names a state."""

SECRET_WORD = r"(?:pass(?:word|wd|phrase)|secret|token|api[_-]?key|access[_-]?key|authorization)"  # noqa: S105 - words
"""Pattern of a word that marks a value as secret if the name of the value ends with it."""
_SECRET_NAME = re.compile(rf"{SECRET_WORD}$|cookie$|(?:^|[_-])(?:pass|pwd|pw)$", re.IGNORECASE)
_HIDDEN = "***"
# User and password of a URL anywhere in a text.
_LOGIN_IN_TEXT = re.compile(r"(?<=://)([^/?#@:\s]*):[^/?#\s]*@")
_VENDORS_PROXY = re.compile(r"^([^\s:/@]+:\d{1,5}):[^\s:]+:\S+$")
"""``HOST:PORT:USER:PASSWORD``, as proxy vendors write it."""
_SETTINGS_WITH_URL = ("proxy", "smtp_url", "browser_url")
_SETTINGS_WITH_URLS = ("proxies", "notify")
"""Settings whose values are lists of URLs: in text form, separated by commas or as a JSON array."""
SETTINGS_OF_SECRETS = ("credentials", "headers", "initial_cookies")
"""Settings whose values are secrets, by origin, name or URL."""


def is_secret_name(name: str) -> bool:
    """Return whether the name of an argument or a header indicates a secret, such as ``shop_password``."""
    return _SECRET_NAME.search(name) is not None


def output_variable(kind: str, option: str = "password") -> str:
    """Return the environment variable with a secret of an output whose URL does not contain it.

    ``kind``: ``redis``, ``mongodb``, ``postgresql``, or the scheme of another output. Each kind has its own variable, so
    that no server receives the password of another one. ``option``: name of the secret option. The suffix ``_FILE`` works
    as for :data:`FRONTIER_PASSWORD`.
    """
    return f"SKITTER_OUTPUT_{re.sub(r'[^A-Za-z0-9]', '_', kind)}_{option}".upper()


def secret_from_environment(name: str, error: type[SkitterError] = FrontierError) -> str:
    """Return the value of an environment variable, or the contents of the file that the variable with ``_FILE`` names.

    The default is an empty string. Raises ``error`` if the file cannot be read.
    """
    if value := os.environ.get(name):
        return value
    path = os.environ.get(f"{name}_FILE")
    if not path:
        return ""
    return _secret_in(path, f"{name}_FILE", error, name)


def _secret_in(path: str, named_by: str, error: type[SkitterError], field: str) -> str:
    try:
        return Path(path).read_text("utf-8-sig").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "not UTF-8 text"
        raise error(
            f"{named_by} names the file {path}, which cannot be read: {reason}",
            remedy="name a UTF-8 file that contains only the secret",
            field=field,
        ) from problem


_REFERENCES = ("env:", "file:")


def is_reference(value: str) -> bool:
    """Return whether a value refers to a secret: ``env:NAME`` or ``file:PATH``."""
    return value.startswith(_REFERENCES)


def referenced_secret(value: str, field: str) -> str:
    """Return the secret that ``env:NAME`` or ``file:PATH`` refers to; any other value is the secret itself. May block.

    ``field``: the setting that contains the value. Raises :class:`~skitter.errors.SettingsError` for a missing or empty
    variable, and for a file that cannot be read.
    """
    kind, _, place = value.partition(":")
    if kind == "env":
        if found := os.environ.get(place):
            return found
        raise SettingsError(
            f"{field} names the environment variable {place!r}, which is not set",
            remedy=f"export {place} before you start skitter",
            field=field,
        )
    if kind == "file":
        return _secret_in(place, field, SettingsError, field)
    return value


def referenced_argument(name: str, value: Any) -> Any:
    """Return the value of a spider's argument or, for ``env:NAME`` and ``file:PATH``, the referenced secret. May block.

    A URL of a file (``file://``) is an ordinary value. Raises the same errors as :func:`referenced_secret`.
    """
    if isinstance(value, str) and not value.startswith("file://"):
        return referenced_secret(value, f"argument {name}")
    return value


DIGEST = "Digest "
"""Scheme of a value of ``credentials`` with ``user:password``. Only a digest of it is sent (RFC 7616)."""
_WITH_SCHEME = re.compile(r"(?:basic|bearer|digest|token|apikey|api-key) +\S", re.IGNORECASE).match


def authorization_of(credentials: str) -> str:
    """Return the ``Authorization`` header for ``user:password`` (RFC 7617), or for ``Bearer TOKEN``.

    Other schemes are ``Basic``, ``Token`` and ``ApiKey``; ``Digest user:password`` is returned as it is.
    """
    if _WITH_SCHEME(credentials):
        is_digest = credentials[: len(DIGEST)].lower() == DIGEST.lower()
        return DIGEST + credentials[len(DIGEST) :].strip() if is_digest else credentials
    return f"Basic {b64encode(credentials.encode()).decode()}"


def authorization_of_userinfo(userinfo: str) -> str:
    """Return the ``Authorization`` header for the percent-encoded user name and password of a URL."""
    user, _, password = userinfo.partition(":")
    pair = unquote_to_bytes(user) + b":" + unquote_to_bytes(password)
    return f"Basic {b64encode(pair).decode()}"


def authorizations(credentials: Mapping[str, str]) -> dict[str, str]:
    """Return the ``Authorization`` header of each origin for the setting ``credentials``. May block.

    A value that begins with :data:`DIGEST` is not a header: ``user:password`` follows.

    Raises :class:`~skitter.errors.SettingsError` for an invalid origin, and for a secret that cannot be read.
    """
    found = {}
    for origin, value in credentials.items():
        url = normalize(origin)
        if url is None or not url.startswith(("http://", "https://")):
            raise SettingsError(
                f"not an origin in credentials: {origin!r}",
                remedy="write it like https://example.com",
                field="credentials",
            )
        bare = split_userinfo(url)[0]
        secret = referenced_secret(value, "credentials")
        found[f"{scheme_of(bare)}://{host_of(bare)}"] = authorization_of(secret)
    return found


def credentials_in(urls: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return http(s) URLs without user names and passwords, and the ``Authorization`` of each origin that had them."""
    plain, found = [], {}
    for url in urls:
        bare, userinfo = split_userinfo(normalize(url) or url)
        plain.append(bare if userinfo else url)
        if userinfo:
            found[f"{scheme_of(bare)}://{host_of(bare)}"] = authorization_of_userinfo(userinfo)
    return plain, found


def without_secrets(url: str) -> str:
    """Return the URL of a frontier or an output without its secrets, for storage."""
    plain = _URL_IN_OPTION.sub(lambda found: _change_encoded(found[0], without_secrets), url)
    plain = _ACCESS.sub(lambda found: _user(url, found), plain)
    kept = _OPTION.sub("", plain)
    return kept if kept == plain else kept.rstrip("?&")


def stored_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a spider for storage: references to secrets are kept, secrets are replaced by ``***``.

    Secrets are values whose names indicate a secret, and passwords in URLs.
    """
    return {name: _stored(value, is_secret=is_secret_name(name)) for name, value in arguments.items()}


def _stored(value: Any, *, is_secret: bool) -> Any:
    if isinstance(value, Mapping):
        return {
            key: _stored(inner, is_secret=is_secret or is_secret_name(str(key)))
            for key, inner in value.items()
        }
    if isinstance(value, (list, tuple)):
        elements = [_stored(element, is_secret=is_secret) for element in value]
        return value if elements == list(value) else elements
    if is_secret:
        return value if value in (None, "") or (isinstance(value, str) and is_reference(value)) else _HIDDEN
    return _LOGIN_IN_TEXT.sub(r"\1@", value) if isinstance(value, str) else value


def stored_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings for storage: references to secrets are kept, secrets are left out.

    The values may be text, as on a command line.
    """
    plain = {name: _stored_url(settings[name]) for name in _SETTINGS_WITH_URL if name in settings}
    plain |= {name: _stored_urls(settings[name]) for name in _SETTINGS_WITH_URLS if name in settings}
    for name in SETTINGS_OF_SECRETS:
        if name in settings:
            plain[name] = _stored_mapping(name, settings[name])
    if "signing_key" in settings and not is_reference(str(settings["signing_key"])):
        plain["signing_key"] = ""
    return {**settings, **plain}


def _stored_mapping(setting: str, value: Any) -> Any:
    entries = value
    if isinstance(value, str):
        try:
            entries = msgspec.json.decode(value)
        except msgspec.DecodeError:  # reported when the settings are read
            entries = None
    if not isinstance(entries, Mapping):
        return {}
    kept = {
        name: entry
        for name, entry in entries.items()
        if is_reference(str(entry)) or (setting == "headers" and not is_secret_name(name))
    }
    return value if kept == entries else kept


def _stored_url(value: Any) -> Any:
    return _VENDORS_PROXY.sub(r"\1", without_secrets(value)) if isinstance(value, str) else value


def _stored_urls(value: Any) -> Any:
    urls = value
    if isinstance(value, str):
        if not value.lstrip().startswith("["):
            return ",".join(map(_stored_url, value.split(",")))
        try:
            urls = msgspec.json.decode(value)
        except msgspec.DecodeError:  # reported when the settings are read
            return []
    if not isinstance(urls, (list, tuple)):
        return value
    kept = [_stored_url(url) for url in urls]
    return value if kept == list(urls) else kept


def shown_url(url: str) -> str:
    """Return the URL of a frontier or an output with ``***`` in place of its secrets, for display."""
    plain = _URL_IN_OPTION.sub(lambda found: _change_encoded(found[0], shown_url), url)
    return _OPTION.sub(r"\1=***\2", _ACCESS.sub(lambda found: _stars(url, found), plain))


def secrets_in(url: str) -> list[str]:
    """Return the secrets in the URL of a frontier or an output, both percent-encoded and decoded."""
    found = [_given(access).partition(":")[2] or _given(access) for access in _ACCESS.finditer(url)]
    found += [option[0].partition("=")[2].rstrip("&") for option in _OPTION.finditer(url)]
    inner = [unquote(option[0]) for option in _URL_IN_OPTION.finditer(url)]
    found += [secret for url_inside in inner for secret in secrets_in(url_inside)]
    return [form for secret in found for form in dict.fromkeys((secret, unquote(secret)))]


def refuse_raw_password(url: str) -> None:
    """Raise :class:`ValueError` for a URL whose password is not percent-encoded.

    The check runs before other parsers, such as :func:`urllib.parse.urlsplit`, whose errors would repeat parts of the
    password.
    """
    if any(found[2] is not None for found in _ACCESS.finditer(url)):
        raise ValueError("in a password write / as %2F, ? as %3F, # as %23, @ as %40")


def _change_encoded(encoded: str, change: Callable[[str], str]) -> str:
    """Apply a change to a percent-encoded URL inside another URL."""
    inner = unquote(encoded)
    changed = change(inner)
    return encoded if changed == inner else quote(changed, safe="*")


def _user(url: str, found: re.Match[str]) -> str:
    user = _given(found).partition(":")[0]
    return f"{user}@" if user and not _is_secret(url, found) else ""


def _stars(url: str, found: re.Match[str]) -> str:
    user, colon, _ = _given(found).partition(":")
    if _is_secret(url, found):
        return "***@"
    return f"{user}:***@" if colon else f"{user}@"


def _given(found: re.Match[str]) -> str:
    return found[1] if found[2] is None else found[2]


def _is_secret(url: str, found: re.Match[str]) -> bool:
    """Return whether all text before the hosts is a secret, as in the URL of a broker (but not of its state)."""
    return _BROKER.match(url) is not None and found.start() == url.index("://") + 3
