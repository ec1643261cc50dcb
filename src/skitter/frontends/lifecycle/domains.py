"""Primary domains: what somebody registered, by the Public Suffix List."""

from __future__ import annotations

from skitter.errors import UsageError
from skitter.web.urls import host_of, is_public_suffix, normalize, registered_domain


def primary_domain(text: str) -> str:
    """Return the primary domain of a URL, a host or a host with a port.

    ``https://news.bbc.co.uk:8080/x`` gives ``bbc.co.uk``; an IP address, ``[::1]`` too, and a name without dots
    stay what they are; capitals and other scripts are normalised as URLs are (WHATWG).

    Raises :class:`~skitter.errors.UsageError` for what is no host, and for a public suffix such as ``co.uk``,
    which would accept the hosts of everybody.
    """
    url = normalize(text if "://" in text else f"http://{text}/")
    host = "" if url is None else host_of(url)
    if not host:
        raise UsageError(f"{text!r} has no host", remedy="write example.com, or a URL")
    domain = registered_domain(host)
    if is_public_suffix(domain):
        raise UsageError(
            f"{domain!r} is a public suffix, under which everybody may register",
            remedy="name the domain below it that you mean",
        )
    return domain
