"""Parts: built in, installed, by a dotted path, or as objects; and errors for missing parts."""

import sys
from importlib.metadata import EntryPoint, EntryPoints
from types import SimpleNamespace

import pytest

from skitter import Request, Response
from skitter.errors import SettingsError, StoreError, UsageError
from skitter.fetch.contract import UNCONDITIONAL, FetcherCapabilities
from skitter.fetch.http import HttpFetcher
from skitter.fetch.identity.contract import SourceContext
from skitter.fetch.identity.fetcher import IdentityFetcher
from skitter.fetch.identity.sessions import PoolOptions, SessionPool
from skitter.plugins import PluginKind
from skitter.run.builder import JobBuilder
from skitter.run.fetcher_factory import make_fetcher
from skitter.run.job import JobSpec
from skitter.settings import build_settings

MODULE = """
from skitter.fetch.identity.sessions import SessionPool


class Agents:
    def __init__(self, context):
        self.rest = context.rest

    def headers(self, request):
        return {"User-Agent": self.rest}


def agents(context):
    return Agents(context)


def broken(context):
    raise RuntimeError("no database")


ready = Agents(type("Context", (), {"rest": "ready"}))
pool = SessionPool()
"""


@pytest.fixture(autouse=True)
def own_parts(tmp_path, monkeypatch):
    (tmp_path / "own_parts.py").write_text(MODULE)
    (tmp_path / "own_broken.py").write_text("raise RuntimeError('not today')")
    (tmp_path / "own_typo.py").write_text("import json\njson.lodas\nclass X: ...")
    (tmp_path / "own_package").mkdir()
    (tmp_path / "own_package" / "__init__.py").write_text("import no_such_package")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("own_parts", None)


@pytest.fixture
def installed(monkeypatch):
    points = EntryPoints(
        [
            EntryPoint("ours", "own_parts:Agents", "skitter.user_agents"),
            EntryPoint("gone", "own_gone:X", "skitter.user_agents"),
            EntryPoint("broken", "own_broken:X", "skitter.user_agents"),
        ]
    )
    monkeypatch.setattr("skitter.plugins._offered", lambda group: points.select(group=group))


def user_agents_of(**settings):
    """Return the user agents of a job with these settings."""
    fetcher = make_fetcher(build_settings(settings))
    assert isinstance(fetcher, IdentityFetcher)
    return fetcher._user_agents


@pytest.mark.parametrize(
    ("value", "rest"),
    [
        ("ours:A/1", "A/1"),
        ("OURS", ""),
        ("own_parts:Agents:A/1 (x:y)", "A/1 (x:y)"),
        ("own_parts:agents:A/2", "A/2"),
        ("own_parts:ready", "ready"),
    ],
)
def test_a_part_is_found_by_its_installed_name_and_by_its_path(installed, value, rest):
    assert user_agents_of(user_agents=value).rest == rest


def test_a_part_is_an_object_a_class_or_a_function():
    import own_parts

    assert user_agents_of(user_agents=own_parts.ready) is own_parts.ready
    assert user_agents_of(user_agents=own_parts.Agents).rest == ""
    assert user_agents_of(user_agents=own_parts.agents).rest == ""


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"user_agents": "own_parts:Missing"}, "module own_parts has no 'Missing'"),
        ({"user_agents": "own_broken:X"}, "module own_broken cannot be imported: not today"),
        ({"user_agents": "own_typo:X"}, "module own_typo cannot be imported: module 'json' has no attribute"),
        ({"user_agents": "own_package.inner:X"}, "cannot be imported: No module named 'no_such_package'"),
        ({"user_agents": "own_parts.inner:X"}, "unknown user_agents: 'own_parts.inner:X'"),
        ({"user_agents": "broken"}, "cannot be loaded from own_broken:X: not today"),
        ({"user_agents": "own_parts:broken"}, "RuntimeError: no database"),
        ({"user_agents": "own_parts:pool"}, "does not implement UserAgents"),
        ({"user_agents": "nowhere:X"}, "unknown user_agents: 'nowhere:X'"),
        ({"user_agents": "gone"}, "cannot be loaded from own_gone:X"),
        ({"user_agents": "file:nowhere.txt"}, "'nowhere.txt'"),
        ({"user_agents": []}, "the list of user agents is empty"),
        ({"user_agents": 7}, "does not implement UserAgents"),
        ({"fetcher": "own_parts:Agents"}, "does not implement Fetcher"),
        ({"fetcher": None}, "does not implement Fetcher"),
        ({"fetcher": SimpleNamespace(fetch=None)}, "does not implement Fetcher"),
        ({"cookies": "sharred"}, "unknown cookies: 'sharred'"),
        ({"cookies": 7}, "does not implement Cookies"),
        ({"sessions": "many"}, "unknown sessions: 'many'"),
        ({"proxies": SimpleNamespace(choose=str)}, "does not implement Proxies or ProxyList"),
        ({"proxies": "url:"}, "URL"),
        ({"proxies": "file:"}, "file not found: ''"),
        ({"proxies": ["http://p:1", "nonsense"]}, "'nonsense'"),
        ({"proxies": "http://p:1", "proxy": "http://q:1"}, "both proxy and proxies"),
        ({"cookie_file": "nowhere.txt"}, "'nowhere.txt'"),
    ],
)
def test_a_part_that_is_not_there_is_an_error_with_a_remedy(installed, settings, words):
    with pytest.raises(SettingsError) as caught:
        make_fetcher(build_settings(settings))
    assert words in str(caught.value)
    assert caught.value.remedy


def test_the_error_for_an_unknown_name_lists_the_known_ones(installed):
    with pytest.raises(SettingsError) as caught:
        make_fetcher(build_settings({"user_agents": "randm"}))
    assert "file, gone, ours, random" in caught.value.remedy


def test_a_built_in_name_wins_over_an_installed_one_and_that_over_a_path(monkeypatch):
    points = EntryPoints([EntryPoint("json", "own_parts:agents", "g")])
    monkeypatch.setattr("skitter.plugins._offered", lambda group: points.select(group=group))
    kind = PluginKind("part", "g", {"mine": 1}, StoreError)
    assert kind.find("mine:x") == (1, "x")
    assert kind.find("json:loads")[0].__name__ == "agents"
    assert kind.find("os.path:join")[0].__name__ == "join"


@pytest.mark.parametrize("value", [20, "20", {"size": 20}, '{"size": 20}', SessionPool(PoolOptions(size=20))])
def test_sessions_are_a_number_options_or_a_pool(value):
    fetcher = make_fetcher(build_settings({"sessions": value}))
    assert fetcher._sessions.options.size == 20


@pytest.mark.parametrize("value", [None, "none"])
def test_the_value_none_adds_no_source(value):
    fetcher = make_fetcher(build_settings({"user_agents": value, "proxies": value, "sessions": value}))
    assert type(fetcher._default) is HttpFetcher  # no identity between it and the requests


def test_a_component_receives_the_settings_of_the_job():
    contexts = []

    class ReceivesContext:
        def __init__(self, context):
            contexts.append(context)

        def headers(self, request):
            return {}

    make_fetcher(build_settings({"user_agents": ReceivesContext, "connect_timeout": 3}))
    (context,) = contexts
    assert isinstance(context, SourceContext)
    assert (context.settings.connect_timeout, context.notes) == (3, None)
    assert isinstance(context.plain._default, HttpFetcher)


def test_an_object_in_the_spec_of_a_job_is_refused_for_other_processes_could_not_read_it(tmp_path):
    spec = JobSpec(
        job="j",
        spider="skitter.frontends.page_spider:PageSpider",
        home=str(tmp_path),
        settings={"fetcher": object()},
    )
    with pytest.raises(UsageError, match="fetcher") as caught:
        JobBuilder(spec)
    assert "custom_settings" in caught.value.remedy


async def test_headers_of_the_settings_are_sent_with_a_user_defined_fetcher():
    seen = []

    class Own:
        capabilities = FetcherCapabilities()

        def __init__(self, context):
            pass

        async def open(self):
            pass

        async def close(self):
            pass

        async def fetch(self, request, *, permit=None, on_headers=None):
            seen.append(request.headers)
            return Response(request.url, request=request)

    settings = build_settings({"fetcher": Own, "user_agent": "me/1", "headers": {"X-A": "1", "X-B": "2"}})
    fetcher = make_fetcher(settings)
    await fetcher.open()
    await fetcher.fetch(Request("http://h.test/", headers={"x-a": "own"}), permit=UNCONDITIONAL)
    await fetcher.close()
    assert seen == [{"User-Agent": "me/1", "X-B": "2", "x-a": "own"}]
