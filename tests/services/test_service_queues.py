"""Jobs of a service whose workers serve certain queues."""

from services.service_nodes import ServiceNode
from skitter.testing import Answer

SPIDER = """import os
from skitter import Spider

class Stages(Spider):
    start_urls = ["{url}"]

    def parse(self, response):
        yield {{"pid": os.getpid(), "queue": response.request.queue}}
        yield response.follow_all("a", queue="detail")
"""


def test_a_job_has_processes_for_its_queues_and_reports_unserved_queues(serve, tmp_path):
    url = serve(lambda visit: Answer(b"".join(b"<a href=/%d>x</a>" % n for n in range(20)))).url
    (tmp_path / "spiders").mkdir()
    (tmp_path / "spiders" / "stages.py").write_text(SPIDER.format(url=url))
    body = {"spider": "stages.py", "settings": {"robots": False, "delay": 0}}
    with ServiceNode(tmp_path / "one", "--spiders", str(tmp_path / "spiders")) as node:
        for wrong in ({"a b": 1}, {"a": -1}, {"a": 65}, {"a": 60, "b": 5}, {"a": "1"}, ["a"]):
            assert node.call("POST", "/jobs", {**body, "name": "wrong", "queues": wrong})[0] == 422, wrong
        node.done("POST", "/jobs", {**body, "name": "both", "queues": {"default": 1, "detail": 2}})
        job = node.wait_for("/jobs/both", lambda job: job["state"] == "finished", "the end")
        assert job["queues"] == {"default": 1, "detail": 2}
        items = node.done("GET", "/jobs/both/items?limit=100")["items"]
        processes = {
            queue: {one["pid"] for one in items if one["queue"] == queue} for queue in ("", "detail")
        }
        assert len(items) == 21
        assert len(processes[""]) == 1
        assert not processes[""] & processes["detail"]
        node.done("POST", "/jobs", {**body, "name": "half", "queues": {"default": 0}})
        job = node.wait_for("/jobs/half", lambda job: job.get("queues_without_workers"), "what nobody serves")
        assert job["queues_without_workers"] == {"detail": 20}
        assert job["fleet"][0]["report"]["queues"] == ["default"]
