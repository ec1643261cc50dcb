"""A login by one worker is valid for all others, whichever process is killed."""

import random

import pytest
from cookie_site import urls
from crawling import at_moments, check_exact

pytestmark = pytest.mark.chaos

SETTINGS = {
    "robots": "no", "delay": 0, "concurrency_per_slot": 12, "concurrency": 4, "max_worker_crashes": 100,
}  # fmt: skip
SESSIONS = {"cookies": "shared", "sessions": '{"size": 5, "max_uses": 100000}'}


@pytest.mark.parametrize(
    ("victim", "moments", "settings"),
    [("worker", (20, 60, 100, 140), SESSIONS), ("worker", (20, 100), {}), ("all", (50, 120), {})],
    ids=["worker-sessions", "worker", "all"],
)
def test_no_page_behind_the_log_in_is_lost_or_duplicated(crawling, bounded_site, victim, moments, settings):
    site = bounded_site("cookie_site:CookieSite", delay=0.01)
    job = crawling("LoggedIn", workers=3, settings=SETTINGS | settings, arguments={"url": site.url})
    rng = random.Random(victim)
    job.start()
    kills = 0
    for _ in at_moments(job, site, moments):
        kills += job.kill_worker(rng) if victim == "worker" else job.kill_all()
        if victim == "all":
            job.start()
    assert job.wait() == 0, job.errors
    assert kills == len(moments)
    check_exact(job, urls(site))
