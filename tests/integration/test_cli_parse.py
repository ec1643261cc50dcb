"""`skitter parse`, which tries one callback on one page, and `skitter list`, which finds spiders."""

import json
import re

import msgspec
import pytest

from cli_command import skitter, usage_error
from skitter.cli.tables import item_lines
from skitter.item import encode_item
from skitter.testing import Answer

SPIDERS = '''
from skitter import Request, Spider

class Books(Spider):
    """Books of one shop.

    And more.
    """

    start_urls = ["{url}"]
    allowed_domains = ["127.0.0.1"]

    def __init__(self, currency="EUR"):
        self.currency = currency

    def parse(self, response):
        yield {{"title": response.css("title::text").get(), "currency": self.currency}}
        yield response.follow_all("a", self.detail)
        yield Request("http://elsewhere.invalid/", method="POST", body="x")

    async def detail(self, response):
        '@url {url}'
        self.stats.inc_value("details")
        return {{"path": response.url}}

    def review(self, response, book, *, stars=1):
        return {{"book": book, "stars": stars, "page": response.meta["page"]}}

    def broken(self, response):
        return response.nothing

class Other(Spider):
    def parse(self, response):
        pass
'''
RECIPE = "name: web\nstart: http://127.0.0.1/\npages:\n  p: {items: {fields: {url: {value: '{url}'}}}}\n"


@pytest.fixture
def shop(serve, tmp_path):
    server = serve(
        lambda visit: Answer(b'<title>Shop</title><a href="/1">a</a><a href="/2">b</a><a href="/1#x">c</a>')
    )
    (tmp_path / "books.py").write_text(SPIDERS.format(url=server.url))
    return server


def test_parse_shows_items_and_requests_with_what_the_crawl_would_refuse(shop, tmp_path):
    result = skitter("parse", shop.url, "--spider", "books.py:Books", "-a", "currency=USD", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "items: 1, requests: 4\n")
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["TITLE", "CURRENCY"],
        ["Shop", "USD"],
        [],
        ["CALLBACK", "METHOD", "REFUSED", "URL"],
        ["detail", "GET", "-", f"{shop.url}1"],
        ["detail", "GET", "-", f"{shop.url}2"],
        ["detail", "GET", "duplicate", f"{shop.url}1"],
        ["parse", "POST", "host", "http://elsewhere.invalid/"],
    ]
    assert not (tmp_path / ".skitter").exists()


def test_the_callback_gets_its_keyword_arguments_and_the_meta_of_its_request(shop, tmp_path):
    command = ("parse", shop.url, "--spider", "books.py:Books", "-c", "review", "--json")
    result = skitter(
        *command, "--cbkwargs", '{"book": {"id": 7}, "stars": 3}', "-m", '{"page": [2]}', cwd=tmp_path
    )
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["items"] == [{"book": {"id": 7}, "stars": 3, "page": [2]}]


@pytest.mark.parametrize("option", ["--meta", "--cbkwargs"])
@pytest.mark.parametrize("text", ["page=2", "[2]", "{", '{"page": 1e999}'])
def test_meta_and_keyword_arguments_are_json_objects(shop, tmp_path, option, text):
    line = usage_error("parse", shop.url, "--spider", "books.py:Books", option, text, cwd=tmp_path)
    assert f"invalid value for {option}: {text!r}" in line
    assert "write a JSON object" in line


def test_the_table_of_items_has_all_fields_and_cuts_long_values():
    items = [{"a": "x" * 50, "b": None}, {"b": [1, {"c": "two\nlines"}], "d": "\x1b[1m  lines\nof text"}]
    assert [
        re.split(" {2,}", line)
        for line in item_lines([msgspec.Raw(encode_item(item)) for item in items]).splitlines()
    ] == [
        ["A", "B", "D"],
        [f"{'x' * 39}…", "null", "-"],
        ["-", '[1,{"c":"two\\nlines"}]', "\\u001b[1m lines of text"],
    ]


def test_parse_calls_the_callback_that_is_named_and_prints_json(shop, tmp_path):
    result = skitter("parse", shop.url, "--spider", "books.py:Books", "-c", "detail", "--json", cwd=tmp_path)
    assert json.loads(result.stdout) == {"items": [{"path": shop.url}], "requests": []}


def test_a_callback_that_counts_can_be_tried_and_checked(shop, tmp_path):
    tried = skitter("parse", shop.url, "--spider", "books.py:Books", "-c", "detail", "--json", cwd=tmp_path)
    checked = skitter("check", "books.py:Books", cwd=tmp_path)
    assert (tried.returncode, checked.returncode) == (0, 0), checked.stdout + checked.stderr


def test_a_callback_that_fails_or_does_not_exist_is_one_line(shop, tmp_path):
    result = skitter("parse", shop.url, "--spider", "books.py:Books", "-c", "broken", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert "AttributeError" in line
    assert "books.py" in line
    assert "no callback" in usage_error(
        "parse", shop.url, "--spider", "books.py:Books", "-c", "detial", cwd=tmp_path
    )


def test_list_finds_the_spiders_below_a_folder(shop, tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "web.yaml").write_text(RECIPE)
    (tmp_path / "sub" / "tools.py").write_text("raise RuntimeError('not a spider')\n")
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "x.py").write_text("import skitter\nraise RuntimeError\n")
    result = skitter("list", "--json", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert json.loads(result.stdout) == [
        {"spider": "books.py:Books", "about": "Books of one shop."},
        {"spider": "books.py:Other", "about": ""},
        {"spider": "sub/web.yaml", "about": ""},
    ]
    for line in skitter("list", cwd=tmp_path).stdout.splitlines()[1:]:
        name = line.split()[0]
        assert "has no" not in skitter("parse", "http://127.0.0.1:9/", "--spider", name, cwd=tmp_path).stderr


def test_list_continues_after_a_file_that_cannot_be_imported(shop, tmp_path):
    (tmp_path / "a.py").write_text("import skitter\nimport nowhere_at_all\n")
    result = skitter("list", cwd=tmp_path)
    assert result.returncode == 1
    assert "books.py:Books" in result.stdout
    (line,) = result.stderr.splitlines()
    assert line.startswith("skitter: a.py cannot be imported")
    assert "nowhere_at_all" in line


def test_modules_are_listed_with_the_modules_in_them(tmp_path):
    inner = tmp_path / "shop" / "spiders" / "books"
    inner.mkdir(parents=True)
    for folder in (inner, *inner.parents[:2]):
        (folder / "__init__.py").touch()
    spider = "from skitter import Spider\nclass {}(Spider):\n    '''Prices.'''\n    def parse(self, response): ...\n"
    (inner / "new.py").write_text(spider.format("Books"))
    (inner / "broken.py").write_text("import nothing_of_this_name\n")
    (inner.parent / "other.py").write_text(spider.format("Other"))
    result = skitter("list", "shop.spiders", "--json", cwd=tmp_path)
    found = [one["spider"] for one in json.loads(result.stdout)]
    assert found == ["shop.spiders.books.new:Books", "shop.spiders.other:Other"]
    assert (result.returncode, "shop.spiders.books.broken" in result.stderr) == (1, True)
    assert skitter("list", "shop.spiders.other", cwd=tmp_path).returncode == 0
    for name in ("absent", "absent.py", "shop.absent", "no/such/folder"):
        result = skitter("list", name, cwd=tmp_path)
        assert result.returncode in {1, 2}
        assert name.partition("/")[0] in result.stderr
        assert "Traceback" not in result.stderr
