"""The shop of the examples, crawled through real proxies."""

import asyncio
import json
from collections import Counter

import pytest

from cli_command import lines_of, skitter
from manual import ROOT
from servers.fetch_proxy import Proxy
from services.store_servers import running
from skitter.testing import SiteProcess

SHOP = ROOT / "examples" / "shop"


@pytest.fixture
def site():
    with SiteProcess("shop_site:Shop", search=[SHOP]) as process:
        yield process


async def crawl(folder, site, *options):
    """Run the example through two proxies. Return the proxies."""
    async with Proxy() as one, Proxy() as two:
        (folder / "proxies.txt").write_text(f"# of the test\n{one.http}\n127.0.0.1:{two.port}\n")
        result = await asyncio.to_thread(
            skitter, "run", SHOP / "shop.py", "-a", f"site={site.url.rstrip('/')}", "-o", "shop.jsonl",
            "-s", "proxies=file:proxies.txt", "-s", "proxy_rotation=random", "-s", "reuse_connections=false",
            "-s", "retry_delay=0.05", "--fail-on-errors", *options, cwd=folder,
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
        return one, two


def lines_beginning(proxies, name):
    """Return the values of a header in the requests of the proxies."""
    heads = [head.decode().split("\r\n") for proxy in proxies for head in proxy.heads]
    return Counter(line for head in heads for line in head if line.startswith(f"{name}: "))


@pytest.fixture
def mongodb():
    return running("mongodb").url


def documents(url):
    """Return the number of documents in each collection of the shop."""
    from pymongo import MongoClient

    with MongoClient(url) as client:
        shop = client["shop"]
        return {name: shop[name].count_documents({}) for name in shop.list_collection_names()}


async def test_each_product_of_each_task_is_stored_once_with_many_user_agents_and_both_proxies(
    tmp_path, site, mongodb
):
    proxies = await crawl(tmp_path, site, "--workers", 2, "-o", mongodb + "/shop/{task}")
    assert await asyncio.to_thread(documents, mongodb) == {"books": 29, "games": 17}
    told = await asyncio.to_thread(skitter, "stats", "shop", "--by", "group", "--json", cwd=tmp_path)
    assert {row["key"]: row["items"] for row in json.loads(told.stdout)} == {"books": 29, "games": 17}
    items = lines_of(tmp_path / "shop.jsonl")
    assert Counter(item["task"] for item in items) == {"books": 29, "games": 17}
    assert len({item["name"] for item in items}) == 46
    assert all(item["price"] == int(item["name"].rpartition(" ")[2]) / 10 for item in items)
    assert min(len(proxy.heads) for proxy in proxies) > 5
    assert len(await asyncio.to_thread(site.hits)) == sum(len(proxy.heads) for proxy in proxies)
    assert len(lines_beginning(proxies, "User-Agent")) > 3


async def test_the_queue_contains_only_the_short_urls(tmp_path, site):
    await crawl(tmp_path, site, "--limit", 3, "--job", "short")
    kept = b"".join(
        path.read_bytes() for path in (tmp_path / ".skitter" / "short").rglob("*") if path.is_file()
    )
    assert b"/p/10" in kept
    assert b"country=de" not in kept
