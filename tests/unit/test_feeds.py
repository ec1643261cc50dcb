"""Feeds of all three formats give the same entries; rows of CSV; their URLs as sitemaps."""

import gzip
from urllib.parse import quote

import msgspec
import pytest

from skitter import Response
from skitter.web.feeds import FeedEntry, FeedError, read_feed, read_rows
from skitter.web.sitemap import read_sitemap

URL = "https://blog.test/feed"
RSS = """<?xml version="1.0"?><rss version="2.0" xmlns:dc="http://purl.org/dc/elements/1.1/"
 xmlns:content="http://purl.org/rss/1.0/modules/content/"><channel><title>Blog</title><link>https://blog.test/</link>
<item><title>One &amp; two</title><link>/1</link><guid isPermaLink="false">id-1</guid><category>x</category><category>y</category>
<pubDate>Sun, 22 Nov 2026 10:00:00 +0100</pubDate><dc:creator>Ann</dc:creator><description>short</description>
<content:encoded><![CDATA[<p>Long</p>]]></content:encoded></item>
<item><title>Two</title><guid>https://blog.test/2</guid><pubDate>yesterday</pubDate></item></channel></rss>"""
ATOM = """<feed xmlns="http://www.w3.org/2005/Atom"><title>Blog</title><link href="https://blog.test/"/>
<entry><title>One &amp; two</title><link rel="self" href="/self"/><link href="/1"/><id>id-1</id><category term="x"/>
<category term="y"/><updated>2026-11-23T00:00:00Z</updated><published>2026-11-22T10:00:00+01:00</published>
<author><name>Ann</name><email>a@b</email></author><content type="html">&lt;p&gt;Long&lt;/p&gt;</content></entry>
<entry><title>Two</title><link rel="alternate" href="https://blog.test/2"/><updated>yesterday</updated></entry></feed>"""
JSON = """{"version": "https://jsonfeed.org/version/1.1", "title": "Blog", "items": [
{"id": "id-1", "url": "/1", "title": "One & two", "content_html": "<p>Long</p>", "tags": ["x", "y"],
 "date_published": "2026-11-22T10:00:00+01:00", "authors": [{"name": "Ann"}]},
{"title": "Two", "url": "https://blog.test/2", "date_published": "yesterday"}, 7]}"""


@pytest.mark.parametrize("text", [RSS, ATOM, JSON, "\ufeff" + JSON], ids=["rss", "atom", "json", "bom"])
def test_all_formats_give_the_same_entries(text):
    first, second = read_feed(text.encode(), URL)
    assert first == FeedEntry(
        "https://blog.test/1", "One & two", "id-1", "2026-11-22T09:00:00+00:00", "Ann", "<p>Long</p>", ("x", "y")
    )  # fmt: skip
    assert (second.url, second.title, second.published) == ("https://blog.test/2", "Two", "yesterday")
    assert [entry.url for entry in read_sitemap(text.encode(), URL)] == [first.url, second.url]
    assert [entry.title for entry in Response(URL, body=text.encode()).feed()] == ["One & two", "Two"]


def test_links_of_atom_are_relative_to_the_base_of_their_entry():
    """XML Base, which RFC 4287, 2 requires."""
    text = ATOM.replace("<feed", '<feed xml:base="/blog/"').replace("<entry>", '<entry xml:base="2026/">', 1)
    text = text.replace('href="/1"', 'href="1"').replace("https://blog.test/2", "2")
    urls = ["https://blog.test/blog/2026/1", "https://blog.test/blog/2"]
    assert [entry.url for entry in read_feed(text.encode(), URL)] == urls
    assert [entry.url for entry in read_sitemap(text.encode(), URL)] == urls


ENCODINGS = {
    "charset of the response": ("; charset=windows-1251", "", "cp1251", "Привет"),
    "charset of the response before the declaration": ("; charset=windows-1251", "utf-8", "cp1251", "Привет"),
    "utf-8 against the declaration": ("; charset=utf-8", "iso-8859-1", "utf-8", "Привет"),
    "utf-8 that is declared as utf-16": ("", "utf-16", "utf-8", "Привет"),
    "gb2312 with characters of gb18030": ("", "gb2312", "gb18030", "中文镕"),
    "a label of browsers": ("", "x-sjis", "shift_jis", "日本"),
    "latin1 with quotes of windows-1252": ("", "iso-8859-1", "cp1252", "“q”"),
}


@pytest.mark.parametrize(("charset", "declared", "codec", "title"), ENCODINGS.values(), ids=ENCODINGS)
def test_a_feed_is_decoded_like_any_page(charset, declared, codec, title):
    """RFC 7303, 3: the charset of the response precedes the declaration. Labels have the meaning of browsers."""
    start = f'<?xml version="1.0" encoding="{declared}"?>' if declared else ""
    text = f"{start}<rss><channel><item><title>{title}</title><link>/?q={title}</link></item></channel></rss>"
    page = Response(URL, headers={"Content-Type": f"application/rss+xml{charset}"}, body=text.encode(codec))
    (entry,) = page.feed()
    assert entry.title == title == page.css("item title::text").get()
    assert entry.url == Response(URL, body=b"").urljoin(f"/?q={title}")


def test_xhtml_content_keeps_its_markup():
    entry = '<entry><content type="xhtml"><div xmlns="http://www.w3.org/1999/xhtml"><b>x</b></div></content></entry>'
    (found,) = read_feed(f'<feed xmlns="http://www.w3.org/2005/Atom">{entry}</feed>'.encode(), URL)
    assert "<b>x</b></div>" in found.summary


@pytest.mark.parametrize(
    "body",
    [b"", b"<html><body>x</body></html>", b"{", b'{"items": 3}', b'{"items": ["\xff"]}', b"[]", b"text"],
)
def test_another_document_is_an_error(body):
    with pytest.raises(FeedError):
        list(read_feed(body, URL))


def test_rows_of_csv_by_the_names_of_their_columns():
    rows = [{"id": "1", "url": "/a;b"}, {"id": "2", "url": ""}]
    assert list(read_rows('\ufeffid, url\r\n1,"/a;b"\r\n\r\n2\r\n')) == rows
    assert list(read_rows('id\turl\n1\t"/a;b"\n2\t\t9\n')) == rows
    assert list(read_rows("id,x;y\n1,2\n", ";")) == [{"id,x": "1,2", "y": ""}]
    assert list(read_rows('"x;y;z",b\n1,2\n')) == [{"x;y;z": "1", "b": "2"}]
    assert list(read_rows('"Price, EUR";"Name ""x"", y"\n1;2\n')) == [{"Price, EUR": "1", 'Name "x", y': "2"}]
    assert list(read_rows('a;"b,c,\nd"\n1;2\n')) == [{"a": "1", "b,c,\nd": "2"}]
    assert list(read_rows("")) == []
    assert [row["id"] for row in Response(URL, body=b"id;n\n7;8\n").csv_rows()] == ["7"]
    assert list(Response(URL, body=b"id,n\n'7,5',8\n").csv_rows(quotechar="'")) == [{"id": "7,5", "n": "8"}]


@pytest.mark.parametrize("start", ["\r\n \r\n", "sep=;\r\n", "\ufeffSEP=;\n"])
def test_the_delimiter_of_csv_may_follow_empty_lines_or_be_stated_before_the_names(start):
    assert list(read_rows(f"{start}id;name\r\n1;a,b\r\n")) == [{"id": "1", "name": "a,b"}]


def test_a_csv_file_with_a_column_of_urls_is_a_sitemap():
    text = 'sku;Link;price\r\n1;https://shop.test/1;"9;50"\r\n2;/2;1\r\n3;;1\r\n'
    assert [entry.url for entry in read_sitemap(text.encode(), "https://shop.test/feed.csv")] == [
        "https://shop.test/1",
        "https://shop.test/2",
    ]


def test_rows_end_at_line_ends_only():
    separators = "\x0b\x0c\x1c\x85\u2028\u2029"
    rows = list(read_rows(f'id,text\r1,a{separators}b\n2,"c\r\nd"\r\n'))
    assert rows == [{"id": "1", "text": f"a{separators}b"}, {"id": "2", "text": "c\r\nd"}]


def test_a_huge_value_of_a_row_is_refused():
    rows = read_rows("id\n1\n" + "x" * 200_000)
    assert next(rows) == {"id": "1"}
    with pytest.raises(FeedError):
        next(rows)


@pytest.mark.parametrize(
    "item",
    [
        {"authors": 5},
        {"authors": "Ann", "author": [1]},
        {"date_published": "0001-01-01T00:00:00+14:00"},
        {"date_published": "Mon, 01 Jan 0001 00:00:00 +1400"},
        {"date_published": {}},
        {"tags": {"a": 1}, "title": ["a"], "id": 1e400},
        {"url": []},
    ],
)
def test_a_field_of_a_wrong_type_or_out_of_range_raises_no_error(item):
    body = msgspec.json.encode(
        {"items": [{"url": "https://blog.test/1"} | item, {"url": "https://blog.test/2"}]}
    )
    assert list(read_feed(body, URL))[1].url == "https://blog.test/2"
    assert list(read_sitemap(body, URL))[-1].url == "https://blog.test/2"


def test_a_date_that_is_out_of_range_in_utc_stays_as_it_is():
    text = RSS.replace("yesterday", "0001-01-01T00:00:00+14:00")
    assert list(read_feed(text.encode(), URL))[1].published == "0001-01-01T00:00:00+14:00"


def test_a_json_feed_that_is_nested_too_deeply_is_refused():
    body = b'{"items": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    with pytest.raises(FeedError, match="not a"):
        list(read_feed(body, "http://h.test/feed"))


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_the_charset_of_a_sitemap_may_be_in_its_header_alone(compress):
    body = "<urlset><url><loc>https://h.test/书</loc></url></urlset>".encode("gbk")
    response = Response(URL, headers={"content-type": "text/xml; charset=gbk"}, body=compress(body))
    assert [entry.url for entry in response.sitemap()] == [f"https://h.test/{quote('书')}"]


def test_a_null_in_a_json_feed_is_not_the_text_none():
    item = {
        "url": "https://blog.test/1",
        "title": None,
        "authors": [{"name": None}, {"name": "Ann"}],
        "tags": [None, "a"],
    }
    (entry,) = read_feed(msgspec.json.encode({"items": [item]}), URL)
    assert (entry.title, entry.author, entry.tags) == ("", "Ann", ("a",))


def test_a_reference_of_html_and_the_text_after_it_are_kept():
    text = RSS.replace("One &amp;", "Caf&eacute; &amp;").replace(
        "<title>Two", "<link>/?a=1&amp;b</link><title>Two&nbsp;&lt;"
    )
    one, two = read_feed(text.encode(), URL)
    assert (one.title, two.title, two.url) == ("Café & two", "Two\xa0<", "https://blog.test/?a=1&b")
    page = Response(URL, headers={"Content-Type": "application/rss+xml"}, body=text.encode())
    assert page.css("item title::text").getall() == ["Café & two", "Two\xa0<"]
    assert page.xpath("//item/link/text()").getall() == ["/1", "/?a=1&b"]


def test_a_comment_and_a_section_of_xml_stay_as_they_are():
    body = "<r>\x0b<!-- R&D &amp; < --><![CDATA[a &amp; <b>]]>&amp;</r>"
    page = Response(URL, headers={"Content-Type": "text/xml"}, body=body.encode())
    assert page.xpath("//comment()").getall() == ["<!-- R&D &amp; < -->"]
    assert page.xpath("string(/r)").get() == "a &amp; <b>&"


def test_a_document_keeps_its_own_entities():
    body = '<!DOCTYPE r [<!ENTITY hellip "own">]><r>&hellip;</r>'
    page = Response(URL, headers={"Content-Type": "text/xml"}, body=body.encode())
    assert page.xpath("string(/r)").get() == "own"
