"""Fifteen shapes of pages and of spiders, side by side with a plain script. See README.md."""

import argparse
import json
import math
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import NamedTuple

from measure import measure
from shape_sites import SITES, path_of, write_site
from webserver import free_port, nginx

HERE = Path(__file__).parent
CONCURRENCY = "32"
BATCH = "batch"
"""The callback that follows all links by one ``follow_all``."""
MAX_SINGLE = 1.3
"""Goal: CPU time per page of the shape `single follow`, as a multiple of the same pages with ``follow_all``."""


class Shape(NamedTuple):
    """A site, and what the callback does on each page."""

    site: str
    callback: str = BATCH


SINGLE = "single follow"
SHAPES = {
    "tiny pages": Shape("tiny"),
    "20 KB": Shape("page"),
    "gzip": Shape("gzip"),
    "brotli": Shape("brotli"),
    "1 MB body": Shape("large"),
    "1 MB of links": Shape("large links"),
    "hub, known links": Shape("hub"),
    "hub, new links": Shape("hub new"),
    SINGLE: Shape("page", "single"),
    "20 CSS fields": Shape("page", "css_fields"),
    "20 XPath fields": Shape("page", "xpath_fields"),
    "mixed fields": Shape("page", "mixed"),
    "30 rows by CSS": Shape("page", "css_rows"),
    "30 rows by XPath": Shape("page", "xpath_rows"),
    "regular expressions": Shape("page", "regex"),
}


def plain(url, output, shape, limit):
    return [sys.executable, str(HERE / "shape_plain.py"), url, str(output), CONCURRENCY, shape, str(limit)]


def skitter(url, output, shape, limit):
    command = [str(Path(sys.executable).with_name("skitter")), "run", str(HERE / "shape_spider.py")]
    command += ["-a", f"start={url}", "-a", f"shape={shape}", "-o", str(output), "--job", "bench", "--quiet"]
    command += ["--no-robots", "--delay", "0", "--concurrency", CONCURRENCY]
    command += ["--concurrency-per-slot", CONCURRENCY]
    return [*command, "--limit", str(limit)] if limit else command


def batch(url, output, _shape, limit):
    return skitter(url, output, BATCH, limit)


def of_checkout(checkout):
    """Return the skitter of another checkout, with the spider of this one."""
    return lambda *job: ["env", f"PYTHONPATH={checkout / 'src'}", *skitter(*job)]


def contest(shape, crawlers, cache, rounds):
    """Run all crawlers in turn; return the CPU time per page of each run in microseconds, by crawler."""
    site = SITES[shape.site]
    pages = cache / f"shape-{shape.site.replace(' ', '-')}-{abs(hash_of(site)) % 10**8}"
    if not pages.exists():
        write_site(site, pages.with_suffix(".unfinished"))
        pages.with_suffix(".unfinished").rename(pages)
    rules = "location /p/ { try_files /same.html =404; }" if site.same_body else ""
    if site.encoding:
        rules += f" add_header Content-Encoding {site.encoding};"
    limit = site.pages if site.new_links else 0
    costs = {name: [] for name in crawlers}
    with tempfile.TemporaryDirectory(prefix="skitter-nginx-") as folder:
        port = free_port()
        with nginx(folder, pages, port, rules=rules):
            for _round in range(rounds):
                results = {}
                for name, command in crawlers.items():
                    with tempfile.TemporaryDirectory(prefix="skitter-bench-") as run:
                        output = Path(run, "out.jsonl")
                        url = f"http://127.0.0.1:{port}/"
                        usage = measure(command(url, output, shape.callback, limit), Path(run))
                        results[name] = items(output)
                    costs[name].append(usage.cpu / site.pages * 1e6)
                check(site, results, f"http://127.0.0.1:{port}")
    return costs


def hash_of(site):
    return int.from_bytes(repr(site).encode(), "big") % (2**61 - 1)


def items(output):
    with output.open(encoding="utf-8") as lines:
        found = [json.loads(line) for line in lines]
    return sorted(found, key=lambda item: item["url"])


def check(site, results, origin):
    """Stop unless every crawler wrote each page once, and all wrote the same items."""
    wanted = sorted(origin + path_of(number) for number in range(site.pages))
    expected = next(iter(results.values()))
    for name, found in results.items():
        if [item["url"] for item in found] != wanted:
            sys.exit(f"{name} wrote {len(found)} items for {len(wanted)} pages, or other pages")
        if found != expected:
            odd = next(pair for pair in zip(found, expected, strict=True) if pair[0] != pair[1])
            sys.exit(f"{name} and {next(iter(results))} wrote different items: {odd}")


def main():
    options = parse()
    options.cache.mkdir(parents=True, exist_ok=True)
    crawlers = {"plain": plain, "skitter": skitter}
    if options.against is not None:
        crawlers["other"] = of_checkout(options.against.resolve())
    crawlers = {name: crawlers[name] for name in crawlers if name in (*options.crawlers.split(","), "other")}
    titles = [f"{name} min/median" for name in crawlers]
    print("".join(title.rjust(22) for title in ["shape", *titles, "plain/skitter"]))
    report, ratios, single = {}, [], 0.0
    for name in options.shapes:
        more = {BATCH: batch} if name == SINGLE and "skitter" in crawlers else {}
        costs = report[name] = contest(SHAPES[name], crawlers | more, options.cache, options.rounds)
        cells = [f"{min(costs[crawler]):,.0f} / {median(costs[crawler]):,.0f}" for crawler in crawlers]
        if more:
            single = median(costs["skitter"]) / median(costs[BATCH])
        if {"plain", "skitter"} <= costs.keys():
            ratios.append(median(costs["plain"]) / median(costs["skitter"]))
            cells.append(f"{min(costs['plain']) / min(costs['skitter']):.2f} / {ratios[-1]:.2f}")
        print("".join(cell.rjust(22) for cell in [name, *cells]), flush=True)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1))
    if single:
        print(f"{SINGLE} beside follow_all: {single:.2f} times (goal: at most {MAX_SINGLE})")
    if not ratios:
        return int(single > MAX_SINGLE)
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    print(f"geometric mean {mean:.2f} (goal: at least 1.3), lowest {min(ratios):.2f} (goal: at least 1.0)")
    return int(mean < 1.3 or min(ratios) < 1.0 or single > MAX_SINGLE)


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shapes", nargs="*", metavar="SHAPE", help=", ".join(SHAPES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--crawlers", default="plain,skitter")
    parser.add_argument("--cache", type=Path, default=HERE.parent / ".cache" / "bench-data")
    parser.add_argument(
        "--against", type=Path, metavar="DIR", help="another checkout of skitter, which takes part as `other`"
    )
    parser.add_argument("--json", type=Path, help="write all figures there")
    options = parser.parse_args()
    if unknown := {*options.shapes} - SHAPES.keys():
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    options.shapes = options.shapes or list(SHAPES)
    return options


if __name__ == "__main__":
    sys.exit(main())
