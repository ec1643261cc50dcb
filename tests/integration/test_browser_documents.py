"""The documents that pages in a browser yield: complete on sites with strict policies, with links that lead where the browser's do."""

import pytest

from browsers import BROWSER, Headings, crawl_headings, require_browser
from crawl_harness import CrawlHarness, Scripted
from skitter import Request
from skitter.browsing import Evaluate, InfiniteScroll, LoadMore, Screenshot, Wait
from skitter.testing import Answer


@pytest.fixture(autouse=True, scope="module")
def browser():
    require_browser()


def html(text, policy=""):
    headers = {"Content-Security-Policy": policy} if policy else {}
    return Answer(f"<!doctype html><title>t</title>{text}".encode(), headers=headers)


class Documents(Headings):
    """Yields the rows, buttons and absolute links of each page, and what was captured."""

    name = "documents"

    def parse(self, response):
        path = "/" + response.url.split("/", 3)[3]
        yield {
            "path": path,
            "session": response.request.session,
            "rows": len(response.css(".row")),
            "links": [
                "/" + response.urljoin(href).split("/", 3)[3]
                for href in response.css("a::attr(href)").getall()
            ],
            "captured": dict(response.captured),
        }


async def crawl(tmp_path, requests, **settings):
    """Load pages in the browser. Return the items by path, and the crawl's report."""
    ran = await CrawlHarness(Documents(requests), tmp_path, **BROWSER | settings).run()
    return {item["path"]: item for item in ran.items}, ran


POLICIES = {
    "no eval": "script-src 'self' 'nonce-n'",
    "trusted types": "script-src 'self' 'nonce-n'; require-trusted-types-for 'script'",
}
GROWING = """<h1>rows</h1><div id=list></div><button id=more>more</button><script nonce=n>
let count = 0, clicks = 0;
const add = () => {
  for (let i = 0; i < 10; i++, count++) {
    const row = document.createElement('p');
    row.className = 'row'; row.style.height = '200px';
    list.append(row);
  }
};
add();
addEventListener('scroll', () => {
  if (count < 40 && innerHeight + scrollY >= document.documentElement.scrollHeight - 50) setTimeout(add, 150);
});
more.onclick = () => setTimeout(() => {
  const row = document.createElement('p');
  row.className = 'row';
  list.prepend(row);
  if (++clicks === 4) more.remove();
}, 150);
</script>"""


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
async def test_a_page_whose_policy_forbids_eval_is_complete(serve, tmp_path, policy):
    pages = {path: html(GROWING, policy) for path in ("/scroll", "/wait")}
    pages["/more"] = html(GROWING.replace("count < 40", "false"), policy)
    url = serve(Scripted(pages)).url_of
    third_call = "window.calls = (window.calls || 0) + 1, window.calls > 2"
    found, ran = await crawl(tmp_path, [
        Request(url("/scroll"), browsing={"actions": [InfiniteScroll(timeout=3)]}, timeout=60),
        Request(url("/more"), browsing={"actions": [LoadMore("#more", timeout=3)]}),
        Request(url("/wait"), browsing={"wait_for": Wait(function=third_call), "actions": [Evaluate("calls")]}),
    ])  # fmt: skip
    assert ran.letters == {}
    assert {path: item["rows"] for path, item in found.items()} == {"/scroll": 40, "/more": 14, "/wait": 10}
    assert found["/wait"]["captured"] == {"result": 3}


async def test_a_function_that_never_becomes_true_is_named_with_the_time_limit(serve, tmp_path):
    url = serve(Scripted({"/": html("<h1>page</h1>")})).url_of
    wait = Wait(function="() =>\n  window.ready", timeout=0.5)
    _, ran = await crawl(tmp_path, [Request(url("/"), browsing={"wait_for": wait})], max_retries=0)
    assert ran.letters == {"/": "action: wait_for: () => window.ready is not true after 0.5 s"}


async def test_an_application_that_scrolls_an_element_is_complete(serve, tmp_path):
    script = """<style>body { margin: 0 } #main { height: 100vh; overflow-y: auto } .row { height: 200px }</style>
        <div id=main><div id=list></div></div><script>
        const add = () => list.insertAdjacentHTML('beforeend', '<p class=row>row</p>'.repeat(10));
        main.onscroll = () => {
          const atEnd = main.scrollTop + main.clientHeight >= main.scrollHeight - 50;
          if (atEnd && list.children.length < 40) setTimeout(add, 150);
        };
        add();
        </script>"""
    url = serve(Scripted({"/": html(script)})).url_of
    found, _ = await crawl(
        tmp_path, [Request(url("/"), browsing={"actions": [InfiniteScroll(timeout=3)]}, timeout=60)]
    )
    assert found["/"]["rows"] == 40


async def test_frames_are_read_on_a_site_that_requires_trusted_types(serve, tmp_path):
    policy = "require-trusted-types-for 'script'"
    site = Scripted(
        {"/": html("<iframe src=/frame></iframe>", policy), "/frame": html("<h1>in the frame</h1>", policy)}
    )
    found, ran = await crawl_headings(tmp_path, [Request(serve(site).url_of("/"))])
    assert (found, ran.letters) == ({"/": "in the frame"}, {})


async def test_frames_are_read_if_they_are_in_a_shadow_root_or_still_loading(serve, tmp_path):
    card = """<x-card></x-card><script>customElements.define('x-card', class extends HTMLElement {
        connectedCallback() { this.attachShadow({mode: 'open'}).innerHTML = '<iframe src=/inner></iframe>'; }
        });</script>"""
    site = Scripted({
        "/shadow": html(card),
        "/loading": html("<iframe src=/unfinished></iframe>"),
        "/inner": html("<h1>in the shadow</h1>"),
        "/unfinished": html("<h1>unfinished</h1><img src=/image>"),
        "/image": Answer(b"", delay=30),
    })  # fmt: skip
    url = serve(site).url_of
    heading = "document.querySelector('iframe').contentDocument.querySelector('h1')"
    ended = {"wait_until": "commit", "wait_for": Wait("iframe", function=heading)}
    found, ran = await crawl_headings(
        tmp_path,
        [Request(url("/shadow")), Request(url("/loading"), browsing=ended)],
        blocked_resources=[],
    )
    assert (found, ran.letters) == ({"/shadow": "in the shadow", "/loading": "unfinished"}, {})


async def test_links_lead_where_the_browser_would_go(serve, tmp_path):
    link, move = "<a href=item>item</a>", "<script>history.pushState({}, '', '/app/list/2/')</script>"
    inner = "<a href=inner>inner</a><a href=/root>root</a><iframe src=/b/innermost></iframe>"
    texts = {
        "/pushed/page": link + move,
        "/based/page": f"<base href=/base/>{link}{move}",
        "/fragment/page": f"{link}<script>location.hash = 'x'</script>",
        "/frames/page": f"{link}<iframe src=/a/inner></iframe>",
        "/a/inner": inner,
        "/b/innermost": "<a href=innermost>innermost</a>",
    }
    pages = {path: html(text) for path, text in texts.items()}
    pages["/refused/page"] = html(f"<base href=/refused/base/>{link}", "base-uri 'none'")
    url = serve(Scripted(pages)).url_of
    seeds = [path for path in pages if path.endswith("/page")]
    found, _ = await crawl(tmp_path, [Request(url(path)) for path in seeds])
    assert {path: item["links"] for path, item in found.items()} == {
        "/pushed/page": ["/app/list/2/item"],
        "/based/page": ["/base/item"],
        "/fragment/page": ["/fragment/item"],
        "/frames/page": ["/frames/item", "/a/inner", "/root", "/b/innermost"],
        "/refused/page": ["/refused/item"],
    }


async def test_pictures_of_the_same_url_in_two_sessions_are_two_files(serve, tmp_path):
    url = serve(Scripted({"/": html("<h1>page</h1>")})).url_of
    requests = [
        Request(url("/"), session=name, dont_filter=True, browsing={"actions": [Screenshot()]})
        for name in ("ann", "ben")
    ]
    requests.append(
        Request(url("/"), dont_filter=True, browsing={"actions": [Wait(seconds=0.1), Screenshot()]})
    )
    requests.append(Request(url("/"), dont_filter=True, browsing={"actions": [Screenshot()]}))
    _, ran = await crawl(tmp_path, requests, capture_dir=str(tmp_path / "pictures"))
    assert len({item["captured"]["screenshot"] for item in ran.items}) == 4
