"""Fetches until 99 % of the real pages of a site full of traps are found, by one worker and by several. See docs/design/traps.md."""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from sites.trap_site import TrapSite
from skitter.testing import SiteServer

GOAL = 1.5
SPIDER = """
from skitter import Spider

class All(Spider):
    def parse(self, response):
        yield response.follow_all("a")
"""


def fetches_needed(site):
    """Return the number of fetches after which 99 % of the real pages were fetched, or ``None``."""
    missing = set(site.truth)
    for number, target in enumerate(site.fetched, 1):
        missing.discard(target)
        if len(missing) <= 0.01 * len(site.truth):
            return number
    return None


def crawl(pages, workers, *options):
    site = TrapSite(pages)
    with SiteServer(site) as server, tempfile.TemporaryDirectory(prefix="skitter-bench-") as folder:
        (Path(folder) / "spider.py").write_text(f"{SPIDER}    start_urls = ['{server.url}']\n")
        command = [
            sys.executable, "-m", "skitter", "run", "spider.py", "--workers", workers, "--limit", 3 * pages, "--delay", 0,
            "--no-robots", "--concurrency-per-slot", 8 * workers, "--concurrency", 16, "--quiet", *options,
        ]  # fmt: skip
        subprocess.run(list(map(str, command)), cwd=folder, check=True)
    found = len(site.truth.intersection(site.fetched))
    return fetches_needed(site), found, len(site.fetched)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pages", type=int, default=2_000, help="real pages")
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 4])
    options = parser.parse_args()
    met = True
    for workers in options.workers:
        needed, found, fetched = crawl(options.pages, workers)
        is_met = needed is not None and needed <= GOAL * options.pages
        met = met and is_met
        text = (
            "not reached"
            if needed is None
            else f"{needed} fetches, {needed / options.pages:.2f} for each real page"
        )
        print(
            f"{'ok    ' if is_met else 'MISSED'} {workers} workers: 99 % after {text};"
            f" {found} of {options.pages} after {fetched} fetches", flush=True,
        )  # fmt: skip
    _, found, fetched = crawl(options.pages, 1, "-s", "trap_detection=no")
    print(f"without detection: {found} of {options.pages} after {fetched} fetches")
    sys.exit(not met)


if __name__ == "__main__":
    main()
