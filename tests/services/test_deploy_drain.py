"""The commands of the Kubernetes files with a real server: seeds that arrive before the workers, and a pod that is ended."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from services.redis_servers import running
from skitter.testing import GeneratedSite

DEPLOY = Path(__file__).parents[2] / "deploy"
SKITTER = [sys.executable, "-c", "from skitter.cli.main import main; main()"]
PAGES = 200


def container(name):
    each = next(iter(yaml.safe_load_all((DEPLOY / "kubernetes" / name).read_text())))
    pod = each["spec"]["template"]["spec"]
    return pod["containers"][0]["args"], pod.get("terminationGracePeriodSeconds")


def localized(words, server, folder):
    """Replace the pod's paths and addresses with those of the test."""
    said = {
        "/spiders/pages.py": str(DEPLOY / "pages.py"),
        "--file=/seeds/seeds.txt": f"--file={folder / 'seeds.txt'}",
        "--frontier=redis://valkey/0": f"--frontier={server.url}",
        "--output=postgresql://skitter@postgres/crawl?table=pages": "--output=items.jsonl",
    }
    assert sum(word in said for word in words) >= 2
    return [*SKITTER, *(said.get(word, word) for word in words)]


@pytest.fixture
def server():
    server = running("valkey")
    yield server
    server.ask("FLUSHALL")


def test_a_pod_that_is_ended_drains_in_its_time_and_hands_everything_back(server, serve, tmp_path):
    site = serve(GeneratedSite(pages=PAGES, links_per_page=12, page_bytes=500), delay=0.05)
    urls = [GeneratedSite(pages=PAGES).url(number, site.origins) for number in range(PAGES)]
    (tmp_path / "seeds.txt").write_text("\n".join(urls))
    words, grace = container("workers.yaml")
    words = [*words, "--setting=deny=outside.invalid"]  # links to other hosts
    add = localized(container("seeds.yaml")[0], server, tmp_path)
    early = subprocess.run(add, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert early.returncode == 2, early.stderr
    assert len(early.stderr.splitlines()) == 1
    worker = subprocess.Popen(
        localized(words, server, tmp_path), cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    try:
        deadline = time.monotonic() + 60
        while subprocess.run(add, cwd=tmp_path, capture_output=True, check=False).returncode:
            assert time.monotonic() < deadline
        while len(site.log.hits) < PAGES // 5:
            assert worker.poll() is None, worker.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.01)
        worker.send_signal(signal.SIGTERM)
        _, said = worker.communicate(timeout=grace)
    finally:
        worker.kill()
        worker.wait()
    assert worker.returncode == 130, said
    status = [*SKITTER, "status", "pages", "--json", f"--frontier={server.url}"]
    counts = json.loads(subprocess.run(status, cwd=tmp_path, capture_output=True, check=True).stdout)[
        "counts"
    ]
    assert counts["leased"] == 0
    assert counts["done"] + counts["queued"] + counts["delayed"] == counts["added"] == PAGES
    items = [json.loads(line)["url"] for line in (tmp_path / "items.jsonl").read_text().splitlines()]
    assert len(items) == len(set(items)) == counts["done"] > 0
    assert set(items) <= set(urls)
