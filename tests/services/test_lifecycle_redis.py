"""Managed crawls on a Redis server: two crawls of one process share a job, one is stopped and started again."""

import asyncio
import json
import uuid
from collections import Counter

from crawl_harness import QUICK, Scripted
from skitter.frontends.lifecycle import Analyzer, CrawlArguments, ManagedCrawl, Monitor, Status

PAGES = {"/": [f"/{number}" for number in range(60)], **{f"/{number}": [] for number in range(60)}}


def follow(response):
    yield {"path": "/" + response.url.rpartition("/")[2]}
    yield response.follow_all("a")


async def made(server, folder, job, parser=follow, **settings):
    crawl = ManagedCrawl()
    await crawl.initialize(
        CrawlArguments(
            job=job,
            analyzers=[Analyzer(parser)],
            settings={**QUICK, **settings},
            frontier=server.url,
            home=str(folder),
            outputs=[str(folder / "out.jsonl")],
        )
    )
    return crawl


def items(*folders):
    lines = [line for folder in folders for line in (folder / "out.jsonl").read_text().splitlines()]
    return sorted(json.loads(line)["path"] for line in lines)


async def test_a_stop_is_of_this_crawl_alone_and_the_job_continues(server, serve, tmp_path):
    site, job = Scripted(PAGES), f"job{uuid.uuid4().hex}"
    url = serve(site).url
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    both_at_work = asyncio.Event()
    both_at_work.set()

    async def wait_and_follow(response):
        await both_at_work.wait()
        return list(follow(response))

    one, two = [await made(server, folder, job, wait_and_follow, concurrency=2) for folder in folders]
    await one.start(url)
    await one.stop()
    assert one.status is Status.STOPPED
    both_at_work.clear()
    await two.start()  # another machine needs no first request, because the job has started
    await one.start()
    both_at_work.set()
    results = [await one.wait(), await two.wait()]
    assert [str(result.state) for result in results] == ["finished", "finished"]
    assert {result.status.done for result in results} == {61}
    assert items(*folders) == sorted(PAGES)
    assert site.counts == Counter(list(PAGES))


async def test_a_crawl_that_waits_for_seeds_is_stopped_when_it_is_idle_and_takes_more_later(
    server, serve, tmp_path
):
    site = Scripted({"/": ["/a"], "/a": [], "/b": []})
    url = serve(site).url
    crawl = await made(server, tmp_path, f"job{uuid.uuid4().hex}", wait_for_seeds=True)
    for first, done in ((url, 2), (f"{url}b", 3)):
        await crawl.start(first)
        await Monitor(crawl, check_every=0.1, auto_stop=True, report=lambda *_: None).run()
        summary = await crawl.summary()
        assert (summary.done, summary.idle, summary.status) == (done, True, "stopped")
    assert items(tmp_path) == ["/", "/a", "/b"]
