"""Mistakes in spiders are reported where they are made, with what to write instead."""

import dataclasses
import datetime as dt
import decimal
import functools
import gc
import logging
import re
import sys
from inspect import getsourcelines, signature

import pytest
import scrapy

import skitter
from crawl_harness import CrawlHarness, Scripted
from skitter import JobSpec, LinkExtractor, Request, Response, Rule, Settings, SitemapSpider, Spider
from skitter.errors import SettingsError, SpiderError, StatusError, StoreError, UsageError
from skitter.foreign_names import (
    ATTRIBUTES,
    CRAWLEE_ARGUMENTS,
    CRAWLEE_MEMBERS,
    CRAWLEE_NAMES,
    CRAWLEE_SETTINGS,
    HOOKS,
    MEMBERS,
    META,
    NAMES,
    SCRAPY_REDIS_SETTINGS,
    SETTINGS,
    remedy_for,
    remedy_for_statement,
    unused_attributes,
)
from skitter.frontends.page_spider import PageSpider
from skitter.frontends.recipe.spider import RecipeSpider
from skitter.frontends.tasks.spider import TaskSpider
from skitter.html.selector import Selector
from skitter.item import encode_item
from skitter.run.builder import JobBuilder, RunOverrides
from skitter.run.crawl import Crawl
from skitter.run.loader import load_spider_class
from skitter.run.spider_warnings import (
    absent_meta_values,
    lost_results,
    misspelled_attributes,
    unused_arguments,
    warnings_about,
)
from skitter.settings import build_settings
from skitter.stats import Stats
from skitter.web.sitemap import SitemapEntry
from skitter.worker.callbacks import (
    CallbackNames,
    CallbackRunner,
    describe,
    describe_plain,
    run_callback,
    unsupported_result,
)
from skitter.worker.hooks import POINTS, Hooks


def built(tmp_path, **attributes):
    spider = type("Own", (Spider,), {"start_urls": ["http://h.test/"], **attributes})
    return JobBuilder(JobSpec(job="own", spider="-", home=str(tmp_path)), spider)


@pytest.mark.parametrize("name", ["start_urls", "allowed_domains", "outputs"])
def test_a_string_in_place_of_a_list_is_refused(tmp_path, name):
    with pytest.raises(SpiderError) as caught:
        built(tmp_path, **{name: "http://h.test/"})
    assert caught.value.field == name
    assert f"{name} = ['http://h.test/']" in caught.value.remedy


@pytest.mark.parametrize("extractor", ["/books/", None, LinkExtractor])
def test_a_rule_without_a_link_extractor_is_refused(extractor):
    with pytest.raises(UsageError, match="link_extractor of a rule is not a LinkExtractor") as caught:
        Rule(extractor, callback="parse_book")
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("attributes", "remedy"),
    [
        ({"start_urls": None}, "start_urls = [...]"),
        ({"start_urls": 5}, "start_urls = [...]"),
        ({"start_urls": [Request("http://h.test/")]}, "async def start"),
        ({"allowed_domains": None}, "allowed_domains = [...]"),
        ({"allowed_domains": [None]}, "use strings"),
        ({"custom_settings": None}, '{"concurrency": 16}'),
        ({"custom_settings": ["delay"]}, '{"concurrency": 16}'),
        ({"name": 5}, "make it a string"),
        ({"start": "http://h.test/"}, "make it a method"),
        ({"hooks": 5}, "hooks = [...]"),
        ({"monitors": {"items": 5}}, "monitors = [...]"),
        ({"streaming_callbacks": "parse_list"}, "streaming_callbacks = ['parse_list']"),
        ({"streaming_callbacks": ["parse_lits"]}, "correct the name"),
        ({"unscoped_callbacks": ["parse_lits"]}, "correct the name"),
        ({"rules": Rule(LinkExtractor())}, "rules = [Rule(...)]"),
        ({"rules": [LinkExtractor()]}, "rules = [Rule("),
    ],
    ids=str,
)
def test_an_attribute_of_the_wrong_type_is_refused_before_the_crawl(tmp_path, attributes, remedy):
    with pytest.raises(SpiderError) as caught:
        built(tmp_path, **attributes)
    (name,) = attributes
    assert caught.value.field == name
    assert name in str(caught.value)
    assert remedy in caught.value.remedy


class OfScrapy:
    def process_item(self, item):
        return item


class Misspelt:
    def on_start(self, worker):
        pass

    def befor_save(self, response, items):
        pass


class Saving:
    def before_save(self, response, items):
        pass

    def save(self, items):
        pass


class WithSpider:
    def before_request(self, request, spider):
        pass


class WithItem:
    async def before_save(self, item):
        pass


class OfPipeline:
    def before_save(self, item, spider):
        pass


class Swapped:
    def on_error(self, error, request):
        pass


class OfExtension:
    def on_start(self, spider):
        pass


class OneItem:
    def before_save(self, response, item):
        pass


class Renamed:
    def before_save(self, page, found):
        pass

    def on_error(self, request, failure):
        pass

    def on_start(self, own, spider=None):
        pass


class TakesAnything:
    def before_save(self, *arguments):
        pass

    def on_error(self, request, error, spider=None):
        pass


@pytest.mark.parametrize(
    ("hook", "problem", "remedy"),
    [
        (WithSpider(), "hook WithSpider.before_request takes the arguments (request, spider), and skitter passes (request)",
         "write def before_request(self, request)"),
        (WithItem(), "hook WithItem.before_save takes the arguments (item), and skitter passes (response, items)",
         "write def before_save(self, response, items)"),
        (OfPipeline(), "hook OfPipeline.before_save takes the arguments (item, spider), and skitter passes (response, items)",
         "write def before_save(self, response, items)"),
        (OneItem(), "hook OneItem.before_save takes the arguments (response, item), and skitter passes (response, items)",
         "write def before_save(self, response, items)"),
        (Swapped(), "hook Swapped.on_error takes the arguments (error, request), and skitter passes (request, error)",
         "write def on_error(self, request, error)"),
        (OfExtension(), "hook OfExtension.on_start takes the arguments (spider), and skitter passes (worker)",
         "write def on_start(self, worker)"),
    ],
)  # fmt: skip
def test_a_hook_that_takes_other_arguments_is_refused_before_the_crawl(tmp_path, hook, problem, remedy):
    with pytest.raises(SpiderError) as caught:
        built(tmp_path, hooks=[hook])
    assert str(caught.value).startswith(problem)
    assert caught.value.remedy == remedy
    built(tmp_path, hooks=[TakesAnything(), Renamed()])


def test_a_hook_of_the_spider_that_takes_other_arguments_is_refused_before_the_crawl(tmp_path):
    with pytest.raises(SpiderError, match=r"takes the arguments \(item\), and"):
        built(tmp_path, before_save=lambda self, item: item)


async def test_a_list_that_before_save_returns_is_answered_by_the_change_in_place():
    hooks = Hooks()
    hooks.register("before_save", lambda response, items: [*items, response])
    with pytest.raises(SpiderError) as caught:
        await hooks.run("before_save", None, [0])
    assert "items[:] = [...]" in caught.value.remedy


class OneArgument(Spider):
    def parse(self, response):
        pass

    def failed(self, failure):
        pass

    def swapped(self, error, request):
        pass


def test_an_errback_that_takes_a_failure_is_refused_where_it_is_named():
    spider = OneArgument()
    with pytest.raises(SpiderError) as caught:
        CallbackNames(spider).check(Request("http://h.test/", spider.parse, errback=spider.failed))
    assert str(caught.value).startswith(
        "errback OneArgument.failed takes the arguments (failure), and skitter passes (request, error)"
    )
    assert caught.value.remedy == "write def failed(self, request, error)"
    swapped = Request("http://h.test/", spider.parse, errback=spider.swapped)
    with pytest.raises(SpiderError, match=r"swapped takes the arguments \(error, request\)"):
        CallbackNames(spider).check(swapped)
    CallbackNames(spider).check(Request("http://h.test/", spider.failed))  # a callback has one argument


@pytest.mark.parametrize("errback", ["failed", OneArgument.failed])
def test_an_errback_of_a_rule_that_takes_a_failure_is_refused_before_the_crawl(tmp_path, errback):
    spider = type("Own", (OneArgument,), {"start_urls": ["http://h.test/"], "rules": [Rule(errback=errback)]})
    with pytest.raises(SpiderError, match=r"failed takes the arguments \(failure\)"):
        JobBuilder(JobSpec(job="own", spider="-", home=str(tmp_path)), spider)


class Static:
    @staticmethod
    def before_save(response, items):
        pass

    @classmethod
    def on_stop(cls, worker):
        pass


@pytest.mark.parametrize(
    ("hook", "problem", "remedy"),
    [
        (OfScrapy(), "an OfScrapy without a hook; skitter does not call process_item", "write before_save(self, "),
        (Misspelt(), "a Misspelt with the method befor_save", "did you mean before_save?"),
        ("hookbad:Hk", "a string: 'hookbad:Hk'", "write hooks = [Hk()]"),
        (Saving, "the class Saving instead of an object; before_save needs one", "write hooks = [Saving()]"),
        (OfScrapy, "the class OfScrapy without a hook", "write before_save"),
        (5, "an int without a hook: 5", "define one of before_request, "),
    ],
    ids=["for Scrapy", "misspelt", "a string", "a class", "a class for Scrapy", "a number"],
)  # fmt: skip
def test_a_hook_that_would_never_be_called_is_refused_before_the_crawl(tmp_path, hook, problem, remedy):
    for attributes, overrides in (({"hooks": [Saving(), hook]}, None), ({}, RunOverrides(hooks=[hook]))):
        spider = type("Own", (Spider,), {"start_urls": ["http://h.test/"], **attributes})
        with pytest.raises(SpiderError) as caught:
            JobBuilder(JobSpec(job="own", spider="-", home=str(tmp_path)), spider, overrides)
        assert caught.value.field == "hooks"
        assert problem in str(caught.value)
        assert remedy in caught.value.remedy


@pytest.mark.parametrize("hook", [Saving(), Static, Static()], ids=["object", "class", "static"])
def test_a_collection_with_a_hook_and_other_methods_is_accepted(tmp_path, hook):
    assert len(built(tmp_path, hooks=[hook]).hooks()["before_save"]) == 1


def test_every_hook_that_replaces_a_method_of_scrapy_exists():
    assert {hook.partition("(")[0] for hook in HOOKS.values()} <= set(POINTS)


def test_a_rule_with_a_misspelt_method_is_refused_before_the_crawl(tmp_path):
    rules = (Rule(LinkExtractor(), "parse_itme"),)
    with pytest.raises(SpiderError) as caught:
        built(tmp_path, rules=rules, parse_item=lambda self, response: None)
    assert caught.value.field == "rules"
    assert "parse_itme" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("DOWNLOAD_DELAY", "delay"),
        ("ITEM_PIPELINES", "before_save"),
        ("CLOSESPIDER_TIMEOUT", "time_limit"),
        ("BOT_NAME", "remove it"),
        ("CONCURRENCY", "concurrency?"),
        ("MAX_REQUESTS", "an attribute of the spider"),
        ("max_requests_per_crawl", "max_pages"),
        ("keep_alive", "wait_for_seeds"),
        ("REDIS_URL", "--frontier,"),
        ("MAX_IDLE_TIME_BEFORE_CLOSE", "wait_for_seeds,"),
    ],
)
def test_settings_of_scrapy_and_crawlee_are_translated(tmp_path, name, word):
    with pytest.raises(SettingsError) as caught:
        built(tmp_path, custom_settings={name: 1})
    assert caught.value.field == name
    assert word in caught.value.remedy.split()[1:] or word in caught.value.remedy


def test_every_translation_of_a_setting_names_one_that_exists():
    for remedy in (*SETTINGS.values(), *CRAWLEE_SETTINGS.values(), *SCRAPY_REDIS_SETTINGS.values()):
        if remedy.startswith("write ") and not remedy.startswith("write -o "):
            assert hasattr(Settings(), remedy.split()[1].partition("=")[0].rstrip(",")), remedy
    with pytest.raises(SettingsError):
        build_settings({"UNKNOWN_TO_ALL": 1})


class Ported(Spider):
    start_urls = ("http://127.0.0.1:9/",)
    redis_key = "x"
    max_idle_time = 60
    http_user = "ann"

    def process_item(self, item):
        return item

    def closed(self, reason):
        pass


def test_names_of_scrapy_that_are_never_used_are_known():
    assert [name for name, _ in unused_attributes(Ported)] == [
        "closed",
        "http_user",
        "max_idle_time",
        "process_item",
        "redis_key",
    ]
    with_settings = type("Own", (Spider,), {"settings": {"delay": 1}})
    assert [name for name, _ in unused_attributes(with_settings)] == ["settings"]
    calls_back = type(
        "Own", (Spider,), {"process_item": lambda self, response: None, "close": lambda self: None}
    )
    assert unused_attributes(calls_back) == []
    polite = type("Own", (Spider,), {"download_delay": 2, "close": staticmethod(lambda spider, reason: None)})
    assert [name for name, _ in unused_attributes(polite)] == ["close", "download_delay"]
    for own in (Spider, PageSpider, TaskSpider, RecipeSpider):
        assert unused_attributes(own) == []
    assert all(ATTRIBUTES.values())


class Misspelled(Spider):
    start_url = ("http://127.0.0.1:9/",)
    allowed_domain = ("127.0.0.1",)
    start_urls_file = "urls.txt"
    custom_setting = ("used below",)
    output = "x.jsonl"
    own = 1

    def on_starts(self, worker):
        pass

    def on_erorr(self, request, error):
        pass

    def parse(self, response):
        yield {"setting": self.custom_setting}
        yield response.follow("/next", callback="on_starts")


def wrapped(method):
    @functools.wraps(method)
    def call(*arguments):
        return method(*arguments)

    return call


def test_misspelled_attributes_are_found_unless_the_spider_uses_them():
    assert misspelled_attributes(Misspelled) == [
        ("allowed_domain", "did you mean allowed_domains? If not, rename it"),
        ("on_erorr", "did you mean on_error? If not, rename it"),
        ("start_url", "did you mean start_urls? If not, rename it"),
    ]

    class Using(Misspelled):
        @wrapped
        def parse(self, response):
            return self.allowed_domain, self.start_url

    assert [name for name, _ in misspelled_attributes(Using)] == ["on_erorr"]
    both = type("Both", (Misspelled,), {"allowed_domains": ["h.test"], "start_urls": [], "on_error": None})
    assert misspelled_attributes(both) == []
    for own in (Spider, PageSpider, TaskSpider, RecipeSpider, SitemapSpider):
        assert misspelled_attributes(own) == []


class Reading(Spider):
    def parse(self, response):
        yield {"depth": response.meta.get("depth", 0), "own": response.meta.get("own")}
        meta = response.meta
        yield from ({"name": name} for name in ("redirect_urls",) if meta.get("retry_times"))
        yield {"latency": response.meta["download_latency"]}


class Writing(Reading):
    def further(self, response):
        yield response.follow("/next", meta={"depth": response.meta.get("depth", 0) + 1})


class Storing(Reading):
    def further(self, response):
        request = response.follow("/next")
        request.meta["retry_times"] = 1
        yield request


class OfItsData(Spider):
    def parse(self, response):
        meta = response.json()["meta"]
        yield {"depth": meta.get("depth")}


class AnyName:
    """An object that has every attribute, as proxies of remote services do."""

    def __getattr__(self, name):
        return AnyName()


def test_a_spider_with_attributes_of_any_kind_can_be_checked():
    remote = type("Remote", (Spider,), {"api": AnyName(), "process_item": min, "close": AnyName()})
    assert warnings_about(remote(colour="x"), ["colour"]) == []  # this line names the argument


def test_a_name_that_is_a_property_is_kept():
    class Named(Spider):
        name = property(lambda self: "shop")

    assert Named().name == "shop"
    assert Spider("books").name == "books"


class TellsUserAgent(Spider):
    user_agent = "shop-bot"
    download_delay = 2

    def parse(self, response):
        yield response.follow("/next", headers={"User-Agent": self.user_agent})


def test_an_attribute_that_the_spider_uses_itself_gets_no_warning():
    [warning] = warnings_about(TellsUserAgent(), [])
    assert "download_delay" in warning


def test_values_of_scrapy_that_are_read_from_meta_by_get_are_found_unless_the_spider_sets_them():
    assert [name for name, _ in absent_meta_values(Reading())] == ["depth", "retry_times"]
    assert [name for name, _ in absent_meta_values(Writing())] == ["retry_times"]
    assert [name for name, _ in absent_meta_values(Storing())] == ["depth"]
    for own in (
        Spider(),
        PageSpider(start_urls=[]),
        OfItsData(),
        type("Own", (Reading,), {"own_meta": True})(),
    ):
        assert absent_meta_values(own) == []


TAKING = """
from functools import cached_property

from skitter import Spider

def language_of(spider):
    return spider.language

class Section:
    def on_start(self, worker):
        return worker.spider.section

class Taking(Spider):
    declared: str
    hooks = [Section()]

    def __init__(self, own="", **arguments):
        super().__init__(**arguments)

    def parse(self, response):
        yield [self.tag, self.topic]

    @cached_property
    def address(self):
        return self.city
"""


def test_an_argument_that_nothing_uses_is_found(tmp_path):
    (tmp_path / "taking.py").write_text(TAKING)
    taking = load_spider_class(str(tmp_path / "taking.py"))
    used = ["own", "declared", "start_urls", "custom_settings", "tag", "topic", "language", "section", "city"]
    spider = taking(**dict.fromkeys(used, "x"), start_url="x", colour="x")
    assert unused_arguments(spider, [*used, "start_url", "colour"]) == [
        ("start_url", "did you mean start_urls?"),
        ("colour", "check its name"),
    ]
    for reads_any in (
        lambda self, response: vars(self),
        lambda self, response: getattr(self, "col" + "our"),
        lambda self, response: f"{self.colour}",
    ):
        assert unused_arguments(type("Any", (taking,), {"parse": reads_any})(), ["colour"]) == []
    assert unused_arguments(PageSpider(start_urls=[]), ["colour"]) == []


class Losing(Spider):
    def parse(self, response):
        Request("http://h.test/")
        response.follow_all("a")
        response.follow("/a")
        self.items(response)
        if response.status == 404:
            return [{"lost": 1}]
        yield {}

    def items(self, page):
        page.follow("/a")
        yield {}
        return {"lost": 1}

    @wrapped
    def rows(self, response):
        for _ in ():
            return response.follow("/b")
        yield {}

    async def later(self, response):
        yield {}

    async def plain(self, response):
        self.later(response)
        self.items(response.selector)
        Request.form("http://h.test/", {})
        return [{}]


def drained(method):
    @functools.wraps(method)
    def call(*arguments):
        return [*method(*arguments)]

    return call


class Keeping(Spider):
    def parse(self, response):
        found = yield from self.helper(response)
        yield from self.helper(response)
        request = Request("http://h.test/")
        found.append(response.follow("/a"))
        self.plain(response)
        self.log("heard")
        self.unknown(response)
        yield request
        if found:
            return
        if response.status == 404:
            return []

    def follow(self, url):
        return url

    @drained
    def listed(self):
        yield {}

    def other(self, response):
        self.follow("/a")
        self.listed()
        return
        yield

    def helper(self, response):
        yield {}
        return [1]

    def plain(self, response):
        def inner():
            yield 1
            return [2]

        return [*inner()]


def test_results_that_are_not_yielded_are_found_with_their_lines():
    lines, first = getsourcelines(Losing)
    texts = {}
    for problem in lost_results(Losing):
        file, number, text = re.fullmatch(r"(\S+) line (\d+): (.+)", problem).groups()
        assert file == "test_user_mistakes.py"
        texts[lines[int(number) - first].strip()] = text
    assert {line: text.partition("; ")[2] for line, text in texts.items()} == {
        'Request("http://h.test/")': "write yield Request(...)",
        'response.follow_all("a")': "write yield response.follow_all(...)",
        'response.follow("/a")': "write yield response.follow(...)",
        'page.follow("/a")': "write yield page.follow(...)",
        "self.items(response)": "write yield from self.items(...)",
        "self.later(response)": "write async for result in self.later(...): yield result",
        "self.items(response.selector)": "write for result in self.items(...): yield result",
        'Request.form("http://h.test/", {})': "write yield Request.form(...)",
        'return [{"lost": 1}]': "write yield from in place of return",
        'return {"lost": 1}': "write yield in place of return",
        'return response.follow("/b")': "write yield in place of return",
    }
    for own in (Keeping, Spider, PageSpider, TaskSpider, RecipeSpider, type("NoFile", (Spider,), {})):
        assert lost_results(own) == []


PAGE = Response("http://h.test/", body=b"<form></form>", request=Request("http://h.test/"))


async def await_a_request():
    await PAGE.follow("/a")


@pytest.mark.parametrize(
    ("statement", "remedy"),
    [
        ("from skitter import CrawlSpider", "write Spider, with the same rules"),
        ("skitter.FormRequest('http://h.test/')", "Request.form(url"),
        ("skitter.Item", "write a dataclass"),
        ("skitter.Request('http://h.test/', formdata={'a': 1})", "Request.form(url, {...})"),
        ("page.follow('/a', formdata={'a': 1})", "Request.form(url, {...})"),
        ("skitter.Request.form('http://h.test/', formdata={'a': 1})", "Request.form(url, {...})"),
        ("page.headers.getlist('Set-Cookie')", "getall"),
        ("page.ip_address", "write response.ip"),
        ("Ported().crawler.stats", "self.stats"),
        ("Ported().settings", "__init__ runs before"),
        ("skitter.Settings().getint('RETRY_TIMES')", "settings are attributes"),
        ("page.push_data({})", "yield the item"),
        ("page.request.user_data", "write meta"),
        ("page.request.retry_count", "read request.retries"),
        ("page.meta['retry_times']", "read response.request.retries"),
        ("skitter.Request('http://h.test/', label='BOOK')", "write callback=self.METHOD"),
        ("page.follow_all(selector='a')", "write css"),
        ("page.follow_all('a', include='/x')", "write allow"),
        ("raise CloseSpider('enough')", "return HookAction.STOP"),
        ("from scrapy.exceptions import CloseSpider; raise CloseSpider('enough')", "return HookAction.STOP"),
        ("scrapy.Request('http://h.test/')", "import Request"),
        ("from skitter.linkextractors import LinkExtractor", "from skitter import LinkExtractor"),
        ("from skitter.spiders import CrawlSpider, Rule", "from skitter import Rule"),
        ("from skitter.item import Item", "write a dataclass"),
        ("str(page.headers).decode()", "remove .decode()"),
        ("page.body_as_unicode()", "response.text"),
        ("page.request.priority = 3", "request.replace"),
        ("skitter.Request.from_curl('curl http://h.test/')", "write Request(url"),
        ("from scrapy.loader import ItemLoader; ItemLoader(response=page)", "from itemloaders"),
        (
            "from itemloaders import ItemLoader; ItemLoader(response=page).add_css('a', 'p')",
            "selector=response.selector",
        ),
        ("ItemAdapter({})", "from itemadapter"),
        ("get_project_settings()", "JobSpec(settings={...})"),
        ("from skitter import PlaywrightCrawler", "fetcher='browser'"),
        ("skitter.KeyValueStore", "file_urls"),
        ("Glob('http://h.test/**')", "write a regular expression"),
        ("page.meta['redirect_urls']", "response.request.redirects"),
        ("page.meta['download_latency']", "response.meta['http_trace']"),
        ("StatusError(404, page).check(ValueError)", "write isinstance(error, "),
        ("StatusError(404, page).value.response", "write error in place of failure.value"),
        ("ValueError().request", "first argument"),
        ("super(Ported, Ported()).start_requests()", "yield Request(url)"),
        ("skitter.Selector(page)", "write response.selector"),
        ("skitter.Selector(text='<a/>', type='xml')", "import Selector from parsel"),
        ("skitter.Selector(response=page)", "write response.selector"),
        ("skitter.Crawl({'USER_AGENT': 'x'})", "JobSpec(job=NAME"),
        ("from skitter.crawler import CrawlerProcess", "skitter.iter_items"),
        ("from skitter.spidermiddlewares.httperror import HttpError", "hooks"),
        ("from skitter import HttpError", "from skitter.errors import StatusError"),
        ("from skitter.pipelines.images import ImagesPipeline", "files_store"),
        ("from skitter import TakeFirst", "itemloaders.processors"),
        ("Ported().crawler.engine.download", "with a second callback"),
        ("Ported().state['count']", "in meta or cb_kwargs"),
        ("page.form({}, formid='login')", "css='#ID'"),
        ("page.form({}, clickdata={'name': 'go'})", "click='[name=NAME]'"),
        ("page.request.value", "failed(self, request, error)"),
        ("SitemapEntry('http://h.test/')['lastmod']", "entry.lastmod"),
        ("SitemapEntry('http://h.test/').get('lastmod')", "entry.lastmod"),
        ("coroutine().send(None)", "with a second callback"),
    ],
)
def test_an_error_about_a_name_of_scrapy_or_crawlee_says_what_to_write_instead(statement, remedy):
    names = {"skitter": skitter, "page": PAGE, "coroutine": await_a_request}
    names |= {kind.__name__: kind for kind in (Ported, SitemapEntry, StatusError)}
    with pytest.raises(Exception) as caught:
        exec(statement, names)
    assert remedy in describe(caught.value)
    if remedy_for(caught.value) is not None:  # other errors carry their remedy
        assert remedy not in describe_plain(caught.value)


@pytest.mark.parametrize(
    ("statement", "remedy"),
    [
        ("from scrapy.loader import ItemLoader", "itemloaders"),
        ("from scrapy.exceptions import (CloseSpider, DropItem)", "HookAction.STOP"),
        ("from scrapy.linkextractors import LinkExtractor", "from skitter import LinkExtractor"),
        ("from scrapy.spiders.crawl import CrawlSpider, Rule", "with the same rules"),
        ("from scrapy.utils.project import nothing_known", "self.settings"),
        ("import scrapy.signals", "hooks"),
        ("from scrapy_redis.spiders import RedisSpider", "seed_keys"),
    ],
)
def test_an_import_of_scrapy_says_what_to_import_instead(statement, remedy):
    assert remedy in remedy_for_statement(statement)


@pytest.mark.parametrize(
    "statement", ["import scrapy", "from scrapy import nothing_known", "import lxml", ""]
)
def test_another_import_has_no_such_remedy(statement):
    assert remedy_for_statement(statement) is None


def test_without_scrapy_the_error_about_its_import_says_what_to_import(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "scrapy", None)  # as if it were not installed
    monkeypatch.delitem(sys.modules, "scrapy.loader", raising=False)
    (tmp_path / "ported.py").write_text("from scrapy.loader import ItemLoader\n")
    (tmp_path / "shared.py").write_text("from scrapy_redis.spiders import RedisSpider\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in (str(tmp_path / "ported.py"), "ported:Own"):
        with pytest.raises(SpiderError) as caught:
            load_spider_class(name)
        assert "import it from itemloaders" in caught.value.remedy
    with pytest.raises(SpiderError) as caught:
        load_spider_class(str(tmp_path / "shared.py"))
    assert "write Spider, with the setting seed_keys" in caught.value.remedy


def test_all_unknown_settings_are_named_at_once():
    with pytest.raises(SettingsError) as caught:
        build_settings({"DOWNLOAD_DELAY": 1, "delay": 1}, {"OWN_KEY": "x"})
    assert "'DOWNLOAD_DELAY', 'OWN_KEY'" in str(caught.value)
    assert caught.value.remedy.startswith("DOWNLOAD_DELAY: write delay; OWN_KEY: remove it")


def test_the_name_of_a_spider_may_be_its_first_argument():
    class Named(Spider):
        def __init__(self, name=None, **arguments):
            super().__init__(name, **arguments)

    assert (Named().name, Named("own").name, Named(name="own", city="x").city) == ("named", "own", "x")


@pytest.mark.parametrize(
    "statement",
    [
        "skitter.Spyder",
        "skitter.Request('http://h.test/', formdatum=1)",
        "len(5)",
        "from skitter import Spyder",
        "page.bodi",
        "None.copy",
        "{}['proxy']",
        "raise KeyError",
        "import nothing_here",
        "import skitter.nothing_here",
        "nothing_here",
        "'text'.dekode()",
        "page.request.__class__.from_kurl",
        "from scrapy.exceptions import NotSupported; raise NotSupported",
        "skitter.Request('http://h.test/', labl='BOOK')",
    ],
)
def test_other_names_have_no_such_remedy(statement):
    with pytest.raises(Exception) as caught:
        exec(statement, {"skitter": skitter, "page": PAGE})
    assert remedy_for(caught.value) is None


def test_the_names_of_scrapy_are_those_that_skitter_lacks():
    assert {*NAMES, *CRAWLEE_NAMES}.isdisjoint(skitter.__all__)
    owners = {"Request": Request, "Response": Response, "SitemapEntry": SitemapEntry, "Spider": Spider, "Stats": Stats,
              "CIMultiDictProxy": type(PAGE.headers), "str": str, "super": super, "Exception": StatusError}  # fmt: skip
    assert MEMBERS.keys() == owners.keys()
    for owner, names in (*MEMBERS.items(), *CRAWLEE_MEMBERS.items()):
        assert [name for name in names if hasattr(owners[owner], name)] == []
    arguments = {*signature(Response.follow_all).parameters, *Request.__struct_fields__}
    assert arguments.isdisjoint(CRAWLEE_ARGUMENTS)
    assert CRAWLEE_SETTINGS.keys().isdisjoint(Settings.__struct_fields__)


async def test_names_of_scrapy_are_pointed_out_when_a_run_begins(tmp_path, caplog, serve):
    server = serve(Scripted({"/": []}))
    logging.getLogger("skitter").propagate = True
    spec = JobSpec(job="ported", spider="-", home=str(tmp_path), frontier="memory:", settings={"robots": False},
                   outputs=[str(tmp_path / "x.jsonl")])  # fmt: skip

    class Here(Ported):
        start_urls = (server.url,)

        def parse(self, response):
            return {"url": response.url}

    with caplog.at_level(logging.WARNING, "skitter"):
        await Crawl(spec, spider_class=Here).run()
    text = caplog.text
    assert all(name in text for name in ("closed", "on_stop", "redis_key", "seed_keys"))


async def crawled(serve, tmp_path, parse, **attributes):
    server = serve(Scripted({"/": ["/a", "/b"], "/a": [], "/b": []}))
    spider = type("Own", (Spider,), {"start_urls": [server.url], "parse": parse, **attributes})
    return await CrawlHarness(spider, tmp_path).run()


async def test_a_relative_url_in_a_request_is_an_error_with_the_remedy(serve, tmp_path):
    for url in ("/a", "a", "h.test/a", ""):

        def parse(self, response, url=url):
            yield Request(url)

        ran = await crawled(serve, tmp_path, parse)
        assert "callback: RequestError" in ran.letters["/"]
        assert repr(url) in ran.letters["/"]
    ran = await crawled(serve, tmp_path, lambda self, response: [Request("mailto:x@y"), Request("http://[")])
    assert ran.letters == {}
    assert (ran.counters["refused/scheme"], ran.counters["refused/unparsable"]) == (1, 1)


class Helper:
    def parse_page(self, response):
        yield {"of": "helper"}

    @staticmethod
    def parse_static(response):
        yield {"of": "helper"}


def nested():
    def parse_page(response):
        yield {"of": "function"}

    return parse_page


def logged(method):
    @functools.wraps(method)
    def wrapper(*arguments):
        return method(*arguments)

    return wrapper


class Base(Spider):
    def parse(self, response):
        yield from self.requests(response)

    def parse_page(self, response):
        yield {"of": "base"}

    @staticmethod
    def parse_static(response):
        yield {"of": "static"}

    @classmethod
    def parse_class(cls, response):
        yield {"of": cls.__name__}

    @logged
    def parse_wrapped(self, response):
        yield {"of": "wrapped"}

    @functools.singledispatchmethod
    def parse_any(self, response):
        yield {"of": "any"}

    parse_other = parse_page


class Sub(Base):
    def parse_page(self, response):
        yield {"of": "sub"}


FOREIGN = {
    "method": lambda self: Helper().parse_page,
    "nested": lambda self: nested(),
    "static": lambda self: Helper.parse_static,
    "super": lambda self: super(Sub, self).parse_page,
    "spider": lambda self: Sub().parse_page,
    "alias": lambda self: self.parse_other,
    "partial": lambda self: functools.update_wrapper(functools.partial(self.parse_page), self.parse_page),
}


@pytest.mark.parametrize("foreign", FOREIGN.values(), ids=FOREIGN)
async def test_a_callback_of_another_object_is_not_replaced_by_the_method_with_its_name(
    serve, tmp_path, foreign
):
    forms = (
        lambda self, response, callback: [Request(f"{response.url}a", callback)],
        lambda self, response, callback: [Request(f"{response.url}a", errback=callback)],
        lambda self, response, callback: [Request(f"{response.url}a", callback, method="POST")],
        lambda self, response, callback: [Request(f"{response.url}a", callback).replace(priority=1)],
        lambda self, response, callback: [response.follow("/a", callback)],
        lambda self, response, callback: [response.follow_all("a", callback)],
        # The second request is in the batch of the first one.
        lambda self, response, callback: [
            response.follow(
                "/a", self.parse_static if callback.__name__ == "parse_static" else self.parse_page
            ),
            response.follow("/b", callback),
        ],
    )
    for number, form in enumerate(forms):
        server = serve(Scripted({"/": ["/a", "/b"], "/a": [], "/b": []}))

        class Own(Sub):
            start_urls = (server.url,)

            def requests(self, response, form=form):
                return form(self, response, foreign(self))

        ran = await CrawlHarness(Own, tmp_path / str(number)).run()
        assert ran.items == []
        assert "is not the method 'parse_" in ran.letters["/"]
        assert "pass a method of the spider, such as self.parse_" in ran.letters["/"]


async def test_every_kind_of_method_of_the_spider_can_be_passed_as_a_callback(serve, tmp_path):
    server = serve(Scripted({"/": [], **{f"/{number}": [] for number in range(8)}}))

    class Own(Sub):
        start_urls = (server.url,)

        def requests(self, response):
            methods = (self.parse_page, self.parse_static, self.parse_class, self.parse_wrapped, self.parse_any,
                       Sub.parse_page, Base.parse_class, Base.parse_page)  # fmt: skip
            for number, method in enumerate(methods):
                yield response.follow(f"/{number}", method)

    ran = await CrawlHarness(Own, tmp_path).run()
    assert ran.letters == {}
    assert sorted(item["of"] for item in ran.items) == sorted(
        ["sub", "static", "Own", "wrapped", "any", "sub", "Own", "sub"]
    )


async def test_a_start_request_and_a_rule_with_a_callback_of_another_object_are_refused(serve, tmp_path):
    server = serve(Scripted({"/": []}))

    class Own(Sub):
        async def start(self):
            yield Request(server.url, Helper().parse_page)

    ran = await CrawlHarness(Own, tmp_path).run()
    assert "callback Helper.parse_page is not the method 'parse_page'" in str(ran.failure)
    with pytest.raises(SpiderError, match=r"callback Helper\.parse_page is not the method"):
        JobBuilder(
            JobSpec(job="own", spider="-", home=str(tmp_path)),
            type("Ruled", (Sub,), {"rules": [Rule(LinkExtractor(), Helper().parse_page, follow=True)]}),
        )


def test_a_rule_of_a_base_class_stands_for_the_method_that_overrides_it(tmp_path):
    ruled = type("Ruled", (Sub,), {"rules": [Rule(LinkExtractor(), Base.parse_page)]})
    JobBuilder(JobSpec(job="own", spider="-", home=str(tmp_path)), ruled)


@pytest.mark.parametrize("query", ["a::text", "a"])
async def test_a_selector_that_is_yielded_is_named(serve, tmp_path, query):
    for parse in (
        lambda self, response: iter([response.css(query)]),
        lambda self, response: iter([response.css(query)[0]]),
        lambda self, response: response.css(query)[0],
    ):
        ran = await crawled(serve, tmp_path, parse)
        assert "SpiderError" in ran.letters["/"]
    with pytest.raises(SpiderError) as caught:
        await run_callback(lambda: Selector("<a>x").css("a")[0])
    assert ".get()" in caught.value.remedy
    with pytest.raises(SpiderError) as caught:
        await run_callback(lambda: "http://h.test/")
    assert "response.follow" in caught.value.remedy


async def test_a_request_of_scrapy_and_a_coroutine_are_named_with_what_to_write(recwarn):
    async def later():
        return {}

    async def one_by_one():
        yield {}

    for result, remedy in (
        (scrapy.Request("http://h.test/"), "from skitter import Request"),
        (scrapy.FormRequest("http://h.test/"), "Request.form(url"),
        (later(), "await it"),
        (one_by_one(), "async for"),
    ):
        assert remedy in unsupported_result(result).remedy
    gc.collect()
    assert [str(warning.message) for warning in recwarn] == []


def test_a_selector_in_an_item_is_named_with_its_field():
    with pytest.raises(StoreError) as caught:
        encode_item({"title": {"x": Selector("<a>x").css("a::text")}})
    assert "title.x" in str(caught.value)
    assert ".get()" in str(caught.value)


async def test_results_before_an_exception_of_a_callback_are_dropped_and_counted(serve, tmp_path):
    def parse(self, response):
        yield {"a": 1}
        yield response.follow_all("a")
        yield response.follow("/c")
        raise ValueError("broken")

    ran = await crawled(serve, tmp_path, parse)
    assert ran.items == []
    assert list(ran.letters) == ["/"]
    assert ran.letters["/"].endswith("; 3 links and 1 item that it had yielded were dropped")
    assert ran.counters.get("links", 0) == 0

    with pytest.raises(ValueError, match="broken") as caught:
        await run_callback(lambda: (_ for _ in ()).throw(ValueError("broken")))
    assert "dropped" not in describe(caught.value)


async def test_an_error_names_the_line_of_the_spider_and_not_that_of_a_library(serve, tmp_path):
    ran = await crawled(serve, tmp_path, lambda self, response: response.json())
    assert "test_user_mistakes.py" in ran.letters["/"]
    assert f"is not JSON (text/html; charset=utf-8): {'<'!r}"[:-1] in ran.letters["/"]
    ran = await crawled(serve, tmp_path, lambda self: {})
    assert "TypeError" in ran.letters["/"]
    assert "callbacks.py" not in ran.letters["/"]


@pytest.mark.parametrize(
    ("result", "remedy"),
    [
        (lambda response: [[{"a": 1}]], "yield from"),
        (lambda response: response.css("a").strip(), "use get() or getall()"),
        (lambda response: response.css("a").attribute_on_page("a", "href"), "a single selector"),
        (lambda response: [response.follow("/a", (name for name in ()))], "pass the method: self.<genexpr>"),
        (lambda response: [Request(response.css("nothing").get())], "check the query that selects it"),
        (lambda response: [Request(b"http://h.test/")], "not a string"),
        (lambda response: [response.follow_all("/a")], "follow_all([url, ...])"),
        (lambda response: [response.follow(response.css("a"))], "response.follow_all(...)"),
        (lambda response: response.css("//a/@href"), "written in XPath"),
        (lambda response: response.css("a/@href"), "written in XPath"),
        (lambda response: response.css("a[href='/x'"), "correct the query"),
        (lambda response: response.xpath("h1::text"), "written in CSS"),
        (lambda response: response.xpath(".price"), "written in CSS"),
        (lambda response: response.xpath("//a["), "correct the query"),
    ],
)
async def test_a_mistake_with_results_and_selectors_is_answered_with_what_to_write(
    serve, tmp_path, result, remedy
):
    ran = await crawled(serve, tmp_path, lambda self, response: result(response))
    assert remedy in ran.letters["/"]


async def test_a_callback_that_blocks_for_long_is_named_once(serve, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("skitter.worker.pipeline._LONG_CALLBACK", -1.0)

    def parse(self, response):
        yield response.follow_all("a")

    async def waiting(self, response):
        return response.follow_all("a")

    with caplog.at_level(logging.WARNING, "skitter"):
        await crawled(serve, tmp_path, parse)
        assert caplog.text.count("set callback_threads") == 1
        caplog.clear()
        await crawled(serve, tmp_path, waiting)
        await crawled(serve, tmp_path, parse, custom_settings={"callback_threads": 2})
    assert "callback_threads" not in caplog.text


def test_a_setting_that_is_read_by_the_name_of_scrapy_is_answered_with_ours():
    with pytest.raises(AttributeError, match="'DOWNLOAD_DELAY'; write delay"):
        _ = Settings().DOWNLOAD_DELAY
    with pytest.raises(AttributeError, match="'get'; settings are attributes"):
        Settings().get("DOWNLOAD_DELAY")


async def test_log_logger_and_settings_are_as_in_scrapy(serve, tmp_path, caplog):
    def parse(self, response):
        self.log("heard", logging.WARNING)
        yield {"limit": self.settings.max_retries}

    with caplog.at_level(logging.WARNING):
        ran = await crawled(serve, tmp_path, parse, custom_settings={"max_retries": 7})
    assert ran.items == [{"limit": 7}]
    assert "heard" in caplog.text


KEYS_OF_SCRAPY = {
    "cookiejar": 1,
    "handle_httpstatus_list": [404],
    "playwright": True,
    "own": 1,
    "dont_retry": False,
}


async def test_a_key_of_meta_that_only_scrapy_uses_is_pointed_out_once(serve, tmp_path, caplog):
    logging.getLogger("skitter").propagate = True

    def parse(self, response):
        yield response.follow_all("a", meta=KEYS_OF_SCRAPY)

    with caplog.at_level(logging.WARNING):
        await crawled(serve, tmp_path, parse)
    assert sorted(re.findall(r"does not use meta\['(\w+)'\]", caplog.text)) == [
        "cookiejar",
        "handle_httpstatus_list",
        "playwright",
    ]
    assert "write Request(session='NAME')" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        await crawled(serve, tmp_path / "own", parse, own_meta=True)
        await crawled(
            serve,
            tmp_path / "used",
            parse,
            custom_settings={
                "item_meta_fields": ("playwright", "handle_httpstatus_list"),
                "group_key": "cookiejar",
            },
        )
    assert "does not use meta" not in caplog.text


@pytest.mark.parametrize(
    ("cookies", "settings", "count"),
    [({}, {}, 1), ({"sid": "1"}, {}, 0), ({}, {"cookies": "none"}, 0)],
    ids=["lost", "passed on", "only those of requests"],
)
async def test_cookies_that_are_not_passed_on_are_pointed_out_once(
    serve, tmp_path, caplog, cookies, settings, count
):
    logging.getLogger("skitter").propagate = True

    def parse(self, response):
        yield Request(f"{response.url}a", cookies={"sid": "1"}, callback="logged_in")

    def logged_in(self, response):
        yield Request("http://127.0.0.1:1/of-another-site", max_retries=0)
        yield response.follow_all(["/b", "/c"], callback="ignore", cookies=cookies)
        yield response.follow("/d", callback="ignore", cookies=cookies)

    attributes = {"logged_in": logged_in, "ignore": lambda self, response: None}
    with caplog.at_level(logging.WARNING):
        await crawled(serve, tmp_path, parse, custom_settings=settings, **attributes)
    assert caplog.text.count("pass them with cookies=response.request.cookies") == count


@dataclasses.dataclass
class Photo:
    image_urls: list[str]


@pytest.mark.parametrize("item", [{"image_urls": ["/1.png"]}, Photo(["/1.png"])], ids=["dict", "dataclass"])
async def test_files_that_are_not_downloaded_are_pointed_out_once(serve, tmp_path, caplog, item):
    def parse(self, response):
        yield item
        yield response.follow_all("a")

    with caplog.at_level(logging.WARNING):
        await crawled(serve, tmp_path, parse)
    assert (
        caplog.text.count("the files in the field image_urls of items are not downloaded; set files_store")
        == 1
    )


@pytest.mark.parametrize(
    ("item", "settings"),
    [
        ({"file_urls": "/1.png"}, {"files_fields": {}}),
        ({"file_urls": "/1.png"}, {"files_store": "kept"}),
        ({"file_urls": []}, {}),
        ({"url": "/1.png"}, {}),
    ],
    ids=["no fields", "stored", "no file", "no such field"],
)
async def test_files_are_not_mentioned_without_need(serve, tmp_path, caplog, monkeypatch, item, settings):
    monkeypatch.chdir(tmp_path)
    with caplog.at_level(logging.WARNING):
        await crawled(serve, tmp_path, lambda self, response: item, custom_settings=settings)
    assert "files_store" not in caplog.text


class Proxying:
    def __init__(self, point):
        setattr(self, point, lambda request: request.replace(meta={"proxy": "http://127.0.0.1:9"}))


@pytest.mark.parametrize(
    "attributes",
    [
        {"start": lambda self: each(Request(self.start_urls[0], meta={"proxy": "http://127.0.0.1:9"}))},
        {"hooks": [Proxying("before_request")]},
        {"hooks": [Proxying("before_send")]},
    ],
    ids=["start", "before_request", "before_send"],
)
async def test_a_proxy_in_meta_is_refused_before_the_request_is_sent(serve, tmp_path, attributes):
    site = Scripted({"/": []})
    server = serve(site)
    spider = type(
        "Own", (Spider,), {"start_urls": [server.url], "parse": lambda self, response: {}, **attributes}
    )
    ran = await CrawlHarness(spider, tmp_path).run()
    assert ran.items == []
    assert "RequestError: skitter does not use meta['proxy']" in ran.letters["/"]
    assert "write Request(proxy=...)" in ran.letters["/"]
    assert site.visits == []


async def each(request):
    yield request


def test_every_remedy_for_a_key_of_meta_names_what_exists():
    for remedy in META.values():
        if field := re.search(r"Request\((\w+)=", remedy):
            assert field[1] in Request.__struct_fields__
        if setting := re.search(r"setting (\w+)", remedy):
            assert setting[1] in Settings.__struct_fields__


def test_a_response_with_a_text_as_its_body_is_refused_at_once():
    with pytest.raises(UsageError, match="must be bytes") as caught:
        Response("http://h.test/", body="text")
    assert caught.value.remedy == "write body=text.encode()"


def test_a_class_within_a_function_is_named_as_the_cause(tmp_path):
    class Local(Spider):
        start_urls = ("http://h.test/",)

    spec = JobSpec(job="own", spider=Local, home=str(tmp_path))
    with pytest.raises(SpiderError, match=r"Local is a class within a function") as caught:
        JobBuilder(spec)
    assert "spider_class=" in caught.value.remedy
    assert isinstance(JobBuilder(spec, Local).spider, Local)


def test_an_argument_that_is_an_object_is_refused_by_its_name(tmp_path):
    spec = JobSpec(job="own", spider="", home=str(tmp_path), arguments={"on_item": print})
    with pytest.raises(UsageError, match="argument on_item cannot be stored with the job") as caught:
        JobBuilder(spec, Ported)
    assert "attribute of the spider class" in caught.value.remedy


@pytest.mark.parametrize(
    "value",
    [
        dt.date(2026, 1, 2),
        [dt.datetime(2026, 1, 2, tzinfo=dt.UTC)],
        {"a": decimal.Decimal("1.10")},
        {1},
        b"x",
        {1: 2},
    ],
)
def test_an_argument_that_worker_processes_would_receive_as_another_value_is_refused(tmp_path, value):
    arguments = {"kinds": ("new", ["a", ("b",)]), "rates": {"a": (1.5, None)}, "since": value}

    def spec(workers, arguments):
        return JobSpec(job="own", spider="", home=str(tmp_path), workers=workers, arguments=arguments)

    assert JobBuilder(spec(1, arguments), Ported).spider.since == value
    with pytest.raises(UsageError, match=f"argument since is a {type(value).__name__}.*receive as") as caught:
        JobBuilder(spec(2, arguments), Ported)
    assert caught.value.field == "since"
    del arguments["since"]
    assert JobBuilder(spec(2, arguments), Ported).spider.kinds == ("new", ["a", ("b",)])


@pytest.mark.parametrize(("method", "remedy"), [("parse_row", "csv_rows"), ("parse_node", "response.feed")])
def test_a_spider_for_feeds_of_scrapy_learns_what_to_call_in_parse(method, remedy):
    feed = type("Feed", (Spider,), {method: lambda self, response, part: part})()
    with pytest.raises(SpiderError, match="has no callback 'parse'") as caught:
        CallbackRunner().find(feed, None)
    assert remedy in caught.value.remedy


def test_a_setting_of_objects_is_explained_by_an_example():
    for name in ("limit_rules", "queues"):
        with pytest.raises(SettingsError) as caught:
            build_settings({name: "x"})
        example = caught.value.remedy.partition("such as ")[2]
        settings = build_settings({name: example})
        settings.politeness()
        assert getattr(settings, name)


@pytest.mark.parametrize("pattern", ["[pc]/[0-9]+$", "[a-z]+\\.html", '["a"'])
def test_a_pattern_that_begins_with_a_bracket_is_shown_as_a_list(pattern):
    with pytest.raises(SettingsError, match="invalid JSON") as caught:
        build_settings({"allow": pattern})
    name, _, value = caught.value.remedy.rpartition(" ")[2].partition("=")
    assert name == "allow"
    assert build_settings({name: value}).allow == (pattern,)


def test_an_import_error_that_quotes_no_name_has_no_remedy():
    error = ImportError("skitter/web/_utf8.so: undefined symbol", name="skitter.web._utf8")
    assert remedy_for(error) is None
