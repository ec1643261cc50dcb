"""A broad crawl: two pages of each of 5,000 TLS hosts, with a pause between them.

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

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import skitter

_BODY = (
    b"<title>page</title>"
    + b"".join(b"<p>text %d<a href='/second'>link</a>" % n for n in range(48))
    + b"x" * 15_000
)
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(_BODY)
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


async def _serve(folder):
    """Serve until the end of standard input, then print the numbers of new and resumed sessions."""
    counts = {"new": 0, "resumed": 0}

    async def answer(reader, writer):
        counts["resumed" if writer.get_extra_info("ssl_object").session_reused else "new"] += 1
        try:
            while True:
                async with asyncio.timeout(_IDLE_SECONDS):
                    await reader.readuntil(b"\r\n\r\n")
                writer.write(_HEAD + _BODY)
                await writer.drain()
        except (OSError, EOFError, TimeoutError):
            writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(Path(folder, "server.pem"))
    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    print(json.dumps(counts), flush=True)


async def _crawl_plainly(port, hosts, pause, names, folder):
    """Fetch all pages with aiohttp, as a script would."""
    import aiohttp
    from selectolax.lexbor import LexborHTMLParser

    context = ssl.create_default_context(cafile=str(Path(folder, "ca.pem")))
    resolver = aiohttp.AsyncResolver(nameservers=[names])
    connector = aiohttp.TCPConnector(limit=_CONCURRENCY, ssl=context, resolver=resolver)
    second = []
    with Path(folder, "items.jsonl").open("w") as out:  # noqa: ASYNC230 - a script would
        async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:

            async def fetch(url):
                async with session.get(url) as response:
                    tree = LexborHTMLParser(await response.read())
                out.write(json.dumps({"url": url, "title": tree.css_first("title").text()}) + "\n")
                return sorted({node.attributes["href"] for node in tree.css("a")})

            async def work(urls, links):
                while urls:
                    url = urls.pop()
                    links += [url.rstrip("/") + path for path in await fetch(url)]

            for urls in (_urls(port, hosts), second):
                left = list(urls)
                links = []
                await asyncio.gather(*(work(left, links) for _ in range(_CONCURRENCY)))
                if urls is not second:
                    second += links
                    await asyncio.sleep(pause)


def _measured(make_command, hosts, certificates):
    """Run a crawler beside a server.

    Return microseconds of CPU a page, the share of new connections to known hosts that resumed a session, and
    connections a page.
    """
    from measure import measure

    with tempfile.TemporaryDirectory(prefix="skitter-bench-") as folder:
        for name, pem in certificates.items():
            Path(folder, name).write_bytes(pem)
        server = subprocess.Popen(
            [sys.executable, __file__, "serve", folder],
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
    if len(items) != 2 * hosts:
        raise SystemExit(f"{len(items)} of {2 * hosts} pages were fetched")
    connections = sum(counts.values())
    return (
        usage.cpu / len(items) * 1e6,
        counts["resumed"] / max(1, connections - hosts),
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
        "| skitter, us a page | resumed | connections a page | plain script | resumed | ratio |\n"
        "| ---: | ---: | ---: | ---: | ---: | ---: |"
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
            ]  # fmt: skip

        def plain_command(port, folder):
            return [
                sys.executable,
                __file__,
                "plain",
                port,
                str(options.hosts),
                str(options.pause),
                names.address,
                folder,
            ]

        for _ in range(options.rounds):
            ours, resumed, connections = _measured(skitter_command, options.hosts, certificates)
            plain, plainly_resumed, _ = _measured(plain_command, options.hosts, certificates)
            ratios.append(ours / plain)
            print(
                f"| {ours:.0f} | {resumed:.0%} | {connections:.2f} | {plain:.0f} | {plainly_resumed:.0%} | {ratios[-1]:.2f} |",
                flush=True,
            )
    print(f"median ratio: {statistics.median(ratios):.2f}")


def main():
    if sys.argv[1:2] == ["serve"]:
        asyncio.run(_serve(sys.argv[2]))
        return
    if sys.argv[1:2] == ["plain"]:
        port, hosts, pause, names, folder = sys.argv[2:]
        asyncio.run(_crawl_plainly(port, int(hosts), float(pause), names, folder))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=5_000)
    parser.add_argument("--pause", type=float, default=70.0, help="seconds between the two pages of a host")
    parser.add_argument("--rounds", type=int, default=3)
    _compare(parser.parse_args())


if __name__ == "__main__":
    main()
