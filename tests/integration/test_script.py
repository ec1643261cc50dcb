"""JavaScript in its sandbox: its features, its isolation, and the end of scripts that do not end by themselves."""

import json
import os

import pytest

from crawl_harness import Scripted
from recipe_runs import run_recipe_text
from skitter.frontends.scripting.engine import ScriptEngine, ScriptError, ScriptPage
from skitter.testing import Answer


@pytest.fixture
def engine():
    # Scripts that must fail for another reason take up to 0.2 s of CPU time.
    engine = ScriptEngine(seconds=1.0, memory=16 * 1024 * 1024)
    yield engine
    engine.close()


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("value.trim().toUpperCase()", "A"),
        ("({a: [1, value], b: null})", {"a": [1, " a "], "b": None}),
        ("const x = value.length;\nif (x > 2) return x * 2; return 0", 6),
        ("undefined", None),
        ("1 + // a comment\n 1", 2),
        ("[...'añ😀'].length", 3),
    ],
)
def test_an_expression_or_a_function_body_returns_its_value(engine, code, value):
    assert engine.evaluate(code, {"value": " a "}) == value


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("throw new TypeError('no')", "script: TypeError: no"),
        ("nope.x", "ReferenceError: nope is not defined"),
        ("1 +", "SyntaxError"),
        ("while (true) {}", "ran longer than 1 s"),
        ("/(a+)+$/.test('a'.repeat(40) + 'b')", "ran longer than 1 s"),
        ("[].indexOf.call({length: 2 ** 52}, 1)", "ran longer than 1 s"),
        ("let a = []; while (true) a.push('x'.repeat(1e6))", "ran out of memory"),
        ("(function f() { f() })()", "Maximum call stack size exceeded"),
        ("'x'.repeat(2 ** 29)", "ran out of memory"),
        ("let s = 'x'; while (true) s += s", "string too long"),
        ("new Array(2 ** 32 - 1).fill(0)", "ran out of memory"),
        ("let a = []; for (let i = 0; i < 200000; i++) a = [a]; return a", "ran out of memory"),
        ("JSON.parse('['.repeat(1e6))", "Maximum call stack size exceeded"),
        ("eval('('.repeat(1e5))", "Maximum call stack size exceeded"),
        ("2n ** (2n ** 30n)", "BigInt is too large"),
        ("Atomics.wait(new Int32Array(new SharedArrayBuffer(8)), 0, 0)", "cannot block"),
    ],
)
def test_a_script_that_fails_or_does_not_end_says_so_and_the_next_one_works(engine, code, message):
    with pytest.raises(ScriptError, match=r"^script: ") as caught:
        engine.evaluate(code, {})
    assert message in str(caught.value)
    assert engine.evaluate("6 * 7", {}) == 42


def test_nothing_of_the_host_is_in_reach(engine):
    names = [
        "require",
        "process",
        "std",
        "os",
        "fetch",
        "XMLHttpRequest",
        "setTimeout",
        "Worker",
        "print",
        "console",
    ]
    code = f"[{', '.join(f'typeof {name}' for name in names)}]"
    assert set(engine.evaluate(code, {})) == {"undefined"}


def test_scripts_do_not_share_state(engine):
    engine.evaluate("globalThis.left = 1; Array.prototype.map = null; return 1", {})
    assert engine.evaluate("[typeof left, [1].map(x => x + 1)]", {}) == ["undefined", [2]]


def test_the_process_ends_with_its_engine():
    engine = ScriptEngine()
    engine.evaluate("1", {})
    pid = engine._process.pid
    engine.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_the_process_of_an_unclosed_engine_ends_with_it():
    engine = ScriptEngine()
    engine.evaluate("1", {})
    pid = engine._process.pid
    del engine
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


PAGE = ScriptPage("http://x/", "<h1>Hi</h1><a href='/a'>x</a><a href='/b'>y</a> price: 12")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("while (true) ctx.output({a: 'x'.repeat(1000)})", "ran out of memory"),
        ("ctx.xpath('//a[count(//a) > count(.//a)]').length", "ran longer than 1 s"),
    ],
)
def test_a_rule_cannot_exhaust_its_engine_by_results_or_queries(engine, code, message):
    with pytest.raises(ScriptError, match=message):
        engine.run_rule(code, ScriptPage("http://x/", "<a>" * 20_000), {})
    assert engine.evaluate("6 * 7", {}) == 42


def test_a_rule_reads_its_page_and_yields_items_and_requests(engine):
    code = r"""
    ctx.output({title: ctx.css('h1::text')[0], known: ctx.data.known, url: ctx.url});
    for (const href of ctx.xpath('//a/@href')) ctx.follow(href, {rule: 'next', data: {from: href}});
    ctx.parseJSReg('again', /href='(\/b)'/);
    ctx.outputJS('price: (\\d+)', 'price');
    ctx.outputJS(/price: (?<amount>\d+)/);
    return {last: ctx.matches('<a').length};
    """
    assert engine.run_rule(code, PAGE, {"data": {"known": 1}}) == {
        "items": [{"title": "Hi", "known": 1, "url": "http://x/"}, {"price": "12"}, {"amount": "12"}, {"last": 2}],
        "requests": [
            {"url": "/a", "rule": "next", "data": {"from": "/a"}}, {"url": "/b", "rule": "next", "data": {"from": "/b"}},
            {"url": "/b", "rule": "again"},
        ],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("ctx.css('a[')", "invalid CSS query"), ("ctx.json()", "SyntaxError"), ("__select('css', 'h1')", "not defined"),
        ("while (1) {}", "ran longer"),
    ],
)  # fmt: skip
def test_a_rule_that_fails_says_so(engine, code, message):
    with pytest.raises(ScriptError, match="script: ") as caught:
        engine.run_rule(code, PAGE, {})
    assert message in str(caught.value)


async def test_a_runaway_script_of_a_recipe_is_the_outcome_of_its_page_alone(serve, tmp_path):
    site = Scripted(
        {"/": ["/1", "/2", "/3"], **{f"/{n}": Answer(f"<h1>{n}</h1>".encode()) for n in (1, 2, 3)}}
    )
    text = f"""name: x
start: {serve(site).url}
pages:
  list: {{follow: [{{css: a, page: end}}]}}
  end:
    items:
      fields:
        n: {{css: h1, type: int, script: "if (value === 2) while (true) {{}} return value * 10"}}
"""
    ran = await run_recipe_text(text, tmp_path)
    assert sorted(item["n"] for item in ran.items) == [10, 30]
    assert list(ran.letters) == ["/2"]
    assert "field n: script: ran longer than 1 s" in ran.letters["/2"]


ZHENG_ROOT = """
        var arr = new Array();
         for (var i = 25; i <= 25; i+=25) {
            var obj = {
               URL: "SITE/group/szsh/discussion?start=" + i,
               Priority: 1,
               RuleName: "解析网站URL",
               Method: "GET",
           };
            arr.push(obj);
        };
        console.log(arr[0].URL);
        AddJsReq(arr);
            """
ZHENG_LIST = r"""
            ctx.ParseJSReg("解析阳台房","(SITE/group/topic/[0-9a-z]+/)\"[^>]*>([^<]+)</a>");
            """
ZHENG_TOPIC = r"""
            //console.log("parse output");
            ctx.OutputJS("<div class=\"topic-content\">[\\s\\S]*?阳台[\\s\\S]*?<div class=\"aside\">");
            """


async def test_the_three_rules_of_zhengs_javascript_task_run_as_they_are(serve, tmp_path, caplog):
    with_balcony = '<div class="topic-content">\n<p>朝南 有阳台</p>\n</div><div class="aside">'
    pages = {
        "/group/topic/1a/": Answer(with_balcony.encode()),
        "/group/topic/2b/": Answer('<div class="topic-content">没有</div><div class="aside">'.encode()),
    }  # fmt: skip
    site = Scripted(pages)
    url = serve(site).url.rstrip("/")
    links = "".join(f'<a href="{url}/group/topic/{name}/" title="">{name}</a>' for name in ("1a", "2b", "2b"))
    listed = f'{links}<a href="{url}/group/other/3c/">no</a>'
    pages["/group/szsh/discussion?start=25"] = Answer(listed.encode())
    recipe = {
        "name": "js_find_douban_sun_room", "allowed_domains": ["127.0.0.1"],
        "start": [{"script": ZHENG_ROOT.replace("SITE", url)}],
        "pages": {"解析网站URL": {"script": ZHENG_LIST.replace("SITE", url)}, "解析阳台房": {"script": ZHENG_TOPIC}},
    }  # fmt: skip
    with caplog.at_level("INFO", "skitter.scripts"):
        ran = await run_recipe_text(json.dumps(recipe), tmp_path)
    assert ran.letters == {}
    assert ran.items == [{"url": f"{url}/group/topic/1a/"}]
    assert site.counts == {
        "/group/szsh/discussion?start=25": 1, "/group/topic/1a/": 1, "/group/topic/2b/": 1
    }  # fmt: skip
    assert [record.getMessage() for record in caplog.records if record.name == "skitter.scripts"] == [
        f"{url}/group/szsh/discussion?start=25"
    ]


def test_a_rule_has_the_whole_context_of_zhengs_crawler(engine):
    page = ScriptPage(
        "http://x/1", "<b>é</b> 12 34", method="POST", priority=2, task="shop", rules=["list", "book"]
    )
    code = r"""
    var seen = ctx.Req.TmpData.Get("bookName"), none = ctx.Req.TmpData.Get("none"); undeclared = 1;
    ctx.Req.TmpData.Set("price", 5);
    AddJsReq({URL: "/a", RuleName: "book", Method: "GET"});
    var result = ctx.ParseJSReg("list", "(?i)\\A<B>(?P<letter>[\\s\\S])</B>");
    ctx.Output({seen: seen, none: none, bytes: ctx.Body.length, text: String(ctx.Body), requests: result.Requesrts.length,
                known: ctx.GetRule("book") !== null, unknown: ctx.GetRule("other"), method: ctx.Req.Method,
                depth: ctx.Req.Depth, priority: ctx.Req.Priority, matched: ctx.OutputJS("34\\z").Items, not: ctx.OutputJS("12\\z").Items});
    return result;
    """
    given = engine.run_rule(code, page, {"data": {"bookName": "Go"}, "depth": 3, "rule": "list"})
    assert given["requests"] == [
        {"data": {"bookName": "Go", "price": 5}, "method": "GET", "priority": 0, "rule": "book", "url": "/a"},
        {"data": {"bookName": "Go", "price": 5}, "rule": "list", "url": "é"},
    ]
    url_item, item = given["items"]
    assert url_item == {"url": "http://x/1"}
    assert item.pop("time")
    assert item == {
        "task": "shop", "rule": "list", "url": "http://x/1", "seen": "Go", "none": None, "bytes": 15,
        "text": "<b>é</b> 12 34", "requests": 1, "known": True, "unknown": None, "method": "POST", "depth": 3,
        "priority": 2, "matched": ["http://x/1"], "not": [],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("AddJsReq([{RuleName: 'a'}])", "AddJsReq: a request has no URL"),
        ("ctx.ParseJSReg('a', 'x')", "ParseJSReg: the regular expression has no group"),
        (r"ctx.OutputJS('\\pL')", r"\p is not supported"), ("ctx.OutputJS('[[:alpha:]]')", "unsupported syntax"),
        ("while (true) console.log('x')", "ran longer"), ("while (true) AddJsReq({URL: 'x'.repeat(1000)})", "ran out of memory"),
        ("ctx.OutputJS('(x+x+)+y')", "ran longer"),
    ],
)  # fmt: skip
def test_a_rule_of_zhengs_crawler_that_fails_says_so(engine, code, message):
    with pytest.raises(ScriptError, match="script: ") as caught:
        engine.run_rule(code, ScriptPage("http://x/", "x" * 60), {})
    assert message in str(caught.value)
    assert engine.evaluate("6 * 7", {}) == 42


def test_messages_of_a_script_are_logged_even_if_it_fails_and_their_number_is_limited(engine, caplog):
    with caplog.at_level("DEBUG", "skitter.scripts"), pytest.raises(ScriptError):
        engine.run_rule("console.log('a', {b: 1}); console.warn('w'); throw new Error('no')", PAGE, {})
    records = [(one.levelname, one.getMessage()) for one in caplog.records if one.name == "skitter.scripts"]
    assert records == [("INFO", 'a {"b":1}'), ("WARNING", "w")]
    caplog.clear()
    with caplog.at_level("DEBUG", "skitter.scripts"):
        engine.run_rule("for (let n = 0; n < 500; n++) console.log('x'.repeat(9000))", PAGE, {})
    assert [len(one.getMessage()) for one in caplog.records if one.name == "skitter.scripts"] == [2000] * 100
