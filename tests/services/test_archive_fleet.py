"""Archives of a fleet: each machine records what its workers receive."""

import threading
import uuid
from collections import Counter

from cli_command import skitter, truth_of
from services.redis_servers import running
from skitter.testing import GeneratedSite
from warc_files import of_kind, read_warc


def test_the_archives_of_two_machines_hold_each_response_once(serve, tmp_path):
    site = GeneratedSite(pages=120, links_per_page=12, page_bytes=2000)
    server = serve(site, delay=0.05)
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
    assert sum(recorded, Counter()) == Counter(truth_of(site, server))
