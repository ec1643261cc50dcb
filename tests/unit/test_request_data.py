"""Request data in items, and meta keys in the identity of every request."""

import dataclasses

import pytest

from crawl_harness import CrawlHarness, Scripted
from skitter import Request, Spider
from skitter.errors import StoreError
from skitter.worker.pipeline import with_meta_fields

REQUEST = Request(
    "http://h.test/", meta={"task": "a", "name": "of the request"}, cb_kwargs={"page": 3, "task": "b"}
)


@dataclasses.dataclass
class Book:
    name: str


def test_the_named_values_are_added_and_no_field_of_the_item_is_overwritten():
    item = {"name": "own", "n": 1}
    found = with_meta_fields([item, {}], REQUEST, ("name", "page", "absent"))
    assert found == [{"name": "own", "n": 1, "page": 3}, {"name": "of the request", "page": 3}]
    assert list(found[0]) == ["name", "n", "page"]
    assert item == {"name": "own", "n": 1}  # the spider's own item is unchanged


def test_arguments_of_the_callback_win_over_meta_and_a_star_means_all():
    assert with_meta_fields([{}], REQUEST, ("*",)) == [{"task": "b", "name": "of the request", "page": 3}]


def test_an_item_of_a_class_becomes_a_dict_with_the_data():
    assert with_meta_fields([Book("x")], REQUEST, ("page",)) == [{"name": "x", "page": 3}]


def test_without_request_data_the_items_are_unchanged():
    book = Book("x")
    assert with_meta_fields([book], REQUEST, ("absent",))[0] is book


def test_an_item_that_cannot_be_stored_is_an_error():
    with pytest.raises(StoreError):
        with_meta_fields([Book(object())], REQUEST, ("page",))


class Tasks(Spider):
    tasks = ("a", "b")

    async def start(self):
        for task in self.tasks:
            yield Request(self.url, meta={"task": task})

    def before_save(self, response, items):
        items[0]["seen_by_hook"] = items[0].get("task")

    def parse(self, response):
        yield {"path": response.url.rpartition("/")[2]}
        yield response.follow_all("a", meta={"task": response.meta["task"]})


async def test_hooks_and_stores_see_the_data_and_each_task_has_its_own_pages(serve, tmp_path):
    site = Scripted({"/": ["/x", "/y"], "/x": ["/"], "/y": ["/x"]})
    spider = Tasks(url=serve(site).url)
    ran = await CrawlHarness(spider, tmp_path, item_meta_fields=["task"], fingerprint_keys=["task"]).run()
    expected = [
        {"path": path, "task": task, "seen_by_hook": task} for task in "ab" for path in ("", "x", "y")
    ]
    assert sorted(ran.items, key=lambda item: (item["task"], item["path"])) == expected
    assert site.counts == {"/": 2, "/x": 2, "/y": 2}


async def test_without_the_keys_a_page_is_fetched_for_the_first_task_alone(serve, tmp_path):
    site = Scripted({"/": ["/x"], "/x": []})
    ran = await CrawlHarness(Tasks(url=serve(site).url), tmp_path, item_meta_fields=["task"]).run()
    assert sorted(item["task"] for item in ran.items) == ["a", "a"]


async def test_a_link_that_lacks_a_key_fails_its_page_with_the_name_of_the_key(serve, tmp_path):
    class Forgetful(Tasks):
        def parse(self, response):
            yield response.follow_all("a")

    site = Scripted({"/": ["/x"], "/x": []})
    ran = await CrawlHarness(Forgetful(url=serve(site).url), tmp_path, fingerprint_keys=["task"]).run()
    assert "fingerprint key 'task'" in ran.letters["/"]
