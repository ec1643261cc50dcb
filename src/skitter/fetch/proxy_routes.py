"""ProxyRoutes: selects the proxy of each request, from the request, the settings and the environment.

If curl read the environment itself, the address guard could not know whether curl is about to connect to a proxy or to
the host of the URL.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address, ip_network

from skitter.request import Request
from skitter.web.urls import host_of


class ProxyRoutes:
    """The rules of one fetcher.

    ``default``: proxy of requests that name none; ``None``: according to the environment; ``""``: no proxy.
    ``environment``: ``http_proxy``, ``https_proxy``, ``all_proxy`` and ``no_proxy``. As in curl, upper case is accepted too,
    except for ``HTTP_PROXY``, which a web server sets from the headers of a client. ``no_proxy`` lists names with the names
    below them, addresses and networks; it applies to every proxy.
    """

    def __init__(self, default: str | None, environment: Mapping[str, str]) -> None:
        def read(name: str) -> str:
            return environment.get(name) or environment.get(name.upper(), "")

        general = read("all_proxy")
        self._by_scheme = {
            "http": environment.get("http_proxy") or general,
            "https": read("https_proxy") or general,
        }
        if default is not None:
            self._by_scheme = dict.fromkeys(self._by_scheme, default)
        self._has_default = any(self._by_scheme.values())
        self._exceptions = [part.lower() for part in read("no_proxy").replace(",", " ").split()]

    def proxy_for(self, request: Request) -> str:
        """Return the proxy of a request, or an empty string for a direct connection."""
        proxy = request.proxy
        if proxy is None:
            if not self._has_default:
                return ""
            proxy = self._by_scheme.get(request.url.partition(":")[0].lower(), "")
        return "" if proxy and self._exceptions and self._is_exception(request.url) else proxy

    def _is_exception(self, url: str) -> bool:
        host = host_of(url)
        name = host[1:].partition("]")[0] if host[:1] == "[" else host.partition(":")[0].lower().rstrip(".")
        return self._exceptions == ["*"] or any(_matches(name, entry) for entry in self._exceptions)


def _matches(name: str, entry: str) -> bool:
    try:
        address = ip_address(name)
    except ValueError:
        entry = entry.strip(".")
        return bool(entry) and (name == entry or name.endswith(f".{entry}"))
    try:
        return address in ip_network(entry.strip("[]"), strict=False)
    except ValueError:
        return False
