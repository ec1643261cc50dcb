"""A recrawl after a pass that ended, but whose process was killed before it had written its outputs."""

import sqlite3
from contextlib import closing

import pytest

from crawl_harness import QUICK, Scripted
from skitter import Spider
from skitter.run.crawl import Crawl
from skitter.run.job import JobSpec


class Linked(Spider):
    custom_settings = QUICK

    def parse(self, response):
        yield {"url": response.url}
        yield response.follow_all("a")


class Killed(BaseException):
    """Ends the process."""


async def die(_crawl, _frontier):
    raise Killed


async def test_a_recrawl_removes_the_rows_of_pages_that_the_last_pass_found_gone(
    serve, tmp_path, monkeypatch
):
    pages = {"/": ["/old"], "/old": []}
    url = serve(Scripted(pages)).url
    database = tmp_path / "items.db"
    spec = JobSpec(
        job="job", spider=Linked, home=str(tmp_path / "home"), outputs=[str(database)],
        arguments={"start_urls": [url]}, settings={"changes": "all"},
    )  # fmt: skip

    async def crawl():
        await Crawl(spec, spider_class=Linked, recrawl=True).run()

    def paths():
        with closing(sqlite3.connect(database)) as file:
            rows = file.execute("SELECT url FROM items").fetchall()
        return sorted(row[0].removeprefix(url) for row in rows)

    await crawl()
    assert paths() == ["", "old"]
    pages.update({"/": ["/new"], "/new": []})
    with monkeypatch.context() as patched:
        patched.setattr(Crawl, "_merge", die)
        with pytest.raises(Killed):
            await crawl()
    await crawl()
    assert paths() == ["", "new"]
