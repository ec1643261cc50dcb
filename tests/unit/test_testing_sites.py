"""The test sites are correct: the reference crawler finds exactly the expected pages."""

from urllib.parse import urlsplit

import pytest

from skitter.errors import UsageError
from skitter.testing import ExpectedPage, GeneratedSite, StaticSite, reference_crawl
from skitter.testing.demo_site import DemoSite, demo_server


def everywhere(server):
    return lambda url: urlsplit(url).netloc in server.origins


def truths(found):
    return {url: ExpectedPage(page.title, page.links) for url, page in found.items() if page.status == 200}


@pytest.mark.parametrize("hosts", [1, 7])
def test_a_walk_finds_every_generated_page_and_no_other(serve, hosts):
    site = GeneratedSite(pages=300, hosts=hosts, seed=5, links_per_page=20, page_bytes=3000)
    server = serve(site, hosts=hosts)
    found = reference_crawl(server.url, scope=everywhere(server))
    assert truths(found) == site.expected_pages(server.origins)
    assert len(found) == 300
    assert not any("/decoy/" in hit.target for hit in server.log.hits)


def test_generated_pages_are_the_same_at_every_run_and_differ_by_seed():
    origins = ["127.0.0.1:80"]
    body = GeneratedSite(pages=90).body(7, origins)
    assert body == GeneratedSite(pages=90).body(7, origins)
    assert body != GeneratedSite(pages=90, seed=2).body(7, origins)


def test_generated_pages_have_about_the_size_asked_for():
    site = GeneratedSite(pages=200, page_bytes=20_000)
    sizes = [len(site.body(number, ["127.0.0.1:80"])) for number in range(200)]
    assert 19_000 < sum(sizes) / len(sizes) < 21_000
    assert min(sizes) < 17_000
    assert max(sizes) > 23_000


def test_generated_links_are_written_in_every_way():
    site = GeneratedSite(pages=500)
    text = b"".join(site.body(number, ["127.0.0.1:80"]) for number in range(50)).decode()
    forms = ['"/s', '"../s', '"http://127.0.0.1:80/', '"//127.0.0.1', "/s0/../", "#part-", "?id="]
    assert [form for form in forms if form not in text] == []


def test_too_few_links_for_the_tree_are_refused():
    with pytest.raises(UsageError):
        GeneratedSite(links_per_page=11)


def test_the_demo_site_matches_its_truth():
    site = DemoSite(pace=0)
    with demo_server(site) as server:
        for path, place in (("/book/17", 0), ("/post/5", 1)):
            assert reference_crawl(server.url_of(path, place), limit=9, scope=lambda _url: False) != {}
        found = reference_crawl(server.url, scope=everywhere(server))
        allowed = {url: page for url, page in found.items() if url not in site.forbidden(server.origins)}
        assert truths(allowed) == site.expected_pages(server.origins)
        failed = {url: page.status for url, page in found.items() if page.status >= 400}
        assert failed == site.failures(server.origins)
        assert {url for url, page in found.items() if page.status == 301} == site.redirects(server.origins)
        assert 150 <= len(found) <= 250


def test_two_demo_pages_fail_the_first_time_only():
    with demo_server(DemoSite(pace=0)) as server:
        for path, place in (("/book/17", 0), ("/post/5", 1)):
            url = server.url_of(path, place)
            seen = [reference_crawl(url, scope=lambda _url: False)[url].status for _ in range(3)]
            assert seen == [500, 200, 200]


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / "index.html").write_text('<title>top</title><a href="sub">s</a><a href="gone.html">g</a>')
    (root / "sub" / "index.html").write_text('<title>sub</title><a href="a%20b.txt">t</a>')
    (root / "sub" / "a b.txt").write_text("text")
    (tmp_path / "secret").write_text("secret")
    (root / "sub" / "inside.txt").symlink_to("a b.txt")
    (root / "outside.txt").symlink_to(tmp_path / "secret")
    (root / "broken.txt").symlink_to("nowhere")
    return root


def test_a_folder_is_served_as_a_web_server_would(serve, folder):
    server = serve(StaticSite(folder))
    found = reference_crawl(server.url)
    seen = {urlsplit(url).path: (page.status, page.content_type, page.title) for url, page in found.items()}
    assert seen == {
        "/": (200, "text/html", "top"),
        "/sub": (301, "text/html", None),
        "/sub/": (200, "text/html", "sub"),
        "/sub/a%20b.txt": (200, "text/plain", None),
        "/gone.html": (404, "text/html", "404 Not Found"),
    }


@pytest.mark.parametrize(
    ("path", "status"),
    [("/sub/inside.txt", 200), ("/outside.txt", 404), ("/broken.txt", 404), ("/../secret", 404)],
)
def test_symbolic_links_are_followed_inside_the_folder_only(serve, folder, path, status):
    url = serve(StaticSite(folder)).url_of(path)
    assert reference_crawl(url, scope=lambda _url: False)[url].status == status


def test_a_walk_stops_at_its_limit(serve):
    server = serve(GeneratedSite(pages=100, page_bytes=2000))
    with pytest.raises(RuntimeError):
        reference_crawl(server.url, limit=10)


def test_the_python_documentation_is_a_real_site(docs_server):
    url = docs_server.url_of("/library/asyncio.html")
    page = reference_crawl(url, scope=lambda _url: False)[url]
    assert page.status == 200
    assert page.title.startswith("asyncio — Asynchronous I/O")
    assert page.links > 50
