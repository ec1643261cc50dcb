"""Verifies signed messages with an independent library."""

import base64
import json
from types import SimpleNamespace

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from http_message_signatures import HTTPMessageVerifier, algorithms
from http_message_signatures.resolvers import MappingKeyResolver


def public_key_in(directory):
    (jwk,) = json.loads(directory)["keys"]
    raw = base64.urlsafe_b64decode(jwk["x"] + "=")
    return jwk["kid"], Ed25519PublicKey.from_public_bytes(raw)


def verify(message, directory, **options):
    """Verify the only signature of a message with the published key. Raises if it is invalid."""
    name, public = public_key_in(directory)
    keys = MappingKeyResolver(public_keys={name: public}, private_keys={})
    verifier = HTTPMessageVerifier(signature_algorithm=algorithms.ED25519, key_resolver=keys)
    (result,) = verifier.verify(message, **options)
    return result


def request(url, headers):
    return SimpleNamespace(method="GET", url=url, headers=headers)
