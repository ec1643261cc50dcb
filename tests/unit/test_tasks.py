"""Many tasks in one job: rule trees, data of requests, limits, and recipes as tasks."""

import asyncio
from collections import Counter

import pytest

from crawl_harness import Scripted
from recipe_runs import RECIPES, run_spider
from servers.fetch_proxy import Proxy
from skitter import Request, Response
from skitter.errors import SettingsError, SpiderError
from skitter.fetch.contract import UNCONDITIONAL, FetcherCapabilities
from skitter.frontends.recipe.source import RecipeError, RecipeSource
from skitter.frontends.request_defaults import RequestDefaults
from skitter.frontends.tasks.recipe_task import RecipeTask
from skitter.frontends.tasks.spider import TaskSpider, limit_rules
from skitter.frontends.tasks.task import Task
from skitter.links import SkippedLinks
from skitter.politeness import HostLimits, Politeness
from skitter.settings import build_settings
from skitter.testing import Answer


def visit_all(context):
    yield {"task": context.task, "url": context.url}
    yield context.follow_all("a")


def crawling(name, url, **fields):
    return Task(name, start=[url], rules={"page": visit_all}, **fields)


async def test_a_tree_of_rules_yields_items_with_values_from_parent_pages(serve, tmp_path):
    site = Scripted({
        "/": Answer(b"<li><b>one</b><a href=/1>x</a></li><li><b>two</b><a href=/2>x</a></li>"),
        "/1": Answer(b"<h1>First</h1> see http:/more/1"), "/2": Answer(b"<h1>Second</h1>"), "/more/1": Answer(b"end"),
    })  # fmt: skip

    async def root():
        yield serve(site).url

    async def index(context):
        for block in context.css("li"):
            data = {"name": block.css("b::text").get()}
            yield context.follow(block.css("a")[0], "story", data)

    def story(context):
        yield context.output({"title": context.css("h1::text").get(), **context.data})
        yield context.follow_matches(r"http:(/more/\d)", "more", {"deeper": True})

    def more(context):
        return {"data": context.data}

    task = Task("news", start=root, rules={"index": index, "story": story, "more": more})
    ran = await run_spider(TaskSpider([task]), tmp_path)
    assert ran.letters == {}
    stories = sorted((item for item in ran.items if "rule" in item), key=lambda item: item["url"])
    assert [(item["task"], item["rule"], item["title"], item["name"]) for item in stories] == [
        ("news", "story", "First", "one"), ("news", "story", "Second", "two"),
    ]  # fmt: skip
    assert [item for item in ran.items if "rule" not in item] == [{"data": {"name": "one", "deeper": True}}]


async def test_each_task_crawls_a_page_once_for_itself(serve, tmp_path):
    site = Scripted({"/": ["/a", "/a", "/"], "/a": ["/"]})
    url = serve(site).url
    ran = await run_spider(TaskSpider([crawling("one", url), crawling("two", url)]), tmp_path, 2)
    found = sorted((item["task"], item["url"]) for item in ran.items)
    assert found == [(task, f"{url}{path}") for task in ("one", "two") for path in ("", "a")]
    assert site.counts == {"/": 2, "/a": 2}


async def test_the_depth_of_a_task_is_kept_by_the_engine_and_counted(serve, tmp_path):
    site = Scripted({f"/{n}": [f"/{n + 1}"] for n in range(6)})
    url = serve(site).url
    tasks = [crawling("short", f"{url}0", depth_limit=1), crawling("long", f"{url}0", depth_limit=3)]
    ran = await run_spider(TaskSpider(tasks), tmp_path)
    assert sorted((item["task"], item["url"][-1]) for item in ran.items) == [
        ("long", "0"), ("long", "1"), ("long", "2"), ("long", "3"), ("short", "0"), ("short", "1"),
    ]  # fmt: skip
    assert ran.counters["refused/depth"] == 2


async def test_cookies_headers_and_sessions_are_those_of_the_task(serve, tmp_path):
    site = Scripted({"/": ["/in"], "/in": Answer(b"", headers={"Set-Cookie": "kept=1"})})
    url = serve(site).url
    tasks = [
        crawling("ann", url, cookies={"user": "ann"}, headers={"X-Who": "ann"}),
        crawling("bob", url, cookies={"user": "bob"}),
    ]
    await run_spider(TaskSpider(tasks), tmp_path)
    sent = sorted((v.target, v.headers.get("cookie"), v.headers.get("x-who")) for v in site.visits)
    assert sent == [
        ("/", "user=ann", "ann"), ("/", "user=bob", None), ("/in", "user=ann", "ann"), ("/in", "user=bob", None),
    ]  # fmt: skip


class Marked:
    """A task's fetcher, which does not fetch but answers with its name."""

    capabilities = FetcherCapabilities()

    def __init__(self, context):
        pass

    async def open(self):
        pass

    async def close(self):
        pass

    async def fetch(self, request, *, permit=UNCONDITIONAL):
        return Response(request.url, 200, body=b"<b>marked</b>", request=request)


async def test_fetcher_proxies_and_user_agents_are_those_of_the_task(serve, tmp_path):
    site = Scripted({"/": ["/in"], "/in": [], "/robots.txt": Answer(b"")})
    url = serve(site).url

    def make(near, far):
        return [
            crawling("near", url, proxies=[near.http], user_agents=["near/1"]),
            crawling("far", url, proxies=f"http://127.0.0.1:1,{far.http}", headers={"User-Agent": "own/1"}),
            crawling("marked", url, fetcher="test_tasks:Marked"),
            crawling("plain", url, depth_limit=0),
        ]

    async with Proxy() as near, Proxy() as far:
        tasks = await asyncio.to_thread(make, near, far)  # searches for the fetcher
        ran = await run_spider(TaskSpider(tasks), tmp_path, user_agents=["job/1"], reuse_connections=False)
        lines = [sorted(head.split(b"\r\n")[0] for head in proxy.heads) for proxy in (near, far)]
    asked = [f"GET {url}{path} HTTP/1.1".encode() for path in ("", "in", "robots.txt")]
    assert lines == [asked, asked[:2]]
    agents = Counter((v.target, v.headers["user-agent"]) for v in site.visits if v.target != "/robots.txt")
    assert agents == {
        ("/", "near/1"): 1, ("/in", "near/1"): 1, ("/", "own/1"): 1, ("/in", "own/1"): 1, ("/", "job/1"): 1
    }  # fmt: skip
    assert sorted(item["task"] for item in ran.items) == ["far", "far", "marked", "near", "near", "plain"]
    assert ran.counters["free/proxy"] >= 1  # `far` has a dead proxy, which its pool skips
    assert ran.letters == {}


@pytest.mark.parametrize("fields", [{"fetcher": "nope"}, {"proxies": "nope"}, {"user_agents": "file:none"}])
def test_a_task_with_an_unknown_source_is_refused(fields):
    with pytest.raises(SettingsError):
        crawling("x", "http://x/", **fields)


async def test_the_task_of_higher_priority_goes_first(serve, tmp_path):
    site = Scripted({f"/{name}{n}": [] for name in "ab" for n in range(3)})
    url = serve(site).url
    tasks = [
        Task(name, start=[f"{url}{name}{n}" for n in range(3)], rules={"page": visit_all}, priority=priority)
        for name, priority in (("a", 0), ("b", 5))
    ]
    await run_spider(TaskSpider(tasks), tmp_path, concurrency=1, concurrency_per_slot=1)
    assert [visit.target for visit in site.visits] == ["/b0", "/b1", "/b2", "/a0", "/a1", "/a2"]


async def test_a_task_stays_in_its_domains_and_refused_links_are_counted(serve, tmp_path):
    site = Scripted({"/": ["http://elsewhere.invalid/", "mailto:x@y", "/a"], "/a": ["http://third.invalid/"]})
    ran = await run_spider(TaskSpider([crawling("one", serve(site).url)]), tmp_path)
    assert len(ran.items) == 2
    assert ran.letters == {}
    assert ran.counters["refused/host"] == 2
    assert ran.counters["refused/scheme"] == 1


async def test_a_closed_task_is_dropped_and_an_unknown_one_is_a_dead_letter(serve, tmp_path):
    site = Scripted({"/": ["/a"], "/a": []})
    url = serve(site).url
    closing = crawling("closing", url)

    def close(context):
        closing.closed = True
        return {"url": context.url}

    closing.rules["page"] = lambda context: [context.follow_all("a"), *([close(context)])]
    ran = await run_spider(TaskSpider([closing]), tmp_path)
    assert len(ran.items) == 1
    assert ran.counters.get("refused/hook", 0) + ran.counters.get("refused/dropped", 0) == 1
    assert site.counts == {"/": 1}

    class Stray(TaskSpider):
        async def start(self):
            yield Request(url, cb_kwargs={"task": "gone"})
            yield Request(f"{url}a", cb_kwargs={"task": "known", "rule": "pgae"})

    ran = await run_spider(Stray([crawling("known", url)]), tmp_path)
    assert "SpiderError: " in ran.letters["/"]
    assert "'gone'" in ran.letters["/"]
    assert "task 'known' has no rule 'pgae'" in ran.letters["/a"]


async def test_an_exception_in_a_rule_is_the_outcome_of_its_page_alone(serve, tmp_path):
    def fragile(context):
        if context.url.endswith("a"):
            raise RuntimeError("no")
        return visit_all(context)

    site = Scripted({"/": ["/a", "/b"], "/a": [], "/b": []})
    task = Task("one", start=[serve(site).url], rules={"page": fragile})
    ran = await run_spider(TaskSpider([task]), tmp_path)
    assert len(ran.items) == 2
    assert list(ran.letters) == ["/a"]


@pytest.mark.parametrize(
    "fields",
    [{"name": ""}, {"rules": {}}, {"reload": 0}, {"start": "http://x/"}, {"limits": {"rates": ["often"]}}],
)
async def test_an_invalid_task_is_rejected(fields):
    given = {"name": "x", "start": ["http://x/"], "rules": {"page": visit_all}, **fields}
    with pytest.raises((SpiderError, SettingsError)):
        limits = HostLimits(**given.pop("limits", {}))
        task = Task(given.pop("name"), limits=limits, **given)
        [one async for one in task.start_requests()]


def test_two_tasks_of_one_name_are_refused():
    with pytest.raises(SpiderError, match="'x'"):
        TaskSpider([crawling("x", "http://x/"), crawling("x", "http://y/")])


# --- limits ------------------------------------------------------------------------------------------------


def policy(rules, host):
    settings = build_settings({"limit_rules": rules, "delay": 0.5})
    politeness = settings.politeness()
    assert isinstance(politeness, Politeness)
    return politeness.slot_of(host), politeness.limits_of(politeness.slot_of(host))


def test_the_layered_limits_of_a_task_are_one_pool_for_all_its_hosts():
    limits = HostLimits(delay=2, jitter=3, rates=("1/2s", "20/60s"), concurrency_per_slot=1)
    tasks = [
        Task("a", start=["http://a.x/", "http://b.x:81/"], rules={"p": visit_all}, limits=limits),
        crawling("free", "http://c.x/"),
    ]
    rules = limit_rules(tasks)
    slot, found = policy(rules, "a.x")
    assert (found.delay, found.jitter, found.concurrency_per_slot) == (2, 3, 1)
    assert [(rate.count, rate.per) for rate in found.parsed_rates()] == [(1, 2), (20, 60)]
    assert policy(rules, "b.x:81")[0] == policy(rules, "www.b.x")[0] == slot
    assert policy(rules, "c.x")[1].delay == 0.5


def test_a_host_of_several_tasks_is_under_the_strictest_limits_of_all():
    tasks = [
        crawling("a", "http://x/", limits=HostLimits(delay=2, rates=("1/2s",), concurrency_per_slot=3)),
        crawling("b", "http://x/", limits=HostLimits(delay=5, rates=("9/m",), concurrency_per_slot=1)),
        crawling("c", "http://x/"),
    ]
    _, found = policy(limit_rules(tasks), "x")
    assert (found.delay, found.concurrency_per_slot, len(found.rates)) == (5, 1, 2)


@pytest.mark.parametrize("spelling", ["*.shop.test", ".Shop.test ", "=shop.test"])
def test_limits_of_a_task_apply_to_any_spelling_of_its_domains(spelling):
    task = crawling("a", "http://shop.test/", allowed_domains=[spelling], limits=HostLimits(delay=2))
    assert policy(limit_rules([task]), "shop.test")[1].delay == 2


def test_the_rule_of_a_subdomain_takes_precedence_over_that_of_its_domain():
    tasks = [
        crawling("all", "http://x.org/", limits=HostLimits(delay=1)),
        crawling("one", "http://shop.x.org/", limits=HostLimits(delay=9)),
    ]
    assert policy(limit_rules(tasks), "shop.x.org")[1].delay == 9
    assert policy(limit_rules(tasks), "blog.x.org")[1].delay == 1


# --- reload ------------------------------------------------------------------------------------------------


async def test_a_task_that_reloads_fetches_each_page_once_in_each_period(serve, tmp_path):
    site = Scripted({"/": ["/a", "/"], "/a": ["/"]})
    task = crawling("one", serve(site).url, reload=3600)
    spider = TaskSpider([task])
    numbers = iter([1, 1, 2])
    task.defaults.current_period = lambda: next(numbers)

    class Thrice(TaskSpider):
        async def start(self):
            for _ in range(3):
                async for request in self.start_requests_of(task):
                    yield request

    assert spider.custom_settings["visited_ttl"] > 1e9
    await run_spider(Thrice([task]), tmp_path)
    assert site.counts == {"/": 2, "/a": 2}


def test_defaults_without_anything_leave_requests_as_they_are():
    request = Request("http://x/")
    assert RequestDefaults().apply(request, 0) == [request]


def test_a_link_out_of_the_bounds_is_refused_as_such():
    defaults = RequestDefaults(name="t", allowed_domains=["x.org"])
    assert defaults.apply(Request("http://y.org/"), 0) == [SkippedLinks("host")]
    (kept,) = defaults.apply(Request("http://www.x.org:8080/"), 0)
    assert kept.cb_kwargs == {"task": "t"}


# --- recipes as tasks --------------------------------------------------------------------------------------


async def test_recipes_run_beside_each_other_as_tasks_with_their_logins_and_sessions(serve, tmp_path):
    import asyncio

    from test_recipe_examples import EXPECTED, Sites, at, in_order

    site = serve(Sites()).url.rstrip("/")
    names = ["shop.yaml", "club.yaml", "api.yaml", "search.yaml", "catalogue.yaml", "magazine.yaml"]
    tasks = await asyncio.to_thread(
        lambda: [RecipeTask.of_file(RECIPES / name, {"site": site}) for name in names]
    )
    ran = await run_spider(TaskSpider(tasks), tmp_path)
    assert ran.letters == {}
    expected = [item for name in names for item in at(site, EXPECTED[name])]
    assert in_order(ran.items) == in_order(expected)


def test_the_settings_of_a_recipe_become_those_of_its_task_and_others_are_refused():
    text = "name: x\nstart: http://x/\npages: {a: {items: {fields: {t: h1}}}}\nsettings:\n"
    task = RecipeTask(
        RecipeSource.of_text(f"{text}  delay: 3\n  rates: [1/2s]\n  depth_limit: 4\n", "r.yaml")
    )
    assert task.limits == HostLimits(delay=3, rates=["1/2s"])
    (request,) = task.defaults.apply(Request("http://x/"), 0)
    assert request.depth_limit == 4
    with pytest.raises(RecipeError, match=r"r\.yaml line 6: settings\.max_pages: "):
        RecipeTask(RecipeSource.of_text(f"{text}  delay: 3\n  max_pages: 4\n", "r.yaml"))
