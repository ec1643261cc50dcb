"""Maps error codes of libcurl to errors of the fetcher."""

from __future__ import annotations

from skitter.errors import FetchError
from skitter.fetch.contract import (
    BehindProxy,
    BodyTooLarge,
    ConnectError,
    Disconnected,
    ProtocolError,
    ProxyError,
    TimedOut,
    TlsError,
    UnresolvedHost,
    UnsendableRequest,
)

# Numbers, because pycurl lacks names for the newer ones:
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
    UnresolvedHost: "check the name of the host and the network of this machine",
    ConnectError: "check the port, and whether the server is running",
    TlsError: "correct the certificate, name its authority in ca_file, or name the host in unverified_hosts",
    BodyTooLarge: "raise max_body to accept larger bodies",
    ProxyError: "check the proxy's address and password",
    BehindProxy: "check whether the proxy can reach the server",
    UnsendableRequest: "correct the request's URL, method or headers",
}

_COULD_NOT_CONNECT = 7
_TLS_CONNECT = 35
_CONNECT_TIME_OUTS = ("Connection timed out", "SSL connection timeout")
_BROKEN_HANDSHAKES = ("SSL_ERROR_SYSCALL", "unexpected eof", "Connection reset", "Send failure")
_RECEIVING_FAILED = 56
"""The code is also used for chunks and headers that libcurl rejects, and for alerts after a TLS 1.3 handshake."""
_INVALID_RESPONSES = ("chunk", "Too large response headers")
_TLS_ALERT = "alert"


_SERVER_UNREACHED = frozenset({19, 21, 22, 24})
"""``CURLPX_REPLY_...`` codes with which a SOCKS proxy reports that the server refuses or is unreachable."""
_GATEWAY_ERRORS = frozenset({502, 503, 504})


def proxy_works(code: int, tunnel_status: int, proxy_error: int, *, sent: bool) -> bool:
    """Return whether a failed request passed its proxy, so that the server may be at fault.

    ``tunnel_status``
        Status of the proxy's reply to CONNECT (RFC 9110, 15.6.3 to 15.6.5 for unreachable servers); 0 without a reply.
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
    responded: bool,
    by_proxy: bool,
    connected: bool = True,
    works: bool = False,
) -> FetchError:
    """Return the :class:`~skitter.errors.FetchError` for a libcurl error.

    ``responded``
        Whether any part of the server's response had arrived.
    ``by_proxy``
        Whether the failed connection leads to a proxy, or the proxy refused the tunnel.
    ``connected``
        Whether the connection to the server or proxy was established.
    ``works``
        Whether the request passed the proxy; see :func:`proxy_works`.

    A code that no HTTP transfer produces becomes a plain ``FetchError``.
    """
    kind = _CLASS_OF.get(code, FetchError)
    if code == _RECEIVING_FAILED and any(sign in message for sign in _INVALID_RESPONSES):
        kind = ProtocolError
    elif code == _RECEIVING_FAILED and not (responded or by_proxy) and _TLS_ALERT in message:
        # RFC 8446, 4.4.2.4: the server refuses the certificate of the client, or requires one.
        kind = TlsError
    elif kind is Disconnected and not responded:
        kind = ConnectError
    elif code == _TLS_CONNECT and any(sign in message for sign in _BROKEN_HANDSHAKES):
        # The network failed during the handshake, not the verification of a certificate, so a retry may succeed.
        kind = ConnectError
    elif kind is TimedOut and message.startswith("Resolving timed out"):
        kind = UnresolvedHost
    unreachable = code in (_COULD_NOT_CONNECT, _TLS_CONNECT) or message.startswith(_CONNECT_TIME_OUTS)
    if by_proxy and (kind is ConnectError or (kind is TimedOut and not connected)):
        kind = ProxyError
    if kind is ProxyError and works:
        kind = BehindProxy
    error = kind(f"{message or kind.__doc__} (curl {code})", remedy=_REMEDIES.get(kind, ""))
    error.unreachable = error.unreachable or (unreachable and not issubclass(kind, ProxyError))
    return error
