"""A program in one file: its spider, and the crawl that it starts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import skitter
from skitter.testing import GeneratedSite

PROGRAM = """
import asyncio, sys
from skitter import Crawl, JobSpec, Spider

class Titles(Spider):
    custom_settings = {"robots": False, "delay": 0, "deny": "outside"}

    def parse(self, response):
        yield {"title": response.css("title::text").get()}
        yield response.follow_all("a")

def main():
    spec = JobSpec(job="titles", spider=Titles, arguments={"start_urls": [sys.argv[1]]}, outputs=["titles.jsonl"], workers=2)
    print(asyncio.run(Crawl(spec).run()).state)
"""


@pytest.fixture
def run(serve, tmp_path):
    server = serve(GeneratedSite(pages=30, hosts=1))

    def run(source: str, *, as_file: bool = True) -> subprocess.CompletedProcess:
        (tmp_path / "titles.py").write_text(source)
        return subprocess.run(
            [sys.executable, *(["titles.py"] if as_file else ["-c", source]), server.url], cwd=tmp_path, capture_output=True, text=True,
            check=False, env={**os.environ, "PYTHONPATH": str(Path(skitter.__file__).parents[1])},
        )  # fmt: skip

    return run


def test_worker_processes_import_the_spider_from_the_file_of_the_program(run, tmp_path):
    result = run(f"{PROGRAM}\nif __name__ == '__main__':\n    main()\n")
    assert result.stdout == "finished\n", result.stderr
    assert len((tmp_path / "titles.jsonl").read_text().splitlines()) == 30


def test_a_crawl_that_starts_on_import_is_refused_with_the_place_for_the_call(run):
    result = run(f"{PROGRAM}\nmain()\n")
    assert result.returncode == 1
    assert 'move the call below: if __name__ == "__main__":' in result.stderr


def test_worker_processes_of_a_program_without_a_file_are_refused(run):
    result = run(f"{PROGRAM}\nmain()\n", as_file=False)
    assert "worker processes cannot import spider Titles" in result.stderr
    assert "define it in a file, or run with workers=1" in result.stderr


def test_a_program_that_ends_during_a_crawl_fails_no_page_of_it(run):
    result = run("""
import asyncio, sys
from skitter import Crawl, JobSpec, Spider

class Slow(Spider):
    custom_settings = {"robots": False, "delay": 0}
    start_urls = [sys.argv[1]]
    ends = True

    async def parse(self, response):
        begun.set()
        await asyncio.sleep(60 if Slow.ends else 0)

async def end_early(spec):
    global begun
    begun = asyncio.Event()
    crawl = asyncio.create_task(Crawl(spec).run())
    await begun.wait()

spec = JobSpec(job="slow", spider=Slow)
asyncio.run(end_early(spec))
Slow.ends = False
print(asyncio.run(Crawl(spec).run()))
""")
    assert "finished; 1 page, 0 items, 0 failed" in result.stdout
    assert result.stderr == ""
