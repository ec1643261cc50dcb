"""Builds the fetcher of one worker from the settings, with its cache and its sources of identity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from skitter._utils.notes import Notes
from skitter.errors import SettingsError, SkitterError
from skitter.fetch.address_guard import AddressGuard
from skitter.fetch.contract import Fetcher
from skitter.fetch.cookies import CookieJars, NoCookies, given_cookies
from skitter.fetch.http import HttpFetcher
from skitter.fetch.identity.contract import (
    Cookies,
    IdentityChooser,
    IdentitySources,
    Proxies,
    ReadableCookies,
    SourceContext,
    UserAgents,
    existing_file,
)
from skitter.fetch.identity.cookies import (
    CookieFile,
    CookieSharing,
    JarCookies,
    SharedCookies,
)
from skitter.fetch.routing import HeaderFetcher, RoutingFetcher, fetcher_rules
from skitter.plugins import PluginKind
from skitter.request import Request
from skitter.settings import Settings

if TYPE_CHECKING:  # most crawls have no identity sources
    from skitter.fetch.identity.proxy_lists import ProxyList
    from skitter.fetch.identity.sessions import SessionPool

FETCHERS = PluginKind("fetcher", "skitter.fetchers", {"http": HttpFetcher}, SettingsError)
USER_AGENTS = PluginKind(
    "user_agents",
    "skitter.user_agents",
    {
        "random": "skitter.fetch.identity.user_agents:random_agents",
        "file": "skitter.fetch.identity.user_agents:agents_of_file",
    },
    SettingsError,
)
PROXIES = PluginKind(
    "proxies",
    "skitter.proxies",
    {
        "file": "skitter.fetch.identity.proxy_lists:file_list",
        "url": "skitter.fetch.identity.proxy_lists:url_list",
    },
    SettingsError,
)
SESSIONS = PluginKind("sessions", "skitter.sessions", {}, SettingsError)
COOKIES = PluginKind("cookies", "skitter.cookies", {}, SettingsError)

_WITH_SETTINGS = ("http", "browser", "adaptive")
"""Fetchers that add the headers of the settings themselves."""
_OWN_JARS = ("auto", "session", "proxy", "shared")
"""Values of the setting ``cookies`` for the built-in cookie jars."""


def make_guard(settings: Settings, notes: Notes | None = None) -> AddressGuard:
    """Return the guard of one worker's connections. ``notes``: see :func:`make_fetcher`.

    Raises :class:`~skitter.errors.SettingsError` for an invalid network.
    """
    return AddressGuard(
        settings.allow_networks,
        seeds_open=settings.seeds_open_networks,
        looks_up_seeds=not settings.proxy and settings.proxies in (None, "none"),
        notes=notes,
    )


class JobCookies(NamedTuple):
    """The cookies of one worker."""

    jars: CookieJars
    source: Cookies | None
    """``None`` if the fetchers keep the cookies themselves, in the jars."""

    @property
    def access(self) -> Cookies:
        """The cookies, for reading and setting."""
        return JarCookies(self.jars) if self.source is None else self.source


def make_cookies(
    settings: Settings, notes: Notes | None = None, sharing: CookieSharing | None = None
) -> JobCookies:
    """Return the cookies of one worker, including the initial cookies of the settings. May block. Parameters as for :func:`make_fetcher`.

    Raises :class:`~skitter.errors.SettingsError` for a plugin that is missing or cannot be made, and for an initial cookie
    that cannot be set.
    """
    jars = CookieJars() if settings.cookies in _OWN_JARS else NoCookies()
    if settings.initial_cookies:
        jars.seed(given_cookies(settings.initial_cookies))
    return JobCookies(jars, _own_cookies(settings, SourceContext(settings, notes=notes), jars, sharing))


def make_fetcher(
    settings: Settings,
    notes: Notes | None = None,
    guard: AddressGuard | None = None,
    sharing: CookieSharing | None = None,
    chooser: IdentityChooser | None = None,
    job_cookies: JobCookies | None = None,
) -> Fetcher:
    """Return the fetcher of one worker; nothing is opened yet.

    ``notes``: shared by the workers of the job; ``None`` for a fetch outside of a job.
    ``sharing``: given for a job with several workers, for ``cookies=auto``.
    ``chooser``: the spider, if it chooses the identity of its requests.
    ``guard``: checks the addresses that the fetcher connects to; default: a guard from the settings.
    ``job_cookies``: default: the result of :func:`make_cookies`.

    Raises :class:`~skitter.errors.SettingsError` for a plugin that is missing or cannot be made.
    """
    if settings.proxies is not None and settings.proxy:
        raise SettingsError("both proxy and proxies are set", remedy="remove one of them", field="proxy")
    job_cookies = job_cookies or make_cookies(settings, notes, sharing)
    (jars, cookies), access = job_cookies, job_cookies.access
    context = SourceContext(
        settings, notes=notes, guard=guard or make_guard(settings, notes),
        cookies=access if isinstance(access, ReadableCookies) else None,
    )  # fmt: skip
    fetcher: Fetcher = _router(settings, context, jars, keeps_cookies=cookies is None)
    identities = _Identities(
        msgspec.structs.replace(context, plain=fetcher), has_other_workers=sharing is not None
    )
    file = None
    if settings.cookie_file:
        file = CookieFile(existing_file(settings.cookie_file, "cookie_file=PATH"), jars)
    if chooser is None:
        fetcher = identities.wrap(fetcher, settings, cookies, file)
    else:
        from skitter.fetch.identity.fetcher import (  # noqa: PLC0415 - most crawls have no identity sources
            BorrowedFetcher,
            IdentityFetcher,
            IdentityRouter,
        )

        if cookies is not None or file is not None:  # shared by all identities
            fetcher = IdentityFetcher(fetcher, cookies=cookies, cookie_file=file)
        shared = BorrowedFetcher(fetcher)
        fetcher = IdentityRouter(
            chooser,
            identities.wrap(fetcher, settings),
            lambda identity: identities.wrap(shared, _with_identity(settings, identity)),
        )
    if settings.cache_dir is not None:
        from skitter.fetch.cache import CachingFetcher  # noqa: PLC0415 - a crawl seldom has a cache

        return CachingFetcher(fetcher, settings.cache_dir, settings.cache_ttl)
    return fetcher


class _Identities:
    """Wraps fetchers so that requests get a user agent, a proxy, cookies or a session from the sources of a job.

    ``context``: with the settings of the job. ``has_other_workers``: whether other workers of the job share cookies on
    demand (``cookies=auto``).
    """

    def __init__(self, context: SourceContext, *, has_other_workers: bool) -> None:
        self._context = context
        scope = context.settings.cookies
        self._jar_per_proxy = scope == "proxy"
        self._has_other_workers = has_other_workers or scope == "shared"
        self._shares_cookies = scope == "shared" or (scope == "auto" and has_other_workers)

    def wrap(
        self,
        inner: Fetcher,
        settings: Settings,
        cookies: Cookies | None = None,
        file: CookieFile | None = None,
    ) -> Fetcher:
        """Return a fetcher with the sources that ``settings`` name; ``inner`` itself if they name none."""
        context = msgspec.structs.replace(self._context, settings=settings)
        user_agents, proxies = _user_agents(settings, context), _proxies(settings, context)
        sessions = _sessions(settings, context, user_agents, proxies, shares=self._shares_cookies)
        sources = (user_agents, proxies, sessions, cookies, file)
        if not self._jar_per_proxy and all(source is None for source in sources):
            return inner
        from skitter.fetch.identity.fetcher import IdentityFetcher  # noqa: PLC0415 - most crawls have no identity sources

        made = IdentityFetcher(
            inner, user_agents=user_agents, proxies=proxies, sessions=sessions, cookies=cookies,
            jar_per_proxy=self._jar_per_proxy, cookie_file=file,
        )  # fmt: skip
        has_shared_identities = proxies is not None or (self._shares_cookies and sessions is not None)
        if context.notes is not None and self._has_other_workers and has_shared_identities:
            made.share_blocked(context.notes, settings.proxy_cooldown)
        return made


def _with_identity(settings: Settings, identity: IdentitySources) -> Settings:
    changes: dict[str, Any] = {}
    if identity.user_agents is not None:
        changes["user_agents"] = identity.user_agents
    if identity.proxies is not None:
        changes |= {"proxies": identity.proxies, "proxy": None}
    return msgspec.structs.replace(settings, **changes)


def check_task(fetcher: str, identity: IdentitySources) -> None:
    """Raise :class:`~skitter.errors.SettingsError` if the fetcher or a source of a task does not exist. May read files."""
    if fetcher not in {"", "http"}:
        FETCHERS.find(fetcher)
    settings = _with_identity(Settings(), identity)
    guard = AddressGuard()
    context = SourceContext(settings, guard=guard, plain=HttpFetcher(settings, NoCookies(), guard))
    _user_agents(settings, context)
    _proxies(settings, context)


def _router(
    settings: Settings, context: SourceContext, jars: CookieJars, *, keeps_cookies: bool
) -> RoutingFetcher:
    """Return the fetchers of the job. ``keeps_cookies``: each keeps its cookies in the same ``jars``."""
    cookies = jars if keeps_cookies else NoCookies()

    def make(value: Any) -> Fetcher:
        if value == "http":
            return HttpFetcher(context.settings, cookies, context.guard)
        fetcher: Fetcher = _made(FETCHERS, value, context, Fetcher)
        if value not in _WITH_SETTINGS:
            fetcher = HeaderFetcher(fetcher, {"User-Agent": settings.user_agent, **settings.headers})
        if keeps_cookies and not fetcher.capabilities.keeps_cookies:
            from skitter.fetch.identity.fetcher import IdentityFetcher  # noqa: PLC0415 - most crawls have no identity sources

            return IdentityFetcher(fetcher, cookies=JarCookies(jars))
        return fetcher

    name = settings.fetcher if isinstance(settings.fetcher, str) else "given"
    rules = fetcher_rules(settings.fetcher_rules)
    for rule in rules:
        if rule.fetcher != "http":
            FETCHERS.find(rule.fetcher)
    return RoutingFetcher(name, {name: make(settings.fetcher)}, make, rules)


def _user_agents(settings: Settings, context: SourceContext) -> UserAgents | None:
    value = settings.user_agents
    if value is None or value == "none":
        return None
    if isinstance(value, (list, tuple)):
        from skitter.fetch.identity.user_agents import AgentList  # noqa: PLC0415 - most crawls have no identity sources

        return AgentList(value)
    agents: UserAgents = _made(USER_AGENTS, value, context, UserAgents)
    return agents


def _proxies(settings: Settings, context: SourceContext) -> Proxies | None:
    value = settings.proxies
    if value is None or value == "none":
        return None
    from skitter.fetch.identity.proxies import ProxyPool  # noqa: PLC0415 - most crawls have no identity sources
    from skitter.fetch.identity.proxy_lists import FixedProxyList, ProxyList  # noqa: PLC0415 - most crawls have no identity sources

    declared = value.split(",") if isinstance(value, str) and _is_list(value) else value
    part: Proxies | ProxyList = (
        FixedProxyList(declared)
        if isinstance(declared, (list, tuple))
        else _made(PROXIES, declared, context, Proxies, ProxyList)
    )
    if isinstance(part, Proxies):
        return part
    cooldown, every = settings.proxy_cooldown, settings.proxy_refresh
    return ProxyPool(part, settings.proxy_rotation, cooldown=cooldown, every=every)


def _is_list(text: str) -> bool:
    """Return whether a string is a list of proxies, and not the name of a plugin."""
    return PROXIES.named(text.partition(":")[0].lower()) is None and PROXIES.at_path(text) is None


def _sessions(
    settings: Settings,
    context: SourceContext,
    user_agents: UserAgents | None,
    proxies: Proxies | None,
    *,
    shares: bool,
) -> SessionPool | None:
    value = settings.sessions
    if value is None or value == "none":
        return None
    from skitter.fetch.identity.sessions import SessionPool, pool_of  # noqa: PLC0415 - most crawls have no identity sources

    if isinstance(value, (int, Mapping)) or (isinstance(value, str) and value.isdigit()):
        pool = pool_of(value)
    else:
        pool = _made(SESSIONS, value, context, SessionPool)

    def make(request: Request, name: str) -> tuple[Mapping[str, str], str]:
        named = request.replace(session=name)
        headers = {} if user_agents is None else user_agents.headers(named)
        return headers, "" if proxies is None else proxies.choose(named, name)

    shared = context.notes if shares else None
    pool.equip(make, (lambda _proxy: True) if proxies is None else proxies.usable, shared)
    return pool


def _own_cookies(
    settings: Settings, context: SourceContext, jars: CookieJars, sharing: CookieSharing | None
) -> Cookies | None:
    """Return the source of cookies, if the fetcher does not keep them itself."""
    value = settings.cookies
    if value == "auto" and sharing is not None and context.notes is not None:
        return SharedCookies(context.notes, jars, sharing)
    if value == "shared" and context.notes is not None:
        return SharedCookies(context.notes, jars)
    if value in (None, "none", *_OWN_JARS):
        return None
    cookies: Cookies = _made(COOKIES, value, context, Cookies)
    return cookies


def _made(kind: PluginKind, value: Any, context: SourceContext, *contracts: type) -> Any:
    """Return the plugin that a setting names or contains. A class or a function is called with the context.

    ``contracts``: the plugin must implement one of them completely.
    """
    part = value
    if isinstance(value, str):
        part, argument = kind.find(value)
        context = msgspec.structs.replace(context, rest=argument)
    if isinstance(part, type) or (callable(part) and not isinstance(part, contracts)):
        try:
            part = part(context)
        except SkitterError:
            raise
        except Exception as error:
            raise SettingsError(
                f"cannot create {kind.what} {value!r:.80}: {type(error).__name__}: {error}",
                remedy="use an object, or a class or function that takes a SourceContext",
            ) from error
    if not isinstance(part, contracts):
        names = " or ".join(contract.__name__ for contract in contracts)
        raise SettingsError(
            f"{kind.what} {value!r:.80} does not implement {names}",
            remedy=f"define all attributes and methods of {names}; see the guide on extending skitter",
            field=kind.what,
        )
    return part
