"""Main content: pages per CPU second beside trafilatura alone. Near duplicates: cost per page, recall and precision.

The pages are generated (16 KB with menus, 50 links, scripts and a text), or the HTML files of a folder (``--folder``), each
several times. See docs/design/near-duplicates.md.
"""

import argparse
import random
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from measure import measure

from sites.texts import Corpus, pairs_of
from skitter.content.duplicate_items import digest_of
from skitter.content.near_duplicates import Text, find_duplicates, shingles, signature_of
from skitter.testing import Answer, SiteProcess

GOAL = 0.9
ALONE = """
import sys
from pathlib import Path
import trafilatura

for file in sorted(Path(sys.argv[1]).iterdir()):
    trafilatura.extract(
        file.read_text(errors='replace'), output_format=sys.argv[2], include_comments=False, fast=True, with_metadata=sys.argv[3] == "yes"
    )
"""


class Pages:
    """A site whose pages are all linked from its front page."""

    def __init__(self, pages: int, folder: str | None = None) -> None:
        rng = random.Random(1)
        if folder is None:
            texts = [text for _, _, text in Corpus(pages).pages[:pages]]
            self.bodies = [self._page(number, text, rng) for number, text in enumerate(texts)]
        else:
            files = sorted(Path(folder).glob("*.html"))
            self.bodies = [files[number % len(files)].read_bytes() for number in range(pages)]
        self._front = "".join(f"<a href=/{number}>{number}</a> " for number in range(pages)).encode()

    @staticmethod
    def _page(number, text, rng):
        links = "".join(
            f"<li class='item'><a href='/section/{rng.randrange(99)}?page={n}'>Section {n}</a></li>"
            for n in range(50)
        )
        paragraphs = "".join(
            f"<p class='text'>{paragraph} <b>Note</b>.</p>" for paragraph in text.split("\n\n")
        )
        script = "<script>" + "window.dataLayer=window.dataLayer||[];" * 100 + "</script>"
        return (
            f"<!doctype html><html lang=en><head><title>Page {number}</title><meta name=author content='A. Author'>"
            f"<meta property=article:published_time content=2026-05-31>{script}</head><body><nav><ul>{links}</ul></nav>"
            f"<main><article><h1>Page {number}</h1>{paragraphs}</article></main>"
            f"<aside>{'<div class=ad><a href=/buy>Buy now</a></div>' * 20}</aside><footer>Imprint{script}</footer></body></html>"
        ).encode()

    def __call__(self, visit):
        if visit.path == "/":
            return Answer(self._front)
        name = visit.path.lstrip("/")
        known = name.isdigit() and int(name) < len(self.bodies)
        return Answer(self.bodies[int(name)]) if known else Answer(b"", status=404)


def extraction(pages, rounds, given):
    """Return the least CPU time per page, in ms: trafilatura alone, the same with metadata, and a crawl with all fields."""
    site = Pages(pages, given)
    size = sum(map(len, site.bodies)) / pages
    print(f"{pages} pages of {size / 1000:.1f} KB, least of {rounds} rounds in turn", flush=True)
    times = defaultdict(list)
    with (
        tempfile.TemporaryDirectory(prefix="skitter-bench-") as top,
        SiteProcess(
            "content:Pages", {"pages": pages, "folder": given}, search=[Path(__file__).parent]
        ) as server,
    ):
        folder = Path(top, "pages")
        folder.mkdir()
        for number, body in enumerate(site.bodies):
            (folder / f"{number}.html").write_bytes(body)
        for number in range(rounds):
            for name, metadata in (("alone", "no"), ("with metadata", "yes")):
                used = measure([sys.executable, "-c", ALONE, str(folder), "markdown", metadata], top)
                times[name].append(used.cpu / pages * 1000)
            command = [
                sys.executable, "-m", "skitter", "crawl", server.url, "--no-robots", "--delay", "0", "--depth", "1",
                "--concurrency-per-slot", "16", "--quiet", "--content", "markdown", "-o", "pages.jsonl", "--job", f"j{number}",
                "--fresh",
            ]  # fmt: skip
            used = measure(command, top)
            times["crawl"].append(used.cpu / pages * 1000)
            lines = Path(top, "pages.jsonl").read_bytes().count(b"\n")
            assert lines >= pages, lines
            Path(top, "pages.jsonl").unlink()
    return {name: min(values) for name, values in times.items()}


def least(call, rounds=5):
    """Return the least CPU time of a call in seconds, and its result."""
    best, result = float("inf"), None
    for _ in range(rounds):
        began = time.process_time()
        result = call()
        best = min(best, time.process_time() - began)
    return best, result


def near_duplicates(pages):
    """Print cost, recall and precision. Return whether recall and precision meet their goals."""
    corpus = Corpus(pages)
    words = sum(len(text.split()) for _, _, text in corpus.pages) / len(corpus.pages)
    sample = [text for _, _, text in corpus.pages[:2_000]]
    shingling, hashes = least(lambda: [shingles(text) for text in sample])
    signing, _ = least(lambda: [signature_of(own) for own in hashes])
    print(f"signature, in the process of the extraction ({words:.0f} words per page): "
          f"{(shingling + signing) / len(sample) * 1e6:.0f} us per page ({shingling / len(sample) * 1e6:.0f} of them for shingles)")  # fmt: skip
    texts = [
        Text(url, int.from_bytes(digest_of(text)[:8], "big"), signature_of(shingles(text)), text)
        for url, _, text in corpus.pages
    ]
    grouping, found = least(lambda: find_duplicates(lambda: iter(texts)), 3)
    truth, groups = defaultdict(list), defaultdict(list)
    for number, (url, group, _) in enumerate(corpus.pages):
        truth[group].append(url)
        groups[found.get(number, url)].append(url)
    true, ours = pairs_of(truth), pairs_of(groups)
    recall, precision = len(true & ours) / len(true), len(true & ours) / len(ours)
    print(
        f"grouping of {len(texts)} pages, {len(found)} of them duplicates: {grouping / len(texts) * 1e6:.0f} us per page"
    )
    distinct = [
        text
        for text, (_, group, _) in zip(texts, corpus.pages, strict=True)
        if len(truth[group]) == 1 and "/" not in group
    ]
    alone, _ = least(lambda: find_duplicates(lambda: iter(distinct)), 3)
    print(
        f"grouping of the {len(distinct)} pages without relatives: {alone / len(distinct) * 1e6:.1f} us per page"
    )
    print(
        f"recall {recall:.4f} (goal 0.95), precision {precision:.4f} (goal 0.99), {len(true)} true pairs",
        flush=True,
    )
    return recall >= 0.95 and precision >= 0.99


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pages", type=int, default=1_000, help="pages to extract")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", help="HTML files in UTF-8 in place of generated pages")
    parser.add_argument("--texts", type=int, default=20_000, help="texts to group")
    options = parser.parse_args()
    met = near_duplicates(options.texts)
    times = extraction(options.pages, options.rounds, options.folder)
    for name, milliseconds in times.items():
        print(f"{name:14} {milliseconds:6.2f} ms per page, {1000 / milliseconds:6.1f} pages per CPU second")
    for name in ("alone", "with metadata"):
        ratio = times[name] / times["crawl"]
        print(f"the crawl has {ratio:.2f} times the pages per CPU second of trafilatura {name} (goal {GOAL})")
    sys.exit(not (met and times["with metadata"] / times["crawl"] >= GOAL))


if __name__ == "__main__":
    main()
