"""The specification of a job that is derived from the settings of a Scrapy project."""

import io

import msgspec
import pytest
import scrapy
from hypothesis import given
from hypothesis import strategies as st
from scrapy.exporters import CsvItemExporter
from scrapy.settings import Settings

from skitter.errors import UsageError
from skitter.run.loader import build_spider, check_spider
from skitter.scrapy.job import Feeds, ScrapyJob, job_spec, read_limits, take_feeds
from skitter.settings import build_settings
from skitter.store.formats import csv_chunks


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


class Slow(scrapy.Spider):
    download_delay = 3
    max_concurrent_requests = 2


def test_limits_in_attributes_of_a_spider_also_hold_for_its_subclasses():
    class Books(Slow):
        pass

    def limits_with(priority):
        settings = Settings()
        settings.set("DOWNLOAD_DELAY", 1, priority)
        limits = read_limits(settings, Books("books"))
        return limits.delay, limits.per_slot

    assert limits_with("project") == (3, 2)
    assert limits_with("spider") == limits_with("cmdline") == (1, 2)


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
    feeds = take_feeds(Settings({"FEEDS": FEEDS}), Books())
    assert feeds.outputs == ["a.jsonl", "b.csv?fields=x,y&cells=scrapy", "c.json"]
    assert feeds.replaced == ["b.csv?fields=x,y&cells=scrapy"]
    assert list(feeds.others) == list(FEEDS)[3:]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=3), inner, max_size=2),
        max_leaves=6,
    )
)  # fmt: skip
def test_cells_of_csv_feeds_are_those_of_scrapy(value):
    file = io.BytesIO()
    exporter = CsvItemExporter(file)
    exporter.export_item({"value": value, "other": ""})
    line = msgspec.json.encode({"value": value, "other": ""})
    assert b"".join(csv_chunks(lambda: [line], cells="scrapy")) == file.getvalue()


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
        ),
        Books(),
    )
    assert feeds.outputs == [
        f"a.jsonl?item_classes={__name__}.Kept,scrapy.item.Item", f"b.csv?fields=x&item_classes={__name__}.Kept&cells=scrapy", "c.json",
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
        ({"FEED_EXPORT_INDENT": 4}, False),
        ({"FEED_EXPORTERS": {"csv": "scrapy.exporters.CsvItemExporter", "json": f"{__name__}.Kept"}}, False),
        ({"FEED_EXPORTERS": {"csv": f"{__name__}.Kept"}}, True),
        ({"FEED_STORAGES": {"s3": f"{__name__}.Kept"}}, False),
        ({"FEED_STORAGES": {"file": f"{__name__}.Kept"}}, True),
    ],
)
def test_settings_of_all_feeds_decide_which_ones_scrapy_keeps(given, written_by_scrapy):
    feeds = take_feeds(Settings({"FEEDS": {"a.csv": {"format": "csv"}}, **given}), Books())
    assert (bool(feeds.others), bool(feeds.outputs)) == (written_by_scrapy, not written_by_scrapy)


def test_scrapy_keeps_json_with_indentation():
    feeds = {
        "a.json": {"format": "json"},
        "b.json": {"format": "json", "indent": 0},
        "c.jsonl": {"format": "jsonl"},
    }
    found = take_feeds(Settings({"FEEDS": feeds, "FEED_EXPORT_INDENT": 4}), Books())
    assert (list(found.others), found.outputs) == (["a.json"], ["b.json", "c.jsonl"])


def test_the_uri_of_a_feed_may_contain_attributes_of_the_spider():
    feeds = {
        "%(name)s/%(tag)s.jsonl": {"format": "jsonl", "overwrite": True}, "%(tag)s-%(time)s.jsonl": {"format": "jsonl"},
        "%(gone)s.jsonl": {"format": "jsonl"}, "a?.jsonl": {"format": "jsonl"},
    }  # fmt: skip
    found = take_feeds(Settings({"FEEDS": feeds}), Books(tag="new", time="noon"))
    assert found.outputs == found.replaced == ["my books/new.jsonl"]
    assert list(found.others) == list(feeds)[1:]
    own_names = take_feeds(Settings({"FEEDS": feeds, "FEED_URI_PARAMS": "shop.params"}), Books(tag="new"))
    assert list(own_names.others) == list(feeds)


def test_the_older_settings_of_one_feed_are_read():
    def feeds_of(uri, feed_format):
        return take_feeds(Settings({"FEED_URI": uri, "FEED_FORMAT": feed_format}), Books())

    assert feeds_of("a.csv", "csv") == Feeds(["a.csv?cells=scrapy"])
    assert list(feeds_of("a.xml", "xml").others) == ["a.xml"]


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
