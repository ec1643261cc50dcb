"""The bound: a crawler without a framework, as fast as plain aiohttp and selectolax let it be.

Set and deque in memory, no retries, no robots, no politeness, nothing survives a kill.
Usage: ``python plain.py URL OUT.jsonl [CONCURRENCY]``.
"""

import asyncio
import gc
import sys
from collections import deque
from pathlib import Path
from urllib.parse import urldefrag, urljoin, urlsplit

import aiohttp
import msgspec
import uvloop
from selectolax.lexbor import LexborHTMLParser
from yarl import URL


class Plain:
    def __init__(self, start, out):
        self.origin = "{0.scheme}://{0.netloc}".format(urlsplit(start))
        self.known = {start}
        self.met = set()
        self.waiting = deque([start])
        self.idle = 0
        self.out = out
        self.encode = msgspec.json.Encoder().encode
        self.wake = asyncio.Condition()

    def follow(self, url, hrefs):
        """Queue what is new; returns how much. Most links are decided by one look at the raw href."""
        origin, met, known = self.origin, self.met, self.known
        folder = url.rpartition("/")[0]
        parent = folder.rpartition("/")[0] if folder != origin else folder
        before = len(known)
        for href in hrefs:
            if not href or href in met:
                continue
            if href[0] == "/" or href.startswith("http"):  # means the same on every page
                met.add(href)
                if "/." in href or href[:2] == "//":
                    target = urljoin(origin, href).partition("#")[0]
                else:
                    target = (origin + href if href[0] == "/" else href).partition("#")[0]
            elif href[0] == "#" or href.startswith(("mailto:", "javascript:")):
                continue
            elif href[:3] == "../" and "/." not in href:
                target = f"{parent}/{href[3:]}".partition("#")[0]
            else:
                target = urldefrag(urljoin(url, href)).url
            if target not in known and target.startswith(origin) and target[len(origin) :][:1] == "/":
                known.add(target)
                self.waiting.append(target)
        return len(known) - before

    async def page(self, session, url):
        async with session.get(URL(url, encoded=True), allow_redirects=False) as response:
            body = await response.read()
            if response.status != 200:
                return 0
        tree = LexborHTMLParser(body)
        title = tree.tags("title")
        self.out.write(self.encode({"url": url, "title": title[0].text() if title else None}) + b"\n")
        return self.follow(url, [node.attributes.get("href") for node in tree.tags("a")])

    async def work(self, session, concurrency):
        while True:
            while not self.waiting:
                self.idle += 1
                async with self.wake:
                    if self.idle == concurrency:
                        self.wake.notify_all()
                        return
                    await self.wake.wait()
                if self.idle == concurrency and not self.waiting:
                    return
                self.idle -= 1
            found = await self.page(session, self.waiting.popleft())
            if found and self.idle:
                async with self.wake:
                    self.wake.notify(min(found, self.idle))


async def crawl(plain, concurrency):
    connector = aiohttp.TCPConnector(limit=concurrency, ttl_dns_cache=3600)
    timeout = aiohttp.ClientTimeout(total=None, sock_read=15)
    jar = aiohttp.DummyCookieJar()
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, cookie_jar=jar, headers={"User-Agent": "plain"}
    ) as session:
        await asyncio.gather(*(plain.work(session, concurrency) for _ in range(concurrency)))


def main():
    start, path, *rest = sys.argv[1:]
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    loop = uvloop.new_event_loop
    with Path(path).open("wb", buffering=1 << 20) as out, asyncio.Runner(loop_factory=loop) as run:
        run.run(crawl(Plain(start, out), int(rest[0]) if rest else 32))


if __name__ == "__main__":
    main()
