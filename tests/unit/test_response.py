# ruff: noqa: RUF001 - letters that look alike in several scripts are the point here
"""Response: headers, kinds of content, text, links, following."""

import parsel
import pytest

from skitter.errors import RequestError, UsageError
from skitter.links import Links
from skitter.request import Request
from skitter.response import Response

URL = "http://h.example/dir/page.html?x=1"
BLOCK = (
    b"Server: nginx\r\nContent-Type: Text/HTML; Charset=UTF-8\r\nSet-Cookie: a=1\r\nset-cookie: b=2\r\n"
    b"X-Long: one\r\n  two\r\nX-Empty:\r\nno colon here\r\nX-Colon: a:b\r\nContent-Type: text/plain\r\n\r\n"
)


def html(body="", url=URL, **fields):
    return Response(url, headers={"content-type": "text/html; charset=utf-8"}, body=body.encode(), **fields)


def test_a_header_block_is_read_as_received():
    headers = Response(URL, headers=BLOCK).headers
    assert headers["server"] == headers["SERVER"] == "nginx"
    assert headers.getall("Set-Cookie") == ["a=1", "b=2"]
    assert headers["x-long"] == "one two"
    assert headers["X-Empty"] == ""
    assert headers["x-colon"] == "a:b"
    assert len(headers) == 8


def test_one_header_is_found_without_reading_the_others():
    response = Response(URL, headers=BLOCK)
    assert response.header("CONTENT-TYPE") == "Text/HTML; Charset=UTF-8"
    assert response.header("x-colon") == "a:b"
    assert response.header("x-empty", "default") == ""
    assert response.header("colon") == response.header("x") == ""
    assert response.header("missing", "default") == "default"
    assert response.headers
    assert response.header("content-type") == "Text/HTML; Charset=UTF-8"
    assert response.header("missing", "default") == "default"


def test_a_header_value_is_never_taken_for_a_header():
    assert Response(URL, headers=b"A: x\r\nB: \r\nC: content-type: z\r\n").header("content-type") == ""


def test_a_name_with_space_before_its_colon_is_read():
    response = Response(URL, headers=b"A: x\r\nContent-Type : text/css\r\n")
    assert response.header("content-type") == "text/css"
    assert response.header("a") == "x"
    assert response.header("b", "none") == "none"


@pytest.mark.parametrize("ending", [b"\r\n", b"\n"])
@pytest.mark.parametrize(
    "byte", [b"\x0b", b"\x0c", b"\x1c", b"\x1d", b"\x1e", b"\x85", b"\xa0", b"\xe2\x80\xa8", b"\r"]
)
def test_only_crlf_and_lf_end_a_header_line(byte, ending):
    """RFC 9112, 2.2. The values are the same before and after the headers are parsed."""
    value = b"a" + byte + b"b"
    block = ending.join([b"X-One: " + value, b"X-Two:\t" + byte[:1] * 2 + b"c ", b"", b""])
    response = Response(URL, headers=block)
    found = [response.header("x-one"), response.header("x-two")]
    assert found[0] == response.headers["x-one"] == value.decode("latin-1")
    assert found[1] == response.headers["x-two"]
    assert len(response.headers) == 2


@pytest.mark.parametrize("text", ["хлеб", "全部", "naïve …"])
def test_header_bytes_beyond_ascii_are_kept(text):
    response = Response(URL, headers=f"X-Title: {text}\r\nSet-Cookie: n={text}; Path=/\r\n\r\n".encode())
    assert response.header("x-title").encode("latin-1").decode() == text
    assert response.headers["x-title"].encode("latin-1").decode() == text
    assert response.headers["set-cookie"].encode("latin-1").decode() == f"n={text}; Path=/"


def test_a_folded_line_is_one_value_however_it_is_read():
    """RFC 9112, 5.2."""
    assert Response(URL, headers=BLOCK).header("x-long") == "one two"


def test_headers_may_be_a_mapping():
    response = Response(URL, headers={"Content-Type": "image/png"})
    assert response.header("content-type") == response.headers["CONTENT-TYPE"] == "image/png"
    assert Response(URL).header("content-type", "none") == "none"
    assert len(Response(URL).headers) == 0


def test_headers_cannot_be_changed():
    with pytest.raises(TypeError):
        Response(URL, headers=BLOCK).headers["a"] = "b"


@pytest.mark.parametrize(
    ("status", "ok"), [(199, False), (200, True), (204, True), (299, True), (301, False), (500, False)]
)
def test_ok_means_2xx(status, ok):
    assert Response(URL, status).ok is ok


def test_a_response_has_the_data_of_its_request():
    request = Request(URL, meta={"a": 1}, cb_kwargs={"b": 2}, depth=3)
    response = Response(URL, request=request, latency=0.5, ip="127.0.0.1", protocol="h2")
    assert (response.meta, response.cb_kwargs, response.depth) == ({"a": 1}, {"b": 2}, 3)
    assert (response.latency, response.ip, response.protocol) == (0.5, "127.0.0.1", "h2")
    alone = Response(URL)
    assert (alone.meta, alone.cb_kwargs, alone.depth) == ({}, {}, 0)


@pytest.mark.parametrize(
    ("content_type", "body", "kinds"),
    [
        ("text/html; charset=x", b"", "html text"),
        ("TEXT/HTML", b"", "html text"),
        ("application/xhtml+xml", b"", "html text"),
        ("text/xml", b"", "xml text"),
        ("application/rss+xml", b"", "xml text"),
        ("image/svg+xml", b"", "xml text"),
        ("text/plain", b"<html>", "text"),
        ("text/css", b"", "text"),
        ("application/json", b"", "text"),
        ("application/ld+json", b"", "text"),
        ("application/javascript", b"", "text"),
        ("image/png", b"<html>", ""),
        ("application/pdf", b"", ""),
        ("video/mp4", b"", ""),
        ("", b"  <!DOCTYPE html>", "html text"),
        ("", b"<HTML lang=en>", "html text"),
        ("", b"plain words", "text"),
        ("", b"\x89PNG\r\n\x1a\n", ""),
        ("application/octet-stream", b"<p>x", "html text"),
        ("application/octet-stream", b"\x00\x01", ""),
        ("", b"\xff\xfe<\x00p\x00", "text"),
        ("", b"", "text"),
    ],
)
def test_kinds_of_content(content_type, body, kinds):
    response = Response(URL, headers={"content-type": content_type} if content_type else {}, body=body)
    found = [kind for kind in ("html", "xml", "text") if getattr(response, f"is_{kind}")]
    assert " ".join(found) == kinds


def test_content_type_is_the_media_type_alone():
    assert Response(URL, headers=BLOCK).content_type == "text/html"
    assert Response(URL).content_type == ""


def test_text_follows_the_declared_encoding():
    response = Response(
        URL, headers={"content-type": "text/html; charset=koi8-r"}, body="Привет".encode("koi8-r")
    )
    assert response.encoding == "koi8-r"
    assert response.text == "Привет"
    assert response.replace(encoding="latin-1").text == "Привет".encode("koi8-r").decode("latin-1")


def test_text_of_something_binary_is_refused_with_its_type():
    picture = Response(URL, headers={"content-type": "image/png"}, body=b"\x89PNG")
    for read in (
        lambda: picture.text,
        lambda: picture.css("a"),
        lambda: picture.xpath("//a"),
        lambda: picture.selector,
    ):
        with pytest.raises(UsageError, match="image/png") as caught:
            read()
        assert caught.value.remedy
    assert picture.links() == picture.hrefs() == []
    assert picture.follow("/x").url == "http://h.example/x"
    assert list(picture.follow_all("a")) == []


def test_json():
    def read(body):
        return Response(URL, headers={"content-type": "application/json"}, body=body).json()

    assert read(b'{"a": [1, null]}') == {"a": [1, None]}
    assert read(b'\xef\xbb\xbf{"a": 1}') == {"a": 1}
    assert read('{"a": "é"}'.encode("utf-16")) == {"a": "é"}
    assert read(b'{"a": "\\ud800", "b": 1e999}') == {"a": "\ud800", "b": float("inf")}
    for broken in (b"", b"{", b"<html>", b'{"a": "\xff'):
        with pytest.raises(ValueError, match=r".+"):
            read(broken)


@pytest.mark.parametrize("charset", ["", "; charset=latin-1"])
@pytest.mark.parametrize(
    "read",
    [Response.json, lambda response: response.jmespath("a"), lambda response: response.selector],
    ids=["json", "jmespath", "selector"],
)
def test_json_that_is_nested_too_deeply_is_like_invalid_json(charset, read):
    body = b"[" * 100_000 + b"]" * 100_000
    with pytest.raises(ValueError, match=r"the JSON of http://h\.example/.* is nested too deeply"):
        read(Response(URL, headers={"content-type": f"application/json{charset}"}, body=body))


def test_json_ignores_the_charset_of_the_header():
    """RFC 8259, 8.1 and 11."""
    for charset in ("", "; charset=iso-8859-1", "; charset=koi8-r", "; charset=utf-16"):
        response = Response(
            URL, headers={"content-type": f"application/json{charset}"}, body='{"m": "café"}'.encode()
        )
        assert response.json() == {"m": "café"}
        assert response.text == '{"m": "café"}'
        assert response.jmespath("m").get() == "café"
    plain = Response(URL, headers={"content-type": "text/plain; charset=koi8-r"}, body='["é", NaN]'.encode())
    assert plain.json()[0] == "é"


def test_json_that_is_not_unicode_is_read_by_its_charset():
    def read(charset, body, **fields):
        return Response(
            URL, headers={"content-type": f"application/json; charset={charset}"}, body=body, **fields
        ).json()

    assert read("iso-8859-1", b'{"m": "caf\xe9"}') == {"m": "café"}
    assert read("koi8-r", '["Привет"]'.encode("koi8-r")) == ["Привет"]
    assert read("x", '["é"]'.encode(), encoding="latin-1") == ["Ã©"]  # given in code, so it takes precedence


def test_a_copy_keeps_an_encoding_that_was_given():
    given = Response(URL, headers={"content-type": "text/html"}, body=b"\xf5", encoding="cp1251")
    assert given.replace(body=b"\xe1").text == given.replace(url="x").replace(body=b"\xe1").text == "б"
    found = Response(URL, headers={"content-type": "text/html"}, body=b"<meta charset=cp1251>\xf5")
    assert (found.encoding, found.replace(body="<p>é".encode()).text) == ("cp1251", "<p>é")
    assert found.replace(status=404).encoding == "cp1251"


@pytest.mark.parametrize("name", ["latin1", "ISO-8859-1"])
def test_an_encoding_given_in_code_means_the_same_as_in_browsers(name):
    given = Response(URL, headers={"content-type": "text/plain"}, body=b"\x80", encoding=name)
    assert (given.text, given.encoding, given.replace().encoding) == ("\u20ac", "cp1252", "cp1252")


def test_an_unknown_encoding_is_refused_where_it_is_given():
    response = Response(URL, body=b"x")
    for give in (lambda: Response(URL, encoding="latin-99"), lambda: response.replace(encoding="latin-99")):
        with pytest.raises(UsageError, match="'latin-99'") as refused:
            give()
        assert refused.value.field == "encoding"


def test_another_encoding_changes_the_base_of_links():
    body = "<base href=/\u65e5\u672c/>".encode("gbk")
    response = Response(URL, headers={"content-type": "text/html; charset=windows-1252"}, body=body)
    assert response.base_url.endswith("/%C3%88%C3%95%C2%B1%C2%BE/")
    response.encoding = "gbk"
    assert response.urljoin("x").endswith("/%E6%97%A5%E6%9C%AC/x")


def test_links_of_a_page_in_a_legacy_encoding_are_encoded_as_by_browsers():
    """WHATWG HTML, 2.4.2 (encoding-parse a URL): the query in the encoding of the page, the path in UTF-8."""
    page = '<base href="/d/?x=я"><a href="s?q=хлеб">1</a><a href="/хлеб">2</a><a href="t?q=%D1%85#й">3</a><a href="?日">4</a>'
    response = Response(
        URL,
        headers={"content-type": "text/html; charset=windows-1251"},
        body=page.encode("cp1251", "xmlcharrefreplace"),
    )
    urls = [
        f"http://h.example/{rest}"
        for rest in ("d/s?q=%F5%EB%E5%E1", "%D1%85%D0%BB%D0%B5%D0%B1", "d/t?q=%D1%85", "d/?%26%2326085%3B")
    ]
    assert response.links() == [request.url for request in response.follow_all("a")] == urls
    assert [response.urljoin(href).partition("#")[0] for href in response.hrefs()] == urls
    assert response.follow(response.css("a")[0]).url == urls[0]
    assert [request.url for request in response.follow_all(["s?q=хлеб"])] == urls[:1]
    assert response.base_url == "http://h.example/d/?x=%FF"
    assert response.hrefs()[0] == "s?q=хлеб"


def test_links_of_other_content_are_utf8_in_any_encoding():
    """RFC 3987, 3.1: only HTML has the exception for the query."""
    feed = Response(
        URL,
        headers={"content-type": "text/xml; charset=windows-1251"},
        body='<a href="?q=я"/>'.encode("cp1251"),
    )
    assert feed.links() == ["http://h.example/dir/page.html?q=%D1%8F"]
    assert html('<a href="?q=я">').links() == ["http://h.example/dir/page.html?q=%D1%8F"]


def test_json_pages_are_selected_by_jmespath():
    response = Response(URL, headers={"content-type": "application/json"}, body=b'{"a": {"b": [1, 2]}}')
    assert response.jmespath("a.b").getall() == [1, 2]
    with pytest.raises(UsageError):
        response.css("a")


def test_xml_pages_are_selected_as_xml():
    feed = b"<?xml version='1.0'?><rss><Item><link>http://a/</link></Item><Item/></rss>"
    response = Response(URL, headers={"content-type": "application/rss+xml"}, body=feed)
    assert response.css("Item > link::text").get() == "http://a/"
    assert len(response.xpath("//Item")) == 2
    assert response.xpath("//Item[2]").get() == "<Item/>"


def test_css_and_xpath_read_one_parsed_page():
    response = html("<title>T</title><a href=x>1</a>")
    assert response.selector is response.selector
    assert response.css("title::text").get() == response.xpath("//title/text()").get() == "T"
    assert response.xpath("//a[@href=$to]/text()", to="x").get() == "1"


def test_links_are_absolute_and_fetchable_and_come_once():
    response = html(
        '<a href="a.html">1</a><a href="/b?z=1&amp;a=2#frag">2</a><a href="a.html#top">again</a><a>none</a>'
        '<a href="mailto:x@y">mail</a><a href="javascript:go()">js</a><a href="http://[">bad</a>'
        '<a href=" //other.example ">3</a><area href=area><a href="ftp://h/">ftp</a>'
    )
    assert response.links() == [
        "http://h.example/dir/a.html", "http://h.example/b?z=1&a=2", "http://other.example/",
    ]  # fmt: skip
    assert response.links("area") == ["http://h.example/dir/area"]
    assert response.hrefs()[:3] == ["a.html", "/b?z=1&a=2#frag", "a.html#top"]
    assert len(response.hrefs()) == 8


@pytest.mark.parametrize(
    ("query", "hrefs"),
    [
        ("a", ["1", "2", ""]), ("a[href]", ["1", "2", ""]), ("a.x", ["2"]), ("div a", ["2"]), ("a::attr(href)", ["1", "2", ""]),
        ("img", ["i.png"]), ("img[src]", ["i.png"]), ("a, img", ["1", "2", "i.png", ""]), ("link", ["l.css"]),
        ("img::attr(data-src)", ["d.png"]), ("p", []), ("h1", []), ("img[href]", []),
    ],
)  # fmt: skip
def test_hrefs_of_any_query(query, hrefs):
    page = "<link href=l.css><p><a href=1>x</a></p><div><a class=x href=2>y</a></div><img src=i.png data-src=d.png><a href>e</a><a>n</a>"
    assert html(page).hrefs(query) == hrefs


@pytest.mark.parametrize(
    ("head", "base"),
    [
        ("", URL),
        ("<base target=_top>", URL),
        ("<base href='/other/'>", "http://h.example/other/"),
        ("<base href='http://cdn.example/x'><base href='http://no.example/'>", "http://cdn.example/x"),
        ("<base target=_top><base href=//b.example/>", "http://b.example/"),
        ("<base href='http://['>", URL),
        ("<!-- <base href=/no/> -->", URL),
        # A base that is ignored (WHATWG HTML, 4.2.3); the second one does not take its place.
        ("<base href='javascript:void(0)'>", URL),
        ("<base href='JavaScript:x'><base href=/no/>", URL),
        ("<base href='data:text/html,x'>", URL),
        ("<template><base href=/no/></template>", URL),
        ("<svg><base href=/no/></svg>", URL),
        ("<template><base href=/no/></template><base href='/other/'>", "http://h.example/other/"),
        ("<svg><g><base href=/no/></g></svg><div><base href='/other/'></div>", "http://h.example/other/"),
    ],
)
def test_the_base_element_is_honoured(head, base):
    response = html(f"<head>{head}</head><a href=x>")
    assert response.base_url == base
    joined = base.rpartition("/")[0] + "/x"
    assert response.urljoin("x") == response.follow("x").url == response.links()[0] == joined
    assert [request.url for request in response.follow_all("a")] == [joined]


def test_urljoin_keeps_the_fragment_and_requests_do_not():
    page = html("<base href=/b/x?y>")
    assert page.urljoin("#id") == "http://h.example/b/x?y#id"
    assert page.urljoin("z#a#b c") == "http://h.example/b/z#a#b%20c"
    assert page.urljoin("z") == page.follow("z#a").url == "http://h.example/b/z"


REFRESH = [
    ("5; url=/next", (5, "/next")), ("0;URL='/next'", (0, "/next")), ('0; url="/next"ignored', (0, "/next")), ("  3 , /next", (3, "/next")),
    ("1 /next", (1, "/next")), ("2.9; url = /next", (2, "/next")), (".5; /next", (0, "/next")), ("0; uri=/next", (0, "/dir/uri=/next")),
    ("4", (4, "/dir/page.html?x=1")), ("4;", (4, "/dir/page.html?x=1")), ("0; url=", (0, "/dir/page.html?x=1")), ("0;url='/next", (0, "/next")),
    ("0; url=http://h.example/next#part", (0, "/next")), ("0;;/next", (0, "/dir/;/next")),
    ("", None), ("; url=/next", None), ("x; url=/next", None), ("-1; /next", None), ("5x; /next", None), ("5u/next", None), ("0; url=http://[", None),
]  # fmt: skip


@pytest.mark.parametrize(("value", "found"), REFRESH)
def test_a_refresh_is_read_as_by_browsers(value, found):
    """WHATWG HTML, 4.2.5.3, "shared declarative refresh steps"."""
    expected = None if found is None else (found[0], f"http://h.example{found[1]}")
    content = value.replace('"', "&quot;")
    assert html(f'<META HTTP-EQUIV="Refresh" CONTENT="{content}">').refresh == expected
    assert Response(URL, headers={"Refresh": value, "content-type": "text/html"}).refresh == expected


def test_the_header_and_else_the_first_valid_element_refreshes():
    page = '<meta http-equiv=refresh><meta http-equiv=refresh content=x><meta http-equiv=refresh content="1;a"><meta http-equiv=refresh content="1;b">'
    assert html(page).refresh == (1, "http://h.example/dir/a")
    both = Response(URL, headers={"Refresh": "2;c", "content-type": "text/html"}, body=page.encode())
    assert both.refresh == (2, "http://h.example/dir/c")
    raw = Response(URL, headers="Refresh: 0; url=/хлеб\r\n\r\n".encode())
    assert raw.refresh == (0, "http://h.example/%D1%85%D0%BB%D0%B5%D0%B1")
    assert html("<p>x</p>").refresh is None
    assert Response(URL, headers={"content-type": "image/png"}, body=b"x").refresh is None


def test_urljoin_rejects_an_invalid_url():
    with pytest.raises(RequestError, match=r"http://\[") as caught:
        html().urljoin("http://[")
    assert caught.value.remedy


def test_follow_takes_urls_elements_and_values():
    response = html("<a href=1>x</a><img src=2>")
    for link in (
        "1", response.css("a")[0], response.css("a::attr(href)")[0], response.xpath("//a")[0], response.xpath("//a/@href")[0],
        parsel.Selector(text=response.text).css("a")[0], parsel.Selector(text=response.text).css("a::attr(href)")[0],
    ):  # fmt: skip
        assert response.follow(link) == Request("http://h.example/dir/1")
    assert response.follow(response.css("img")[0]).url == "http://h.example/dir/2"


def test_follow_passes_everything_to_the_request():
    request = html().follow("/x#y", "parse_x", meta={"a": 1}, priority=2, headers={"X": "y"}, method="POST")
    assert request == Request(
        "http://h.example/x", "parse_x", meta={"a": 1}, priority=2, headers={"X": "y"}, method="POST"
    )


def test_follow_refuses_invalid_links():
    response = html("<p>x</p>")
    for link in (response.css("p")[0], response.xpath("//p")[0], None, 5, response.css("p")):
        with pytest.raises(RequestError) as caught:
            response.follow(link)
        assert caught.value.remedy


def test_follow_all_takes_queries_and_lists():
    response = html("<a href=1>x</a><a>none</a><a href=mailto:x>m</a><ul><a href=2>y</a></ul>")
    both = ["http://h.example/dir/1", "mailto:x", "http://h.example/dir/2"]
    for links in (
        response.follow_all("a"), response.follow_all(css="a"), response.follow_all("a::attr(href)"),
        response.follow_all(xpath="//a"), response.follow_all(xpath="//a/@href"), response.follow_all(response.css("a[href]")),
        response.follow_all(["1", response.css("a")[2], response.xpath("//ul/a/@href")[0]]),
        response.follow_all(iter(["1", "mailto:x", "2"])),
    ):  # fmt: skip
        assert isinstance(links, Links)
        assert [request.url for request in links] == both
        assert len(links) == 3
    assert len(response.follow_all([])) == len(response.follow_all("nope")) == 0


@pytest.mark.parametrize(
    ("wrong", "meant"), [("alow", "allow"), ("call_back", "callback"), ("restrict_css", "css")]
)
def test_an_unknown_argument_of_follow_all_is_named_at_once(wrong, meant):
    with pytest.raises(RequestError) as caught:
        Response("http://h.test/").follow_all("a", **{wrong: "x"})
    assert caught.value.field == wrong
    assert meant in caught.value.remedy


def test_follow_all_skips_elements_without_a_link():
    page = html("<a href=1></a><a name=top></a><p></p><img src=2>")
    for links in (
        page.css("a, p, img"), list(page.css("a, p, img")), page.xpath("//a | //p | //img"),
        parsel.Selector(text=page.text).css("a, p, img"),
    ):  # fmt: skip
        assert [request.url[-1] for request in page.follow_all(links)] == ["1", "2"]
    assert len(page.follow_all(page.css("p"))) == 0


@pytest.mark.parametrize("link", [None, 5, b"/x"])
def test_follow_all_rejects_a_value_that_is_not_a_link(link):
    with pytest.raises(RequestError) as caught:
        html().follow_all(["/x", link])
    assert caught.value.remedy


@pytest.mark.parametrize(
    "tag", ['<base href="/b/">', '<BASE\nhref="/b/">', '<!-- <base href="/c/"> --><bAsE href="/b/">']
)
def test_the_base_element_holds_for_links_that_were_found_without_the_tree(tag):
    page = html(f"<head>{tag}</head>")
    assert page.urljoin("1") == "http://h.example/b/1"
    assert [request.url for request in page.follow_all(["1"])] == ["http://h.example/b/1"]


def test_follow_all_sets_the_same_fields_for_every_request():
    links = html("<a href=1></a><a href=2></a>").follow_all("a", "parse_x", priority=3, meta={"a": 1})
    assert links.fields == {"callback": "parse_x", "priority": 3, "meta": {"a": 1}}
    assert all(request == Request(request.url, "parse_x", priority=3, meta={"a": 1}) for request in links)


@pytest.mark.parametrize("given", [{}, {"css": "a", "xpath": "//a"}, {"links": "a", "css": "a"}])
def test_follow_all_takes_exactly_one_source(given):
    with pytest.raises(UsageError, match="one of") as caught:
        html().follow_all(**given)
    assert caught.value.remedy


def test_replace_changes_some_fields_and_shares_the_body():
    response = Response(
        URL, 200, headers=BLOCK, body=b"<p>x</p>", request=Request(URL), latency=1.0, ip="i", protocol="p"
    )
    copy = response.replace(status=404, url="http://other/")
    assert (copy.status, copy.url, copy.latency, copy.ip, copy.protocol) == (
        404,
        "http://other/",
        1.0,
        "i",
        "p",
    )
    assert copy.body is response.body
    assert copy.request is response.request
    assert copy.headers == response.headers
    changed = response.replace(body="<p>Привет</p>".encode())
    assert changed.css("p::text").get() == "Привет"
    assert response.css("p::text").get() == "x"


def test_a_changed_body_is_not_read_in_the_old_encoding():
    response = Response(URL, body=b"<p>caf\xe9</p>")
    assert response.encoding == "cp1252"
    assert response.replace(body="<p>é</p>".encode()).text == "<p>é</p>"


def test_a_response_shows_status_and_url():
    assert repr(Response(URL, 404)) == f"<Response 404 {URL}>"


def test_the_meta_of_a_batch_may_change_after_it():
    response = Response("http://h.test/", body=b"<a href=/a>")
    meta = {"page": 1}
    batch, request = response.follow_all("a", meta=meta), response.follow("/b", meta=meta)
    meta["page"] = 2
    assert [request.meta for request in (*batch, request)] == [{"page": 1}, {"page": 1}]
