"""The process that extracts main content: ``python -m skitter.content.process SECONDS BYTES``.

It ends at the end of its standard input. The kernel kills it when a page has used up its CPU time.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

import msgspec
import trafilatura
import turbohtml
from turbohtml.extract import DateExtraction, dates

from skitter._utils.limited_process import limit_memory, serve
from skitter.content.duplicate_items import digest_of
from skitter.content.extraction import ContentCall, MainContent
from skitter.content.near_duplicates import shingles, signature_of
from skitter.html.turbo import read_json_ld
from skitter.item import without_surrogates
from skitter.web.urls import resolve

_STATED = DateExtraction(original=True, extensive_search=False)
_MARKED = "main, [role=main], article"
"""Elements that contain the main content according to their semantics."""
_SHORT = 250
"""Minimum characters. For a shorter text, trafilatura returns all text of the page without its structure, or nothing."""
_PLAIN = turbohtml.Markdown(strip=("a", "img"))
"""Matches the links and images in trafilatura's Markdown."""


def extract(call: ContentCall) -> MainContent:
    """Return the content of a page."""
    if not call.is_html:
        return _with_text(call.text, {"url": call.url})
    document = turbohtml.parse(call.text)
    article = document.article()
    base = document.select_one("base[href]")
    base_url = resolve((base and base.attr("href")) or "", call.url) or call.url
    json_ld = read_json_ld(document)
    fields = {
        "url": call.url,
        "canonical_url": None if article.canonical is None else resolve(article.canonical, base_url),
        "title": article.title,
        "author": article.byline or _author_in(json_ld),
        "date": getattr(dates(call.text, _STATED), "date", None),
        "language": article.lang,
        "description": article.description,
        "site_name": article.site_name,
        "json_ld": msgspec.json.encode(without_surrogates(json_ld)).decode() if json_ld else None,
        "opengraph": dict(document.opengraph(base_url)),
    }
    # "fast" skips two additional extractors. It takes 30 % less time with the same quality (docs/dependencies.md).
    found = trafilatura.extract(
        call.text,
        url=call.url,
        output_format="markdown" if call.form == "markdown" else "txt",
        include_comments=False,
        fast=True,
    )
    found = found or ""
    if len(found) < _SHORT and (marked := document.select_one(_MARKED)) is not None:
        found = (marked.to_markdown(_PLAIN) if call.form == "markdown" else marked.to_text()) or found
    return _with_text(found, fields)


def _with_text(text: str, fields: dict[str, Any]) -> MainContent:
    text = text.strip().removeprefix("\\\n")
    hashes = shingles(text)
    if not hashes:
        return MainContent(**fields)
    return MainContent(
        **fields,
        content=text,
        digest=digest_of(text).hex(),
        signature=signature_of(hashes).hex(),
    )


def _author_in(json_ld: list[Any]) -> str | None:
    """Return the name of the first author in JSON-LD."""
    blocks = [block for block in json_ld if isinstance(block, dict)]
    blocks += [part for block in blocks for part in _list(block.get("@graph")) if isinstance(part, dict)]
    for author in (author for block in blocks for author in _list(block.get("author"))):
        name = author.get("name") if isinstance(author, dict) else author
        if isinstance(name, str) and name.strip():
            return name.strip()
    return None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _content_of(call: ContentCall) -> MainContent:
    try:
        content = extract(call)
        return msgspec.convert(without_surrogates(msgspec.to_builtins(content)), MainContent)
    except MemoryError:
        return MainContent(url=call.url, content_error="memory: the page takes too much memory")
    except Exception as error:  # noqa: BLE001 - a fault of a library at this page
        return MainContent(url=call.url, content_error=f"failed: {type(error).__name__}: {error}"[:300])


def main() -> None:
    """Read pages until the end of the input."""
    logging.disable()  # trafilatura reports even ordinary pages without content as errors
    limit_memory(int(sys.argv[2]))
    decode = msgspec.json.Decoder(ContentCall).decode
    serve(lambda call: _content_of(decode(call)))


if __name__ == "__main__":
    main()
