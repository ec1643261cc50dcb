"""Forms, structured data, Markdown and text of a page."""

import json
from urllib.parse import parse_qs

import pytest

from skitter import Request, Response
from skitter.errors import FormError, UsageError
from skitter.html.lexbor import LEXBOR
from skitter.html.selector import Selector, from_parsel, parsel_backed_selector, parsel_selector
from skitter.html.turbo import TURBO

on_both_engines = pytest.mark.parametrize("engine", [TURBO, LEXBOR], ids=["turbo", "lexbor"])


def page(body, url="http://h.test/d/page"):
    return Response(url, headers={"content-type": "text/html; charset=utf-8"}, body=body.encode())


LOGIN = """<base href="/b/"><form id=search action=/find><input name=q></form>
<form id=login method=post action="in?x=1"><input type=hidden name=csrf value=t1><input name=user>
<input name=pw type=password><select name=lang><option value=de>D<option value=en selected>E</select>
<input type=checkbox name=keep checked><button name=go value=1>In</button><button id=b2 name=go value=2>Other</button></form>
<table><form id=old method=post><tr><td><input name=a value=1></td></tr></form></table>
<form id=up method=post enctype=multipart/form-data><input type=file name=f></form>"""


def test_a_form_is_sent_as_a_browser_does():
    request = page(LOGIN).form(
        {"user": "ann", "pw": "ä"},
        "parse_home",
        css="#login",
        session="ann",
        headers={"X-A": "1"},
        priority=2,
    )
    assert isinstance(request, Request)
    assert (request.method, request.url, request.callback) == ("POST", "http://h.test/b/in?x=1", "parse_home")
    assert parse_qs(request.body.decode()) == {
        "csrf": ["t1"], "user": ["ann"], "pw": ["ä"], "lang": ["en"], "keep": ["on"], "go": ["1"],
    }  # fmt: skip
    assert request.headers["Content-Type"] == "application/x-www-form-urlencoded"
    assert (request.headers["X-A"], request.session, request.priority) == ("1", "ann", 2)


def test_the_first_form_is_sent_by_default_and_the_button_can_be_chosen():
    assert page(LOGIN).form({"q": "a b"}).url == "http://h.test/find?q=a+b"
    assert b"go=2" in page(LOGIN).form(css="#login", click="#b2").body
    assert b"go=" not in page(LOGIN).form(css="#login", click=False).body
    assert parse_qs(page(LOGIN).form({"lang": ["de", "en"]}, css="#login").body.decode())["lang"] == [
        "de",
        "en",
    ]
    assert page(LOGIN).form(css="#old").body == b"a=1"


@pytest.mark.parametrize(
    ("arguments", "field"),
    [({"css": "#nope"}, "form"), ({"css": "table"}, "form"), ({"css": "#login", "click": "#nope"}, "click"),
     ({"css": "#up"}, "form"), ({"css": "a["}, "css")],
)  # fmt: skip
def test_a_form_that_cannot_be_sent_is_named(arguments, field):
    with pytest.raises(FormError) as caught:
        page(LOGIN).form(**arguments)
    assert caught.value.field == field
    assert caught.value.remedy


DATA = """<head><script type="application/ld+json">{"@type": "Book", "name": "N"}</script><script type="application/ld+json">{bad</script>
<meta property=og:title content=T><meta property=og:image content=/a.png><meta name=dc.creator content=C></head>
<div itemscope itemtype=http://schema.org/Book><span itemprop=name>N</span><a itemprop=url href=u>x</a>
<div itemprop=offers itemscope><meta itemprop=price content=5></div></div>
<p vocab="http://schema.org/" typeof=Person><span property=name>P</span></p>"""


def test_structured_data_is_made_of_plain_values_with_absolute_urls():
    data = page(DATA).structured_data()
    assert data["json_ld"] == [{"@type": "Book", "name": "N"}]
    assert data["opengraph"] == {"og:title": "T", "og:image": "http://h.test/a.png"}
    assert data["dublin_core"] == {"dc.creator": "C"}
    (book,) = data["microdata"]
    assert book["type"] == "http://schema.org/Book"
    assert book["properties"]["url"] == ["http://h.test/d/u"]
    assert book["properties"]["offers"][0]["properties"] == {"price": ["5"]}
    assert data["rdfa"][0]["properties"] == {"http://schema.org/name": ["P"]}
    assert json.loads(json.dumps(data)) == data


def test_microdata_in_a_circle_or_nested_too_deep_costs_nothing_else():
    circle = "<div itemscope itemref=a></div><div id=a itemprop=p itemscope itemref=a></div><meta property=og:title content=T>"
    deep = "<div itemscope itemprop=a>" * 450 + "<meta property=og:title content=T>"
    for body in (circle, deep):
        data = page(body).structured_data()
        assert data["opengraph"] == {"og:title": "T"}


def test_markdown_has_absolute_links_and_no_scripts():
    body = "<title>t</title><h1>A</h1><p>b <a href=x>c</a> <b>d</b><script>no()</script><ul><li>e</ul><div id=i>f</div>"
    assert page(body).markdown() == "# A\n\nb [c](http://h.test/d/x) **d**\n\n- e\n\nf"
    assert page(body).markdown("#i") == page(body).css("#i")[0].markdown() == "f"
    assert page(body).markdown("#nope") == ""
    assert page(body).css("b::text")[0].markdown() == "d"
    assert from_parsel(parsel_selector(text=body, type="html")).css("h1")[0].markdown() == "# A"


def test_what_only_the_default_engine_can_do_is_named():
    for call in (Selector("<p>x", engine=LEXBOR).markdown, Selector("<p>x", engine=LEXBOR).structured_data):
        with pytest.raises(UsageError) as caught:
            call()
        assert caught.value.remedy


@on_both_engines
@pytest.mark.parametrize(
    ("body", "text"),
    [
        (
            "<h2>15.20 Documentation</h2><div>The <b>Postgre</b>SQL</div>Legal",
            "15.20 Documentation\nThe PostgreSQL\nLegal",
        ),
        ("a<br>b<br><br>c", "a\nb\nc"),
        ("<table><tr><td>1<td>2<tr><td>3</table>", "1\n2\n3"),
        ("<ul><li>a<li>b <li> c</ul>", "a\nb  c"),
        ("<p>a</p> <p>b</p>", "a b"),
        ("x<span>y</span><!--n--><i>z</i>", "xyz"),
        ("<pre>a\n  b</pre>c", "a\n  b\nc"),
        ("<div><div></div></div>", ""),
        ("<p></p><p>a</p><p></p>", "a"),
    ],
)
def test_text_never_glues_two_blocks_together(engine, body, text):
    assert Selector(f"<body>{body}</body>", engine=engine).css("body")[0].text_content() == text


def test_text_of_values_and_xml():
    assert page("<p>a<b>b</b></p>").css("p::text")[0].text_content() == "a"
    assert parsel_backed_selector("<a>x<b>y</b></a>", "xml").css("a")[0].text_content() == "xy"
