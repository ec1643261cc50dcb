"""HTTP/2 beside HTTP/1.1: a crawl of one TLS host with 32 fetches at a time, and of many with two each.

See docs/design/performance-experiments.md.
"""

import argparse
import contextlib
import statistics
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import trustme
from measure import measure
from webserver import free_port, nginx

import skitter

_LINKS = 8
"""Links of a page to pages that no other page links to."""
_FILLING = "<p>some text with a <a href='/'>link</a> to the first page</p>\n" * 48 + "x" * 15_000


class Pages(skitter.Spider):
    """The spider. Arguments: ``starts``, separated by spaces."""

    async def start(self):
        for url in self.starts.split():
            yield skitter.Request(url)

    async def parse(self, response):
        yield {"url": response.url, "title": response.css("title::text").get()}
        for request in response.follow_all(css="a"):
            yield request


class Figures(NamedTuple):
    cpu_us: float
    """Per page."""
    pages_per_second: float
    connections: int
    protocols: Counter
    """Answers by protocol."""


def write_site(folder, pages):
    """Write pages that form a tree."""
    for number in range(pages):
        links = "".join(
            f"<a href='/{child}.html'>page {child}</a>\n"
            for child in range(number * _LINKS + 1, min((number + 1) * _LINKS + 1, pages))
        )
        name = f"{number}.html" if number else "index.html"
        Path(folder, name).write_text(f"<title>page {number}</title>{links}{_FILLING}")


def crawl(folder, ports, pages, *, http2):
    """Crawl all hosts, and check what was written."""
    log = Path(folder, "access.log")
    log.write_text("")
    with tempfile.TemporaryDirectory(prefix="skitter-bench-") as job:
        command = [
            sys.executable, "-m", "skitter", "run", f"{__file__}:Pages", "-o", "items.jsonl", "--quiet", "--no-robots",
            "--delay", "0", "--concurrency", "32", "--concurrency-per-slot", "32" if len(ports) == 1 else "2", "-a",
            "starts=" + " ".join(f"https://localhost:{port}/" for port in ports),
            "-s", f"http2={'yes' if http2 else 'no'}", "-s", f"ca_file={folder}/ca.pem",
        ]  # fmt: skip
        usage = measure(command, job)
        items = len(Path(job, "items.jsonl").read_text().splitlines())
    if items != pages * len(ports):
        raise SystemExit(f"{items} of {pages * len(ports)} pages were fetched")
    answers = [line.split() for line in log.read_text().splitlines()]
    return Figures(
        usage.cpu / items * 1e6,
        items / usage.wall,
        len({connection for connection, _ in answers}),
        Counter(protocol for _, protocol in answers),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=3_000)
    parser.add_argument("--hosts", default="1,30", help="numbers of hosts, which share the pages")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    authority = trustme.CA()
    print("| hosts | protocol | us a page | pages/s | connections |\n| ---: | --- | ---: | ---: | ---: |")
    for hosts in map(int, options.hosts.split(",")):
        pages = options.pages // hosts
        with tempfile.TemporaryDirectory(prefix="skitter-nginx-") as folder, contextlib.ExitStack() as stack:
            site = Path(folder, "pages")
            site.mkdir()
            write_site(site, pages)
            authority.cert_pem.write_to_path(f"{folder}/ca.pem")
            leaf = authority.issue_cert("localhost")
            leaf.private_key_and_cert_chain_pem.write_to_path(f"{folder}/server.pem")
            ports = [free_port() for _ in range(hosts)]
            rules = "".join(f"listen 127.0.0.1:{port} ssl http2 backlog=1024;\n" for port in ports)
            rules += f"ssl_certificate {folder}/server.pem; ssl_certificate_key {folder}/server.pem;\n"
            rules += "ssl_session_cache shared:tls:10m;\n"
            stack.enter_context(
                nginx(
                    folder, site, free_port(), f"{folder}/access.log", rules, "$connection $server_protocol"
                )
            )
            costs = {True: [], False: []}
            for _ in range(options.rounds):
                for http2 in (True, False):
                    found = crawl(folder, ports, pages, http2=http2)
                    costs[http2].append(found.cpu_us)
                    used = ", ".join(f"{name} {amount}" for name, amount in sorted(found.protocols.items()))
                    print(
                        f"| {hosts} | {used} | {found.cpu_us:.0f} | {found.pages_per_second:.0f} | {found.connections} |",
                        flush=True,
                    )
            ratios = [new / old for new, old in zip(costs[True], costs[False], strict=True)]
            print(f"{hosts} hosts: CPU of a page with HTTP/2, over HTTP/1.1: {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
