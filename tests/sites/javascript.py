"""A site that needs JavaScript: eight kinds of pages with known items, and pages that attack the browser."""

import json

from skitter.testing import Answer, WireAnswer

WORDS = (
    "amber",
    "birch",
    "cedar",
    "delta",
    "ember",
    "fjord",
    "grove",
    "haven",
    "inlet",
    "jetty",
    "knoll",
    "larch",
)


def html(body, **fields):
    return Answer(f"<!doctype html><title>t</title>{body}".encode(), **fields)


def data(value):
    return Answer(json.dumps(value).encode(), content_type="application/json")


_SPA = """<div id=app></div><script>
const show = async () => {
  const name = location.pathname.slice(5);
  const found = await (await fetch('/api/spa/' + name)).json();
  app.innerHTML = '<h1>' + found.title + '</h1>' + found.links.map(l => `<a href="/spa/${l}">${l}</a>`).join('');
};
document.addEventListener('click', e => { if (e.target.href) { e.preventDefault(); history.pushState({}, '', e.target.href); show(); } });
show();
</script>"""
_SCROLL = """<ul id=list></ul><script>
let page = 0, busy = false;
const more = async () => {
  if (busy) return; busy = true;
  for (const word of await (await fetch('/api/words?page=' + page)).json()) {
    list.insertAdjacentHTML('beforeend', `<li style="height:400px">${word}</li>`);
  }
  page++; busy = false;
};
addEventListener('scroll', () => { if (innerHeight + scrollY >= document.documentElement.scrollHeight - 50) more(); });
more();
</script>"""
_MORE = """<ul id=list></ul><button id=more>More</button><script>
let page = 0;
const load = async () => {
  const words = await (await fetch('/api/words?page=' + page++)).json();
  for (const word of words) list.insertAdjacentHTML('beforeend', `<li>${word}</li>`);
  if (page * 3 >= 12) more.remove();
};
more.onclick = load; load();
</script>"""
_DELAYED = "<p>Loading</p><script>setTimeout(() => document.body.innerHTML = '<h1 class=ready>late</h1>', 700)</script>"
_FRAMES = """<iframe src=/frames/inner></iframe><x-card><b>slotted</b></x-card><script>
customElements.define('x-card', class extends HTMLElement {
  connectedCallback() {
    this.attachShadow({mode: 'open'}).innerHTML = '<h2>shadow</h2><slot></slot>';
  }
});
</script>"""
_LOGIN = """<form method=post action=/session><input id=user name=user><input id=word name=word type=password>
<button id=go>Log in</button></form>"""
_FETCHED = """<table id=t></table><script>
fetch('/api/words?page=0').then(r => r.json()).then(words => {
  t.innerHTML = words.map(word => `<tr><td class=name>${word}</td></tr>`).join('');
});
</script>"""


def _words(visit):
    page = int(visit.target.rpartition("=")[2])
    return data(WORDS[page * 3 : page * 3 + 3])


def _spa(visit):
    links = {"": ["a", "b"], "a": ["c"]}
    name = visit.target.rpartition("/")[2]
    return data({"title": f"spa {name}", "links": links.get(name, [])})


def _session(visit):
    ok = visit.method == "POST" and visit.body == b"user=ann&word=secret"
    return Answer(
        status=303,
        headers={"Location": "/account" if ok else "/login"}
        | ({"Set-Cookie": "sid=1; HttpOnly"} if ok else {}),
    )


def _account(visit):
    if "sid=1" not in visit.headers.get("cookie", ""):
        return Answer(status=302, headers={"Location": "/login"})
    return html(
        "<h1></h1><a href=/account/orders>orders</a><script>document.querySelector('h1').textContent='ann'</script>"
    )


def _orders(visit):
    known = "sid=1" in visit.headers.get("cookie", "")
    return html(f"<h1>{'orders of ann' if known else 'nothing'}</h1>")


PAGES = {
    "/server": html("<h1>server</h1><a href=/server/1>1</a><a href=/server/2>2</a>"),
    "/server/1": html("<h1>server 1</h1>"),
    "/server/2": html("<h1>server 2</h1>"),
    "/scroll": html(_SCROLL),
    "/more": html(_MORE),
    "/delayed": html(_DELAYED),
    "/frames": html(_FRAMES),
    "/frames/inner": html("<h3></h3><script>document.querySelector('h3').textContent='framed'</script>"),
    "/login": html(_LOGIN),
    "/session": _session,
    "/account": _account,
    "/account/orders": _orders,
    "/fetched": html(_FETCHED),
}


def javascript_site(visit):
    """Serve the eight kinds of pages."""
    if visit.target.startswith("/api/spa/"):
        return _spa(visit)
    if visit.target.startswith("/api/words"):
        return _words(visit)
    if visit.path == "/spa" or visit.target.startswith("/spa/"):
        return html(_SPA)
    if visit.target.startswith("/js/"):  # generates any number of pages
        number = visit.target.rpartition("/")[2]
        return html(f"<h1></h1><script>document.querySelector('h1').textContent='page {number}'</script>")
    answer = PAGES.get(visit.path, Answer(b"<h1>Not found</h1>", status=404))
    return answer(visit) if callable(answer) else answer


def _endless():
    yield b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<h1>endless</h1>"
    while True:
        yield b"<p>more</p>"
        yield 0.05


def hostile_site(forbidden):
    """Return a site of pages that attack the browser. ``forbidden``: a URL that must not be reached."""
    pages = {
        "/loop": "<script>while (true) {}</script>",
        "/alerts": "<script>while (true) alert('x')</script>",
        "/memory": "<script>const all = []; for (let i = 0; i < 32; i++) all.push(new Uint8Array(64 << 20).fill(i));"
        "setInterval(() => all.length, 50)</script><img src=/stall>",
        "/popups": "<script>for (let i = 0; i < 10000; i++) open('/ok')</script>",
        "/file": "<script>location = 'file:///etc/passwd'</script>",
        "/forbidden": f"<script>location = '{forbidden}'</script>",
        "/requests": "<script>for (let i = 0; i < 2000; i++) fetch('/ok?' + i)</script>",
        "/ok": "<h1></h1><script>document.querySelector('h1').textContent='ok'</script>",
        "/sub": f"<h1>sub</h1><script src='{forbidden}'></script><iframe src='{forbidden}'></iframe>"
        f"<script>fetch('{forbidden}', {{mode: 'no-cors'}}).catch(() => 0); new WebSocket('{forbidden}'.replace('http', 'ws'))</script>",
        "/worker": "<h1>worker</h1><script>navigator.serviceWorker.register('/ok').then("
        "() => navigator.serviceWorker.getRegistrations()).then(found => {"
        "if (found.length) document.querySelector('h1').textContent = 'registered'})</script>",
        "/download": "<h1>download</h1><script>const a = document.createElement('a'); a.href = 'data:x,y'; a.download = 'x';"
        "a.click()</script>",
        "/noise": "<h1>noise</h1><script>onbeforeunload = () => 'stay'; new EventSource('/events')</script>",
    }

    def site(visit):
        path = visit.path
        if path == "/away":
            number = int(visit.target.rpartition("=")[2] or 0)
            return html(f"<script>location = '/away?n={number + 1}'</script>")
        if path == "/stream":
            return WireAnswer(_endless())
        if path == "/events":
            return WireAnswer([b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"], end="stall")
        if path == "/stall":
            return WireAnswer([], end="stall")
        return html(pages[path]) if path in pages else Answer(status=404)

    return site
