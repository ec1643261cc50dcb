"""Seed keys and queue orders of Scrapy-Redis, from every face of user code."""

import asyncio
import uuid

import pytest

from cli_command import lines_of, skitter
from crawl_harness import QUICK, Scripted
from skitter.frontends.lifecycle import Analyzer, CrawlArguments, ManagedCrawl

SEEDS = ["/1", "/2", "/3", "/4"]
FACES = {
    "spider.py": """
from skitter import Spider

class Face(Spider):
    def parse(self, response):
        yield {"url": response.url}
        yield response.follow_all("a")
""",
    "collector.py": """
from skitter import Collector

crawler = Collector()

@crawler.on_response
def take(response):
    yield {"url": response.url}

@crawler.on_html("a[href]")
def follow(element):
    element.request.visit(element.attr("href"))
""",
    "recipe.yaml": """
name: face
start: "{url}start"
allowed_domains: any
pages:
  page: {{items: {{fields: {{url: {{value: "{{url}}"}}}}}}, follow: [a]}}
""",
    "tasks.py": """
from skitter import Task, TaskSpider

def read(context):
    yield {"url": context.url}
    yield context.follow_all("a")

class Face(TaskSpider):
    tasks = (Task("one", start=[], rules={"page": read}), Task("two", start=[], rules={"page": read}))
""",
}
ORDERS = {"fifo": [*SEEDS, "/1/a"], "lifo": [*reversed(SEEDS), "/1/a"]}


def scripted():
    return Scripted({"/start": [], "/1": ["/1/a"], "/1/a": [], **{seed: [] for seed in SEEDS[1:]}})


def seeds_for(face, url):
    """Of a job of several tasks each seed says whose it is."""
    urls = [url + seed[1:] for seed in SEEDS]
    return (
        [f'{{"url": "{one}", "cb_kwargs": {{"task": "two"}}}}' for one in urls]
        if face == "tasks.py"
        else urls
    )


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("kind", ["valkey"])
def test_each_face_takes_seeds_from_a_key_in_the_order_that_the_job_wants(
    server, serve, tmp_path, face, order
):
    site = scripted()
    url = serve(site).url
    text = FACES[face]
    (tmp_path / face).write_text(text.format(url=url) if face.endswith(".yaml") else text)
    key = f"seeds{uuid.uuid4().hex}"
    server.ask("LPUSH", key, *seeds_for(face, url))
    told = skitter(
        "run", face, "--job", f"job{uuid.uuid4().hex}", "--frontier", server.url, "--seed-key", key, "-o", "out.jsonl",
        "-s", f"queue_order={order}", "-s", "concurrency=1", "-s", "concurrency_per_slot=1", "--delay", 0, "--no-robots", "-q",
        cwd=tmp_path,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    seeds = [visit.target for visit in site.visits if visit.target in SEEDS]
    assert seeds == [path for path in ORDERS[order] if path in SEEDS]
    extra = ["/start"] if face == "recipe.yaml" else []
    assert sorted(item["url"] for item in lines_of(tmp_path / "out.jsonl")) == sorted(
        url + path[1:] for path in [*ORDERS[order], *extra]
    )


@pytest.mark.parametrize("kind", ["valkey"])
async def test_a_managed_crawl_takes_seeds_from_a_key_too(server, serve, tmp_path):
    def read(response):
        yield {"url": response.url}
        yield response.follow_all("a")

    url = serve(scripted()).url
    key = f"seeds{uuid.uuid4().hex}"
    await asyncio.to_thread(server.ask, "LPUSH", key, *seeds_for("managed", url))
    crawl = ManagedCrawl()
    await crawl.initialize(
        CrawlArguments(
            job=f"job{uuid.uuid4().hex}", analyzers=[Analyzer(read)], settings={**QUICK, "seed_keys": [key]},
            frontier=server.url, home=str(tmp_path), outputs=[str(tmp_path / "out.jsonl")],
        )
    )  # fmt: skip
    await crawl.start(f"{url}start")
    assert str((await crawl.wait()).state) == "finished"
    found = sorted(item["url"] for item in await asyncio.to_thread(lines_of, tmp_path / "out.jsonl"))
    assert found == sorted(f"{url}{path}" for path in ("start", "1", "1/a", "2", "3", "4"))
