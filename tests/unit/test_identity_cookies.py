"""Cookies from files, in jars of one process, and shared by all workers of a job."""

import asyncio
import codecs
import re
import sqlite3
from contextlib import closing

import msgspec
import pytest

from skitter._utils.concurrency import cancel_and_wait
from skitter.errors import UndecodableRecord
from skitter.fetch.cookie_jar import Cookie
from skitter.fetch.cookies import CookieJars, NoCookies
from skitter.fetch.identity.contract import SourceError
from skitter.fetch.identity.cookies import CookieFile, CookieKeeper, JarCookies, SharedCookies, read_cookies
from skitter.request import Request
from skitter.response import Response
from skitter.web.urls import registered_domain

FAR = 4_000_000_000
NETSCAPE = f"""# Netscape HTTP Cookie File
.site.test\tTRUE\t/\tFALSE\t{FAR}\twide\t1
www.site.test\tFALSE\t/in\tFALSE\t0\tnarrow\t2
#HttpOnly_www.site.test\tFALSE\t/\tTRUE\t{FAR}\tsafe\t3
.site.test\tTRUE\t/\tFALSE\t1000000000\tgone\t4
"""


class Notes:
    """Notes as a frontier stores them; each call yields to the event loop."""

    def __init__(self):
        self.kept = {}
        self.swaps = 0

    async def get(self, key):
        await asyncio.sleep(0)
        return self.kept.get(key)

    async def compare_and_swap(self, key, old, new, ttl):
        await asyncio.sleep(0)
        self.swaps += 1
        if self.kept.get(key) != old:
            return False
        self.kept[key] = new
        return True


def answer(url, *cookies, session=""):
    headers = "".join(f"Set-Cookie: {cookie}\r\n" for cookie in cookies).encode()
    return Response(url, 200, headers=headers, request=Request(url, session=session))


async def sent(source, url, **more):
    header = await source.header_for(Request(url, **more))
    return set(header.split("; ")) if header else set()


def firefox(path, *rows):
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(
            "CREATE TABLE moz_cookies (id INTEGER PRIMARY KEY, name, value, host, path, isSecure, expiry)"
        )
        database.executemany("INSERT INTO moz_cookies VALUES (NULL, ?, ?, ?, ?, ?, ?)", rows)
    database.close()


def chrome(path, *rows):
    with closing(sqlite3.connect(path)) as database, database:
        columns = "name, value, host_key, path, is_secure, expires_utc, encrypted_value"
        database.execute(f"CREATE TABLE cookies ({columns})")
        database.executemany("INSERT INTO cookies VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    database.close()


@pytest.fixture(autouse=True)
def suffixes_are_read():
    registered_domain("example.com")  # otherwise the first lookup would load the list on the event loop


async def jars_of(path):
    jars = CookieJars()
    await CookieFile(path, jars).open()
    return jars


async def seen_by(jars, *urls):
    cookies = JarCookies(jars)
    return [await sent(cookies, url) for url in urls]


@pytest.mark.parametrize(
    ("mark", "line_end"), [(b"", "\n"), (codecs.BOM_UTF8, "\r\n")], ids=["unix", "windows"]
)
async def test_a_netscape_file_is_read_with_its_domains_paths_and_expiries(tmp_path, mark, line_end):
    path = tmp_path / "cookies.txt"
    path.write_bytes(mark + NETSCAPE.replace("\n", line_end).encode())
    assert await seen_by(
        await jars_of(path), "http://www.site.test/in/x", "https://www.site.test/", "http://other.site.test/", "http://else.test/"
    ) == [{"wide=1", "narrow=2"}, {"wide=1", "safe=3"}, {"wide=1"}, set()]  # fmt: skip


LINES = {
    "without a dot": (
        "site.test\tTRUE\t/\tFALSE\t0\ta\t1",
        Cookie("a", "1", "site.test", False, "/", False, None),
    ),
    "with a dot": (
        ".site.test\tFALSE\t/\tFALSE\t0\ta\t1",
        Cookie("a", "1", "site.test", False, "/", False, None),
    ),
    "in lower case": (
        "site.test\tfalse\t/\ttrue\t0\ta\t1",
        Cookie("a", "1", "site.test", True, "/", True, None),
    ),
    "for the session": (
        "site.test\tFALSE\t/\tFALSE\t-1\ta\t1",
        Cookie("a", "1", "site.test", True, "/", False, None),
    ),
    "with a fraction": (
        f"site.test\tFALSE\t/\tFALSE\t{FAR}.5\ta\t1",
        Cookie("a", "1", "site.test", True, "/", False, FAR),
    ),
    "without a value": (
        "site.test\tFALSE\t/\tFALSE\t0\ta",
        Cookie("a", "", "site.test", True, "/", False, None),
    ),
}


@pytest.mark.parametrize(("line", "cookie"), LINES.values(), ids=LINES)
def test_lines_of_other_programs_are_read_as_in_curl(tmp_path, line, cookie):
    path = tmp_path / "cookies.txt"
    path.write_text(f"{line}\n\n# a comment\n")  # without the first line that browsers write
    assert read_cookies(path) == [cookie]


@pytest.mark.parametrize(
    "line", ["site.test FALSE / FALSE 0 sid secret", "a\tFALSE\t/\tFALSE\tnever\tsid\tsecret"]
)
def test_an_error_in_a_file_of_cookies_names_the_line_without_the_cookie(tmp_path, line, capfd):
    path = tmp_path / "cookies.txt"
    path.write_text(f"# Netscape HTTP Cookie File\n{line}\n")
    with pytest.raises(SourceError, match=f"{path}: line 2 ") as caught:
        read_cookies(path)
    assert "secret" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("expiry", [FAR, FAR * 1000])
async def test_the_database_of_firefox_is_read_in_seconds_and_in_milliseconds(tmp_path, expiry):
    path = tmp_path / "cookies.sqlite"
    firefox(path, ("a", "1", ".site.test", "/", 0, expiry), ("b", "2", "www.site.test", "/", 1, 0))
    assert await seen_by(await jars_of(path), "http://site.test/", "https://www.site.test/") == [
        {"a=1"}, {"a=1", "b=2"},
    ]  # fmt: skip
    firefox(tmp_path / "old.sqlite", ("a", "1", ".site.test", "/", 0, 1_000_000_000))
    assert await seen_by(await jars_of(tmp_path / "old.sqlite"), "http://site.test/") == [set()]


async def test_the_database_of_a_browser_that_is_running_is_read_as_it_is_now(tmp_path):
    path = tmp_path / "cookies.sqlite"
    firefox(path)
    browser = sqlite3.connect(path, isolation_level=None)
    browser.execute("PRAGMA journal_mode = WAL")
    browser.execute("INSERT INTO moz_cookies VALUES (NULL, 'a', '1', 'site.test', '/', 0, 0)")
    browser.execute("BEGIN EXCLUSIVE")
    assert await seen_by(await jars_of(path), "http://site.test/") == [{"a=1"}]
    browser.close()


async def test_the_database_of_chrome_is_read_unless_it_is_encrypted(tmp_path):
    path = tmp_path / "Cookies"
    chrome(path, ("a", "1", ".site.test", "/", 0, (FAR + 11_644_473_600) * 10**6, b""))
    assert await seen_by(await jars_of(path), "http://www.site.test/") == [{"a=1"}]
    chrome(tmp_path / "Locked", ("a", "", ".site.test", "/", 0, 0, b"v10xxxx"))
    with pytest.raises(SourceError, match="Locked"):
        await jars_of(tmp_path / "Locked")


@pytest.mark.parametrize("content", [None, b"no cookies", b"SQLite format 3\0 damaged", b"\xff\xfe"])
def test_a_file_that_holds_no_cookies_is_an_error_with_the_formats(tmp_path, content):
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SourceError, match=re.escape(str(path))) as caught:
        read_cookies(path)
    assert caught.value.field == "cookie_file"
    assert "cookies.txt" in caught.value.remedy


async def test_every_session_starts_with_the_cookies_of_the_file_and_changes_separately(tmp_path):
    path = tmp_path / "cookies.txt"
    path.write_text(NETSCAPE)
    jars = CookieJars()
    await CookieFile(path, jars).open()
    cookies = JarCookies(jars)
    await cookies.absorb(answer("http://site.test/", "wide=new; Domain=site.test", session="anna"))
    await cookies.absorb(answer("http://site.test/", "wide=; Domain=site.test; Max-Age=0", session="bert"))
    assert await sent(cookies, "http://site.test/", session="anna") == {"wide=new"}
    assert await sent(cookies, "http://site.test/", session="bert") == set()
    assert await sent(cookies, "http://site.test/", session="carl") == {"wide=1"}


async def test_without_cookies_only_those_of_the_request_are_sent():
    cookies = JarCookies(NoCookies())
    await cookies.absorb(answer("http://site.test/", "a=1"))
    assert await sent(cookies, "http://site.test/") == set()
    assert await sent(cookies, "http://site.test/", cookies={"b": "2"}) == {"b=2"}


async def test_a_cookie_of_one_worker_is_sent_by_another_at_once():
    notes = Notes()
    here, there = SharedCookies(notes, CookieJars()), SharedCookies(notes, CookieJars())
    assert await sent(there, "http://www.site.test/") == set()
    await here.absorb(answer("https://www.site.test/", "a=1; Domain=site.test", "b=2; Path=/in; Secure"))
    assert await sent(there, "http://api.site.test/") == {"a=1"}
    assert await sent(there, "https://www.site.test/in/") == {"a=1", "b=2"}
    await there.absorb(answer("http://www.site.test/", "a=; Domain=site.test; Max-Age=0"))
    assert await sent(here, "http://www.site.test/", cookies={"own": "3"}) == {"own=3"}


async def test_of_workers_that_set_cookies_at_once_each_one_is_kept():
    notes = Notes()
    workers = [SharedCookies(notes, CookieJars()) for _ in range(10)]
    await asyncio.gather(
        *(
            worker.absorb(answer("http://site.test/", f"c{number}-{again}=x"))
            for number, worker in enumerate(workers)
            for again in range(3)
        )
    )
    assert len(await sent(workers[0], "http://site.test/")) == 30
    assert notes.swaps > 30  # some writes were repeated


async def test_sessions_and_sites_have_jars_of_their_own():
    cookies = SharedCookies(Notes(), CookieJars())
    await cookies.absorb(answer("http://site.test/", "who=anna", session="anna"))
    assert await sent(cookies, "http://site.test/", session="anna") == {"who=anna"}
    assert await sent(cookies, "http://site.test/") == set()
    assert await sent(cookies, "http://other.test/", session="anna") == set()


async def test_a_cookie_sent_again_unchanged_writes_nothing():
    notes = Notes()
    cookies = SharedCookies(notes, CookieJars())
    for _ in range(3):
        await cookies.absorb(answer("http://site.test/", "a=1"))
    assert notes.swaps == 1


async def test_a_shared_jar_begins_with_the_cookies_of_the_file(tmp_path):
    path = tmp_path / "cookies.txt"
    path.write_text(NETSCAPE)
    cookies = SharedCookies(Notes(), await jars_of(path))
    assert await sent(cookies, "http://site.test/") == {"wide=1"}
    await cookies.absorb(answer("http://site.test/", "wide=; Domain=site.test; Max-Age=0", "more=2"))
    assert await sent(cookies, "http://site.test/") == {"more=2"}


async def test_a_jar_of_another_format_is_refused():
    notes = Notes()
    notes.kept["cookies:site.test:"] = b"\x09"
    with pytest.raises(UndecodableRecord):
        await sent(SharedCookies(notes, CookieJars()), "http://site.test/")


async def test_a_jar_stored_by_an_older_version_is_read():
    """Its cookies had no policy for other sites, and a dot before their domain."""
    notes = Notes()
    stored = [
        ["a", "1", ".site.test", False, "/", False, None],
        ["b", "2", "www.site.test", True, "/", True, 4_000_000_000],
    ]
    notes.kept["cookies:site.test:"] = b"\x01" + msgspec.msgpack.encode(stored)
    cookies = SharedCookies(notes, CookieJars())
    assert await sent(cookies, "http://api.site.test/") == {"a=1"}
    assert await sent(cookies, "https://www.site.test/") == {"a=1", "b=2"}
    await cookies.absorb(answer("http://site.test/", "a=; Domain=site.test; Max-Age=0"))
    assert await sent(cookies, "https://www.site.test/") == {"b=2"}


async def test_text_beyond_ascii_in_a_cookie_file_is_sent_as_utf8(tmp_path):
    path = tmp_path / "cookies.txt"
    path.write_text(f"# Netscape HTTP Cookie File\n.site.test\tTRUE\t/\tFALSE\t{FAR}\tname\tö\n", "utf-8")
    assert await seen_by(await jars_of(path), "http://site.test/") == [{"name=ö"}]


async def test_a_write_of_cookies_that_is_cancelled_is_repeated_by_the_last_one():
    class SlowNotes(dict):
        async def put(self, key, value, ttl):
            if not self.is_fast:
                writing.set()
                await asyncio.Event().wait()
            self[key] = value

    notes, writing, begun = SlowNotes(), asyncio.Event(), []

    async def begin():
        begun.append(True)

    notes.is_fast = False
    jars = CookieJars()
    keeper = CookieKeeper(jars, notes, begin)
    url = "https://example.com/"
    jars.absorb(Response(url, headers=b"Set-Cookie: a=1\r\n", request=Request(url)))
    saving = asyncio.create_task(keeper.run())
    await writing.wait()
    await cancel_and_wait([saving])
    assert not notes
    notes.is_fast = True
    await keeper.save()
    assert (len(notes), len(begun)) == (1, 1)
