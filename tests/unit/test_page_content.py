"""Forms, structured data, Markdown and text of a page."""

import json
from email import message_from_bytes
from urllib.parse import parse_qs, parse_qsl

import pytest

from skitter import Request, Response
from skitter.errors import FormError, UsageError
from skitter.forms import FormFile
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
<form id=modal method=dialog></form>"""


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


def test_a_field_that_the_form_does_not_have_is_sent_with_a_warning():
    with pytest.warns(UserWarning, match="no field 'passwort'.*csrf, user, pw") as caught:
        request = page(LOGIN).form({"user": "ann", "passwort": "x"}, css="#login")
    assert parse_qs(request.body.decode())["passwort"] == ["x"]
    assert caught[0].filename == __file__


def test_a_field_with_none_is_left_out(recwarn):
    request = page(LOGIN).form(
        {"csrf": None, "keep": None, "nowhere": None, "user": ["ann", None]}, css="#login"
    )
    sent = parse_qs(request.body.decode(), keep_blank_values=True)
    assert sent["user"] == ["ann"]
    assert not sent.keys() & {"csrf", "keep", "nowhere"}
    assert not recwarn


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
     ({"css": "#modal"}, "form"), ({"css": "a["}, "css"), ({"css": "#login", "click": "a["}, "click")],
)  # fmt: skip
def test_a_form_that_cannot_be_sent_is_named(arguments, field):
    with pytest.raises(FormError) as caught:
        page(LOGIN).form(**arguments)
    assert caught.value.field == field
    assert caught.value.remedy


FIELDS = """<form id=f action=go><input name=a value=1><input name=off value=1 disabled><input type=button name=b value=2>
<input type=reset name=r><input type=image name=i src=x><input type=submit name=s disabled value=no><button name=ok>Send</button>
<fieldset disabled><legend><input name=leg value=3></legend><input name=in value=4></fieldset>
<select name=one><option disabled>-<option>x<option>y</select><select name=hint><option disabled selected>choose<option>z</select>
<select name=many multiple><option selected>m1<option selected>m2<option>m3</select><select name=none multiple><option>n</select>
<input type=checkbox name=c value=c1 checked><input type=checkbox name=c value=c2><input type=checkbox name=c value=c3 checked>
<input type=radio name=radio value=r1><input type=radio name=radio value=r2 checked><textarea name=t>
l1
l2</textarea><input name=foreign form=other value=5><datalist><input name=d></datalist><input value=unnamed></form>
<input name=outside form=f value=6>"""


def test_a_form_sends_the_fields_that_browsers_send():
    """As the entry list of the HTML standard (4.10.22.4) says; the order of the button differs."""
    sent = page(FIELDS).form(css="#f", click="button")
    assert sent.method == "GET"
    assert sent.url.startswith("http://h.test/d/go?")
    assert sorted(parse_qsl(sent.url.partition("?")[2], keep_blank_values=True)) == [
        ("a", "1"), ("c", "c1"), ("c", "c3"), ("leg", "3"), ("many", "m1"), ("many", "m2"), ("ok", ""), ("one", "x"),
        ("outside", "6"), ("radio", "r2"), ("t", "l1\r\nl2"),
    ]  # fmt: skip
    assert "hint=z" in page(FIELDS).form({"hint": "z"}, css="#f").url
    assert page(FIELDS).form(css="#f").url.endswith("i.x=0&i.y=0")  # the first button is the image


BUTTONS = """<base href=/b/><form id=f method=post action=go enctype=text/plain><input name=a value="x y"><input name=b value=2>
<button id=get formmethod=get formaction=/other name=n value=v>G</button><button id=up formenctype=multipart/form-data>U</button>
</form><form id=self method=post><input name=q></form>"""


def test_the_button_decides_about_action_method_and_encoding():
    by_get = page(BUTTONS).form(css="#f", click="#get")
    assert (by_get.method, by_get.url, by_get.body) == ("GET", "http://h.test/other?a=x+y&b=2&n=v", b"")
    plain = page(BUTTONS).form(css="#f", click=False)
    assert (plain.url, plain.body) == ("http://h.test/b/go", b"a=x y\r\nb=2\r\n")
    assert plain.headers["Content-Type"] == "text/plain"
    up = page(BUTTONS).form(css="#f", click="#up")
    assert up.headers["Content-Type"].startswith("multipart/form-data; boundary=")
    assert page(BUTTONS).form(css="#self").url == "http://h.test/d/page"  # not the base URL


def test_files_are_uploaded():
    body = '<form method=post enctype="multipart/form-data"><input name=t value=ü><input type=file name=f><input type=file name=g>'
    request = page(body).form({"f": FormFile('a"b.txt', b"\0data", "text/plain")})
    message = message_from_bytes(
        b"Content-Type: " + request.headers["Content-Type"].encode() + b"\r\n\r\n" + request.body
    )
    parts = {part.get_param("name", header="content-disposition"): part for part in message.get_payload()}
    assert parts["t"].get_payload(decode=True) == "ü".encode()
    assert parts["f"].get_payload(decode=True) == b"\0data"
    assert parts["f"].get_content_type() == "text/plain"
    assert parts["f"].get_filename() == "a%22b.txt"
    assert (parts["g"].get_filename(), parts["g"].get_payload(decode=True)) == ("", b"")


@pytest.mark.parametrize("attributes", ["method=post", "", "method=post enctype=text/plain"])
def test_a_form_that_sends_only_the_name_of_a_file_has_a_warning(attributes):
    body = f"<form {attributes}><input type=file name=f></form>"
    with pytest.warns(UserWarning, match="name of the file 'f'.*encode_multipart") as caught:
        page(body).form({"f": FormFile("a.txt", b"data")})
    assert caught[0].filename == __file__


def test_a_form_is_sent_in_the_encoding_of_its_page():
    body = "<meta charset=iso-8859-1><form><input name=q value=\xfc><input name=w value='&#8364;'></form>".encode(
        "latin-1"
    )
    assert Response("http://h.test/", body=body).form().url == "http://h.test/?q=%FC&w=%80"
    asked = "<form accept-charset='utf-8'><input name=q value=\xfc></form>".encode("latin-1")
    response = Response("http://h.test/", headers={"content-type": "text/html; charset=latin-1"}, body=asked)
    assert response.form().url == "http://h.test/?q=%C3%BC"


@pytest.mark.parametrize(
    ("label", "sent"),
    [
        ("iso-8859-1", "%80"),  # windows-1252, as in browsers
        ("utf-16", "%E2%82%AC"),
        ("undefined", "%E2%82%AC"),  # Python codecs that no browser knows
        ("idna, unicode_escape", "%E2%82%AC"),
        ("hex iso-8859-15", "%A4"),
    ],
)
def test_the_charset_of_a_form_means_the_same_as_in_browsers(label, sent):
    form = page(f"<form accept-charset='{label}'><input name=q value='&#8364;'></form>")
    assert form.form().url.endswith(f"?q={sent}")


def test_the_query_of_the_action_is_in_the_encoding_of_its_page():
    body = "<form method=post action='/\xfc?q=\xfc'><input name=a></form>".encode("latin-1")
    response = Response("http://h.test/", headers={"content-type": "text/html; charset=latin-1"}, body=body)
    assert response.form().url == "http://h.test/%C3%BC?q=%FC"


def test_the_content_type_of_a_form_replaces_that_of_the_request():
    form = page("<form method=post><input name=a></form>")
    request = form.form(headers={"content-type": "text/plain", "X-A": "b"})
    assert request.headers == {"X-A": "b", "Content-Type": "application/x-www-form-urlencoded"}


@pytest.mark.parametrize("value", [b"x", ["x", b"x"], bytearray(b"x")])
def test_bytes_in_a_field_of_a_form_are_refused(value):
    with pytest.raises(FormError, match="'a' is bytes") as refused:
        page("<form><input name=a></form>").form({"a": value})
    assert refused.value.field == "a"


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


JSON_LD = {
    "line break": ('{"x": "a\nb"}', {"x": "a\nb"}),
    "tab": ('{"x": "a\tb"}', {"x": "a\tb"}),
    "byte order mark": ('\ufeff{"x": 1}', {"x": 1}),
    "semicolon": ('{"x": 1};', {"x": 1}),
    "comma": ('{"x": [1, 2,\n], }', {"x": [1, 2]}),
    "comments": ('{"x": 1, // one, "y": 2\n /* "z": 3 */ "u": "//*no*/"}', {"x": 1, "u": "//*no*/"}),
    "html comment": ('<!-- {"x": "<!-- y -->"} -->', {"x": "<!-- y -->"}),
    "html comment in lines": ('<!--\n{"x": 1}\n//-->', {"x": 1}),
    "cdata": ('//<![CDATA[\n{"x": "]]>, }"}\n//]]>', {"x": "]]>, }"}),
    "cdata in one line": ('/*<![CDATA[*/ {"x": 1} /*]]>*/', {"x": 1}),
    "constant": ('{"x": NaN}', {"x": None}),
}
"""Blocks with a mistake, and their values."""


@pytest.mark.parametrize(("block", "value"), JSON_LD.values(), ids=JSON_LD)
def test_json_ld_with_a_common_mistake_is_read(block, value):
    tag = '<script type="application/ld+json">'
    body = f'{tag}{{"first": 1}}</script>{tag}{block}</script>{tag}{{"x": 1 1}}</script>{tag}[2]</script>'
    assert page(body).structured_data()["json_ld"] == [{"first": 1}, value, [2]]


HOSTILE = {
    "comment": "/*", "space": ", ", "escape": '"\\', "html": "<!--", "list": "[", "line": "//", "comma": ",", "quote": '"',
}  # fmt: skip


@pytest.mark.parametrize("part", HOSTILE.values(), ids=HOSTILE)
def test_hostile_json_ld_is_left_out(part):
    body = f'<script type="application/ld+json">{part * (500_000 // len(part))}</script>'
    assert page(body).structured_data()["json_ld"] == []


def test_cyclic_or_deeply_nested_microdata_does_not_affect_other_data():
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


def test_features_of_the_default_engine_raise_a_clear_error_on_others():
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
        ("<dl><dt>a<dd>b</dl>c", "a\nb\nc"),
        ("<table><caption>t</caption><tr><th>1<th>2<tbody><tr><td><p>3</p></table>x", "t\n1\n2\n3\nx"),
        ("<button>a</button><button>b</button><select><option>c<option>d</select>", "a\nb\nc\nd"),
        ("<label>a<textarea>b</textarea></label>c", "a\nb\nc"),
        ("a<wbr>b<span hidden>c</span><hr>d<details><summary>e</summary>f</details>", "abc\nd\ne\nf"),
    ],
)
def test_text_never_glues_two_blocks_together(engine, body, text):
    assert Selector(f"<body>{body}</body>", engine=engine).css("body")[0].text_content() == text


@pytest.mark.parametrize(("query", "text"), [("div", "a\nb"), ("tr", "1\n2"), ("td", "1"), ("ul", "c\nd")])
def test_text_of_a_selector_of_parsel_never_glues_two_blocks_together(query, text):
    body = "<div>a<p>b</p></div><table><tr><td>1</td><td>2</td></tr></table><ul><li>c</li><li>d</li></ul>"
    assert from_parsel(parsel_selector(text=body, type="html")).css(query)[0].text_content() == text


def test_text_of_values_and_xml():
    assert page("<p>a<b>b</b></p>").css("p::text")[0].text_content() == "a"
    assert parsel_backed_selector("<a>x<b>y</b></a>", "xml").css("a")[0].text_content() == "xy"
