"""A web service that returns the links of a page: ``curl 'http://127.0.0.1:7171/?url=http://127.0.0.1:8000/'``.

Each request runs its own crawl; all crawls share one event loop.
"""

import asyncio
import json
import sys
from urllib.parse import parse_qs, urlsplit

from skitter import Collector, SkitterError


async def links_of(url):
    """Crawl one page."""
    page = {"status": 0, "links": {}}
    crawler = Collector(depth_limit=0)

    @crawler.on_response
    def arrived(response):
        page["status"] = response.status

    @crawler.on_error
    def failed(response, error):
        page["status"] = response.status

    @crawler.on_html("a[href]")
    def count(element):
        link = element.request.absolute_url(element.attr("href"))
        page["links"][link] = page["links"].get(link, 0) + 1

    crawler.visit(url)
    await crawler.crawl(settings={"max_retries": 0})
    return page


async def answer(reader, writer):
    """Answer one HTTP request."""
    target = (await reader.readline()).split()[1].decode()
    urls = parse_qs(urlsplit(target).query).get("url", [""])
    try:
        status, found = "200 OK", await links_of(urls[0])
    except SkitterError as error:
        status, found = "400 Bad Request", {"error": str(error), "remedy": error.remedy}
    body = json.dumps(found).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
    writer.close()


async def serve(port):
    """Serve until interrupted."""
    server = await asyncio.start_server(answer, "127.0.0.1", port)
    print("listening on port", server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]) if len(sys.argv) > 1 else 7171))
