"""Two tests of a spider: one of a callback, and one of a complete crawl of a site inside the test."""

import asyncio
import json
from pathlib import Path

from quotes import Quotes
from quotes_site import Site

from skitter import Crawl, JobSpec, Response
from skitter.testing import SiteServer

HERE = Path(__file__).parent


def test_a_quote_is_taken_whole():
    page = Response("http://site/quote/1", body=b"<blockquote>Wit.</blockquote><small>Ann</small>")
    assert list(Quotes().parse_quote(page)) == [
        {"url": "http://site/quote/1", "text": "Wit.", "author": "Ann"}
    ]


def test_every_quote_is_found(tmp_path):
    with SiteServer(Site()) as server:
        spec = JobSpec(
            job="test",
            spider=f"{HERE / 'quotes.py'}:Quotes",
            arguments={"site": server.url.rstrip("/")},
            outputs=[str(tmp_path / "items.jsonl")],
            frontier="memory:",
            home=str(tmp_path),
        )
        result = asyncio.run(Crawl(spec).run())
    assert result.state == "finished"
    assert result.status.failed == 0
    items = [json.loads(line) for line in (tmp_path / "items.jsonl").read_text().splitlines()]
    assert len({item["url"] for item in items}) == len(items) == 24
