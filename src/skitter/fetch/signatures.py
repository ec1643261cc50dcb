"""Signatures of requests, by which a site can verify who sent them (Web Bot Auth).

Sources: HTTP Message Signatures (RFC 9421), draft-ietf-webbotauth-httpsig-protocol-00, and
draft-meunier-webbotauth-httpsig-directory-00 for the directory of keys.
"""

from __future__ import annotations

import os
import time
from base64 import b64encode, urlsafe_b64encode
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from skitter.errors import SettingsError
from skitter.plugins import needing
from skitter.secrets import is_reference, referenced_secret
from skitter.web.urls import host_of, normalize, origin_of, scheme_of

if TYPE_CHECKING:  # needs an extra
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from skitter.settings import Settings

DIRECTORY_PATH = "/.well-known/http-message-signatures-directory"
DIRECTORY_TYPE = "application/http-message-signatures-directory+json"
_REQUEST_TAG = "web-bot-auth"
_DIRECTORY_TAG = "http-message-signatures-directory"
_LABEL = "sig1"
"""Name of the signature, and of the member of ``Signature-Agent`` that belongs to it."""
_VALID_SECONDS = 60
_NONCE_SIZE = 64
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


def new_signing_key() -> str:
    """Return a new Ed25519 private key in PEM (PKCS #8). Raises :class:`~skitter.errors.SettingsError` without the extra."""
    with needing("signing", "signed requests", SettingsError):
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - needs an extra
        from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415 - needs an extra
            Ed25519PrivateKey,
        )
    return (
        Ed25519PrivateKey.generate()
        .private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        .decode()
    )


class SigningKey:
    """An Ed25519 private key, and the public data derived from it."""

    def __init__(self, pem: str) -> None:
        """``pem``: an Ed25519 private key in PEM, without a password.

        Raises :class:`~skitter.errors.SettingsError` for anything else.
        """
        self._key = _private_key(pem)
        public = urlsafe_b64encode(self._key.public_key().public_bytes_raw()).decode().rstrip("=")
        self._jwk = {"crv": "Ed25519", "kty": "OKP", "x": public}
        # RFC 7638 and RFC 8037, appendix A.3: the required members in alphabetical order, without spaces.
        thumbprint = sha256(msgspec.json.encode(self._jwk)).digest()
        self.id = urlsafe_b64encode(thumbprint).decode().rstrip("=")
        """JWK thumbprint of the public key, which names the key in signatures."""

    @classmethod
    def load(cls, place: str) -> SigningKey:
        """Read the key to which the setting ``signing_key`` refers. May block. Raises :class:`~skitter.errors.SettingsError`."""
        if not is_reference(place):
            raise SettingsError(
                "signing_key does not say where the key is",
                remedy="write file:PATH or env:NAME",
                field="signing_key",
            )
        return cls(referenced_secret(place, "signing_key"))

    def directory(self) -> bytes:
        """Return the directory of keys to publish at :data:`DIRECTORY_PATH`, a JSON Web Key Set with this public key."""
        return msgspec.json.encode({"keys": [{**self._jwk, "kid": self.id, "use": "sig"}]})

    def sign(
        self,
        components: dict[str, str],
        tag: str,
        created: int,
        expires: int,
        *,
        nonce: str = "",
        label: str = _LABEL,
    ) -> dict[str, str]:
        """Return the headers ``Signature-Input`` and ``Signature``.

        ``components``: the signed values by their identifiers, both as in a signature base (RFC 9421, section 2.5).
        ``created`` and ``expires``: Unix times.
        """
        unique = f';nonce="{nonce}"' if nonce else ""
        parameters = (
            f'({" ".join(components)});created={created};keyid="{self.id}";alg="ed25519"'
            f';expires={expires}{unique};tag="{tag}"'
        )
        base = "".join(f"{name}: {value}\n" for name, value in components.items())
        signature = self._key.sign(f'{base}"@signature-params": {parameters}'.encode())
        return {
            "Signature-Input": f"{label}={parameters}",
            "Signature": f"{label}=:{b64encode(signature).decode()}:",
        }

    def sign_directory(self, host: str) -> dict[str, str]:
        """Return the headers that prove, with the directory, that its host has the private key. ``host``: with its port."""
        now = int(time.time())
        return self.sign({'"@authority";req': host.lower()}, _DIRECTORY_TAG, now, now + _VALID_SECONDS)


def _private_key(pem: str) -> Ed25519PrivateKey:
    with needing("signing", "signed requests", SettingsError):
        from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - needs an extra
        from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415 - needs an extra
            Ed25519PrivateKey,
        )
        from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415 - needs an extra
            load_pem_private_key,
        )
    try:
        key = load_pem_private_key(pem.encode(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise SettingsError(
            "signing_key is not an Ed25519 private key in PEM without a password",
            remedy="create one with `skitter signing-key FILE`, and set signing_key to file:FILE",
            field="signing_key",
        )
    return key


class RequestSigner:
    """Signs the requests of a job."""

    def __init__(self, key: SigningKey, agent: str) -> None:
        self.key = key
        self._agent = f'"{agent}"'
        self._agent_header = f"{_LABEL}={self._agent}"

    def headers(self, url: str) -> dict[str, str]:
        """Return the headers that sign a request to a URL. They are valid for a minute, and for the host of the URL."""
        nonce = urlsafe_b64encode(os.urandom(_NONCE_SIZE)).decode().rstrip("=")
        components = {'"@authority"': authority_of(url), f'"signature-agent";key="{_LABEL}"': self._agent}
        now = int(time.time())
        signature = self.key.sign(components, _REQUEST_TAG, now, now + _VALID_SECONDS, nonce=nonce)
        return {"Signature-Agent": self._agent_header, **signature}


def authority_of(url: str) -> str:
    """Return the host of a URL, with its port unless it is the default port of the scheme (RFC 9421, section 2.2.3)."""
    return host_of(url).lower().removesuffix(_DEFAULT_PORTS[scheme_of(url)])


def make_signer(settings: Settings) -> RequestSigner | None:
    """Return the signer of a job; ``None`` if its requests are not signed. May block.

    Raises :class:`~skitter.errors.SettingsError` if only one of ``signing_key`` and ``signature_agent`` is set, and for an
    invalid value.
    """
    if not settings.signing_key and not settings.signature_agent:
        return None
    for name in ("signing_key", "signature_agent"):
        if not getattr(settings, name):
            raise SettingsError(
                f"{name} is not set, but the other setting of signed requests is",
                remedy="set both signing_key and signature_agent",
                field=name,
            )
    agent = normalize(settings.signature_agent) or ""
    if not agent.startswith("https://") or agent != f"{origin_of(agent)}/":
        raise SettingsError(
            f"signature_agent is not the address of an HTTPS host: {settings.signature_agent!r:.200}",
            remedy=f"write it like https://bot.example.com; the host publishes {DIRECTORY_PATH}",
            field="signature_agent",
        )
    return RequestSigner(SigningKey.load(settings.signing_key), origin_of(agent))
