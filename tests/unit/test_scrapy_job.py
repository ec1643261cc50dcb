"""The specification of a job that is derived from the settings of a Scrapy project."""

import pytest
import scrapy
from scrapy.settings import Settings

from skitter.errors import UsageError
from skitter.run.loader import build_spider, check_spider
from skitter.scrapy.job import Feeds, ScrapyJob, job_spec, read_limits, take_feeds
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
    assert (politeness.limits_of(slot).delay, politeness.limits_of(slot).concurrency_per_slot) == (4.0, 1)
    assert politeness.slot_of("xa.example") == "xa.example"
    assert politeness.limits_of("b.example").concurrency_per_slot == 3
    assert found.concurrency == 10


FEEDS = {
    "a.jsonl": {"format": "jsonlines"}, "b.csv": {"format": "csv", "fields": ["x", "y"], "overwrite": True}, "c.json": {"format": "json"},
    "d.xml": {"format": "xml"}, "s3://bucket/e.jsonl": {"format": "jsonlines"}, "f-%(time)s.jsonl": {"format": "jsonlines"},
    "g.jsonl": {"format": "jsonlines", "batch_item_count": 10}, "h.json": {"format": "json", "indent": 4}, "i.txt": {"format": "csv"},
    "j.csv": {"format": "csv", "encoding": "gb18030"}, "k.csv": {"format": "csv", "fields": {"x": "X"}},
}  # fmt: skip


def test_simple_feeds_become_outputs_and_scrapy_keeps_the_others():
    feeds = take_feeds(Settings({"FEEDS": FEEDS}))
    assert feeds.outputs == ["a.jsonl", "b.csv?fields=x,y", "c.json"]
    assert feeds.replaced == ["b.csv?fields=x,y"]
    assert list(feeds.others) == list(FEEDS)[3:]


class Kept:
    pass


def test_the_item_classes_of_a_feed_become_an_option_with_the_paths_of_their_modules():
    class Local:
        pass

    feeds = take_feeds(
        Settings(
            {
                "FEEDS": {
                    "a.jsonl": {"format": "jsonlines", "item_classes": (Kept, "scrapy.Item")},
                    "b.csv": {"format": "csv", "item_classes": [Kept], "fields": ["x"]},
                    "c.json": {"format": "json", "item_classes": ()},
                    "d.json": {"format": "json", "item_classes": [Local]},  # its path names no class
                    "e.json": {"format": "json", "item_classes": [Kept], "item_filter": "shop.Filter"},
                }
            }
        )
    )
    assert feeds.outputs == [
        f"a.jsonl?item_classes={__name__}.Kept,scrapy.item.Item", f"b.csv?fields=x&item_classes={__name__}.Kept", "c.json",
    ]  # fmt: skip
    assert list(feeds.others) == ["d.json", "e.json"]


@pytest.mark.parametrize(
    ("given", "written_by_scrapy"),
    [
        ({"FEED_EXPORT_ENCODING": "utf-8"}, False),
        ({"FEED_EXPORT_ENCODING": "utf-8-sig"}, True),
        ({"FEED_EXPORT_FIELDS": ["a", "b"]}, False),
        ({"FEED_EXPORT_FIELDS": {"a": "title"}}, True),
        ({"FEED_EXPORT_FIELDS": '{"a": "title"}'}, True),
    ],
)
def test_settings_of_all_feeds_decide_which_ones_scrapy_keeps(given, written_by_scrapy):
    feeds = take_feeds(Settings({"FEEDS": {"a.csv": {"format": "csv"}}, **given}))
    assert (bool(feeds.others), bool(feeds.outputs)) == (written_by_scrapy, not written_by_scrapy)


def test_the_older_settings_of_one_feed_are_read():
    assert take_feeds(Settings({"FEED_URI": "a.csv", "FEED_FORMAT": "csv"})) == Feeds(["a.csv"])
    assert list(take_feeds(Settings({"FEED_URI": "a.xml", "FEED_FORMAT": "xml"})).others) == ["a.xml"]


def spec_of(given, spider=None, arguments=None):
    spider = Books() if spider is None else spider
    return job_spec(
        Settings(given), spider, read_limits(Settings(), spider), Feeds(["feed.csv"]), arguments or {}
    )


def test_a_job_is_named_after_its_spider_unless_it_has_a_name():
    spec = spec_of({"SKITTER_OUTPUTS": "%(name)s.jsonl"})
    assert (spec.job, spec.outputs, spec.frontier) == ("my-books", ["my books.jsonl", "feed.csv"], "sqlite:")
    assert spec_of({"SKITTER_JOB": "one"}).job == "one"


def test_the_name_of_a_job_may_contain_attributes_of_the_spider():
    spider = Books(category="new & old")
    assert spec_of({"SKITTER_JOB": "%(name)s-%(category)s"}, spider).job == "my-books-new---old"
    with pytest.raises(UsageError, match="does not have: category"):
        spec_of({"SKITTER_JOB": "%(name)s-%(category)s"})


@pytest.mark.parametrize("name", ["start_urls", "monitors", "hooks", "scrapy_arguments"])
def test_arguments_of_the_spider_do_not_change_its_stand_in(name):
    spec = spec_of({}, arguments={name: "http://a.example/"})
    spider = build_spider(ScrapyJob, spec.arguments)
    check_spider(spider)
    assert spider.scrapy_spider == "my books"


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
        spec_of(given)
    assert error.value.field == field
