"""Signatures of requests (Web Bot Auth), checked with published examples and an independent library."""

import base64
import json
import time
from datetime import timedelta
from types import SimpleNamespace

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from http_message_signatures import InvalidSignature

from signed_messages import request, verify
from skitter.errors import SettingsError
from skitter.fetch.signatures import (
    RequestSigner,
    SigningKey,
    authority_of,
    make_signer,
    new_signing_key,
)
from skitter.secrets import stored_settings
from skitter.settings import Settings

EXAMPLE_KEY = base64.urlsafe_b64decode("n4Ni-HpISpVObnQMW0wOhCKROaIKqKtW_2ZYb2p9KcU=")
"""The key test-key-ed25519 of RFC 9421, appendix B.1.4."""


def pem_of(key, password=None):
    encryption = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
    ).decode()


@pytest.fixture
def key():
    return SigningKey(pem_of(Ed25519PrivateKey.from_private_bytes(EXAMPLE_KEY)))


def test_the_key_has_the_thumbprint_of_the_published_example(key):
    assert key.id == "poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U"


def test_a_signature_is_that_of_the_published_example(key):
    # draft-meunier-web-bot-auth-architecture, test vectors, version 2. The order of parameters is free, but signed.
    nonce = "n9p433xm+NJ3ph3upfBIGmsuwHw387YV7Q/F+6BSpGCVjYCqQw6rznNA8PVVLySrAWsv0hQtFioQb6E1YsauiA=="
    components = {
        '"@authority"': "example.com",
        '"signature-agent";key="agent2"': '"https://signature-agent.test"',
    }
    headers = key.sign(components, "web-bot-auth", 1735689600, 4889289600, nonce=nonce, label="sig2")
    assert headers == {
        "Signature-Input": 'sig2=("@authority" "signature-agent";key="agent2");created=1735689600;'
        'keyid="poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U";alg="ed25519";expires=4889289600;'
        f'nonce="{nonce}";tag="web-bot-auth"',
        "Signature": "sig2=:RdNFx5Bj6au3YgAMQL/RzmUlZE8QZLIaXGRpw985hWnwPfMxT228NMk6ehRS1PSl4e8PhbNZACSanGdhEwYCCg==:",
    }


URL = "http://127.0.0.1:8080/a?b=1"


def test_an_independent_library_verifies_a_signed_request(key):
    headers = RequestSigner(key, "https://bot.example.com").headers(URL)
    assert headers["Signature-Agent"] == 'sig1="https://bot.example.com"'
    result = verify(request(URL, headers), key.directory(), max_age=timedelta(seconds=30))
    assert result.covered_components['"@authority"'] == "127.0.0.1:8080"
    assert result.covered_components['"signature-agent";key="sig1"'] == '"https://bot.example.com"'
    assert result.parameters["tag"] == "web-bot-auth"
    assert result.parameters["expires"] == result.parameters["created"] + 60
    assert abs(result.parameters["created"] - time.time()) < 30


@pytest.mark.parametrize(
    ("url", "changes"),
    [
        ("http://127.0.0.1:8081/a?b=1", {}),
        (URL, {"Signature-Agent": 'sig1="https://other.example.com"'}),
    ],
)
def test_a_signature_is_invalid_for_another_host_and_another_agent(key, url, changes):
    headers = RequestSigner(key, "https://bot.example.com").headers(URL)
    with pytest.raises(InvalidSignature):
        verify(request(url, headers | changes), key.directory())


def test_each_request_has_a_nonce_of_64_bytes_of_its_own(key):
    signer = RequestSigner(key, "https://bot.example.com")
    nonces = set()
    for _ in range(10):
        parameters = signer.headers(URL)["Signature-Input"]
        nonces.add(parameters.partition('nonce="')[2].partition('"')[0])
    assert len(nonces) == 10
    assert {len(base64.urlsafe_b64decode(nonce + "==")) for nonce in nonces} == {64}


def test_the_directory_is_signed_for_the_host_that_publishes_it(key):
    headers = key.sign_directory("Bot.example.com")
    response = SimpleNamespace(
        status_code=200, headers=headers, request=request("https://bot.example.com/x", {})
    )
    assert verify(response, key.directory()).parameters["tag"] == "http-message-signatures-directory"


def test_the_directory_contains_only_the_public_key(key):
    (jwk,) = json.loads(key.directory())["keys"]
    assert jwk == {
        "crv": "Ed25519", "kty": "OKP", "x": "JrQLj5P_89iXES9-vFgrIy29clF9CC_oPPsw3c5D0bs", "kid": key.id, "use": "sig",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("url", "authority"),
    [
        ("https://example.com/", "example.com"), ("https://EXAMPLE.com:443/a", "example.com"), ("http://example.com:80/", "example.com"),
        ("http://example.com:443/", "example.com:443"), ("https://[::1]:8443/?a@b", "[::1]:8443"),
    ],
)  # fmt: skip
def test_the_authority_of_a_url_has_no_default_port(url, authority):
    assert authority_of(url) == authority


def place_of(tmp_path, text):
    path = tmp_path / "key.pem"
    path.write_text(text)
    return f"file:{path}"


def test_settings_make_a_signer(tmp_path):
    place = place_of(tmp_path, new_signing_key())
    settings = Settings(signing_key=place, signature_agent="https://Bot.example.com/")
    assert make_signer(settings).headers(URL)["Signature-Agent"] == 'sig1="https://bot.example.com"'
    assert make_signer(Settings()) is None


@pytest.mark.parametrize("name", ["signing_key", "signature_agent"])
def test_one_of_the_two_settings_is_refused(name, tmp_path):
    values = {
        "signing_key": place_of(tmp_path, new_signing_key()),
        "signature_agent": "https://bot.example.com",
    }
    del values[name]
    with pytest.raises(SettingsError) as raised:
        make_signer(Settings(**values))
    assert raised.value.field == name


@pytest.mark.parametrize(
    "agent", ["http://bot.example.com", "bot.example.com", "https://bot.example.com/keys", "https://"]
)
def test_an_agent_without_an_https_address_is_refused(agent, tmp_path):
    place = place_of(tmp_path, new_signing_key())
    with pytest.raises(SettingsError) as raised:
        make_signer(Settings(signing_key=place, signature_agent=agent))
    assert raised.value.field == "signature_agent"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no key",
        pem_of(generate_private_key(65537, 2048)),
        pem_of(Ed25519PrivateKey.generate(), b"password"),
    ],
    ids=["empty", "text", "rsa", "password"],
)
def test_a_file_without_an_open_ed25519_key_is_refused(text, tmp_path):
    with pytest.raises(SettingsError) as raised:
        SigningKey.load(place_of(tmp_path, text))
    assert raised.value.field == "signing_key"


def test_a_key_in_the_setting_itself_is_refused_and_never_stored():
    pem = new_signing_key()
    with pytest.raises(SettingsError) as raised:
        make_signer(Settings(signing_key=pem, signature_agent="https://bot.example.com"))
    assert pem not in str(raised.value)
    assert stored_settings({"signing_key": pem})["signing_key"] == ""
    assert stored_settings({"signing_key": "file:key.pem"}) == {"signing_key": "file:key.pem"}
