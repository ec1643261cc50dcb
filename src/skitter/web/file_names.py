"""File names for downloads, from headers and URLs that a server chooses."""

from __future__ import annotations

import re
from email.message import Message
from urllib.parse import unquote, urlsplit

_UNSAFE = re.compile(r"[^\w.\- ]+")
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(?:\.|$)", re.IGNORECASE)
"""Names of devices on Windows, with any extension."""
_MAX_BYTES = 200
"""Most file systems allow 255. The rest is for the prefixes and suffixes of temporary files."""


def file_name_of(url: str, content_disposition: str = "", default: str = "index") -> str:
    """Return a file name from ``Content-Disposition`` (RFC 6266) or else from the last segment of a URL's path.

    The name contains no folder, no control character and nothing that a shell interprets, is not hidden, and is not
    the name of a device on Windows. It has at most 200 bytes; a longer name loses its beginning and keeps its extension.
    """
    name = _disposed(content_disposition) or unquote(urlsplit(url).path).rpartition("/")[2]
    name = _UNSAFE.sub("_", name.replace("\\", "/").rpartition("/")[2]).strip(". ").lstrip("-")
    name = name.encode("utf-8", "replace")[-_MAX_BYTES:].decode("utf-8", "ignore").strip(". ")
    return f"_{name[-_MAX_BYTES:]}" if _RESERVED.match(name) else name or default


def _disposed(header: str) -> str:
    if not header:
        return ""
    message = Message()
    message["Content-Disposition"] = header.replace("\r", " ").replace("\n", " ")
    return message.get_filename() or ""
