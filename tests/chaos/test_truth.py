"""Exact results: the items are the pages that the reference crawler finds, each once."""

from functools import cache
from urllib.parse import urlsplit

import pytest
from crawling import check_exact

from skitter.testing import reference_crawl

pytestmark = pytest.mark.chaos

PAGES = 5000
SETTINGS = {"robots": "no", "delay": 0, "concurrency_per_slot": 32, "deny": "outside.invalid"}


@cache
def walked(start, origins):
    """The reference crawl of a site, done once for all crawls of it."""
    return reference_crawl(start, scope=lambda url: urlsplit(url).netloc in origins)


def check_against_reference(crawl, found):
    pages = {url: page for url, page in found.items() if page.status == 200}
    check_exact(crawl, pages, set(found) - set(pages))
    for item in crawl.items():
        page = pages[item["url"]]
        html = page.content_type == "text/html"
        title = None if item["title"] is None else item["title"].strip()
        wanted = (page.title, page.links) if html else (None, 0)
        assert (title, item["links"]) == wanted, item["url"]


@pytest.fixture(scope="module", params=[1, 50], ids=["one host", "50 hosts"])
def generated(request, start_site):
    arguments = {
        "pages": PAGES,
        "every": 61,
        "hosts": request.param,
        "page_bytes": 3000,
        "links_per_page": 24,
    }
    return start_site("dead_link_site:DeadLinkSite", arguments, hosts=request.param)


@pytest.fixture(scope="module")
def docs(python_docs, start_site):
    return start_site("skitter.testing:StaticSite", {"folder": str(python_docs)})


@pytest.mark.parametrize("workers", [1, 2])
def test_a_generated_site_is_obtained_exactly(crawling, generated, workers):
    crawl = crawling("Everything", workers=workers, settings=SETTINGS, arguments={"url": generated.url})
    assert crawl.run() == 0, crawl.errors
    found = walked(generated.url, generated.origins)
    assert len(found) == PAGES
    check_against_reference(crawl, found)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_real_site_is_obtained_exactly(crawling, docs, workers):
    settings = {**SETTINGS, "scope": "any", "allow": docs.origins[0]}
    crawl = crawling(
        "Everything", workers=workers, settings=settings, arguments={"url": docs.url_of("/index.html")}
    )
    assert crawl.run() == 0, crawl.errors
    found = walked(docs.url_of("/index.html"), docs.origins)
    assert len(found) > 400
    check_against_reference(crawl, found)
