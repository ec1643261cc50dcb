"""On a shared frontier, one machine retries the failed requests at the end, and each of them only once."""

import asyncio

from crawl_harness import Scripted
from services.redis_servers import running
from skitter import Spider
from skitter.frontier.records import JobState
from skitter.run.crawl import Crawl
from skitter.run.job import JobSpec
from skitter.testing import Answer


class Meeting(Spider):
    """Two machines start together. The second one ends its first round only when the first one has ended its run."""

    custom_settings = {"retry_failed_at_end": True, "delay": 0, "robots": "no"}  # noqa: RUF012 - as a user writes it
    started = 0
    both_started = asyncio.Event()
    first_ended = asyncio.Event()

    def __init__(self, url):
        super().__init__()
        self.start_urls = [url]

    async def on_start(self, _worker):
        Meeting.started += 1
        self.is_second = Meeting.started == 2
        if self.is_second:
            self.both_started.set()
        await self.both_started.wait()

    async def on_stop(self, _worker):
        if self.is_second:
            await self.first_ended.wait()

    def parse(self, response):
        return response.follow_all("a")


async def test_a_machine_does_not_retry_what_another_one_has_retried(serve, tmp_path, job_name):
    Meeting.started, Meeting.both_started, Meeting.first_ended = 0, asyncio.Event(), asyncio.Event()
    site = Scripted({"/": ["/gone"], "/gone": Answer(b"", status=404)})
    url = serve(site).url

    async def run_machine(name):
        spec = JobSpec(
            job=job_name,
            spider=f"{__name__}:Meeting",
            arguments={"url": url},
            frontier=running("valkey").url,
            home=str(tmp_path / name),
        )
        return await Crawl(spec, spider_class=Meeting).run()

    machines = [asyncio.create_task(run_machine(name)) for name in ("a", "b")]
    async with asyncio.timeout(60):
        ended, _ = await asyncio.wait(machines, return_when=asyncio.FIRST_COMPLETED)
        assert [machine.result().state for machine in ended] == [JobState.FINISHED]
        Meeting.first_ended.set()
        await asyncio.gather(*machines)
    assert site.counts == {"/": 1, "/gone": 2}
