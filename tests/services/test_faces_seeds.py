"""Seed keys and queue orders of Scrapy-Redis, in every kind of user code."""

import asyncio
import json
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
    """In a job of several tasks, each seed names its task."""
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


PROJECT = """
import logging

from skitter import Spider


class Shop(Spider):
    name = "{name}"
    custom_settings = dict(
        seed_keys=["%(name)s:start_urls"], seed_format="scrapy-redis", seed_list_end="left", delay=0, robots=False,
    )

    def parse(self, response):
        self.log("parsed", logging.WARNING)
        self.stats.inc_value("shop/parsed")
        kind = "odd" if int(response.url[-1]) % 2 else "even"
        yield {{"path": response.url.rpartition("/")[2], "kind": kind, "task": response.meta.get("task")}}


def write(item):
    return repr(sorted(item.items()))
"""


@pytest.mark.parametrize("kind", ["valkey"])
def test_a_project_of_scrapy_redis_works_with_the_keys_that_its_templates_name(server, serve, tmp_path):
    site = scripted()
    url = serve(site).url
    name = f"shop{uuid.uuid4().hex}"
    (tmp_path / "project.py").write_text(PROJECT.format(name=name))
    known = json.dumps({"url": f"{url}1", "meta": {"task": "again"}, "cookies": {"sid": "x"}})
    server.ask("RPUSH", f"{name}:start_urls", *[url + seed[1:] for seed in SEEDS], known)
    told = skitter(
        "run", "project.py", "--job", f"job-{name}", "--frontier", server.url, "--workers", 2, "-q",
        "-o", f"{server.url}/%(spider)s:%(kind)s?serializer=project:write", "-o", "%(name)s-%(job)s.jsonl",
        cwd=tmp_path,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    assert told.stderr.count("parsed") == 5
    assert site.counts == {"/1": 2, "/2": 1, "/3": 1, "/4": 1}
    written = {
        kind: sorted(item.decode() for item in server.ask("LRANGE", f"{name}:{kind}", 0, -1))
        for kind in ("odd", "even")
    }
    items = [{"path": path, "kind": kind, "task": task} for path, kind, task in [
        ("1", "odd", None), ("1", "odd", "again"), ("2", "even", None), ("3", "odd", None), ("4", "even", None),
    ]]  # fmt: skip
    assert written == {
        kind: sorted(repr(sorted(item.items())) for item in items if item["kind"] == kind)
        for kind in ("odd", "even")
    }
    assert sorted(lines_of(tmp_path / f"{name}-job-{name}.jsonl"), key=str) == sorted(items, key=str)
    counted = skitter("stats", f"job-{name}", "user/", "--json", cwd=tmp_path)
    assert json.loads(counted.stdout) == {"user/shop/parsed": 5}


@pytest.mark.parametrize("kind", ["valkey"])
def test_an_unknown_name_in_a_seed_key_is_an_error_before_the_run(server, tmp_path):
    (tmp_path / "spider.py").write_text(FACES["spider.py"])
    told = skitter(
        "run", "spider.py", "--frontier", server.url, "--seed-key", "%(shop)s:seeds", "-q", cwd=tmp_path
    )
    assert told.returncode == 2
    assert "%(shop)s:seeds" in told.stderr
