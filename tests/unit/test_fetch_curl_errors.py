"""fetch_error: every error code of libcurl has an error class."""

import pycurl
import pytest

from skitter.errors import FetchError
from skitter.fetch.contract import BehindProxy, ConnectError, Disconnected, ProxyError, TimedOut, TlsError
from skitter.fetch.curl_errors import fetch_error, proxy_works

# Codes of other protocols, of incorrect use of the library, and of insufficient memory.
NOT_OF_A_FETCH = (
    "FTP",
    "TFTP",
    "SSH",
    "TELNET",
    "LDAP",
    "RTSP",
    "REMOTE",
    "UPLOAD",
    "QUOTE",
    "CHUNK",
    "CONV",
    "MULTI",
    "FILE_COULDNT",
    "LIBRARY",
    "FUNCTION",
    "FAILED_INIT",
    "BAD_CALLING",
    "BAD_PASSWORD",
    "LOGIN",
    "MALFORMAT_USER",
    "URL_MALFORMAT_USER",
    "UNKNOWN_OPTION",
    "OUT_OF_MEMORY",
    "OK",
    "ALREADY",
    "CALL_MULTI",
    "SHARE",
    "HTTP_POST",
    "UNKNOWN_TELNET",
)


def codes_of_a_fetch():
    names = [name for name in dir(pycurl) if name.startswith("E_")]
    return [name for name in names if not name[2:].startswith(NOT_OF_A_FETCH)]


@pytest.mark.parametrize("name", codes_of_a_fetch())
def test_every_code_that_a_fetch_can_meet_has_a_class_of_its_own(name):
    error = fetch_error(getattr(pycurl, name), "text", responded=True, by_proxy=False)
    assert type(error) is not FetchError
    assert "text" in str(error)


def test_an_unknown_code_is_still_a_fetch_error():
    assert type(fetch_error(9999, "new", responded=False, by_proxy=False)) is FetchError


@pytest.mark.parametrize(
    ("responded", "by_proxy", "kind"),
    [
        (True, False, Disconnected),
        (False, False, ConnectError),
        (True, True, Disconnected),
        (False, True, ProxyError),
    ],
)
def test_a_broken_connection_is_named_after_how_far_it_came(responded, by_proxy, kind):
    error = fetch_error(pycurl.E_RECV_ERROR, "reset", responded=responded, by_proxy=by_proxy)
    assert type(error) is kind


@pytest.mark.parametrize("message", ["OpenSSL SSL_connect: SSL_ERROR_SYSCALL", "Send failure: Broken pipe"])
def test_a_handshake_that_the_network_broke_is_retryable(message):
    code = pycurl.E_SSL_CONNECT_ERROR
    broken = fetch_error(code, message, responded=False, by_proxy=False)
    refused = fetch_error(code, "sslv3 alert handshake failure", responded=False, by_proxy=False)
    assert type(broken) is ConnectError
    assert broken.retryable
    assert type(refused) is TlsError
    assert not refused.retryable


def test_an_alert_after_the_handshake_is_a_refusal():
    message = "OpenSSL SSL_read: SSL routines::tlsv13 alert certificate required, errno 0"
    error = fetch_error(pycurl.E_RECV_ERROR, message, responded=False, by_proxy=False)
    assert type(error) is TlsError
    assert not error.retryable


@pytest.mark.parametrize(
    ("code", "connected", "works", "kind"),
    [
        (pycurl.E_OPERATION_TIMEDOUT, False, False, ProxyError),
        (pycurl.E_OPERATION_TIMEDOUT, True, False, TimedOut),
        (pycurl.E_COULDNT_CONNECT, False, False, ProxyError),
        (pycurl.E_RECV_ERROR, True, True, BehindProxy),
        (97, True, True, BehindProxy),
    ],
)
def test_a_failure_is_the_proxys_only_up_to_where_the_proxy_is(code, connected, works, kind):
    error = fetch_error(code, "", responded=False, by_proxy=True, connected=connected, works=works)
    assert type(error) is kind


@pytest.mark.parametrize(
    ("code", "tunnel_status", "proxy_error", "sent", "works"),
    [
        (pycurl.E_RECV_ERROR, 407, 0, False, False),
        (pycurl.E_RECV_ERROR, 403, 0, True, False),
        (pycurl.E_RECV_ERROR, 502, 0, False, True),
        (pycurl.E_SSL_CONNECT_ERROR, 200, 0, False, True),
        (pycurl.E_SSL_CONNECT_ERROR, 0, 0, False, True),
        (pycurl.E_GOT_NOTHING, 0, 0, True, True),
        (97, 0, 19, False, True),
        (97, 0, 33, False, False),
        (pycurl.E_COULDNT_CONNECT, 0, 0, False, False),
    ],
)
def test_the_progress_of_a_request_shows_whether_its_proxy_works(
    code, tunnel_status, proxy_error, sent, works
):
    assert proxy_works(code, tunnel_status, proxy_error, sent=sent) is works
