"""Measure skitter against a plain script and Scrapy. See README.md."""

import argparse
import json
import platform
import sys
import time
from importlib.metadata import version
from pathlib import Path

from contest import Summary, summarize
from crawlers import CRAWLERS, WrongOutput, skitter_of
from measure import Failed
from scenarios import SCENARIOS, Bench
from webserver import NotStarted

CACHE = Path(__file__).parent.parent / ".cache" / "bench-data"
PACKAGES = ("skitter", "aiohttp", "selectolax", "uvloop", "pycurl", "turbohtml")


def main():
    options = parse()
    options.cache.mkdir(parents=True, exist_ok=True)
    crawlers = tuple(options.crawlers.split(","))
    if options.against is not None:
        CRAWLERS["other"] = skitter_of(options.against.resolve())
        crawlers = (*crawlers, "other")
    bench = Bench(options.cache, options.rounds, options.pages, crawlers)
    report = {"at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "machine": machine(), "scenarios": {}}
    missed = False
    for name in options.scenarios:
        try:
            runs, goals = SCENARIOS[name](bench)
        except (Failed, NotStarted, WrongOutput) as error:
            sys.exit(f"{name}: {error}")
        summaries = [summarize(runs, label) for label in dict.fromkeys(run.label for run in runs)]
        print_table(name, summaries)
        for goal in goals:
            missed |= not goal.met
            print(f"{'met   ' if goal.met else 'MISSED'} {goal.name}: {goal.value:.2f}, goal {bound(goal)}")
        report["scenarios"][name] = {
            "medians": [summary._asdict() for summary in summaries],
            "goals": [{**goal._asdict(), "met": goal.met} for goal in goals],
            "runs": [{**run._asdict(), "usage": run.usage._asdict()} for run in runs],
        }
    if options.json:
        options.json.write_text(json.dumps(report, indent=1))
    sys.exit(1 if missed else 0)


def bound(goal):
    return f"{'at least' if goal.at_least else 'at most'} {goal.limit:g}"


def print_table(name, summaries):
    titles = [field.replace("_", " ") for field in Summary._fields]
    rows = [[_cell(value) for value in summary] for summary in summaries]
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    print(f"\n{name}, medians (memory: peaks)")
    for row in [titles, *rows]:
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))


def _cell(value):
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def machine():
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "packages": {name: version(name) for name in PACKAGES},
    }


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=", ".join(SCENARIOS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pages", type=int, default=5_000, help="size of the site in compare")
    parser.add_argument(
        "--crawlers", default="plain,scrapy,skitter", help=f"which of {', '.join(CRAWLERS)} take part"
    )
    parser.add_argument("--cache", type=Path, default=CACHE, help="keeps sites and filled frontiers")
    parser.add_argument(
        "--against", type=Path, metavar="DIR", help="another checkout of skitter, which takes part as `other`"
    )
    parser.add_argument("--json", type=Path, help="write all figures there")
    options = parser.parse_args()
    unknown = {*options.scenarios} - SCENARIOS.keys() | {*options.crawlers.split(",")} - CRAWLERS.keys()
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    options.scenarios = options.scenarios or list(SCENARIOS)
    return options


if __name__ == "__main__":
    main()
