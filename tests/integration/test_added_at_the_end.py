"""Requests that a command adds after the workers have ended: this run fetches them, or the command reports that it cannot."""

import asyncio

import pytest

from cli_command import lines_of, skitter, usage_error
from crawl_harness import Scripted
from skitter.frontier.records import JobState
from skitter.run.crawl import Crawl
from skitter.run.job import JobSpec

SPIDER = """
from skitter import Spider

class Pages(Spider):
    start_urls = ["{url}"]
    custom_settings = {{"robots": False, "delay": 0}}

    def parse(self, response):
        yield {{"url": response.url}}
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_no_request_is_added_to_a_run_that_does_not_fetch_it(serve, tmp_path, monkeypatch, workers):
    site = Scripted({"/": [], "/late": []})
    url = serve(site).url
    (tmp_path / "pages.py").write_text(SPIDER.format(url=url))
    work, end, rounds = Crawl._work, Crawl._result, []

    async def add_when_the_workers_have_ended(self, *arguments):
        found = await work(self, *arguments)
        rounds.append(dict(site.counts))
        added = await asyncio.to_thread(skitter, "add", "j", f"{url}late", cwd=tmp_path)
        assert added.returncode == 0, added.stderr
        return found

    async def add_at_the_end(self, *arguments):
        refusal = await asyncio.to_thread(usage_error, "add", "j", f"{url}too-late", cwd=tmp_path)
        assert "is being run" in refusal
        return await end(self, *arguments)

    monkeypatch.setattr(Crawl, "_work", add_when_the_workers_have_ended)
    monkeypatch.setattr(Crawl, "_result", add_at_the_end)
    spec = JobSpec(
        job="j", spider=f"{tmp_path}/pages.py:Pages", home=str(tmp_path / ".skitter"), workers=workers,
        outputs=[str(tmp_path / "items.jsonl")],
    )  # fmt: skip
    result = asyncio.run(Crawl(spec).run())
    assert rounds == [{"/": 1}, {"/": 1, "/late": 1}]
    assert result.state is JobState.FINISHED
    assert len(lines_of(tmp_path / "items.jsonl")) == 2
