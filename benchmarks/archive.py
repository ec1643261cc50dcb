"""The cost of writing a WARC file beside a crawl, and of crawling one in place of the network. See README.md."""

import argparse
import tempfile
from pathlib import Path
from statistics import median

from crawlers import Job, check, skitter
from measure import measure
from webserver import nginx, site_files

HERE = Path(__file__).parent
NAMES = ("items only", "with an archive", "from the archive")


def commands(start, folder):
    """Return the commands of one round, with the output of each."""
    jobs = [Job(start, folder / f"{index}.jsonl") for index in range(len(NAMES))]
    plain, writing, reading = (
        [*skitter(job), "--job", name.replace(" ", "-")] for job, name in zip(jobs, NAMES, strict=True)
    )
    archive = folder / "site.warc.gz"
    runs = [plain, [*writing, "-o", str(archive)], [*reading, "-s", f"fetcher=warc:{archive}"]]
    return zip(NAMES, runs, (job.output for job in jobs), strict=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cache", type=Path, default=HERE.parent / ".cache" / "bench-data")
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    site, pages, port = site_files(options.cache, options.pages)
    origins = [f"127.0.0.1:{port}"]
    truth = {url: page.title for url, page in site.expected_pages(origins).items()}
    costs = {name: [] for name in NAMES}
    with tempfile.TemporaryDirectory(prefix="skitter-nginx-") as served, nginx(Path(served), pages, port):
        for _round in range(options.rounds):
            with tempfile.TemporaryDirectory(prefix="skitter-bench-") as folder:
                for name, command, output in commands(site.url(0, origins), Path(folder)):
                    usage = measure(command, Path(folder))
                    check(output, truth)
                    costs[name].append(usage.cpu / options.pages * 1e6)
                    Path(folder, "measured.json").unlink()
                size = Path(folder, "site.warc.gz").stat().st_size
    before = median(costs["items only"])
    for name, values in costs.items():
        print(f"{name:18} {median(values):6.1f} us of CPU a page, {median(values) / before:.2f} times")
    print(f"archive: {size / options.pages:,.0f} bytes a page")


if __name__ == "__main__":
    main()
