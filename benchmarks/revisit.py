"""A recrawl of 20,000 pages, few of them changed: exact report, bytes, and the CPU of a 304. See docs/design/revisiting.md.

The CPU of a 304 is measured in pairs: a pass over pages that all answer 304 and whose 27 links each are followed again,
and a crawl of as many pages whose empty responses have no links. Both find their pages by the links of one index page, and
lease, fetch and commit the same number of requests. As in a crawl, the first link to a page finds it, and the others are known.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from statistics import median

from skitter.testing import Answer, SiteProcess

TESTS = Path(__file__).parents[1] / "tests"
sys.path.insert(0, str(TESTS))
from sites.changing import ChangingSite  # noqa: E402 - found only after the line above

SPIDERS = """
from skitter import Spider

class Shop(Spider):
    url = ""

    async def start(self):
        yield self.url

    def parse(self, response):
        if price := response.css(".price::text").get():
            yield {"url": response.url, "price": int(price)}
        yield response.follow_all("a")

class Linked(Spider):
    url = ""

    async def start(self):
        yield self.url

    def parse(self, response):
        yield response.follow_all("a")
"""
LINKS = 27
OPTIONS = ("--no-robots", "--delay", 0, "--concurrency", 32, "--concurrency-per-slot", 32, "--quiet")


VALIDATOR = {"ETag": '"0123456789abcdef"'}


def empty_site(pages):
    """Answer the index with links to all pages, and these with nothing."""
    index = Answer(_links(range(1, pages)), headers=VALIDATOR)
    return lambda visit: index if visit.path == "/" else Answer(b"", headers=VALIDATOR)


def linked_site(pages):
    """As :func:`empty_site`, but each page has links to others that are drawn. Answer 304 to who knows the page."""

    def answer(visit):
        if "if-none-match" in visit.headers:
            return Answer(status=304, content_type=None, headers=VALIDATOR)
        is_index = visit.path == "/"
        numbers = range(1, pages) if is_index else random.Random(visit.path).sample(range(1, pages), LINKS)
        return Answer(_links(numbers), headers=VALIDATOR)

    return answer


def _links(numbers):
    return "".join(f'<a href="/{number}">x</a>' for number in numbers).encode()


class Folder:
    """Runs crawls in one folder."""

    def __init__(self, path):
        self._path = Path(path)
        (self._path / "spiders.py").write_text(SPIDERS)

    def crawl(self, spider, *options):
        """Run a crawl. Return its CPU seconds and its summary."""
        command = [
            sys.executable, "-m", "skitter", "run", f"spiders.py:{spider}", *OPTIONS, *options,
            "-o", f"{spider}.jsonl", "--summary", "summary.json",
        ]  # fmt: skip
        process = subprocess.Popen(list(map(str, command)), cwd=self._path)
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            raise SystemExit(f"the crawl has failed: {status}")
        return usage.ru_utime + usage.ru_stime, json.loads((self._path / "summary.json").read_text())

    def listed(self):
        """Return the pages that the last pass reports, by kind or reason."""
        command = [sys.executable, "-m", "skitter", "changes", "Shop", "--json"]
        done = subprocess.run(command, cwd=self._path, check=True, capture_output=True)
        found = {}
        for page in json.loads(done.stdout):
            found.setdefault(page["reason"] or page["change"], set()).add(page["url"])
        return found

    def frontier_bytes(self):
        """Return the size of the frontier file."""
        return (self._path / ".skitter/Shop/frontier.db").stat().st_size


def check(name, is_met, text):
    print(f"{'ok    ' if is_met else 'MISSED'} {name}: {text}", flush=True)
    return is_met


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pages", type=int, default=20_000)
    parser.add_argument("--pairs", type=int, default=3, help="pairs for the CPU of a 304")
    options = parser.parse_args()
    arguments = {"pages": options.pages}
    known = ChangingSite(**arguments)
    with (
        SiteProcess("sites.changing:ChangingSite", arguments, search=[TESTS]) as site,
        SiteProcess("revisit:empty_site", arguments, search=[TESTS, Path(__file__).parent]) as empty,
        SiteProcess("revisit:linked_site", arguments, search=[TESTS, Path(__file__).parent]) as linked,
        tempfile.TemporaryDirectory(prefix="skitter-bench-") as path,
    ):
        folder = Folder(path)
        shop = ("-a", f"url={site.url}", "--job", "Shop", "--changes", "all", "--recrawl")
        cpu, first = folder.crawl("Shop", *shop)
        print(
            f"first crawl: {first['pages']} pages, {first['bytes']:,} bytes, {cpu / first['pages'] * 1e6:.0f} us a page"
        )
        print(f"frontier: {folder.frontier_bytes() / first['pages']:.0f} bytes a page")
        urllib.request.urlopen(urllib.request.Request(f"{site.url}version/2", method="POST")).close()
        _, second = folder.crawl("Shop", *shop)
        truth = known.expected_changes(site.origins)
        expected = {
            "new": truth.new, "changed": truth.changed, "status/404": truth.missing, "unlinked": truth.unlinked
        }  # fmt: skip
        met = check(
            "report", folder.listed() == expected, {name: len(urls) for name, urls in expected.items()}
        )
        received = second["bytes"] - first["bytes"]
        mean = first["bytes"] / first["pages"]
        of_known = received - len(truth.new) * mean
        saved = 1 - of_known / first["bytes"]
        met &= check(
            "bytes of known pages",
            saved >= 0.945,
            f"{saved:.1%} fewer; {received:,} bytes with the new pages",
        )
        remembering = ("-a", f"url={linked.url}", "--job", "again", "--changes", "all", "--recrawl")
        folder.crawl("Linked", *remembering)
        bare, again = [], []
        for number in range(options.pairs):
            cpu, summary = folder.crawl("Linked", "-a", f"url={empty.url}", "--job", f"bare{number}")
            bare.append(cpu / summary["pages"] * 1e6)
            cpu, summary = folder.crawl("Linked", *remembering)
            if {name for name, count in summary["changes"].items() if count} != {"unchanged"}:
                raise SystemExit(f"a page has changed: {summary['changes']}")
            again.append(cpu / summary["changes"]["unchanged"] * 1e6)
        cost = median(recrawl - bare_run for recrawl, bare_run in zip(again, bare, strict=True))
        text = f"{cost:.0f} us of CPU above an empty response ({median(again):.0f} and {median(bare):.0f} us a request)"
        met &= check(f"a 304 with {LINKS} links", cost <= 60, text)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
