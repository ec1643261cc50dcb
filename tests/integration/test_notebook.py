"""Crawls in the cells of a real notebook, whose kernel has a running event loop."""

import json
import os
import subprocess
import sys

import pytest

from skitter.testing import GeneratedSite

SPIDER = """
import asyncio, threading
import skitter
from skitter.errors import CrawlFailed

class Titles(skitter.Spider):
    custom_settings = {"robots": False, "delay": 0, "deny": "outside"}

    def parse(self, response):
        yield {"title": response.css("title::text").get()}
        yield response.follow_all("a")
"""
CELLS = {
    "async": """
items = [item async for item in skitter.stream(Titles, arguments=SITE, watcher=skitter.ProgressLine())]
print("items:", len(items))
""",
    "blocking": """
asyncio.get_running_loop()
items = list(skitter.iter_items(Titles, arguments=SITE, watcher=skitter.ProgressLine()))
print("items:", len(items))
""",
    "early": """
for item in skitter.iter_items(Titles, arguments=SITE):
    break
print("threads:", [thread.name for thread in threading.enumerate() if thread.name == "skitter"])
""",
    "job": """
spec = skitter.JobSpec(job="titles", spider=Titles, arguments=SITE, outputs=["titles.jsonl"], frontier="memory:")
result = await skitter.Crawl(spec, watcher=skitter.ProgressLine()).run()
print(result.state, sum(1 for line in open("titles.jsonl")))
""",
    "failed": """
try:
    async for item in skitter.stream(Titles, arguments={"start_urls": ["http://127.0.0.1:1/"]}):
        pass
except CrawlFailed as error:
    print(error)
""",
}


def test_crawls_run_in_the_cells_of_a_notebook(serve, tmp_path):
    reason = "needs nbclient and ipykernel: pip install --group test"
    pytest.importorskip("nbclient", reason=reason)
    pytest.importorskip("ipykernel", reason=reason)
    import nbformat

    arguments = {"start_urls": [serve(GeneratedSite(pages=30)).url]}
    sources = [SPIDER, f"SITE = {arguments!r}", *CELLS.values()]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    path = tmp_path / "crawl.ipynb"
    nbformat.write(book, path)
    command = "from nbclient.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", command, "--inplace", "--allow-errors", "--startup_timeout=300", str(path)], cwd=tmp_path,
        env={**os.environ, "JUPYTER_PLATFORM_DIRS": "1", "IPYTHONDIR": str(tmp_path)}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    outputs = [cell["outputs"] for cell in json.loads(path.read_text())["cells"][2:]]
    errors = [one for cell in outputs for one in cell if one["output_type"] == "error"]
    assert errors == []
    shown = {
        name: "".join("".join(one["text"]) for one in cell if one.get("name") == "stdout")
        for name, cell in zip(CELLS, outputs, strict=True)
    }
    for name in ("async", "blocking"):
        assert shown[name].endswith("\nitems: 30\n")
        lines = shown[name].split("\r")[1:]
        assert "30 pages" in lines[-1]
        assert lines[-1].startswith("finished")
    assert shown["early"] == "threads: []\n"
    assert shown["job"].endswith("\nfinished 30\n")
    assert "http://127.0.0.1:1/: connect" in shown["failed"]
