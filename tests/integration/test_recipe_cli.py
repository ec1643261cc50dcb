"""Commands for recipes: the schema, and suggestions for pages."""

import json
import subprocess
import sys

import msgspec
import pytest

from cli_command import lines_of, skitter, usage_error
from manual import ROOT
from recipe_runs import RECIPES, compile_text
from skitter import Request, Response
from skitter.frontends.recipe.model import make_schema, published_schema
from skitter.frontends.recipe.page_context import PageError
from skitter.frontends.recipe.source import RecipeSource
from skitter.frontends.recipe.suggest import suggest_recipe
from skitter.testing import Answer

sys.path.insert(0, str(RECIPES))
from ten_sites import BOOKS, POSTS, Sites


def test_the_schema_of_the_package_is_that_of_the_model():
    kept = ROOT / "src" / "skitter" / "frontends" / "recipe" / "schema.json"
    assert kept.read_bytes() == msgspec.json.format(msgspec.json.encode(make_schema())) + b"\n"


def test_the_schema_is_a_json_schema_and_every_example_fits_it():
    import jsonschema

    jsonschema.Draft202012Validator.check_schema(published_schema())
    validator = jsonschema.Draft202012Validator(published_schema())
    for path in (one for one in RECIPES.iterdir() if one.suffix in {".yaml", ".toml"}):
        assert list(validator.iter_errors(RecipeSource.of_file(path).data)) == [], path


SCRIPTED = """name: scripted
variables: {site: "http://${env.HOST}", start: "${site}/first"}
start: ${start}
pages:
  first:
    follow: [{css: a, page: second}]
    items:
      fields: {script: h1, price: {css: .price, script: "PRICE"}}
  second: {script: "RULE"}
"""


@pytest.mark.parametrize(
    ("price", "rule", "fields"),
    [
        ("Number(value) * 2", "ctx.output({a: 1})", []),
        ("return value", "for (const a of [1]) { ctx.output({a}) }", []),
        ("value +", "ctx.output({", ["pages.first.items.fields.price.script", "pages.second.script"]),
    ],
)
def test_recipe_check_names_syntax_errors_of_scripts(tmp_path, price, rule, fields):
    (tmp_path / "x.yaml").write_text(SCRIPTED.replace("PRICE", price).replace("RULE", rule))
    result = skitter("recipe", "check", "x.yaml", cwd=tmp_path)
    assert result.returncode == (2 if fields else 0), result.stderr
    lines = [line for line in result.stderr.splitlines() if "SyntaxError" in line]
    assert len(lines) == len(fields) and all(field in line for field, line in zip(fields, lines, strict=True))


def test_a_variable_of_a_recipe_may_refer_to_the_environment_but_a_value_from_outside_may_not(monkeypatch):
    monkeypatch.setenv("SKITTER_RECIPE_HOST", "h.test")
    text = SCRIPTED.replace("PRICE", "value").replace("RULE", "1")
    assert compile_text(text).recipe.start == "http://h.test/first"
    assert (
        compile_text(text, arguments={"start": "http://x/${env.HOST}"}).recipe.start == "http://x/${env.HOST}"
    )


def test_the_schema_command_prints_it(tmp_path):
    result = skitter("recipe", "schema", cwd=tmp_path)
    assert result.returncode == 0
    assert json.loads(result.stdout) == published_schema()


def test_the_manual_names_every_key_of_a_recipe():
    text = (ROOT / "docs" / "guides" / "recipes.md").read_text()
    for definition in published_schema()["$defs"].values():
        for name in definition["properties"]:
            assert f"`{name}`" in text or f"{name}:" in text, f"{definition['title']}.{name}"


def response_of(answer, url="http://x/list"):
    kind = {"content-type": answer.content_type or ""}
    return Response(url, headers=kind, body=answer.body, request=Request(url))


class FakeVisit:
    host, port, method, headers, body = "127.0.0.1", 8000, "GET", {}, b""

    def __init__(self, target):
        self.target = target
        self.path = target.partition("?")[0]


def proposal(target, url=None):
    response = response_of(Sites()(FakeVisit(target)), url or f"http://127.0.0.1:8000{target}")
    text = suggest_recipe(response)
    plan = compile_text(text, "p.yaml")
    return plan.recipe.pages["page"], text


def test_a_list_is_proposed_with_the_fields_of_its_blocks_and_its_next_page():
    page, _ = proposal("/shop/")
    assert page.items.each == "article"
    assert page.next == "li.next a"
    assert {name: getattr(field, "type", None) for name, field in page.items.fields.items()} == {
        "url": "url", "title": None, "i": "int",
    }  # fmt: skip


def test_a_table_is_proposed_with_the_names_of_its_columns():
    page, _ = proposal("/table/")
    assert page.items.each == "tr" or page.items.each.endswith("> tr")
    assert list(page.items.fields) == ["stadt", "breite", "einwohner", "fluss"]
    latitude, people = page.items.fields["breite"], page.items.fields["einwohner"]
    assert (latitude.type, latitude.decimal) == ("float", ","), (
        "a comma before two digits divides no thousands"
    )
    assert (people.type, people.decimal) == ("int", ".")


def test_a_json_api_is_proposed_with_its_longest_list():
    page, _ = proposal("/api/?offset=0")
    assert page.format == "json"
    assert page.items.each == "users"
    assert page.items.fields == {"login": "login", "admin": "admin"}


def test_a_feed_is_proposed_with_its_entries():
    page, _ = proposal("/news/feed")
    assert page.format == "feed"
    assert page.items.each == "entries"


def test_a_page_on_which_nothing_repeats_is_proposed_as_one_item():
    page, _ = proposal("/shop/book/0")
    assert page.items.each == ""
    assert {"title", "text", "url"} <= set(page.items.fields)


@pytest.mark.parametrize(
    ("body", "kind"),
    [(b"{", "application/json"), (b"[]", "application/json"), (b"<rss/>", "application/rss+xml"), (b"[1, 2]", "application/json")],
)  # fmt: skip
def test_where_nothing_can_be_found_nothing_is_proposed(body, kind):
    with pytest.raises(PageError):
        suggest_recipe(response_of(Answer(body, content_type=kind)))


def test_objects_that_contain_only_objects_are_suggested_as_json():
    body = b'[{"note": null, "author": {"name": "Ada"}}]'
    text = suggest_recipe(response_of(Answer(body, content_type="application/json")))
    fields = compile_text(text, "p.yaml").recipe.pages["page"].items.fields
    assert (fields["note"], fields["author"].type) == ("note", "json")


CARDS = """<!doctype html><nav><ul>{nav}</ul></nav><div class="grid md:w-1/2">{cards}</div>
<footer><p>a</p><p>b</p><p>c</p></footer><a href="?page=2">Next \u00bb</a>"""


def test_navigation_is_not_a_list_and_constant_text_is_not_a_field():
    nav = "".join(f"<li><a href='/n{n}'>Entry {n}</a></li>" for n in range(9))
    cards = "".join(
        f"<div class='card c{n}000'><h2 class='name'>Thing number {n}</h2><span class='price'>{n},50 €</span>"
        f"<time>2026-03-0{n}</time><img src='/{n}.png'><button>Buy now</button></div>"
        for n in range(1, 6)
    )
    page = compile_text(
        suggest_recipe(response_of(Answer(CARDS.format(nav=nav, cards=cards).encode()))), "p.yaml"
    ).recipe.pages["page"]
    assert page.items.each == "div.card"
    assert list(page.items.fields) == ["name", "price", "date", "image"]
    assert page.items.fields["date"].type == "date"
    assert page.next.xpath == '//a[normalize-space()="Next \u00bb"]'


def test_a_suggested_recipe_runs_unchanged_and_finds_every_page_of_the_list(serve, tmp_path):
    server = serve(Sites())
    result = skitter("recipe", "from", f"{server.url}shop/", "-o", "shop.yaml", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert skitter("recipe", "check", "shop.yaml", cwd=tmp_path).returncode == 0
    result = skitter("run", "shop.yaml", "-o", "out.jsonl", "--delay", 0, "--fail-on-errors", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert sorted(item["title"] for item in lines_of(tmp_path / "out.jsonl")) == sorted(
        title for title, _, _ in BOOKS
    )


def test_a_suggestion_overwrites_nothing_and_an_unavailable_page_is_reported(serve, tmp_path):
    server = serve(Sites())
    (tmp_path / "mine.yaml").write_text("kept")
    assert "exists" in usage_error("recipe", "from", f"{server.url}shop/", "-o", "mine.yaml", cwd=tmp_path)
    assert "status 404" in usage_error("recipe", "from", f"{server.url}nothing", cwd=tmp_path)
    assert (tmp_path / "mine.yaml").read_text() == "kept"


def test_the_outputs_of_a_recipe_hold_unless_the_command_line_names_others(serve, tmp_path):
    text = (RECIPES / "wall.yaml").read_text() + "outputs: [usual.jsonl]\n"
    (tmp_path / "wall.yaml").write_text(text)
    arguments = ("run", "wall.yaml", "-a", f"site={serve(Sites()).url.rstrip('/')}", "--delay", 0, "-q")
    assert skitter(*arguments, cwd=tmp_path).returncode == 0
    assert len(lines_of(tmp_path / "usual.jsonl")) == len(POSTS)
    assert skitter(*arguments, "-o", "other.jsonl", "--job", "other", cwd=tmp_path).returncode == 0
    assert len(lines_of(tmp_path / "other.jsonl")) == len(POSTS)


def test_many_threads_may_read_the_first_recipe_of_a_process_at_once():
    """msgspec crashes if several threads convert to a type for the first time; seen in 16 of 20 processes."""
    program = (
        "import threading, msgspec\n"
        "from skitter.frontends.recipe.model import Recipe\n"
        "ready = threading.Barrier(8)\n"
        "def read():\n"
        "    ready.wait()\n"
        "    msgspec.convert({'name': 'x', 'start': 'http://h.test/', 'pages': {}}, Recipe)\n"
        "threads = [threading.Thread(target=read) for _ in range(8)]\n"
        "for thread in threads: thread.start()\n"
        "for thread in threads: thread.join()\n"
    )
    for _ in range(3):
        ended = subprocess.run([sys.executable, "-c", program], check=False)
        assert ended.returncode == 0
