"""The specification of a job, from the settings of a Scrapy project."""

import pytest
import scrapy
from scrapy.settings import Settings

from skitter.errors import UsageError
from skitter.scrapy.job import job_spec, read_limits, take_feeds
from skitter.settings import build_settings


class Books(scrapy.Spider):
    name = "my books"


def limits_of(**given):
    settings = Settings(given)
    return read_limits(settings, Books()).to_settings()


@pytest.mark.parametrize(
    ("given", "delay", "jitter"),
    [
        ({}, 0.0, 0.0),
        ({"DOWNLOAD_DELAY": 2}, 1.0, 2.0),
        ({"DOWNLOAD_DELAY": 2, "RANDOMIZE_DOWNLOAD_DELAY": False}, 2.0, 0.0),
        ({"AUTOTHROTTLE_ENABLED": True}, None, 0.0),
        ({"AUTOTHROTTLE_ENABLED": True, "DOWNLOAD_DELAY": 2}, 1.0, 2.0),
    ],
)
def test_the_delay_of_a_project_is_that_of_the_frontier(given, delay, jitter):
    found = limits_of(**given)
    assert (found["delay"], found["jitter"]) == (delay, jitter)
    build_settings(found).politeness()


def test_slots_with_limits_of_their_own_become_rules():
    found = build_settings(
        limits_of(
            CONCURRENT_REQUESTS=10,
            CONCURRENT_REQUESTS_PER_DOMAIN=3,
            DOWNLOAD_SLOTS={"a.example": {"concurrency": 1, "delay": 4, "randomize_delay": False}},
        )
    )
    politeness = found.politeness()
    slot = politeness.slot_of("a.example")
    assert (politeness.policy_of(slot).delay, politeness.policy_of(slot).concurrency_per_slot) == (4.0, 1)
    assert politeness.slot_of("xa.example") == "xa.example"
    assert politeness.policy_of("b.example").concurrency_per_slot == 3
    assert found.concurrency == 10


FEEDS = {
    "a.jsonl": {"format": "jsonlines"}, "b.csv": {"format": "csv", "fields": ["x", "y"], "overwrite": True}, "c.json": {"format": "json"},
    "d.xml": {"format": "xml"}, "s3://bucket/e.jsonl": {"format": "jsonlines"}, "f-%(time)s.jsonl": {"format": "jsonlines"},
    "g.jsonl": {"format": "jsonlines", "batch_item_count": 10}, "h.json": {"format": "json", "indent": 4}, "i.txt": {"format": "csv"},
}  # fmt: skip


def test_simple_feeds_become_outputs_and_scrapy_keeps_the_others():
    outputs, others = take_feeds(Settings({"FEEDS": FEEDS}))
    assert outputs == ["a.jsonl", "b.csv?fields=x,y", "c.json"]
    assert list(others) == list(FEEDS)[3:]


def test_a_job_is_named_after_its_spider_unless_it_has_a_name():
    limits = read_limits(Settings(), Books())
    spec = job_spec(Settings({"SKITTER_OUTPUTS": "%(name)s.jsonl"}), "my books", limits, ["feed.csv"])
    assert (spec.job, spec.outputs, spec.frontier) == ("my-books", ["my books.jsonl", "feed.csv"], "sqlite:")
    assert job_spec(Settings({"SKITTER_JOB": "one"}), "my books", limits, []).job == "one"


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"SKITTER_OUTPUT": "a.jsonl"}, "SKITTER_OUTPUT"),
        ({"SKITTER_SETTINGS": {"user_agent": "x"}}, "SKITTER_SETTINGS"),
        ({"SKITTER_SETTINGS": {"changes": "all"}}, "SKITTER_SETTINGS"),
    ],
)
def test_a_setting_without_effect_is_refused_by_name(given, field):
    with pytest.raises(UsageError) as error:
        job_spec(Settings(given), "books", read_limits(Settings(), Books()), [])
    assert error.value.field == field
