"""Following links: next pages by number, offset and form; start pages; data of child requests; scope."""

import asyncio
from urllib.parse import parse_qs, urlsplit

import pytest

from crawl_harness import Scripted
from recipe_runs import compile_text, run_recipe_text, run_spider, spider_of
from skitter.frontends.recipe.source import RecipeError
from skitter.testing import Answer


def listing(numbers):
    return Answer("".join(f"<p>{number}</p>" for number in numbers).encode())


class Numbered:
    """A list of 23 entries, ten per page, requested by number or offset. It records the requests."""

    def __init__(self):
        self.asked = []

    def __call__(self, visit):
        if visit.target == "/robots.txt":
            return Answer(b"", status=404)
        pairs = urlsplit(visit.target).query if visit.method == "GET" else visit.body.decode()
        words = {name: int(values[0]) for name, values in parse_qs(pairs).items() if values[0].isdigit()}
        self.asked.append(words)
        start = words["offset"] if "offset" in words else (words.get("page", 1) - 1) * 10
        total = f"<b>{23} in all</b>"
        return Answer(listing(range(start, min(start + 10, 23))).body + total.encode())


RECIPE = """name: x
start: [{start}]
pages:
  list:
    items: {{each: p, fields: {{n: {{xpath: ".", type: int}}}}}}
    next: {next}
"""


@pytest.mark.parametrize(
    ("start", "following", "asked"),
    [
        ('"{site}"', "{parameter: page}", [None, 2, 3, 4]),
        ('"{site}"', "{parameter: page, last: 3}", [None, 2, 3]),
        ('"{site}?page=1"', "{parameter: page, total: b}", None),
        ('"{site}"', "{parameter: offset, from: 0, step: 10, total: b}", [None, 10, 20]),
        ('{url: "{site}", method: POST, form: {page: 1}}', "{parameter: page, place: form}", [1, 2, 3, 4]),
    ],
)
async def test_numbered_pages_are_asked_for_until_their_end(serve, tmp_path, start, following, asked):
    site = Numbered()
    server = serve(site)
    text = RECIPE.format(start=start.replace("{site}", server.url), next=following)
    ran = await run_recipe_text(text, tmp_path)
    assert ran.letters == {}
    assert sorted(item["n"] for item in ran.items) == list(range(23))
    if asked is not None:
        assert [words.get("page", words.get("offset")) for words in site.asked] == asked


async def test_an_object_is_a_cursor_too(serve, tmp_path):
    server = serve(
        lambda visit: Answer(
            b'{"data": [1], "next": %s}' % (b"null" if "after" in visit.target else b'{"id": 7}'),
            content_type="application/json",
        )
    )
    text = RECIPE_OF_JSON.format(site=server.url)
    ran = await run_recipe_text(text, tmp_path)
    assert ran.letters == {}
    assert [parse_qs(urlsplit(item["url"]).query).get("after") for item in ran.items] == [None, ['{"id":7}']]


RECIPE_OF_JSON = """name: x
start: "{site}"
pages:
  list:
    format: json
    items: {{each: data, fields: {{url: {{value: "{{url}}"}}}}}}
    next: {{parameter: after, cursor: next}}
"""


async def test_each_combination_and_language_is_one_start(serve, tmp_path):
    site = Scripted(
        {f"/{word}/{n}/{lang}": listing([n]) for word in "ab" for n in (1, 3) for lang in ("de", "en")}
    )
    text = f"""name: x
languages: [de, en]
start:
  - url: {serve(site).url}{{word}}/{{n}}/{{language}}
    each: {{word: [a, b], n: {{from: 1, to: 4, step: 2}}}}
pages:
  p: {{items: {{fields: {{word: {{value: "{{data.word}}"}}, n: {{value: "{{data.n}}"}}, l: {{value: "{{language}}"}}}}}}}}
"""
    ran = await run_recipe_text(text, tmp_path)
    assert sorted((item["word"], item["n"], item["l"]) for item in ran.items) == [
        (word, n, language) for word in "ab" for n in (1, 3) for language in ("de", "en")
    ]
    assert {visit.headers["accept-language"] for visit in site.visits} == {"de", "en"}


async def test_siblings_do_not_see_each_others_data_and_grandchildren_see_all(serve, tmp_path):
    site = Scripted({
        "/": Answer(b"<li>one <a href=/1>x</a></li><li>two <a href=/2>x</a></li>"),
        "/1": Answer(b"<a href=/1/in>x</a>"), "/2": Answer(b"<a href=/2/in>x</a>"),
        "/1/in": Answer(b""), "/2/in": Answer(b""),
    })  # fmt: skip
    text = f"""name: x
start: [{{url: "{serve(site).url}", data: {{from: start}}}}]
pages:
  list: {{follow: [{{each: li, css: a, page: mid, data: {{name: {{css: "::text", regexp: '\\w+'}}}}}}]}}
  mid: {{follow: [{{css: a, page: end, data: {{mid: {{value: "{{url}}", regexp: '\\d$'}}}}}}]}}
  end: {{items: {{fields: {{f: {{value: "{{data.from}}"}}, n: {{value: "{{data.name}}"}}, m: {{value: "{{data.mid}}"}}}}}}}}
"""
    ran = await run_recipe_text(text, tmp_path)
    found = sorted((item["f"], item["n"], item["m"]) for item in ran.items)
    assert found == [("start", "one", "1"), ("start", "two", "2")]


async def test_links_lead_no_further_than_the_hosts_of_the_start_unless_the_recipe_says_so(serve, tmp_path):
    site = Scripted({"/": ["http://localhost.example.invalid/", "/a"], "/a": []})
    text = f"""name: x
start: {serve(site).url}
pages: {{p: {{items: {{fields: {{u: {{value: "{{url}}"}}}}}}, follow: [a]}}}}
"""
    ran = await run_recipe_text(text, tmp_path)
    assert len(ran.items) == 2
    assert ran.counters["refused/host"] == 1
    ran = await run_recipe_text(text + "allowed_domains: any\nsettings: {max_retries: 0}\n", tmp_path)
    assert len(ran.letters) == 1


async def test_only_the_first_matching_links_are_followed(serve, tmp_path):
    site = Scripted({"/": ["/a/1", "/b/1", "/a/2", "/a/2", "/a/x", "/a/3"], "/a/1": [], "/a/2": []})
    text = f"""name: x
start: {serve(site).url}
pages:
  list: {{follow: [{{css: a, page: end, match: /a/, skip: [x$], first: 2}}]}}
  end: {{items: {{fields: {{u: {{value: "{{url}}"}}}}}}}}
"""
    ran = await run_recipe_text(text, tmp_path)
    assert sorted(item["u"][-4:] for item in ran.items) == ["/a/1", "/a/2"]
    assert set(site.counts) == {"/", "/a/1", "/a/2"}


async def test_a_page_without_its_required_fields_is_a_dead_letter(serve, tmp_path):
    text = f"""name: x
start: {serve(Scripted({"/": Answer(b"<h1>Access denied</h1>")})).url}
pages: {{p: {{expect: .price, items: {{fields: {{t: h1}}}}}}}}
"""
    ran = await run_recipe_text(text, tmp_path)
    assert ran.items == []
    assert "PageError: " in ran.letters["/"]
    assert "'.price'" in ran.letters["/"]


async def test_a_sitemap_may_be_packed_or_named_by_robots_txt(serve, tmp_path):
    import gzip

    def urlset(visit, name):
        return f'<urlset xmlns="s"><url><loc>http://{visit.host}:{visit.port}/{name}</loc></url></urlset>'.encode()

    site = Scripted({
        "/robots.txt": lambda v: Answer(f"User-agent: *\nSitemap: http://{v.host}:{v.port}/s.xml.gz\n".encode(), content_type="text/plain"),
        "/s.xml.gz": lambda v: Answer(gzip.compress(urlset(v, "a")), content_type="application/gzip"),
        "/list.txt": lambda v: Answer(f"http://{v.host}:{v.port}/b\nnot a url\n".encode(), content_type="text/plain"),
        "/bad.xml": Answer(b"<html>no</html>"), "/a": Answer(b"<h1>a</h1>"), "/b": Answer(b"<h1>b</h1>"),
    })  # fmt: skip
    url = serve(site).url
    text = f"""name: x
start: [{{sitemap: "{url}robots.txt"}}, {{sitemap: "{url}list.txt"}}, {{sitemap: "{url}bad.xml"}}]
pages: {{p: {{items: {{fields: {{t: h1}}}}}}}}
"""
    ran = await run_recipe_text(text, tmp_path)
    assert sorted(item["t"] for item in ran.items) == ["a", "b"]
    assert list(ran.letters) == ["/bad.xml"]
    assert "SitemapError: " in ran.letters["/bad.xml"]


async def test_a_url_that_is_too_slow_for_a_pattern_costs_no_other_url_of_its_sitemap(serve, tmp_path):
    site = Scripted({
        "/list.txt": lambda v: Answer("".join(f"http://{v.host}:{v.port}/{name}\n" for name in ("a" * 2000 + "!", "a")).encode(), content_type="text/plain"),
        "/a": Answer(b"<h1>a</h1>"),
    })  # fmt: skip
    text = f"""name: x
start: {{sitemap: "{serve(site).url}list.txt", match: "/(a|a)*$"}}
pages: {{p: {{items: {{fields: {{t: h1}}}}}}}}
"""
    ran = await run_recipe_text(text, tmp_path)
    assert ran.letters == {}
    assert ran.items == [{"t": "a"}]


async def test_a_single_start_needs_no_list(serve, tmp_path):
    site = Scripted({
        "/list.txt": lambda v: Answer(f"http://{v.host}:{v.port}/b\n".encode(), content_type="text/plain"),
        "/b": Answer(b"<h1>b</h1>"),
    })  # fmt: skip
    text = f"""name: x
start: {{sitemap: "{serve(site).url}list.txt"}}
pages: {{p: {{items: {{fields: {{t: h1}}}}}}}}
"""
    assert (await run_recipe_text(text, tmp_path)).items == [{"t": "b"}]
    with pytest.raises(RecipeError, match=r"line 2: start\.sitemap: not an absolute http\(s\) URL"):
        await run_recipe_text("name: x\nstart: {sitemap: list.txt}\npages: {p: {}}", tmp_path)


async def test_cookies_of_a_login_are_not_sent_to_other_hosts(serve, tmp_path):
    other = Scripted({"/": Answer(b"<h1>other</h1>")})
    away = serve(other, hosts=2).url_of("/", 1)
    form = (
        b"<form method=post action=/in><input type=password name=p><button name=b value=1>go</button></form>"
    )
    site = Scripted({
        "/login": Answer(form), "/in": Answer(b"<i>welcome</i>", headers={"Set-Cookie": "s=1; Path=/"}),
        "/": lambda visit: Answer(f'<h1>{visit.headers.get("cookie")}</h1><a href="{away}">x</a>'.encode()),
    })  # fmt: skip
    url = serve(site).url
    text = f"""name: x
login: {{url: "{url}login", fields: {{p: secret}}, check: i}}
start: "{url}"
allowed_domains: any
pages: {{p: {{items: {{fields: {{t: h1}}}}, follow: [a]}}}}
"""
    ran = await run_recipe_text(text, tmp_path)
    assert sorted(item["t"] for item in ran.items) == ["other", "s=1"]
    assert [visit.headers.get("cookie") for visit in other.visits] == [None]


async def test_a_start_page_that_is_also_the_login_page_is_fetched_again_with_the_cookies(serve, tmp_path):
    def home(visit):
        if visit.headers.get("cookie") == "s=1":
            return Answer(b"<h1>home</h1><i>welcome</i>")
        return Answer(b"<form method=post action=/in><input type=password name=p></form>")

    moved = Answer(b"", status=302, headers={"Location": "/", "Set-Cookie": "s=1; Path=/"})
    url = serve(Scripted({"/": home, "/in": moved})).url
    text = f"""name: x
login: {{url: "{url}", fields: {{p: secret}}, check: i}}
start: "{url}"
pages: {{p: {{items: {{fields: {{t: h1}}}}}}}}
"""
    assert (await run_recipe_text(text, tmp_path)).items == [{"t": "home"}]


async def test_a_seed_from_outside_leads_to_the_first_kind_of_page(serve, tmp_path):
    url = serve(Scripted({"/": Answer(b"<h1>seed</h1>")})).url
    text = f"name: x\nstart: {url}\npages: {{p: {{items: {{fields: {{t: h1}}}}}}}}\n"
    path = tmp_path / "seed.yaml"
    await asyncio.to_thread(path.write_text, text)
    spider = await asyncio.to_thread(spider_of, path)

    async def start():
        yield url

    spider.start = start
    assert (await run_spider(spider, tmp_path)).items == [{"t": "seed"}]


def test_a_variable_from_the_command_line_is_of_the_kind_that_the_recipe_has():
    text = "name: x\nvariables: {n: 2, w: a}\nstart: http://x/\npages: {p: {follow: [{css: a, page: p, first: '${n}'}]}}\n"
    plan = compile_text(text, arguments={"n": "5", "w": "7"})
    assert plan.recipe.pages["p"].follow[0].first == 5
    with pytest.raises(RecipeError, match="'many'"):
        compile_text(text, arguments={"n": "many"})


def test_a_recipe_whose_variables_have_no_values_yet_can_be_checked():
    text = "name: x\nvariables: {n: null}\nstart: http://x/${n}\npages: {p: {follow: [{css: a, page: p, first: '${n}'}]}}\n"
    with pytest.raises(RecipeError, match="'n'"):
        compile_text(text)


def test_the_environment_is_read_under_its_prefix_only(monkeypatch):
    monkeypatch.setenv("SKITTER_RECIPE_WORD", "told")
    monkeypatch.setenv("WORD", "secret")
    text = "name: x\nstart: http://x/${env.WORD}\npages: {p: {items: {fields: {t: h1}}}}\n"
    (request,) = compile_text(text).starts[0].requests()
    assert request.url == "http://x/told"
    with pytest.raises(RecipeError, match="SKITTER_RECIPE_HOME"):
        compile_text(text.replace("WORD", "HOME"))
