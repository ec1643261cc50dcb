"""A broad crawl: a few pages of each of many TLS hosts, with a pause between them.

See docs/design/performance-experiments.md.
Beside it runs a plain aiohttp script with the same pauses. The server counts how many connections resumed a TLS session.
"""

import argparse
import asyncio
import json
import ssl
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import urljoin

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import skitter

_LINKS = b"".join(b"<p>text %d<a href='NEXT'>link</a>" % n for n in range(48))
_PAGE = b"<title>page</title>%b" + b"x" * 15_000
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n"
_IDLE_SECONDS = 15.0
"""Time after which the server closes an idle connection."""
_CONCURRENCY = 64


def _urls(port, hosts):
    return [f"https://host{number}.site.test:{port}/" for number in range(hosts)]


class Broad(skitter.Spider):
    """The spider. Arguments: ``port`` and ``hosts``."""

    async def start(self):
        for url in _urls(self.port, int(self.hosts)):
            yield skitter.Request(url)

    async def parse(self, response):
        yield {"url": response.url, "title": response.css("title::text").get()}
        for request in response.follow_all(css="a"):
            yield request


def _response(path, pages):
    """Return a page. All pages of a host but the last one link to the next one."""
    number = int(path.strip(b"/") or 0)
    body = _PAGE % (_LINKS.replace(b"NEXT", b"/%d" % (number + 1)) if number + 1 < pages else b"")
    return _HEAD % len(body) + body


async def _serve(folder, pages):
    """Serve until the end of standard input, then print the numbers of new and resumed sessions."""
    counts = {"new": 0, "resumed": 0}

    async def answer(reader, writer):
        counts["resumed" if writer.get_extra_info("ssl_object").session_reused else "new"] += 1
        try:
            while True:
                async with asyncio.timeout(_IDLE_SECONDS):
                    head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_response(head.split(b" ", 2)[1], pages))
                await writer.drain()
        except (OSError, EOFError, TimeoutError):
            writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(Path(folder, "server.pem"))
    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    print(json.dumps(counts), flush=True)


async def _crawl_plainly(port, hosts, pages, pause, names, folder):
    """Fetch all pages with aiohttp, as a script would."""
    import aiohttp
    from selectolax.lexbor import LexborHTMLParser

    context = ssl.create_default_context(cafile=str(Path(folder, "ca.pem")))
    resolver = aiohttp.AsyncResolver(nameservers=[names])
    connector = aiohttp.TCPConnector(limit=_CONCURRENCY, ssl=context, resolver=resolver)
    urls = _urls(port, hosts)
    with Path(folder, "items.jsonl").open("w") as out:  # noqa: ASYNC230 - a script would
        async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:

            async def fetch(url):
                async with session.get(url) as response:
                    tree = LexborHTMLParser(await response.read())
                out.write(json.dumps({"url": url, "title": tree.css_first("title").text()}) + "\n")
                return sorted({urljoin(url, node.attributes["href"]) for node in tree.css("a")})

            async def work(urls, links):
                while urls:
                    links += await fetch(urls.pop())

            for number in range(pages):
                if number:
                    await asyncio.sleep(pause)
                links = []
                await asyncio.gather(*(work(urls, links) for _ in range(_CONCURRENCY)))
                urls = links


def _measured(make_command, options, certificates):
    """Run a crawler beside a server.

    Return microseconds of CPU per page, seconds, the share of new connections to known hosts that resumed a session,
    and connections per page.
    """
    from measure import measure

    with tempfile.TemporaryDirectory(prefix="skitter-bench-") as folder:
        for name, pem in certificates.items():
            Path(folder, name).write_bytes(pem)
        server = subprocess.Popen(
            [sys.executable, __file__, "serve", folder, str(options.pages)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            usage = measure(make_command(server.stdout.readline().strip(), folder), folder)
            counts = json.loads(server.communicate()[0])
        finally:
            server.kill()
        items = Path(folder, "items.jsonl").read_text().splitlines()
    if len(items) != options.pages * options.hosts:
        raise SystemExit(f"{len(items)} of {options.pages * options.hosts} pages were fetched")
    connections = sum(counts.values())
    return (
        usage.cpu / len(items) * 1e6,
        usage.wall,
        counts["resumed"] / max(1, connections - options.hosts),
        connections / len(items),
    )


def _compare(options):
    import trustme

    from servers.name_server import NameServer

    authority = trustme.CA()
    leaf = authority.issue_cert("*.site.test")
    certificates = {
        "ca.pem": authority.cert_pem.bytes(),
        "server.pem": leaf.private_key_and_cert_chain_pem.bytes(),
    }
    ratios = []
    print(
        "| skitter, us per page | seconds | resumed | connections per page |"
        " plain script | seconds | resumed | connections per page | ratio |\n"
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    )
    with NameServer({"*.site.test": "127.0.0.1"}) as names:
        settings = {
            "delay": options.pause, "concurrency": _CONCURRENCY, "robots": "no", "ca_file": "ca.pem", "allow_networks": "127.0.0.0/8",
            "dns_servers": names.address,
        }  # fmt: skip

        def skitter_command(port, _folder):
            return [
                sys.executable, "-m", "skitter", "run", f"{__file__}:Broad", "-a", f"port={port}", "-a", f"hosts={options.hosts}",
                *(f"-s{name}={value}" for name, value in settings.items()), "-o", "items.jsonl", "--quiet",
                "--workers", str(options.workers), *(["--frontier", options.frontier] if options.frontier else []),
            ]  # fmt: skip

        def plain_command(port, folder):
            return [
                sys.executable,
                __file__,
                "plain",
                port,
                str(options.hosts),
                str(options.pages),
                str(options.pause),
                names.address,
                folder,
            ]

        for _ in range(options.rounds):
            ours = _measured(skitter_command, options, certificates)
            plain = _measured(plain_command, options, certificates)
            ratios.append(ours[0] / plain[0])
            cells = [
                f"{cpu:.0f} | {wall:.1f} | {resumed:.0%} | {connections:.2f}"
                for cpu, wall, resumed, connections in (ours, plain)
            ]
            print(f"| {cells[0]} | {cells[1]} | {ratios[-1]:.2f} |", flush=True)
    print(f"median ratio: {statistics.median(ratios):.2f}")


def main():
    if sys.argv[1:2] == ["serve"]:
        asyncio.run(_serve(sys.argv[2], int(sys.argv[3])))
        return
    if sys.argv[1:2] == ["plain"]:
        port, hosts, pages, pause, names, folder = sys.argv[2:]
        asyncio.run(_crawl_plainly(port, int(hosts), int(pages), float(pause), names, folder))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=5_000)
    parser.add_argument("--pages", type=int, default=2, help="pages of each host")
    parser.add_argument("--pause", type=float, default=70.0, help="seconds between two pages of a host")
    parser.add_argument("--workers", type=int, default=1, help="worker processes of skitter")
    parser.add_argument("--frontier", help="URL of a Redis server without other data; default: a file")
    parser.add_argument("--rounds", type=int, default=3)
    _compare(parser.parse_args())


if __name__ == "__main__":
    main()
