"""Fuzz targets: any input of the web or a user becomes a value or a documented error, never another exception.

Each run draws new examples. ``make fuzz`` draws as many as ``SKITTER_FUZZ`` says and keeps what fails in ``.hypothesis``;
found cases are added here as examples.
"""

import contextlib
import gzip
import os

import click
from hypothesis import example, given, settings
from hypothesis import strategies as st

from recipe_runs import compile_text
from skitter import Response
from skitter.cli.main import skitter
from skitter.errors import FetchError, SettingsError, SkitterError, UndecodableRecord, UsageError
from skitter.fetch.cookie_jar import CookieJar
from skitter.fetch.decoding import decode_body
from skitter.fetch.robots_rules import RobotsPolicy
from skitter.frontends.recipe.source import RecipeError
from skitter.request import decode_request, encode_request
from skitter.settings import Settings, build_settings, declarations
from skitter.web.feeds import FeedError
from skitter.web.headers import find_header, parse_headers, parse_refresh, parse_retry_after
from skitter.web.sitemap import SitemapError
from skitter.web.urls import canonical, identity, join_all, normalize

fuzzed = settings(max_examples=int(os.environ.get("SKITTER_FUZZ", "60")))
BASE = "http://www.example.test/folder/page?a=1"
LIMIT = 100_000


def text_of_tokens(*pieces, longest=12):
    """Return a strategy for text of the tokens that matter to a parser, mixed with any other text."""
    return st.lists(st.one_of(st.sampled_from(pieces), st.text(max_size=5)), max_size=longest).map("".join)


URLS = text_of_tokens(
    "http:",
    "https:",
    "//",
    "/",
    "..",
    "?",
    "#",
    "@",
    ":",
    "[",
    "]",
    "%",
    "%2",
    "xn--",
    "\\",
    "\t",
    " ",
    "\udc80",
)
MARKUP = text_of_tokens(
    "<a href=", "<base href=", ">", "</a>", "<", "&#x", "&amp", '"', "'", "<!--", "<script>", "<table><td>", "<b c=",
    "<meta charset=", "<svg>", "\0", "\r", "\udc80", "<template>", "<title>", "javascript:", "<form>",
)  # fmt: skip
HEADERS = text_of_tokens(
    "\r\n",
    "\n",
    "\r",
    ": ",
    ":",
    " ",
    "Content-Type",
    "Set-Cookie",
    "Location",
    ";",
    "=",
    ",",
    "charset=",
    "\x85",
    "\0",
)
COOKIES = text_of_tokens(
    "=",
    ";",
    "; Path=",
    "; Domain=",
    "; Expires=",
    "; Max-Age=",
    "; Secure",
    "__Host-",
    "Wed, 09 Jun 2021",
    "\0",
)
ROBOTS = text_of_tokens(
    "User-agent: ",
    "Disallow: ",
    "Allow: ",
    "Crawl-delay: ",
    "Sitemap: ",
    "\n",
    "\r",
    "*",
    "$",
    "/",
    "%",
    "%2F",
    "#",
    ":",
    "\ufeff",
)
YAML = text_of_tokens(
    "start: ",
    "fields:",
    "\n",
    "  ",
    "- ",
    "{",
    "}",
    "[",
    "]",
    "&a",
    "*a",
    "!!",
    ":",
    "|",
    '"',
    "#",
    "${",
    "follow:",
)
TOML = text_of_tokens(
    "start = ", "[fields]", "[[", "]]", "\n", '"', "'''", "=", ".", "#", "{", "}", "1e999", "${"
)


@fuzzed
@given(href=URLS)
@example(href="0#\udc80")
def test_any_text_is_a_url_or_none(href):
    url = normalize(href, BASE)
    (joined,) = join_all(BASE, [href])
    if url is not None:
        assert joined == url
        assert normalize(url) == url
        assert canonical(canonical(url)) == canonical(url)
        assert identity(url)


@fuzzed
@given(
    block=st.one_of(HEADERS.map(lambda text: text.encode("utf-8", "surrogatepass")), st.binary(max_size=80))
)
@example(block=b"Content-Type: :")
def test_any_bytes_are_headers(block):
    headers = parse_headers(block)
    for name in headers:
        assert "\n" not in headers[name]
        assert "\n" not in name
    find_header(block, "content-type")
    response = Response(BASE, headers=block, body=b"<p>text")
    assert isinstance(response.encoding, str)
    if response.is_text:
        assert isinstance(response.text, str)


@fuzzed
@given(value=st.one_of(HEADERS, st.text(alphabet="0123456789;,.=' GMTurlJan:-+", max_size=40)))
def test_any_text_is_a_time_to_wait_or_none(value):
    seconds = parse_retry_after(value)
    assert seconds is None or 0 <= seconds <= 86_400
    refresh = parse_refresh(value)
    assert refresh is None or refresh[0] >= 0


@fuzzed
@given(lines=st.lists(COOKIES, max_size=4), url=URLS)
def test_any_text_is_a_cookie_or_none(lines, url):
    jar = CookieJar()
    jar.store(lines, BASE, 1e9)
    for cookie in jar.select(BASE):
        assert not set("\r\n\0;") & set(cookie.pair)
    target = normalize(url, BASE)
    if target is not None and target.startswith("http"):
        jar.select(target)


@fuzzed
@given(text=ROBOTS, token=st.sampled_from(["skitter", "*", "a"]), path=URLS)
def test_any_bytes_are_a_robots_txt(text, token, path):
    rules = RobotsPolicy(text.encode("utf-8", "surrogatepass"), token)
    url = normalize(path, BASE)
    if url is not None:
        assert rules.allowed(url) in {True, False}
    assert rules.crawl_delay is None or rules.crawl_delay >= 0


@fuzzed
@given(
    text=MARKUP,
    kind=st.sampled_from(["text/html", "text/xml", "application/xhtml+xml", "application/json", ""]),
)
def test_any_text_is_a_page(text, kind):
    body = text.encode("utf-8", "surrogatepass")
    response = Response(BASE, headers={"Content-Type": kind}, body=body)
    try:
        for query in ("a", "a::attr(href)", "*::text", "b, p > *"):
            response.css(query).getall()
        for query in ("//a/@href", "//text()", "count(//*)"):
            response.xpath(query).getall()
        response.links()
        list(response.follow_all("a"))
    except UsageError:
        pass


FEEDS = text_of_tokens(
    "<urlset>", "<url>", "</url>", "<loc>", "</loc>", "<sitemapindex>", "<rss>", "<channel>", "<item>", "<link>", "<feed>",
    "<entry>", "<xhtml:link href=", "<!DOCTYPE a [", "<!ENTITY a ", "&a;", "<![CDATA[", "<?xml encoding='", "utf-16", "\ufeff",
    "http://a.test/", "url,", ";", "\t", '"', "\n", "\r", "\0", '{"items":', "[", "]", "}", "Sitemap: ", "\udc80",
)  # fmt: skip
JSON = text_of_tokens(
    "[", "]", "{", "}", '"a":', ",", "1e-300", "1e999", "-", "NaN", "null", '"\\ud800"', '"', "\ufeff", "9" * 5000, "\udc80"
)  # fmt: skip


@fuzzed
@given(
    text=FEEDS,
    encoding=st.sampled_from(["utf-8", "utf-16", "latin-1"]),
    name=st.sampled_from(["map.xml", "robots.txt", "x"]),
    packed=st.booleans(),
)
@example(text="Sitemap: Sitemap: ", encoding="latin-1", name="robots.txt", packed=False)
@example(
    text="<rss><item>&unknown;<title>x</title></item></rss>", encoding="utf-8", name="feed.xml", packed=False
)
def test_any_bytes_are_a_sitemap_or_a_feed_or_refused(text, encoding, name, packed):
    body = text.encode(encoding, "replace")
    response = Response(
        f"http://a.test/{name}", body=gzip.compress(body)[: -len(text) or None] if packed else body
    )
    for read, refusal in ((response.sitemap, SitemapError), (response.feed, FeedError)):
        with contextlib.suppress(refusal):
            assert all(entry.url == "" or "://" in entry.url for entry in read())


@fuzzed
@given(text=FEEDS, delimiter=st.sampled_from(["", ",", ";", "\t"]))
def test_any_text_is_rows_or_refused(text, delimiter):
    response = Response(
        BASE, headers={"Content-Type": "text/csv"}, body=text.encode("utf-8", "surrogatepass")
    )
    with contextlib.suppress(FeedError):
        assert all(isinstance(value, str) for row in response.csv_rows(delimiter) for value in row.values())


@fuzzed
@given(text=JSON, encoding=st.sampled_from(["utf-8", "utf-16", "utf-32", "latin-1"]))
def test_any_bytes_are_json_or_a_value_error(text, encoding):
    with contextlib.suppress(ValueError):
        Response(BASE, body=text.encode(encoding, "replace")).json()


@fuzzed
@given(
    query=text_of_tokens(
        "a",
        "*",
        ">",
        "[",
        "]",
        "=",
        ":",
        "::",
        "(",
        ")",
        "'",
        "//",
        "@",
        "text()",
        "not(",
        "has(",
        ",",
        "$x",
        "\udc80",
    )
)
def test_any_query_answers_or_is_refused(query):
    response = Response(BASE, headers={"Content-Type": "text/html"}, body=b"<p class=x>a<a href=/b>c</a>")
    for select in (response.css, response.xpath):
        with contextlib.suppress(UsageError):
            select(query).getall()


@fuzzed
@given(record=st.binary(max_size=60), damage=st.integers(0, 200))
@example(record=b"", damage=0)
def test_any_bytes_are_a_stored_request_or_undecodable(record, damage):
    whole = encode_request(Response(BASE).follow("/x", meta={"a": [1, "b"]}, headers={"A": "b"}))
    for data in (record, whole[: damage % len(whole)], whole[:1] + record):
        with contextlib.suppress(UndecodableRecord):
            decode_request(BASE, data)


@fuzzed
@given(
    body=st.binary(max_size=200),
    codings=st.lists(st.sampled_from(["gzip", "br", "zstd", "deflate", "other"]), max_size=3),
)
def test_any_body_is_decoded_or_refused(body, codings):
    with contextlib.suppress(FetchError):
        assert len(decode_body(body, codings, LIMIT)) <= LIMIT


@fuzzed
@given(
    name=st.one_of(st.sampled_from(list(declarations(Settings))), st.text(max_size=8)),
    value=text_of_tokens("1", "-", "e9", "[", "{", '"', ",", "none", "inf", "nan", "true"),
)
def test_any_text_is_a_setting_or_refused(name, value):
    try:
        build_settings({name: value})
    except SettingsError as error:
        assert error.remedy


@fuzzed
@given(text=YAML)
def test_any_yaml_is_a_recipe_or_refused(text):
    try:
        compile_text(text, "fuzzed.yaml", complete=False)
    except RecipeError as error:
        assert error.lines


@fuzzed
@given(text=TOML)
def test_any_toml_is_a_recipe_or_refused(text):
    try:
        compile_text(text, "fuzzed.toml", complete=False)
    except RecipeError as error:
        assert error.lines


@fuzzed
@given(
    command=st.sampled_from(["crawl", "run", "status", "failures", "export", "config", "nonsense"]),
    arguments=st.lists(
        st.one_of(
            st.sampled_from(["--", "-s", "--limit", "-o", "--depth", "x=1", "--nope", "-1"]),
            st.text(max_size=6),
        ),
        max_size=5,
    ),
)
def test_any_arguments_are_parsed_or_refused(command, arguments):
    context = click.Context(skitter, info_name="skitter")
    try:
        _name, found, rest = skitter.resolve_command(context, [command, *arguments])
        found.make_context(command, rest, parent=context).close()
    except (click.ClickException, click.exceptions.Exit, SkitterError):
        pass
