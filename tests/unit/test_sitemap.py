"""Sitemaps: the formats that sites publish, and memory that does not grow with their size."""

import gzip
import subprocess
import sys
from datetime import UTC, datetime

import pytest

from skitter.web.sitemap import MAX_BYTES, SitemapEntry, SitemapError, read_sitemap

URL = "https://example.com/maps/sitemap.xml"
NAMESPACE = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:xhtml="http://www.w3.org/1999/xhtml"'
MAP = f"""<?xml version="1.0" encoding="UTF-8"?>
<urlset {NAMESPACE}>
  <url><loc> https://example.com/a?x=1&amp;y=2 </loc><lastmod>2026-11-01</lastmod><changefreq>daily</changefreq>
    <priority>0.8</priority>
    <xhtml:link rel="alternate" hreflang="de" href="https://example.com/de/a"/></url>
  <url><loc>/relative</loc></url>
  <url><lastmod>2026-11-01</lastmod></url>
  <url><loc>javascript:void(0)</loc></url>
</urlset>"""
INDEX = f"<sitemapindex {NAMESPACE}><sitemap><loc>https://example.com/1.xml.gz</loc></sitemap></sitemapindex>"
RSS = "<rss><channel><item><link>https://example.com/news</link><pubDate>Sun, 22 Nov 2026</pubDate></item></channel></rss>"
ATOM = (
    '<feed xmlns="http://www.w3.org/2005/Atom"><link href="/self"/><entry><link rel="alternate" href="/post"/>'
    "<updated>2026-11-22</updated></entry></feed>"
)


def urls(body, url=URL):
    return [entry.url for entry in read_sitemap(body, url)]


def test_an_entry_has_all_that_the_protocol_knows():
    first, second = read_sitemap(MAP.encode(), URL)
    assert first == SitemapEntry(
        "https://example.com/a?x=1&y=2",
        False,
        "2026-11-01",
        "daily",
        "0.8",
        {"de": "https://example.com/de/a"},
    )
    assert second == SitemapEntry("https://example.com/relative")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_encodings_and_packing(encoding, pack):
    text = MAP if encoding.startswith("utf-8") else MAP.replace("UTF-8", "UTF-16")
    assert len(urls(pack(text.encode(encoding)))) == 2
    lines = "https://example.com/1\r\nnothing\nhttps://example.com/2".encode(encoding)
    if encoding not in {"utf-16-le", "utf-16-be"}:  # a text without a mark is UTF-8
        assert urls(pack(lines)) == ["https://example.com/1", "https://example.com/2"]


def test_an_invalid_alternate_is_left_out():
    broken = MAP.replace(
        "<xhtml:link", '<xhtml:link rel="alternate" hreflang="fr" href="http://["/><xhtml:link'
    )
    assert next(read_sitemap(broken.encode(), URL)).alternates == {"de": "https://example.com/de/a"}


def test_indexes_feeds_and_robots_txt():
    assert list(read_sitemap(INDEX.encode(), URL)) == [
        SitemapEntry("https://example.com/1.xml.gz", is_sitemap=True)
    ]
    assert [(entry.url, entry.lastmod) for entry in read_sitemap(RSS.encode(), URL)] == [
        ("https://example.com/news", "Sun, 22 Nov 2026")
    ]
    assert urls(ATOM.encode()) == ["https://example.com/post"]
    robots = b"User-agent: *\nDisallow:\nSITEMAP: /map.xml # all\nSitemap: https://example.com/other.xml\n"
    assert list(read_sitemap(robots, "https://example.com/robots.txt?x")) == [
        SitemapEntry("https://example.com/map.xml", is_sitemap=True),
        SitemapEntry("https://example.com/other.xml", is_sitemap=True),
    ]


ARTICLE = '<entry><link href="/a"/>{}</entry>'
DATED = "<published>2026-11-01</published><updated>2026-11-22T10:00:00Z</updated>"
NOW = datetime(2026, 11, 28, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("body", "lastmod", "for_revisit"),
    [
        (MAP, "2026-11-01", "2026-11-01"),
        (RSS, "Sun, 22 Nov 2026", ""),
        (ATOM, "2026-11-22", "2026-11-22"),
        (f"<feed>{ARTICLE.format(DATED)}</feed>", "2026-11-22T10:00:00Z", "2026-11-22T10:00:00Z"),
        (f"<feed>{ARTICLE.format('<published>2026-11-01</published>')}</feed>", "2026-11-01", ""),
        (
            '{"items": [{"url": "/a", "date_published": "2026-11-01T00:00:00Z"}]}',
            "2026-11-01T00:00:00+00:00",
            "",
        ),
    ],
    ids=["sitemap", "rss", "atom", "atom with both", "atom published", "json"],
)
def test_a_time_of_publication_is_not_a_lastmod(body, lastmod, for_revisit):
    entry = next(read_sitemap(body.encode(), URL))
    assert (entry.lastmod, entry.lastmod_for_revisit(NOW)) == (lastmod, for_revisit)


@pytest.mark.parametrize(
    ("lastmod", "for_revisit"),
    [
        ("2026-11-21T00:00:00Z", "2026-11-21T00:00:00Z"),
        ("2026-11-20T23:59:59Z", "2026-11-20"),
        ("2020-01-02 03:04", "2020-01-02"),
        ("2027-01-02T03:04Z", "2027-01-02T03:04Z"),
        ("2020-01", "2020-01"),
        ("1 Jan 2020 10:00", "1 Jan 2020 10:00"),
        ("2026-11-21T00:00:00Z" + " " * 100, ""),
    ],
)
def test_an_old_lastmod_is_shortened_to_its_date(lastmod, for_revisit):
    assert SitemapEntry(URL, lastmod=lastmod).lastmod_for_revisit(NOW) == for_revisit


@pytest.mark.parametrize("body", [b"<html><body>not found</body></html>", b"<", b"<!-- -->"])
def test_another_document_is_an_error(body):
    with pytest.raises(SitemapError):
        urls(body)


def test_entries_before_a_broken_end_are_kept():
    whole = MAP.encode()
    assert urls(whole[: whole.index(b"<url><lastmod>")]) == [
        "https://example.com/a?x=1&y=2",
        "https://example.com/relative",
    ]
    packed = gzip.compress(b"https://example.com/1\n" * 100_000)
    found = urls(packed[: len(packed) // 2])
    assert set(found[:-1]) == {"https://example.com/1"}


def test_a_bomb_is_refused_without_being_unpacked():
    bomb = gzip.compress(b"https://example.com/1\n" * (MAX_BYTES // 22 + 10_000))
    with pytest.raises(SitemapError, match=str(MAX_BYTES)):
        sum(1 for _ in read_sitemap(bomb, URL))


# VmHWM, because a child inherits ru_maxrss from the process that starts it.
MEMORY = """
import gzip, re
from skitter.web.sitemap import read_sitemap
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
line = b"<url><loc>https://example.com/%s</loc><lastmod>2026-11-01</lastmod></url>" % (b"x" * 930)
body = gzip.compress(b"<urlset>" + line * 50_000 + b"</urlset>", 1)
list(read_sitemap(b"<urlset>" + line + b"</urlset>", "https://example.com/"))
before = peak()
assert sum(1 for _ in read_sitemap(body, "https://example.com/")) == 50_000
print(before, peak())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of the memory from /proc")
def test_a_sitemap_of_50_mb_is_read_within_20_mb_of_memory(tmp_path):
    script = MEMORY.replace(
        'body = gzip.compress(b"<urlset>" + line * 50_000 + b"</urlset>", 1)',
        f'body = open({str(tmp_path / "map.gz")!r}, "rb").read()',
    )
    line = b"<url><loc>https://example.com/%s</loc><lastmod>2026-11-01</lastmod></url>" % (b"x" * 930)
    (tmp_path / "map.gz").write_bytes(gzip.compress(b"<urlset>" + line * 50_000 + b"</urlset>", 1))
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    before, after = map(int, result.stdout.split())
    assert after - before < 20_000  # kB


@pytest.mark.parametrize(
    "body",
    [
        b"<urlset>" + b"<a/>" * 60_000,
        b"<urlset><url>" + b"<a>x</a>" * 60_000,
        b"\n" * 60_000,
        b"x\n" * 60_000,
    ],
)
def test_a_document_without_urls_is_not_read_to_its_end(body):
    found = []
    with pytest.raises(SitemapError):
        found.extend(read_sitemap(body + b"<url><loc>http://site.test/</loc></url>", URL))
    assert found == []


MISTAKES = {
    "ampersand": b"<image>R&D</image>",
    "query": b"<loc2>/?a=1&b=2</loc2>",
    "entity": b"<title>caf&eacute;&nbsp;</title>",
    "unknown entity": b"<title>&unknown;</title>",
    "byte": b"<title>\xff</title>",
    "control": b"<title>\x0b</title>",
    "comment": b"<!-- a -- b -->",
    "less": b"<title>1 < 2 <> 3</title>",
    "reference": b"<title>&#0;&#x;</title>",
    "attribute": b'<image x="1" x="2"/>',
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_does_not_change_the_urls_after_it(mistake):
    body = MAP.encode().replace(
        b"<url><loc>/rel", mistake + b"<url><loc>/2?a=1&amp;b=2</loc></url><url><loc>/rel"
    )
    assert urls(body) == [
        "https://example.com/a?x=1&y=2", "https://example.com/2?a=1&b=2", "https://example.com/relative"
    ]  # fmt: skip


def test_an_ampersand_that_is_not_escaped_belongs_to_the_url():
    texts = ["?a=1&b=2", "?a=1&copy=2", "?a=1&amp=2&lt", "?a=1&amp;b=2", "?a=1&#38;b=2"]
    body = "".join(f"<url><loc>/{text}</loc></url>" for text in texts)
    assert urls(f"<urlset>{body}</urlset>".encode()) == [
        f"https://example.com/{text}"
        for text in ("?a=1&b=2", "?a=1&copy=2", "?a=1&amp=2&lt", "?a=1&b=2", "?a=1&b=2")
    ]


def test_sections_stay_as_they_are():
    """An `&` in CDATA is not a reference, and `<![CDATA[` in a comment begins no section."""
    entry = "<url><!-- <![CDATA[ --><loc>/?a=1&amp;b<![CDATA[=2&c&lt;=]]>&amp;d</loc></url>"
    assert urls(f"<urlset>{entry}</urlset>".encode()) == ["https://example.com/?a=1&b=2&c&lt;=&d"]


@pytest.mark.parametrize("shift", range(0, 140, 3))
def test_references_and_sections_may_cross_the_pieces_in_which_a_sitemap_is_read(shift):
    start = "<urlset>" + " " * (65_536 - 8 - shift)
    entry = "<url><loc>/?a&amp;b&c&hellip;<![CDATA[&amp;]]]]><![CDATA[<]]></loc><!-- & --></url>"
    (found,) = urls(f"{start}{entry}</urlset>".encode())
    assert found == "https://example.com/?a&b&c%E2%80%A6&amp;]]%3C"


@pytest.mark.parametrize("encoding", ["utf-16", "iso-2022-jp"])
def test_a_letter_with_the_byte_of_an_ampersand_is_kept(encoding):
    """In ISO-2022-JP, the two bytes of a Greek letter may be those of `&` and another sign."""
    text = f'<?xml version="1.0" encoding="{encoding}"?><urlset><url><loc>/Ωα&amp;Ω</loc></url></urlset>'
    assert urls(text.encode(encoding)) == ["https://example.com/%CE%A9%CE%B1&%CE%A9"]


@pytest.mark.parametrize(
    "damage", ["</url>", "</urlset><urlset>", "<x a='", "<!-- "], ids=["tag", "end", "quote", "comment"]
)
def test_a_sitemap_that_cannot_be_read_to_its_end_is_reported(damage, caplog):
    assert urls(MAP.replace("<url><loc>/rel", f"{damage}<url><loc>/rel").encode())[0].endswith("y=2")
    (message,) = caplog.messages
    assert message.startswith(f"{URL} is damaged")
    assert message.endswith("entries after the first 1 may be missing")


def test_a_sitemap_without_damage_is_not_reported(caplog):
    assert urls(MAP.encode() + b"\n<!-- made by x -->\n")
    assert urls(MAP.replace("</urlset>", "<title>1 < 2 &nbsp;</title></urlset>").encode())
    assert caplog.messages == []
