"""The cost of a signed request: making the signature, and a fetch with and without it.

    python benchmarks/signing.py [--rounds 30]

Fetches with and without signatures alternate within one process; the medians of the paired differences are printed. The
library `http-message-signatures`, with which the tests verify signatures, makes the same signature for comparison.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
import timeit
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

from cryptography.hazmat.primitives.serialization import load_pem_private_key
from http_message_signatures import HTTPMessageSigner, algorithms
from http_message_signatures.resolvers import MappingKeyResolver

from skitter.fetch.http import HttpFetcher
from skitter.fetch.signatures import RequestSigner, SigningKey, new_signing_key
from skitter.request import Request
from skitter.settings import Settings
from skitter.testing import Answer, SiteServer

AGENT = "https://bot.example.com"
URL = "https://www.example.com/page"
REQUESTS = 200
GOAL = 60.0
"""Microseconds of CPU time that a signature may add to a request."""


def by_library(pem):
    """Return a function that signs a request with the library."""
    key = load_pem_private_key(pem.encode(), None)
    resolver = MappingKeyResolver(public_keys={}, private_keys={"key": key})
    signer = HTTPMessageSigner(signature_algorithm=algorithms.ED25519, key_resolver=resolver)
    covered = ("@authority", '"signature-agent";key="sig1"')

    def sign():
        message = SimpleNamespace(method="GET", url=URL, headers={"Signature-Agent": f'sig1="{AGENT}"'})
        now = datetime.now(UTC)
        signer.sign(
            message, key_id="key", created=now, expires=now + timedelta(minutes=1), nonce="x" * 86,
            label="sig1", tag="web-bot-auth", covered_component_ids=covered,
        )  # fmt: skip

    return sign


async def cpu_per_fetch(fetcher, url):
    """Return the microseconds of CPU time of a fetch, those of the server included."""
    begun = time.process_time()
    for _ in range(REQUESTS):
        await fetcher.fetch(Request(url))
    return (time.process_time() - begun) / REQUESTS * 1e6


async def fetches(url, place, rounds):
    """Return the additional CPU time of each signed fetch, in pairs."""
    plain = HttpFetcher(Settings(allow_networks=["127.0.0.0/8"]))
    signed = HttpFetcher(Settings(allow_networks=["127.0.0.0/8"], signing_key=place, signature_agent=AGENT))
    for fetcher in (plain, signed):
        await fetcher.open()
    added = [-await cpu_per_fetch(plain, url) + await cpu_per_fetch(signed, url) for _ in range(rounds)]
    for fetcher in (plain, signed):
        await fetcher.close()
    return added


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    pem = new_signing_key()
    signer = RequestSigner(SigningKey(pem), AGENT)
    for name, sign in (
        ("skitter", lambda: signer.headers(URL)),
        ("http-message-signatures", by_library(pem)),
    ):
        times = timeit.repeat(sign, number=200, repeat=rounds)
        print(f"{name}: {min(times) / 200 * 1e6:.1f} us for a signature (minimum)")
    with tempfile.TemporaryDirectory() as folder, SiteServer(lambda _: Answer(b"page")) as server:
        path = Path(folder, "key.pem")
        path.write_text(pem)
        added = asyncio.run(fetches(server.url, f"file:{path}", rounds))
    cost = statistics.median(added)
    print(f"a signed fetch: {cost:+.1f} us of CPU time (median of {rounds} pairs), goal {GOAL:.0f}")
    raise SystemExit(cost > GOAL)


if __name__ == "__main__":
    main()
