"""Certificates for the TLS servers of the tests."""

import ssl


def server_side(authority, name="127.0.0.1"):
    """Return the TLS context of a server that has a certificate of the authority for a name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    return context
