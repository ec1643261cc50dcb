"""Removes passwords and tokens from texts that people read, such as the log of a spider."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from skitter.secrets import SECRET_WORD, secrets_in, shown_url

_STARS = "***"
_MIN_LENGTH = 4
"""Minimum characters of a secret. Shorter strings occur in every text."""
_IS_NAME = re.compile(rf"{SECRET_WORD}$", re.IGNORECASE)
_NAMED = re.compile(
    rf"""({SECRET_WORD}(?:["']\s*:|["']?\s*=)\s*)(?:b?"[^"]*"|b?'[^']*'|(?:(?:bearer|basic)\s+)?[^\s"',;&)}}\]]+)""",
    re.IGNORECASE,
)
_IS_NEAR = re.compile(rf"{SECRET_WORD}|Bearer ", re.IGNORECASE)
_HEADER = re.compile(r"(authorization:\s*)[^\r\n]+", re.IGNORECASE)
_BEARER = re.compile(r"\b(Bearer )[\w.~+/=-]{16,}")
# The lengths are limited, so that no text takes long to search.
_URL = re.compile(r"[a-z][a-z0-9+.-]{0,20}://[^\s\"'<>]{1,2000}", re.IGNORECASE)


class Redactor:
    """Masks known secrets anywhere in a text, and likely secrets by their context: in a URL, in a header, after a name.

    ``secrets``: known secrets. Secrets with fewer than four characters are ignored.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = list(secrets)
        forms = {
            form
            for secret in self._secrets
            for form in (secret, quote(secret, safe=""), quote(secret))
            if len(secret) >= _MIN_LENGTH
        }
        # Longest first: a secret may start with another one.
        words = sorted(forms, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, words))) if words else None

    @classmethod
    def of_process(cls, environment: Mapping[str, str], urls: Iterable[str]) -> Redactor:
        """Return a redactor that knows the secrets in some URLs, and in environment variables whose names suggest a secret.

        A variable such as ``X_PASSWORD_FILE`` names a file with a secret. A file that cannot be read is ignored.
        """
        found = [secret for url in urls for secret in secrets_in(url)]
        for name, value in environment.items():
            if _IS_NAME.search(name):
                found.append(value)
            elif _IS_NAME.search(name.upper().removesuffix("_FILE")):
                found.append(_text_of(value))
            found += secrets_in(value) if "://" in value else []
        return cls(found)

    def knowing(self, secrets: Iterable[str]) -> Redactor:
        """Return a redactor that also knows these secrets."""
        more = list(secrets)
        return Redactor([*self._secrets, *more]) if more else self

    def of_text(self, text: str) -> str:
        """Return a text without secrets."""
        if self._known is not None:
            text = self._known.sub(_STARS, text)
        if "://" in text:
            text = _URL.sub(lambda found: shown_url(found[0]), text)
        if _IS_NEAR.search(text):
            text = _BEARER.sub(rf"\1{_STARS}", _HEADER.sub(rf"\1{_STARS}", _NAMED.sub(rf"\1{_STARS}", text)))
        return text

    def of_value(self, value: Any) -> Any:
        """Return a JSON value without secrets."""
        if isinstance(value, str):
            return self.of_text(value)
        if isinstance(value, list):
            return [self.of_value(element) for element in value]
        if isinstance(value, dict):
            return {
                self.of_text(name): _STARS if _IS_NAME.search(name) else self.of_value(field)
                for name, field in value.items()
            }
        return value


def secrets_among(values: Mapping[str, Any]) -> list[str]:
    """Return the strings whose names mark them as secret, including strings in nested mappings."""
    found = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            found += secrets_among(value)
        elif isinstance(value, str) and _IS_NAME.search(name):
            found += [value, value.rpartition(" ")[2]]  # in "Bearer TOKEN", the token alone
    return found


def _text_of(file: str) -> str:
    try:
        return Path(file).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError, ValueError):
        return ""
