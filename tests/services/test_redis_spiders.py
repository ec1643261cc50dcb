"""Two spiders under one job name on one server: each would get requests of the other."""

import pytest

from crawl_harness import Scripted
from services.redis_servers import running
from skitter import Spider
from skitter.run.crawl import Crawl
from skitter.run.job import JobSpec


class Shop(Spider):
    custom_settings = {"delay": 0, "robots": "no"}  # noqa: RUF012 - as a user writes it

    def parse(self, response):
        return []


class Blog(Shop):
    pass


@pytest.fixture
def run(serve, tmp_path, job_name):
    site = serve(Scripted({"/": []}))

    async def run(kind, machine, **options):
        spec = JobSpec(
            job=job_name,
            spider=f"{__name__}:{kind.__name__}",
            frontier=running("valkey").url,
            home=str(tmp_path / machine),
        )
        kind.start_urls = [site.url]
        await Crawl(spec, spider_class=kind, **options).run()

    return run


async def test_another_spider_under_the_name_of_a_job_is_reported_once(run, caplog, job_name):
    await run(Shop, "a")
    await run(Shop, "b")
    assert "was run by" not in caplog.text
    await run(Blog, "c")
    assert f"job {job_name} was run by the spider shop, and this is the spider blog" in caplog.text
    caplog.clear()
    await run(Blog, "d")
    assert "was run by" not in caplog.text


async def test_a_fresh_job_may_have_another_spider(run, caplog):
    await run(Shop, "a")
    await run(Blog, "b", fresh=True)
    assert "was run by" not in caplog.text
