"""The rules of RFC 6265bis (draft version 20), for jars of one process and for those that a fleet shares."""

import datetime as dt
import time

import pytest

from skitter.fetch.cookie_jar import MAX_COOKIES_A_SITE, MAX_LIFETIME, CookieJar, parse_date, parse_set_cookie
from skitter.fetch.cookies import CookieJars
from skitter.fetch.identity.cookies import JarCookies, SharedCookies
from skitter.request import Request
from skitter.response import Response
from skitter.web.urls import registered_domain

HOME = "http://home.example.org/shop/cart"
PAST, FUTURE = "Thu, 10 Apr 1980 16:33:12 GMT", "Fri, 07 Aug 2099 08:04:19 GMT"


class Notes:
    """Notes as a frontier stores them: bytes only."""

    def __init__(self):
        self._kept = {}

    async def get(self, key):
        return self._kept.get(key)

    async def compare_and_swap(self, key, old, new, ttl):
        if self._kept.get(key) != old:
            return False
        self._kept[key] = new
        return True


class Jar:
    """A jar under test: responses go in, the header of a request comes out."""

    def __init__(self, cookies):
        self._cookies = cookies

    async def take(self, *lines, url=HOME):
        block = "".join(f"Set-Cookie: {line}\r\n" for line in lines).encode("latin-1")
        await self._cookies.absorb(Response(url, headers=block, request=Request(url)))

    async def sent(self, url=HOME, **fields):
        return await self._cookies.header_for(Request(url, **fields)) or ""


@pytest.fixture(params=["local", "shared"])
def new_jar(request):
    registered_domain("example.com")  # otherwise the first lookup would read the list on the event loop
    if request.param == "local":
        return lambda: Jar(JarCookies(CookieJars()))
    return lambda: Jar(SharedCookies(Notes(), CookieJars()))


@pytest.fixture
def jar(new_jar):
    return new_jar()


PARSED = [
    (["fig=ripe"], "fig=ripe"),
    (["fig=ripe; Expires=" + FUTURE], "fig=ripe"),
    (["fig=ripe; Expires=" + PAST, "plum=blue; Expires=" + FUTURE], "plum=blue"),
    (["fig=ripe; max-age=100;"], "fig=ripe"),
    (["fig=ripe; max-age=0;"], ""),
    (["fig=ripe; max-age=-1"], ""),
    (["fig=ripe; version=1;"], "fig=ripe"),
    (["fig=ripe; Version=1000"], "fig=ripe"),
    (['fig=ripe; own="1 or more"'], "fig=ripe"),
    (["fig=ripe", "fig=rotten"], "fig=rotten"),
    (["z=1", "a=2"], "z=1; a=2"),
    (["z=y, a=b"], "z=y, a=b"),
    (["z=y; fig=ripe, a=b"], "z=y"),
    (["fig=b;max-age=3600, c=d;path=/"], "fig=b"),
    (["a=b", "=", "c=d"], "a=b; c=d"),
    (["a=b", "x=", "c=d"], "a=b; x=; c=d"),
    (["", "   ", ";", "; bar", "="], ""),
    # white space and quotes
    (["   fig     =       ripe             ;       x"], "fig=ripe"),
    (["fig=  ripe    "], "fig=ripe"),
    (["\tfig\t=\tripe\t"], "fig=ripe"),
    (['fig="ripe"'], 'fig="ripe"'),
    (['fig="  ripe "'], 'fig="  ripe "'),
    (['fig="ri;pe"'], 'fig="ri'),
    (['fig="a" "b"  ;'], 'fig="a" "b"'),
    (['"a=b"=c', '"a=d'], '"a=d'),
    (["A=== BC  ;x;;;  y"], "A=== BC"),
    (["a b=c"], "a b=c"),
    # names
    *(([f"{name}=ripe"], f"{name}=ripe") for name in ["1", "$", "!a", "@a", "#a", "$a", "%a", "^a", "&a", "*a", "(a", ")a", "-a", "_a", "+"]),
    (["$Version=1; fig=ripe"], "$Version=1"),
    # a cookie without a name (5.6, step 5 and 6; RFC 6265 ignored it)
    (["fig"], "fig"),
    (["=fig"], "fig"),
    (["=fig=ripe", "seven"], "seven"),
    (["===a=bar"], "==a=bar"),
    (["fig; path=/", "a=b"], "fig; a=b"),
    # a value is sent as it was received
    (["a=" + "全部 хлеб".encode().decode("latin-1")], "a=全部 хлеб"),
    (["全=1".encode().decode("latin-1")], "全=1"),
    (["a=caf\xe9"], "a=caf\udce9"),
]  # fmt: skip


async def test_cookies_that_a_response_sets_are_sent(new_jar):
    """5.6, and the parser cases of http-state."""
    for lines, sent in PARSED:
        jar = new_jar()
        await jar.take(*lines, url="http://home.example.org/")
        assert (lines, await jar.sent("http://home.example.org/")) == (lines, sent)


async def test_a_line_with_a_control_character_is_ignored(jar):
    """5.6, step 1. A tab is allowed."""
    controls = [chr(code) for code in range(0x20) if code not in {0x09, 0x0A}] + ["\x7f"]
    lines = [
        line.format(control) for control in controls for line in ("a{}b=c", "a=b{}c", "a=b; path=/{}; x")
    ]
    await jar.take("before=1", *lines, "after=\t2\t; x=\t", url="http://home.example.org/")
    assert await jar.sent("http://home.example.org/") == "before=1; after=2"


ATTRIBUTES = [
    ("Secure", False), ("seCURe", False), ('"Secure"', True), ("Secure=", False), ("Secure=x", False),
    ("Secure qux", True), ("Secure =x", False), ("Secure; qux", False), ("      Secure     ;", False),
    ("qux; Secure", False), ('x="aaa;bbb"; Secure', False),
    ("Path", True), ("Path=", True), ("Path=/", True), ("Path=/qux", False), ("Path    =/qux", False),
    ("Path=    /qux", False), ("Path=/qux      ; x", False), ("Path=/qux; Path=/", True), ("Path=/; Path=/qux", False),
    ("Path=/qux; Path=/shop", True), ("Path=/shop; Path=/qux", False), ("Path=/qux; Path=", True), ("Path=; Path=/qux", False),
    ("path=qux", True), ('path="/qux"', True), ("Path=/SHOP", False), ("Path=/sh%6Fp", False),
    ("Max-Age=50,399", True), ("Max-Age=soon", True), ("Max-Age=2.63", True), ("Max-Age=", True), ("Max-Age=+0", True),
    ("Max-Age=0; Max-Age=60", True), ("Max-Age=60; Max-Age=0", False), ("Max-Age=60; Max-Age=x", True),
    (f"Max-Age=60; Expires={PAST}", True), (f"Max-Age=0; Expires={FUTURE}", False), (f"Expires={PAST}; Max-Age=x", False),
    (f"Expires={PAST}; Expires={FUTURE}", True), (f"Expires={FUTURE}; Expires={PAST}", False), ("Expires=never", True),
    (f"Max-Age={'9' * 400}", True), (f"Max-Age=-{'9' * 400}", False),
    ("Max-Age=0; Max-Age=" + "6" * 1025, False), ("Path=/qux; Path=/" + "x" * 1024, False),
    ("SameSite=Lax", True), ("SameSite=Strict", True), ("SameSite=x", True), ("HttpOnly", True),
]  # fmt: skip


async def test_of_valid_attributes_the_last_one_counts(new_jar):
    """5.6.1 to 5.6.7: a secure cookie of an http response, and a cookie of another path, are not sent."""
    for attributes, is_sent in ATTRIBUTES:
        jar = new_jar()
        await jar.take(f"fig=ripe; {attributes}")
        assert (attributes, await jar.sent()) == (attributes, "fig=ripe" if is_sent else "")


DOMAINS = [
    ("", ["home.example.org"], ["example.org", "sub.home.example.org", "evil.example.org", "example.com"]),
    ("domain=home.example.org", ["home.example.org", "sub.home.example.org", "a.b.home.example.org"], ["example.org", "other.example.org", "xhome.example.org"]),
    ("domain=.home.example.org", ["home.example.org", "sub.home.example.org"], ["other.example.org"]),
    ("domain=example.org", ["home.example.org", "example.org", "other.example.org"], ["example.com", "badexample.org"]),
    ("domain=  .example.org  ", ["other.example.org"], []),
    ("domain=home.eXaMpLe.org", ["hoMe.eXaMplE.org"], []),
    ("domain=example.org; domain=home.example.org", ["home.example.org"], ["other.example.org"]),
    ("domain=home.example.org; domain=example.org", ["other.example.org"], []),
    ("domain=example.com; domain=example.org", ["home.example.org"], []),
    ("domain=", ["home.example.org"], ["sub.home.example.org"]),
    ("domain=example.org; domain=", ["home.example.org"], ["example.org"]),
    *((f"domain={bad}", [], ["home.example.org", "example.org", "other.example.org", "sub.home.example.org"])
      for bad in ["other.example.org", "sub.home.example.org", "..home.example.org", "home..example.org",
                  " . home.example.org", "home.example.org.", "home.example.org .", ".org", ".org.", "org",
                  '"home.example.org"', "home.example.org:80", "example.com", "bücher.org",
                  "example.org; domain=example.com"]),
]  # fmt: skip


async def test_a_cookie_goes_to_its_hosts_only(new_jar):
    """5.1.3 and 5.7, steps 7 to 11, and the domain cases of http-state."""
    for attributes, goes_to, stays_away_from in DOMAINS:
        jar = new_jar()
        await jar.take(f"fig=ripe; {attributes}")
        for host in goes_to:
            assert (attributes, host, await jar.sent(f"http://{host}/shop/")) == (
                attributes,
                host,
                "fig=ripe",
            )
        for host in stays_away_from:
            assert (attributes, host, await jar.sent(f"http://{host}/shop/")) == (attributes, host, "")


SUFFIXES = [
    ("shop.co.uk", "co.uk", False), ("shop.co.uk", "shop.co.uk", True), ("me.github.io", "github.io", False),
    ("github.io", "github.io", True), ("co.uk", "co.uk", True), ("a.b.kawasaki.jp", "b.kawasaki.jp", False),
    ("localhost", "localhost", True), ("intranet", ".intranet", True), ("a.intranet", "intranet", False),
    ("127.0.0.1", "127.0.0.1", True), ("127.0.0.1", "0.0.1", False), ("[::1]", "::1", True),
]  # fmt: skip


async def test_a_public_suffix_sets_cookies_for_itself_only(new_jar):
    """5.7, step 9. An IP address has no domain above it (5.1.3)."""
    for host, domain, is_kept in SUFFIXES:
        jar = new_jar()
        await jar.take(f"fig=ripe; Domain={domain}", url=f"http://{host}/")
        assert (host, domain, await jar.sent(f"http://{host}/")) == (
            host,
            domain,
            "fig=ripe" if is_kept else "",
        )
        if domain in {"github.io", "co.uk"}:
            assert await jar.sent(f"http://other.{domain}/") == ""


PATHS = [
    ("/a/b", "/a/b", True), ("/a/b", "/a/b?q=1", True), ("/a/b", "/a/b/c", True), ("/a/b", "/a/bc", False),
    ("/a/b", "/a", False), ("/a/b/", "/a/b", False), ("/a/b/", "/a/b/", True), ("/a/", "/a//b", True),
    ("/a", "/A", False), ("/a/b?", "/a/b", False), ("/a/b#", "/a/b", False), ("/%6F", "/o", False), ("/", "/any", True),
]  # fmt: skip


async def test_a_cookie_goes_to_its_path(new_jar):
    """5.1.4, and the path cases of http-state."""
    for path, target, matches in PATHS:
        jar = new_jar()
        await jar.take(f"fig=ripe; path={path}")
        sent = await jar.sent(f"http://home.example.org{target}")
        assert (path, target, sent) == (path, target, "fig=ripe" if matches else "")


async def test_the_default_path_is_the_folder_of_the_page(new_jar):
    """5.1.4."""
    for page, default in [("/", "/"), ("/a", "/"), ("/a/", "/a"), ("/a/b", "/a"), ("/a/b/c?x=/y", "/a/b")]:
        jar = new_jar()
        await jar.take("fig=ripe", url=f"http://home.example.org{page}")
        assert await jar.sent(f"http://home.example.org{default}") == "fig=ripe"
        assert await jar.sent("http://home.example.org/other") == ("fig=ripe" if default == "/" else "")


async def test_longer_paths_come_first_and_then_older_cookies(jar):
    """5.8.3, step 2; a cookie that is set again keeps its age (5.7, step 24)."""
    await jar.take("a=1; path=/", "b=2; path=/shop", "c=3; path=/", "d=4; path=/shop/cart")
    await jar.take("a=5; path=/")
    assert await jar.sent() == "d=4; b=2; a=5; c=3"


async def test_the_same_name_may_exist_once_for_each_domain_and_path(jar):
    """5.7, step 24."""
    await jar.take("k=0", "k=1; path=/shop/cart", "k=2; path=/", "k=3; path=/bar", "k=4; domain=example.org")
    assert await jar.sent() == "k=1; k=0; k=4; k=2"
    await jar.take("k=; Max-Age=0", "k=; path=/; Max-Age=0")
    assert await jar.sent() == "k=1; k=4"


async def test_a_cookie_can_be_deleted_by_the_answer_that_sets_it(jar):
    """5.7, step 25, and mozilla0009 and 0010 of http-state."""
    await jar.take("a=1; Max-Age=60", "b=1; Max-Age=60", "a=2; Max-Age=0", "c=1; Max-Age=0")
    assert await jar.sent() == "b=1"
    await jar.take(f"b=; Expires={PAST}")
    assert await jar.sent() == ""


async def test_old_servers_delete_cookies_with_dates_of_their_own(jar):
    for past in ("Mon Dec 10 16:32:30 2007 GMT", "Thursday, 01-Jan-1970 00:00:00 GMT", "1 Jan 98 0:0:0"):
        await jar.take("a=1", f"b=1; Expires={past}")
        assert await jar.sent() == "a=1"
        await jar.take(f"a=; Expires={past}")
        assert await jar.sent() == ""


async def test_a_secure_cookie_stays_secure(jar):
    """5.7, steps 12 and 13 ("leave secure cookies alone"), and 5.8.3."""
    await jar.take(
        "sid=good; Secure; Path=/", "pin=good; Secure; Path=/login", url="https://home.example.org/"
    )
    await jar.take(
        "sid=evil; Path=/",
        "sid=evil; Path=/shop",
        "sid=evil; Domain=example.org",
        "new=1; Secure",
        "pin=x; Path=/",
    )
    assert await jar.sent("https://home.example.org/shop/") == "sid=good; pin=x"
    assert await jar.sent("http://home.example.org/login") == "pin=x"
    await jar.take("pin=evil; Path=/login/en", "sid=; Max-Age=0; Path=/")
    assert await jar.sent("https://home.example.org/login/en") == "pin=good; sid=good; pin=x"
    await jar.take("sid=better; Path=/", url="https://home.example.org/")
    assert await jar.sent() == "sid=better; pin=x"


PREFIXES = [
    ("__Secure-a=1; Secure", True), ("__Secure-a=1", False), ("__secure-a=1", False), ("__SECURE-a=1; Secure=x", True),
    ("__Host-a=1; Secure; Path=/", True), ("__Host-a=1; Secure", False), ("__Host-a=1; Path=/", False),
    ("__host-a=1; Secure; Path=/; Domain=home.example.org", False), ("__HOST-a=1; Secure; Path=/shop", False),
    ("__host-a=1", False), ("__Host-a=1; Secure; Path=/; Domain=", True), ("__Hosta=1", True),
    ("=__Host-a=1; Secure; Path=/", False), ("__Secure-a; Secure", False), ("=__secure-a=1; Secure", False),
]  # fmt: skip


async def test_prefixes_hold_in_any_case(new_jar):
    """4.1.3 and 5.7, steps 20 to 22; a cookie without a name must not look like a prefixed one."""
    for line, is_kept in PREFIXES:
        jar = new_jar()
        await jar.take(line, url="https://home.example.org/")
        assert (line, await jar.sent("https://home.example.org/") != "") == (line, is_kept)


SAME_SITE = [
    ("Strict", None, "GET", True), ("Strict", "http://www.example.org/", "POST", True), ("Strict", "http://other.test/", "GET", False),
    ("Strict", "https://home.example.org/", "GET", False), ("Lax", "http://other.test/", "GET", True),
    ("lax", "http://other.test/", "HEAD", True), ("LAX", "http://other.test/", "POST", False), ("Lax", "http://example.org/", "POST", True),
    ("None", "http://other.test/", "POST", True), ("x", "http://other.test/", "POST", True), ("Strict; SameSite=None", "http://other.test/", "GET", True),
]  # fmt: skip


async def test_same_site_cookies_stay_within_their_site(new_jar):
    """5.2 and 5.6.7; the site of a request is that of the page which led to it."""
    for policy, referer, method, is_sent in SAME_SITE:
        jar = new_jar()
        await jar.take(f"fig=ripe; SameSite={policy}")
        sent = await jar.sent(HOME, referer=referer, method=method)
        assert (policy, referer, method, sent) == (policy, referer, method, "fig=ripe" if is_sent else "")


async def test_sizes_are_limited(jar):
    """5.6, steps 7 and "length of the attribute-value"."""
    await jar.take(
        "a=" + "v" * 4095, "b=" + "v" * 4096, "c" * 4096 + "=", "d" * 4097 + "=", "e=1; x=" + "v" * 9000
    )
    assert sorted(pair.partition("=")[0][:1] for pair in (await jar.sent()).split("; ")) == ["a", "c", "e"]


async def test_the_number_of_cookies_of_a_site_is_limited(jar):
    """5.7 and 6.1: expired cookies go first, then insecure ones, and the oldest of each kind."""
    secure = [f"s{number}=v; Secure; Path=/" for number in range(50)]
    await jar.take(*secure, url="https://home.example.org/")
    await jar.take(*(f"n{number}=v; Path=/" for number in range(500)), url="https://other.example.org/")
    await jar.take(*(f"m{number}=v; Domain=example.org; Path=/" for number in range(100)))
    names = {pair.partition("=")[0] for pair in (await jar.sent("https://home.example.org/")).split("; ")}
    assert names == {f"s{number}" for number in range(50)} | {f"m{number}" for number in range(100)}
    assert len((await jar.sent("https://other.example.org/")).split("; ")) == MAX_COOKIES_A_SITE - 50


async def test_a_request_adds_its_own_cookies_and_replaces_those_of_the_jar(jar):
    await jar.take("a=jar; Path=/", "b=jar; Path=/shop", "a=jar; Path=/shop")
    assert await jar.sent(cookies={"a": "own", "é": "ü"}) == "b=jar; a=own; é=ü"


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("Mon, 10-Dec-2007 17:02:24 GMT", "2007-12-10 17:02:24"),
        ("Wed, 09 Dec 2009 16:27:23 GMT", "2009-12-09 16:27:23"),
        ("Thursday, 01-Jan-1970 00:00:00 GMT", "1970-01-01 00:00:00"),
        ("Mon Dec 10 16:32:30 2007 GMT", "2007-12-10 16:32:30"),
        ("Wednesday, 01-Jan-10 00:00:00 GMT", "2010-01-01 00:00:00"),
        ("Thu, 31 Dec 23:55:55 2037 GMT", "2037-12-31 23:55:55"),
        ("Sun,  9 Dec 2012 13:42:05 GMT", "2012-12-09 13:42:05"),
        ("Wed Dec 12 2007 08:44:07 GMT-0500 (EST)", "2007-12-12 08:44:07"),
        ("Wednesday, 01-Jan-10 0:0:00 GMT", "2010-01-01 00:00:00"),
        ("Thu, 10 Dec 2009 13:57:2 GMT", "2009-12-10 13:57:02"),
        ("Thu, 19/Apr\\2007 16:00:00 GMT", "2007-04-19 16:00:00"),
        (", 1-Jan-2003 00:00:00 GMT", "2003-01-01 00:00:00"),
        ("Wed,18-Apr-07 22:50:12 GMT", "2007-04-18 22:50:12"),
        ("Anyday  ,  18-apr-07   22:50:12", "2007-04-18 22:50:12"),
        ("Mon, 18-Apr-77 22:50:13 GMT", "1977-04-18 22:50:13"),
        ('"Sat, 15-Apr-17\\"21:01:22\\"GMT"', "2017-04-15 21:01:22"),
        ("Partyday, 18 - Apri-07 22:50:12", "2007-04-18 22:50:12"),
        ("Sat, 15-Apr-17 21:01:22 GMT-0400 (EDT)", "2017-04-15 21:01:22"),
        ("Sat, 15-Apr-17 21:01:22 11:22:33", "2017-04-15 21:01:22"),
        ("Sat, 15-Apr-17 ::00 21:01:22", "2017-04-15 21:01:22"),
        ("Sat, 15-Apr-17 x:z 21:01:22", "2017-04-15 21:01:22"),
        ("22:50:12 Thu Apr 18 2007 GMT", "2007-04-18 22:50:12"),
        ("15-Sat, Apr 21:01:22 GMT 17", "2017-04-15 21:01:22"),
        ("15 17 Apr 21:01:22", "2017-04-15 21:01:22"),
        ("2017 April 15 21:01:22", "2017-04-15 21:01:22"),
        ("Tue, 29 Feb 2000 12:00:00", "2000-02-29 12:00:00"),
        ("1 Jan 1601 00:00:00", "1601-01-01 00:00:00"),
        ("31 Dec 69 00:00:00", "2069-12-31 00:00:00"),
        ("31 Dec 70 00:00:00", "1970-12-31 00:00:00"),
    ],
)
def test_dates_are_read_as_servers_write_them(text, moment):
    """5.1.1, and the date cases of http-state."""
    found = parse_date(text)
    assert found is not None
    seconds = time.strftime("%H:%M:%S", time.gmtime(found % 86_400))
    days = found // 86_400
    assert f"{dt.date(1970, 1, 1) + dt.timedelta(days=days)} {seconds}" == moment


@pytest.mark.parametrize(
    "text",
    ["", "never", "Sat, 15-Apr-17 91:22:33 21:01:22", "98 April 17 21:01:22", "Thu, 012-Aug-2008 20:49:07 GMT",
     "Thu, 12-Aug-31841 20:49:07 GMT", "Thu, 12-Aug-9999999999 20:49:07 GMT", "Thu, 999999999999-Aug-2007 20:49:07 GMT",
     "Thu, 12-Aug-2007 20:61:99999999999 GMT", "31 Feb 2020 00:00:00", "1 Jan 1600 00:00:00", "1 Jan 2020 24:00:00",
     "1 Jan 2020", "Jan 2020 10:00:00", "1 2020 10:00:00", "0 Jan 2020 10:00:00", "29 Feb 2001 10:00:00"],
)  # fmt: skip
def test_an_invalid_date_is_ignored(text):
    assert parse_date(text) is None


def test_a_lifetime_has_a_maximum():
    """5.5: no cookie lives longer than 400 days."""
    for line in ("a=1; Max-Age=99999999999", f"a=1; Expires={FUTURE}"):
        assert parse_set_cookie(line, 1_000_000.0).expires == 1_000_000 + MAX_LIFETIME
    assert parse_set_cookie("a=1; Max-Age=60", 1_000_000.0).expires == 1_000_060
    assert parse_set_cookie("a=1", 1_000_000.0).expires is None


def test_a_cookie_expires_at_its_time():
    jar = CookieJar()
    jar.store(["old=1; Max-Age=60", "new=1"], HOME, now=time.time() - 100)
    assert [cookie.name for cookie in jar.select(HOME)] == ["new"]
    assert len(jar) == 1


def test_a_flood_of_cookies_is_cheap_to_refuse():
    """Time grows with the number of cookies, not with its square."""
    jar = CookieJar()
    jar.store((f"s{number}=1; Secure; Path=/" for number in range(300)), "https://home.example.org/")
    jar.store((f"s{number % 300}=1; Path=/" for number in range(30_000)), "http://home.example.org/")
    assert len(jar) == MAX_COOKIES_A_SITE
    assert all(cookie.secure for cookie in jar)
    assert jar.size == sum(200 + len(cookie.name) + 1 + len("home.example.org") + 1 for cookie in jar)
