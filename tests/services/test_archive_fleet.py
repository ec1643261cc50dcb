"""Archives of a fleet: each machine records what its workers receive."""

import threading
import time
import uuid
from collections import Counter

from cli_command import expected_urls, skitter
from services.redis_servers import running
from sites.gated import GatedSite
from skitter.testing import GeneratedSite
from warc_files import of_kind, read_warc


def test_the_archives_of_two_machines_hold_each_response_once(serve, tmp_path):
    site = GeneratedSite(pages=120, links_per_page=12, page_bytes=2000)
    gated_site = GatedSite(site, 30)
    server = serve(gated_site, delay=0.05)
    frontier, job, results = running("valkey").url, f"archive{uuid.uuid4().hex[:8]}", {}

    def machine(name):
        (tmp_path / name).mkdir()
        results[name] = skitter(
            "crawl", server.url, "--job", job, "--frontier", frontier, "--delay", 0, "--no-robots", "--quiet",
            "-o", "site.warc.gz", "--concurrency", 4, "--concurrency-per-slot", 8, cwd=tmp_path / name,
        )  # fmt: skip

    machines = [threading.Thread(target=machine, args=(name,)) for name in ("one", "two")]
    for thread in machines:
        thread.start()
    # Neither machine may finish the job before the other one has started.
    deadline = time.monotonic() + 90
    while not all((tmp_path / name / ".skitter" / job).exists() for name in ("one", "two")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    gated_site.released.set()
    for thread in machines:
        thread.join()
    assert [result.returncode for result in results.values()] == [0, 0], results
    recorded = [
        Counter(
            record.url
            for record in of_kind(read_warc((tmp_path / name / "site.warc.gz").read_bytes()), "response")
        )
        for name in ("one", "two")
    ]
    assert sum(recorded, Counter()) == Counter(expected_urls(site, server))
