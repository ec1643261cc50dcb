"""What each error code of libcurl means to a crawl."""

from __future__ import annotations

from skitter.fetch.contract import (
    BehindProxy,
    BodyTooLarge,
    ConnectError,
    Disconnected,
    FetchError,
    ProtocolError,
    ProxyError,
    TimedOut,
    TlsError,
    UnresolvedHost,
    UnsendableRequest,
)

# Numbers, because pycurl has no names for the newer ones:
# https://curl.se/libcurl/c/libcurl-errors.html
_CODES: dict[type[FetchError], tuple[int, ...]] = {
    UnsendableRequest: (3, 4, 43),
    ProxyError: (5, 97),
    UnresolvedHost: (6,),
    ConnectError: (7, 45, 89, 96),
    ProtocolError: (1, 8, 22, 33, 36, 47, 61, 100),
    Disconnected: (16, 18, 23, 26, 42, 52, 55, 56, 65, 80, 81, 92, 95),
    TimedOut: (28,),
    TlsError: (35, 51, 53, 54, 58, 59, 60, 64, 66, 77, 82, 83, 90, 91, 98, 101),
    BodyTooLarge: (63,),
}
_CLASS_OF = {code: error for error, codes in _CODES.items() for code in codes}

_REMEDIES: dict[type[FetchError], str] = {
    TlsError: "check the certificate, or set verify_tls to false if this host may be trusted without one",
    BodyTooLarge: "raise max_body if such bodies are wanted",
    ProxyError: "check the proxy's address and password",
    BehindProxy: "check whether the server can be reached from there",
    UnsendableRequest: "correct the request's URL, method or headers",
}

_TLS_CONNECT = 35
_BROKEN_HANDSHAKES = ("SSL_ERROR_SYSCALL", "unexpected eof", "Connection reset")


_SERVER_UNREACHED = frozenset({19, 21, 22, 24})
"""``CURLPX_REPLY_...`` by which a SOCKS proxy says that the server refuses, or cannot be reached."""
_GATEWAY_ERRORS = frozenset({502, 503, 504})


def proxy_works(code: int, tunnel_status: int, proxy_error: int, *, sent: bool) -> bool:
    """Tell whether a request that failed came past its proxy, so that it may be the server's fault.

    ``tunnel_status``
        The proxy's answer to CONNECT (RFC 9110, 15.6.3 to 15.6.5 for servers out of reach); 0 for none.
    ``proxy_error``
        ``CURLINFO_PROXY_ERROR``, for SOCKS.
    ``sent``
        Whether the request itself was sent.
    """
    if tunnel_status:
        return tunnel_status in _GATEWAY_ERRORS or tunnel_status < 300
    return sent or code == _TLS_CONNECT or proxy_error in _SERVER_UNREACHED


def fetch_error(
    code: int,
    message: str,
    *,
    answered: bool,
    by_proxy: bool,
    connected: bool = True,
    works: bool = False,
) -> FetchError:
    """Return the :class:`~skitter.fetch.contract.FetchError` for a libcurl error.

    ``answered``
        Whether any part of the server's answer had arrived.
    ``by_proxy``
        Whether the connection that failed leads to a proxy, or its tunnel was refused.
    ``connected``
        Whether the connection to the server or proxy was made.
    ``works``
        Whether the request came past the proxy; see :func:`proxy_works`.

    A code that no HTTP transfer gives becomes a plain ``FetchError``.
    """
    kind = _CLASS_OF.get(code, FetchError)
    if kind is Disconnected and not answered:
        kind = ConnectError
    elif code == _TLS_CONNECT and any(sign in message for sign in _BROKEN_HANDSHAKES):
        # The network failed during the handshake, not the certificate: worth another try.
        kind = ConnectError
    if by_proxy and (kind is ConnectError or (kind is TimedOut and not connected)):
        kind = ProxyError
    if kind is ProxyError and works:
        kind = BehindProxy
    return kind(f"{message or kind.__doc__} (curl {code})", remedy=_REMEDIES.get(kind, ""))
