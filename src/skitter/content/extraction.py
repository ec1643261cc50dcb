"""Main content: the text of a page without navigation, footers and advertisements, with the metadata that the page states.

Trafilatura finds the text. It takes about 10 ms for a page, but minutes or gigabytes for some hostile pages. So it runs in a
separate process with limits of CPU time and memory, one for each process of skitter that needs it.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

import msgspec

from skitter._utils.concurrency import SingleThreadExecutor
from skitter._utils.limited_process import LimitedProcess, ProcessDied
from skitter.plugins import needing

if TYPE_CHECKING:
    from skitter.response import Response

SECONDS = 2.0
"""Seconds of CPU time for the extraction of one page."""
MEMORY = 1 << 30
"""Bytes that the process may allocate for the extraction."""
MAX_CHARACTERS = 4_000_000
"""Maximum characters of a page whose content is extracted. Ordinary pages of this length take a second."""
ContentFormat = Literal["markdown", "text"]


class MainContent(msgspec.Struct, frozen=True, kw_only=True):
    """The main content of a page and the metadata that it states. It is also an item that a callback can yield.

    A field is ``None`` if the page does not state it.
    """

    url: str
    """URL of the page."""
    content: str | None = None
    """The main content in the requested format; ``None`` for a page without text, or if it is neither HTML nor plain text."""
    content_error: str | None = None
    """Why the content of a page could not be extracted: ``timeout: ...``, ``memory: ...``, ``crash: ...``, ``too_large: ...``
    or ``failed: ...``. All other fields are ``None`` or empty then."""
    canonical_url: str | None = None
    """Absolute URL of the preferred copy of the page: ``<link rel=canonical>`` or ``og:url``."""
    title: str | None = None
    author: str | None = None
    date: str | None = None
    """Day of publication, as in ``2026-05-31``."""
    language: str | None = None
    """Language that the page declares (``<html lang>``), as in ``en-US``. It is not guessed from the text."""
    description: str | None = None
    site_name: str | None = None
    json_ld: str | None = None
    """The JSON-LD blocks as a JSON array, without invalid blocks. It is encoded as a string, because the structure differs
    between sites and would not fit a column of a table. :meth:`Response.structured_data` returns decoded values."""
    opengraph: dict[str, str] = {}
    """The ``og:`` values by name, without the prefix."""
    digest: str | None = None
    """BLAKE2b hash of ``content`` with normalized whitespace, 128 bits as hexadecimal digits."""
    signature: str | None = None
    """MinHash signature of ``content`` as 32 hexadecimal digits, for the detection of near duplicates; see the output option
    ``duplicates``."""


class ContentCall(msgspec.Struct):
    """The page that is sent to the extraction process."""

    url: str
    text: str
    form: ContentFormat
    is_html: bool


class ContentExtractor:
    """Extracts main content in a process with limits of CPU time and memory, one page at a time.

    Raises :class:`~skitter.errors.UsageError` if trafilatura is not installed.
    """

    def __init__(self) -> None:
        need_trafilatura()
        self._process = LimitedProcess("skitter.content.process", SECONDS, str(MEMORY))
        self._thread = SingleThreadExecutor("content")

    async def extract(self, response: Response, form: ContentFormat) -> MainContent:
        """Return the main content of a response. If the page cannot be read, the result has an error."""
        call = _call_of(response, form)
        return call if isinstance(call, MainContent) else await self._thread.run(self._run, call)

    def extract_blocking(self, response: Response, form: ContentFormat) -> MainContent:
        """Like :meth:`extract`, but blocks the calling thread."""
        call = _call_of(response, form)
        return call if isinstance(call, MainContent) else self._run(call)

    def _run(self, call: ContentCall) -> MainContent:
        try:
            found = msgspec.json.decode(self._process.call(call), type=MainContent)
        except ProcessDied as error:
            kind = "timeout" if error.timed_out else "crash"
            return MainContent(url=call.url, content_error=f"{kind}: {error}")
        if found.content_error is not None and found.content_error.startswith("memory:"):
            self._process.close()  # the memory that it still holds would count towards the limit for the next page
        return found

    @property
    def pid(self) -> int | None:
        """Id of the process; ``None`` before the first page, and after a page that has ended it."""
        return self._process.pid

    def close(self) -> None:
        """End the process. The next page starts a new one."""
        self._process.close()


def _call_of(response: Response, form: ContentFormat) -> ContentCall | MainContent:
    is_html = response.is_html
    if not is_html and response.content_type != "text/plain":
        return MainContent(url=response.url)
    text = response.text
    if len(text) > MAX_CHARACTERS:
        error = f"too_large: the page has {len(text):,} characters, more than {MAX_CHARACTERS:,}"
        return MainContent(url=response.url, content_error=error)
    return ContentCall(response.url, text, form, is_html)


def need_trafilatura() -> None:
    """Raise :class:`~skitter.errors.UsageError` if trafilatura is not installed. It is not imported: that takes half a second."""
    with needing("content", "main content"):
        # pip before 23.3 installs trafilatura without lxml_html_clean, which it needs.
        for name in ("trafilatura", "lxml_html_clean"):
            if find_spec(name) is None:
                raise ModuleNotFoundError(f"no {name}", name=name)


@cache
def extractor() -> ContentExtractor:
    """Return the extractor of this process. The child process starts with the first page."""
    return ContentExtractor()
