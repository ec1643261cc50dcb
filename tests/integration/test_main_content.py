"""Main content of a page and its metadata, and pages whose extraction would take too much time or memory."""

import asyncio
import json
import os
import re
import signal
from collections import Counter

import pytest
import turbohtml

from skitter import Response
from skitter.content import extraction
from skitter.content.extraction import ContentExtractor
from skitter.errors import UsageError
from skitter.frontends.page_spider import PageSpider

pytest.importorskip("trafilatura", reason="trafilatura is not installed")

FILLER = "Line that has to have at least 125 characters for the fault to appear, so here is some filler text text text text text."
SHORT_PAGES = {
    # Pages for which trafilatura before 2.3.1 returned paragraphs twice (its issues 660, 768, 817, 879).
    "article": f"<nav>menu</nav><article><h1>Chronicle</h1><p>First. {FILLER}</p><p>Second. {FILLER}</p></article>",
    "nested": f"<main><article><div><br>{FILLER}</div></article></main>",
    "siblings": f"<div id=content><p>First text of the page.</p></div><p>Second. {FILLER}</p>",
    "list": f"<main><ul><li><p>{FILLER}</p></li><li><p>Second. {FILLER}</p></li></ul></main>",
    "sections": f"<section><h2>Name</h2><p>{FILLER}</p></section><section><p>Second. {FILLER}</p></section>",
    "table": f"<article><p>Before.</p><table><tr><td><p>{FILLER}</p></td><td>b</td></tr></table></article>",
    "quote": f"<article><p>Before.</p><blockquote><p>{FILLER}</p></blockquote><p>After.</p></article>",
}
ARTICLE = """<!doctype html><html lang="de-AT"><head><title>Fallback</title><base href="http://other.test/base/">
<link rel=canonical href="../first"><meta property="og:title" content="Storm"><meta property="og:url" content="/og">
<meta property="og:site_name" content="Paper"><meta name=description content=" A  storm. ">
<meta property="article:published_time" content="2026-05-31T23:30:00Z">
<script type="application/ld+json">{"@graph": [{"@type": "NewsArticle", "author": [{"name": "Ann Author"}]}]}</script>
<script type="application/ld+json">{broken</script></head><body>
<header><a href=/>Home</a> <a href=/news>News</a></header>
<div class="cookie-banner"><p>We use cookies to improve your experience. Accept all.</p></div>
<article><h1>Storm over the coast</h1>%s<p>It says <b>stop</b> and <a href=x>go</a>.</p><ul><li>one</li><li>two</li></ul></article>
<aside><a href=/1>Related one</a><a href=/2>Related two</a></aside><footer>Imprint, privacy</footer></body></html>"""
PARAGRAPHS = "".join(
    f"<p>Paragraph {n} tells what the storm did in the harbour of town number {n}, at length.</p>"
    for n in range(12)
)
SLOW = "<html><body><p>" + "<b>x</b> " * 150_000
"""As Markdown, it takes 50 s and 22 GB in a process without limits."""


def letters(text):
    """Return the letters and digits of a text."""
    return re.sub(r"\W+", "", text)


def page(body, content_type="text/html; charset=utf-8"):
    return Response("http://h.test/d/page", headers={"content-type": content_type}, body=body.encode())


@pytest.fixture
def extractor():
    made = ContentExtractor()
    yield made
    made.close()


async def test_the_content_is_without_boilerplate_and_has_what_the_page_states(extractor):
    found = await extractor.extract(page(ARTICLE % PARAGRAPHS), "markdown")
    assert found.content.count("tells what the storm did") == 12
    assert "It says **stop** and go." in found.content
    assert "- one\n- two" in found.content
    for boilerplate in ("Home", "cookies", "Related", "Imprint"):
        assert boilerplate not in found.content
    assert (found.url, found.canonical_url) == ("http://h.test/d/page", "http://other.test/first")
    assert (found.language, found.author, found.date) == ("de-AT", "Ann Author", "2026-05-31")
    assert (found.description, found.site_name, found.content_error) == ("A storm.", "Paper", None)
    (block,) = json.loads(found.json_ld)
    assert block["@graph"][0]["@type"] == "NewsArticle"
    assert found.opengraph["title"] == "Storm"


async def test_plain_text_has_no_markup(extractor):
    found = await extractor.extract(page(ARTICLE % PARAGRAPHS), "text")
    assert "It says stop and go." in found.content
    assert "#" not in found.content


@pytest.mark.parametrize("form", ["markdown", "text"])
@pytest.mark.parametrize("name", SHORT_PAGES)
async def test_a_short_page_keeps_each_paragraph_once(extractor, name, form):
    found = await extractor.extract(page(f"<html><body>{SHORT_PAGES[name]}</body></html>"), form)
    assert found.content.count(FILLER) == SHORT_PAGES[name].count(FILLER)
    assert "menu" not in found.content


async def test_no_paragraph_of_the_manual_of_python_is_repeated(extractor, python_docs):
    checked = 0
    for file in sorted(python_docs.glob("library/*.html"))[:40]:
        body = file.read_text("utf-8")
        if len(body) > 200_000:
            continue
        found = await extractor.extract(page(body), "text")
        visible = letters(turbohtml.parse(body).to_text())
        lines = Counter(map(letters, found.content.splitlines()))
        for line, times in lines.items():
            if len(line) >= 40:
                assert times <= max(1, visible.count(line)), (file.name, line)
                checked += 1
    assert checked > 500


async def test_equal_content_has_an_equal_digest_and_other_content_another_one(extractor):
    first = await extractor.extract(page(ARTICLE % PARAGRAPHS), "markdown")
    again = await extractor.extract(page((ARTICLE % PARAGRAPHS).replace("Imprint", "Contact")), "markdown")
    other = await extractor.extract(page(ARTICLE % PARAGRAPHS.replace("harbour", "port", 1)), "markdown")
    assert first.digest == again.digest != other.digest
    assert len(first.digest) == len(first.signature) == 32


async def test_pages_without_a_text_have_no_content(extractor):
    for body, kind in (
        ("{}", "application/json"),
        ("\x00", "image/png"),
        ("", "text/html"),
        ("<p> </p>", "text/html"),
    ):
        found = await extractor.extract(page(body, kind), "markdown")
        assert (found.content, found.digest, found.signature, found.content_error) == (None,) * 4, kind
    assert (
        await extractor.extract(page(" plain # text ", "text/plain"), "markdown")
    ).content == "plain # text"


async def test_lone_surrogates_do_not_end_the_extraction(extractor):
    body = "<main><p>" + FILLER + '</p></main><script type="application/ld+json">{"a": "\\ud800"}</script>'
    found = await extractor.extract(page(body), "text")
    assert FILLER in found.content
    assert json.loads(found.json_ld) == [{"a": "\ufffd"}]


async def test_a_page_that_takes_too_much_is_given_up_and_the_next_one_is_read(extractor, monkeypatch):
    found = await extractor.extract(page(SLOW), "markdown")
    assert found.content_error.partition(":")[0] in {"timeout", "memory", "crash"}
    assert (found.url, found.content) == ("http://h.test/d/page", None)
    assert FILLER in (await extractor.extract(page(SHORT_PAGES["article"]), "text")).content
    monkeypatch.setattr(extraction, "MAX_CHARACTERS", 100)
    assert (await extractor.extract(page("x" * 101), "text")).content_error.startswith("too_large: ")


async def test_a_killed_process_costs_one_page_only(extractor):
    await extractor.extract(page(SHORT_PAGES["article"]), "text")
    os.kill(extractor.pid, signal.SIGKILL)
    found = await extractor.extract(page(SHORT_PAGES["article"]), "text")
    assert found.content_error.startswith("crash: ")
    assert FILLER in (await extractor.extract(page(SHORT_PAGES["article"]), "text")).content


async def test_other_tasks_run_during_the_extraction(extractor):
    """The test would fail if anything blocked the event loop."""
    turns = 0

    async def count():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await asyncio.gather(*(extractor.extract(page(ARTICLE % PARAGRAPHS), "text") for _ in range(5)))
    counting.cancel()
    assert turns > 100


async def test_a_response_has_its_main_content_and_it_is_an_item():
    from skitter.item import is_item

    found = await page(SHORT_PAGES["article"]).main_content("text")
    assert FILLER in found.content
    assert is_item(found)


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    monkeypatch.setattr(extraction, "find_spec", lambda name: None)
    for make in (ContentExtractor, lambda: PageSpider(["http://h.test/"], content="text")):
        with pytest.raises(UsageError, match="main content: the package trafilatura is missing") as caught:
            make()
        assert caught.value.remedy.endswith('pip install ".[content]"')


def test_an_extractor_that_old_versions_of_pip_installed_in_part_is_refused_before_the_first_page(
    monkeypatch,
):
    """Without lxml_html_clean, trafilatura cannot be imported, and each page would be an error."""
    monkeypatch.setattr(extraction, "find_spec", lambda name: None if name == "lxml_html_clean" else name)
    with pytest.raises(UsageError, match="main content: the package lxml_html_clean is missing"):
        PageSpider(["http://h.test/"], content="text")
