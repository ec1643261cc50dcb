"""Monitors over whole crawls: exactly one monitor detects each fault of a site, and reports it."""

import asyncio
import json
import re
import socketserver
import ssl
import threading
import time
from email import message_from_bytes, policy
from email.utils import parsedate_to_datetime
from ipaddress import ip_address

import msgspec
import pytest
import trustme

from cli_command import skitter, usage_error
from services.processes import free_port
from services.redis_servers import RedisServer
from sites.shop import MONITORS, PRODUCTS, Shop, ShopSpider
from skitter import Crawl, JobSpec
from skitter.errors import SettingsError
from skitter.frontier.embedded.frontier import EmbeddedFrontier
from skitter.frontier.embedded.inspection import read_note
from skitter.frontier.records import JobState
from skitter.monitors import compile_monitors
from skitter.run import notify
from skitter.run.notify import NotificationError, Notifier, check_targets
from skitter.run.passes import NOTE, PassRecord, PassTracker, decode_passes
from skitter.settings import Settings
from skitter.testing import Answer


class Clock:
    """Replaces the module ``time``: hours pass at once."""

    offset = 0.0

    @classmethod
    def time(cls):
        return time.time() + cls.offset


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr("skitter.run.passes.time", Clock)
    monkeypatch.setattr(Clock, "offset", 0.0)
    return Clock


class _Mailbox(socketserver.StreamRequestHandler):
    """Accepts one mail (RFC 5321)."""

    def handle(self):
        self._say("220 loopback")
        while line := self.rfile.readline().decode().strip():
            verb = line.upper().partition(" ")[0]
            self.server.verbs.append(verb)
            if verb == "EHLO":
                self._say("\r\n".join(f"250-{name}" for name in ("loopback", *self.server.extensions)))
            if verb == "AUTH":
                self._say("235 welcome")
                continue
            if verb == "STARTTLS":
                self._say("220 go on")
                self.connection = self.server.tls.wrap_socket(self.connection, server_side=True)
                self.rfile, self.wfile = self.connection.makefile("rb"), self.connection.makefile("wb", 0)
                continue
            if verb == "DATA":
                self._say("354 go on")
                lines = iter(self.rfile.readline, b".\r\n")
                self.server.mails.append(message_from_bytes(b"".join(lines), policy=policy.default))
            self._say("221 bye" if verb == "QUIT" else "250 ok")

    def finish(self):
        super().finish()
        self.connection.close()

    def _say(self, text):
        self.wfile.write(f"{text}\r\n".encode())


@pytest.fixture
def mail_server():
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Mailbox) as server:
        server.mails, server.verbs = [], []
        server.extensions, server.tls = (), None
        server.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def frontier(request):
    """The URL of a frontier: a file, or a server for the parameter ``valkey``."""
    if getattr(request, "param", "sqlite") == "sqlite":
        yield "sqlite:"
        return
    server = RedisServer("valkey").start()
    yield server.url
    server.stop()


@pytest.fixture
def shop(serve, tmp_path, clock, frontier):
    """Run the shop's job once more: ``await shop("fault", **settings)``."""

    def advance_clock():
        clock.offset += 3600.0

    site = Shop(when_slow=advance_clock)
    server = serve(site)

    async def run(fault="", products=PRODUCTS, **settings):
        site.fault = fault
        home = str(tmp_path / "home")
        spec = JobSpec(job="shop", spider="-", home=home, settings=settings, frontier=frontier)
        asked = PRODUCTS // 2 if fault == "gone" else products
        spider = type("Asked", (ShopSpider,), {"url": server.url, "products": asked})
        return await Crawl(spec, spider_class=spider, recrawl=True).run()

    run.url = server.url
    run.path = tmp_path / "home/shop/frontier.db"
    return run


def violated(result):
    return [verdict.monitor for verdict in result.ended_pass.violated]


@pytest.mark.parametrize("frontier", ["sqlite", "valkey"], indirect=True)
async def test_each_fault_is_detected_by_exactly_its_monitor_and_a_good_pass_violates_none(shop):
    first = await shop()
    assert [verdict.monitor for verdict in first.ended_pass.verdicts if verdict.passed is None] == [
        "gone", "fewer_items", "new_category", "thin",
    ]  # fmt: skip
    assert violated(first) == violated(await shop()) == []
    for fault in MONITORS:
        assert violated(await shop(fault)) == [fault]
        assert violated(await shop()) == [], f"after {fault}"


async def end_before_the_judgement(shop, monkeypatch, fault):
    """Crawl to the end, and end as if all processes were killed before one of them could judge the pass."""

    async def killed(*_):
        raise asyncio.CancelledError

    with monkeypatch.context() as patch:
        patch.setattr(Crawl, "_result", killed)
        with pytest.raises(asyncio.CancelledError):
            await shop(fault)


@pytest.mark.parametrize("frontier", ["sqlite", "valkey"], indirect=True)
async def test_each_fault_is_detected_by_exactly_its_monitor_if_all_processes_were_killed_at_the_end(
    shop, monkeypatch, caplog
):
    await shop()
    for fault in [
        name for name in MONITORS if name != "slow"
    ]:  # no process has recorded the time that jumped
        await end_before_the_judgement(shop, monkeypatch, fault)
        assert not any("violated" in line for line in caplog.messages)
        assert violated(await shop()) == []
        (line,) = [line for line in caplog.messages if "violated" in line]
        assert line.startswith(f"monitor violated: {fault}: "), line
        caplog.clear()


async def test_a_pass_without_a_verdict_is_judged_by_the_next_run(shop, monkeypatch):
    await shop()
    await end_before_the_judgement(shop, monkeypatch, "no_price")
    passes = decode_passes(await asyncio.to_thread(read_note, shop.path, NOTE))
    assert (passes.current.number, len(passes.history)) == (2, 1)
    assert violated(await shop()) == []
    passes = decode_passes(await asyncio.to_thread(read_note, shop.path, NOTE))
    assert [[one.monitor for one in record.violated] for record in passes.history] == [[], ["no_price"], []]
    assert passes.history[1].figures["items"] == PRODUCTS


async def test_a_stopped_run_is_not_judged_but_continued(shop):
    stopped = await shop(max_pages=10, monitors=["pages >= 30"])
    assert (stopped.ended_pass.reason, violated(stopped)) == ("10 pages", ["pages >= 30"])
    spider = type("Asked", (ShopSpider,), {"url": shop.url, "monitors": ["pages >= 30"]})
    spec = JobSpec(job="other", spider="-", home=str(shop.path.parents[1]))
    crawl = Crawl(spec, spider_class=spider, watcher=lambda _: crawl.stop("interrupted"))
    interrupted = await crawl.run()
    assert interrupted.state is not JobState.FINISHED
    assert interrupted.ended_pass is None
    finished = await Crawl(spec, spider_class=spider).run()
    assert (finished.ended_pass.number, finished.ended_pass.figures["pages"], violated(finished)) == (
        1,
        PRODUCTS,
        [],
    )


async def test_of_several_processes_exactly_one_judges(shop, caplog):
    await shop(monitors=["items > 1000"])
    frontier = EmbeddedFrontier(path=shop.path)
    await frontier.open()
    try:
        assert await frontier.control.recrawl()
        rules = compile_monitors(["items > 1000"])
        keepers = [PassTracker(frontier.notes, rules) for _ in range(8)]
        for keeper in keepers:
            await keeper.begin(await frontier.status())
        finished = msgspec.structs.replace(await frontier.status(), state=JobState.FINISHED)
        caplog.clear()
        records = await asyncio.gather(*(keeper.close(finished) for keeper in keepers))
        assert {record.number for record in records} == {2}
        assert len([line for line in caplog.messages if "violated" in line]) == 1
    finally:
        await frontier.close()


class Receiver:
    """A webhook. ``refusals``: number of requests that it refuses first."""

    def __init__(self, refusals=0):
        self.refusals = refusals
        self.notices = []

    def __call__(self, visit):
        if self.refusals:
            self.refusals -= 1
            return Answer(status=503)
        self.headers = visit.headers
        self.notices.append(json.loads(visit.body))
        return Answer()


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(notify, "_PAUSE", 0.01)


OPEN = {"allow_networks": "127.0.0.0/8"}


async def test_a_webhook_gets_each_violated_pass_once(shop, serve, quick):
    receiver = Receiver(refusals=2)
    target = f"{serve(receiver).url}hook"
    await shop(notify=target, **OPEN)
    assert receiver.notices == []
    await shop("no_price", notify=target, **OPEN)
    await shop(notify=target, **OPEN)
    (notice,) = receiver.notices
    assert (notice["job"], notice["number"], notice["reason"]) == ("shop", 2, "")
    assert [verdict["monitor"] for verdict in notice["violated"]] == ["no_price"]
    assert notice["figures"]["items"] == PRODUCTS


async def test_a_webhook_does_not_get_the_headers_of_the_crawl(shop, serve):
    receiver = Receiver()
    headers = {"Authorization": "Bearer of-the-site", "Cookie": "sid=1", "X-Of-The-Crawl": "1"}
    await shop("no_price", notify=f"{serve(receiver).url}hook", headers=headers, **OPEN)
    assert len(receiver.notices) == 1
    assert not {name.lower() for name in receiver.headers} & {name.lower() for name in headers}


async def test_a_report_that_was_refused_is_repeated_by_the_next_run(shop, serve, quick):
    receiver = Receiver(refusals=3)
    target = f"{serve(receiver).url}hook"
    await shop("no_price", notify=target, **OPEN)
    assert receiver.notices == []
    await shop(notify=target, **OPEN)
    assert [notice["number"] for notice in receiver.notices] == [1]


async def test_a_webhook_passes_the_address_guard_even_if_seeds_have_opened_its_network(
    shop, serve, quick, caplog
):
    receiver = Receiver()
    await shop("no_price", notify=f"{serve(receiver).url}hook")
    assert receiver.notices == []
    assert any("cannot report" in line for line in caplog.messages)


async def test_a_mail_names_the_violated_monitors(shop, mail_server):
    await shop("no_price", notify="mailto:ops@example.com", smtp_url=f"smtp://127.0.0.1:{mail_server.port}")
    (mail,) = mail_server.mails
    assert mail["To"] == "ops@example.com"
    assert "shop" in mail["Subject"]
    assert parsedate_to_datetime(mail["Date"]).year > 2000
    assert re.fullmatch("<[^<>@]+@localhost>", mail["Message-ID"])
    assert "no_price: coverage(price) >= 0.95 (coverage(price) = 0)" in mail.get_content()


@pytest.mark.parametrize(
    ("target", "server", "field"),
    [
        ("mailto:ops@example.com", "smtp://127.0.0.1:99999", "smtp_url"),
        ("mailto:ops@example.com", "smtp://[127.0.0.1", "smtp_url"),
        ("mailto:ops@example.com?subject=x", "smtp://127.0.0.1", "notify[0]"),
        ("mailto:a,b@example.com", "smtp://127.0.0.1", "notify[0]"),
        ("https://example.com:99999/", "smtp://127.0.0.1", "notify[0]"),
        ("https://[example.com/", "smtp://127.0.0.1", "notify[0]"),
    ],
)
def test_a_target_that_cannot_be_reached_is_refused_before_the_run(target, server, field):
    with pytest.raises(SettingsError) as refused:
        check_targets(Settings(notify=[target], smtp_url=server))
    assert refused.value.field == field
    check_targets(
        Settings(notify=["mailto:a@example.com,b@example.com"], smtp_url="smtps://me:pw@mail.example:465")
    )


def mail(server, **settings):
    """Report a pass by mail, with a login."""
    url = f"smtp://me:secret@127.0.0.1:{server.port}"
    notifier = Notifier("job", Settings(smtp_url=url, **settings))
    notifier._mail("ops@example.com", PassRecord(number=1, began=1.0, ended=2.0))


async def test_a_mail_server_that_does_not_listen_is_named_with_the_setting(quick, caplog):
    port = free_port()
    settings = Settings(notify=["mailto:ops@example.com"], smtp_url=f"smtp://127.0.0.1:{port}")
    assert not await Notifier("job", settings).report(PassRecord(number=1, began=1.0, ended=2.0))
    (line,) = caplog.messages
    assert f"cannot connect to the mail server 127.0.0.1:{port}: " in line
    assert "; name your mail server in smtp_url" in line


def test_a_login_is_not_sent_in_clear_text_to_another_machine(mail_server, monkeypatch):
    monkeypatch.setattr(notify, "ip_address", lambda _: ip_address("192.0.2.1"), raising=False)
    mail_server.extensions = ("AUTH PLAIN",)
    with pytest.raises(NotificationError) as caught:
        mail(mail_server)
    assert caught.value.remedy
    assert "AUTH" not in mail_server.verbs
    assert mail_server.mails == []


def test_a_login_is_sent_over_tls(mail_server, monkeypatch, tmp_path):
    monkeypatch.setattr(notify, "ip_address", lambda _: ip_address("192.0.2.1"), raising=False)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    mail_server.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(mail_server.tls)
    mail_server.extensions = ("AUTH PLAIN", "STARTTLS")
    mail(mail_server, ca_file=str(tmp_path / "ca.pem"))
    assert mail_server.verbs[:4] == ["EHLO", "STARTTLS", "EHLO", "AUTH"]
    assert len(mail_server.mails) == 1


def test_a_login_to_this_machine_needs_no_tls(mail_server):
    mail_server.extensions = ("AUTH PLAIN",)
    mail(mail_server)
    assert "AUTH" in mail_server.verbs
    assert len(mail_server.mails) == 1


async def test_a_monitor_during_the_run_warns_once_or_stops_the_job(shop, serve, quick):
    receiver = Receiver()
    rule = {"name": "priced", "rule": "coverage(price) >= 0.95", "after": 10}
    common = {"notify": f"{serve(receiver).url}hook", "delay": 0.02, "concurrency_per_slot": 1, **OPEN}
    warned = await shop("no_price", monitors=[{**rule, "during": "warn"}], products=200, **common)
    assert (warned.state, violated(warned)) == (JobState.FINISHED, ["priced"])
    assert warned.ended_pass.verdicts[0].at > 0
    assert receiver.notices[0]["ended"] == 0
    stopped = await shop(
        "no_price", monitors=[{**rule, "during": "stop"}, "pages >= 2000"], products=2000, **common
    )
    assert stopped.ended_pass.reason == "monitor priced"
    assert violated(stopped) == ["priced"]
    assert 10 <= stopped.ended_pass.figures["pages"] < 2000


RECIPE = """
name: shop
start: {url}0
allowed_domains: any
settings: {{robots: false, monitors: ["items >= 1", {{rule: "coverage(price) > 0.5", name: priced}}]}}
pages:
  main: {{items: {{fields: {{text: p}}}}}}
"""


def test_the_command_line_shows_violated_monitors_everywhere(serve, tmp_path):
    url = serve(Shop()).url
    (tmp_path / "shop.yaml").write_text(RECIPE.format(url=url))
    result = skitter("run", "shop.yaml", "--summary", "s.json", cwd=tmp_path)
    assert result.returncode == 3, result.stderr
    assert "priced: coverage(price) > 0.5" in result.stderr
    assert [one["monitor"] for one in json.loads((tmp_path / "s.json").read_text())["violated"]] == ["priced"]
    status = json.loads(skitter("status", "shop", "--json", cwd=tmp_path).stdout)
    assert [one["monitor"] for one in status["violated"]] == ["priced"]
    (record,) = status["passes"]
    assert (record["number"], record["figures"]["items"]) == (1, 1)
    assert "priced" in skitter("status", "shop", cwd=tmp_path).stdout
    assert skitter("report", "shop", "-o", "r.html", cwd=tmp_path).returncode == 0
    assert "priced: coverage(price) &gt; 0.5" in (tmp_path / "r.html").read_text()
    assert skitter("run", "shop.yaml", cwd=tmp_path).returncode == 0, "nothing has ended with this run"


def test_mistakes_in_monitors_are_usage_errors(serve, tmp_path):
    (tmp_path / "shop.yaml").write_text(RECIPE.format(url="http://127.0.0.1:1/"))
    assert "itms" in usage_error("run", "shop.yaml", "--monitor", "itms > 1", cwd=tmp_path)
    assert "ftp" in usage_error("run", "shop.yaml", "--notify", "ftp://x/", cwd=tmp_path)
    (tmp_path / "shop.yaml").write_text(
        RECIPE.format(url="http://127.0.0.1:1/").replace("items >= 1", "itms >= 1")
    )
    checked = skitter("recipe", "check", "shop.yaml", cwd=tmp_path)
    assert checked.returncode == 2
    assert "itms" in checked.stdout + checked.stderr
