"""fetch_error: every code of libcurl has a meaning."""

import pycurl
import pytest

from skitter.fetch.base import ConnectError, Disconnected, FetchError, ProxyError, TlsError
from skitter.fetch.curl_errors import fetch_error

# Codes of other protocols than HTTP, of a misused library, and of memory running out.
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
    error = fetch_error(getattr(pycurl, name), "text", answered=True, by_proxy=False)
    assert type(error) is not FetchError
    assert "text" in str(error)


def test_an_unheard_of_code_is_still_a_fetch_error():
    assert type(fetch_error(9999, "new", answered=False, by_proxy=False)) is FetchError


@pytest.mark.parametrize(
    ("answered", "by_proxy", "kind"),
    [
        (True, False, Disconnected),
        (False, False, ConnectError),
        (True, True, Disconnected),
        (False, True, ProxyError),
    ],
)
def test_a_broken_connection_is_named_after_how_far_it_came(answered, by_proxy, kind):
    error = fetch_error(pycurl.E_RECV_ERROR, "reset", answered=answered, by_proxy=by_proxy)
    assert type(error) is kind


def test_a_handshake_that_the_network_broke_is_worth_a_retry():
    code = pycurl.E_SSL_CONNECT_ERROR
    broken = fetch_error(code, "OpenSSL SSL_connect: SSL_ERROR_SYSCALL", answered=False, by_proxy=False)
    refused = fetch_error(code, "sslv3 alert handshake failure", answered=False, by_proxy=False)
    assert type(broken) is ConnectError
    assert broken.retryable
    assert type(refused) is TlsError
    assert not refused.retryable
