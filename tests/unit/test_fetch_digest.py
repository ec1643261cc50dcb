"""Digest authentication with a server that follows RFC 7616, for pages and files."""

import hashlib
import re

import pytest

from crawl_harness import CrawlHarness, Scripted
from skitter import Request, Settings, Spider
from skitter.fetch.http import HttpFetcher
from skitter.testing import Answer

CHALLENGE = 'Digest realm="r", qop="auth", algorithm={}, nonce="{}", opaque="o"'
FILE = b"f" * 2_000_000


class DigestSite:
    """Serves a page with a file to the user ``ann`` with the password ``won:der``."""

    def __init__(self, algorithm="SHA-256"):
        self.algorithm = algorithm
        self.visits = []
        self.nonces = 0

    def __call__(self, visit):
        self.visits.append((visit.target, visit.headers.get("authorization", "")))
        if visit.target == "/robots.txt":
            return Answer(b"", status=404)
        if not self.is_valid(visit):
            self.nonces += 1
            challenge = CHALLENGE.format(self.algorithm, f"n{self.nonces}")
            return Answer(b"no " * 1000, status=401, headers={"WWW-Authenticate": challenge})
        if visit.target == "/f.pdf":
            return Answer(FILE, content_type="application/pdf")
        return Answer(b"<title>secret</title><a href=/f.pdf>f</a>")

    def is_valid(self, visit):
        given = dict(re.findall(r'(\w+)="?([^",]*)"?', visit.headers.get("authorization", "")))
        if "nonce" not in given:
            return False

        def digest(text):
            return hashlib.new(self.algorithm.replace("-", "").lower(), text.encode()).hexdigest()

        known, asked = digest("ann:r:won:der"), digest(f"{visit.method}:{visit.target}")
        proof = f"{known}:{given['nonce']}:{given['nc']}:{given['cnonce']}:auth:{asked}"
        return given["username"] == "ann" and given["response"] == digest(proof)


async def fetch(server, credentials, on_headers=None):
    fetcher = HttpFetcher(Settings(credentials={server.url: credentials}))
    await fetcher.open()
    try:
        return [await fetcher.fetch(Request(f"{server.url}{n}"), on_headers=on_headers) for n in (1, 2)]
    finally:
        await fetcher.close()


@pytest.mark.parametrize("algorithm", ["MD5", "SHA-256"])
async def test_a_page_is_fetched_with_digest(serve, algorithm):
    site = DigestSite(algorithm)
    answers = await fetch(serve(site), "Digest ann:won:der")
    assert [(answer.status, answer.css("title::text").get()) for answer in answers] == [(200, "secret")] * 2
    assert not any("won:der" in authorization for _, authorization in site.visits)
    assert len(site.visits) == 4


@pytest.mark.parametrize("credentials", ["Digest ann:wrong", "Basic abc", "ann:won:der"])
async def test_wrong_credentials_end_with_401(serve, credentials):
    assert [answer.status for answer in await fetch(serve(DigestSite()), credentials)] == [401, 401]


@pytest.mark.parametrize(
    ("credentials", "statuses"), [("Digest ann:won:der", [200, 200]), ("Digest ann:x", [401, 401])]
)
async def test_a_header_hook_sees_the_answer_and_not_the_challenge(serve, credentials, statuses):
    seen = []

    async def on_headers(response):
        seen.append(response.status)
        return True

    await fetch(serve(DigestSite()), credentials, on_headers)
    assert seen == statuses


@pytest.mark.parametrize("body", [b"", b"no"])
async def test_a_401_without_a_challenge_is_the_answer(serve, body):
    seen = []

    async def on_headers(response):
        seen.append(response.status)
        return True

    answers = await fetch(serve(lambda visit: Answer(body, status=401)), "Digest ann:x", on_headers)
    assert [(answer.status, answer.body) for answer in answers] == [(401, body)] * 2
    assert seen == [401, 401]


@pytest.mark.parametrize("credentials", ["Digest ann:won:der", "ann:won:der", "Bearer token"])
async def test_files_are_fetched_with_the_credentials_of_their_origin(serve, tmp_path, credentials):
    class Pages(Spider):
        def parse(self, response):
            yield {"file_urls": response.css("a::attr(href)").getall()}

    plain = Scripted({"/": Answer(b"<a href=/f.pdf>f</a>"), "/f.pdf": Answer(FILE)})
    site = DigestSite() if credentials.startswith("Digest") else plain
    spider = Pages()
    server = serve(site)
    spider.start_urls = [server.url]
    report = await CrawlHarness(
        spider, tmp_path, files_store=str(tmp_path / "files"), credentials={server.url: credentials}
    ).run()
    assert report.items[0]["files"][0]["checksum"] == hashlib.sha256(FILE).hexdigest()
    if site is plain:
        sent = {visit.headers["authorization"].partition(" ")[0] for visit in site.visits}
        assert sent == {"Bearer" if credentials.startswith("Bearer") else "Basic"}
