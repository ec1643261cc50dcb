"""The cost of the address guard: the decision about one address, and new connections with and without the guard.

    python benchmarks/guard.py [--rounds 60]

Both kinds of connections alternate within one process. The minimum over all rounds is compared, because other load on the
machine only ever adds time.
"""

import argparse
import multiprocessing
import socket
import time
import timeit

import pycurl

from skitter.fetch.address_guard import AddressGuard
from skitter.fetch.transfer import Transfer, base_headers
from skitter.settings import Settings

REQUESTS = 300
LOOPBACK = ["127.0.0.0/8"]


def serve(listening):
    while True:
        connection, _ = listening.accept()
        connection.recv(4096)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        connection.close()


def cpu_per_connection(url, guard):
    """Return the microseconds of CPU that a request on a new connection takes."""
    settings = Settings(reuse_connections=False, proxy="")
    curl = Transfer(settings, base_headers(settings), "", guard).curl
    curl.setopt(pycurl.URL, url)
    begun = time.process_time()
    for _ in range(REQUESTS):
        curl.perform()
    return (time.process_time() - begun) / REQUESTS * 1e6


def per_call(function, number):
    return min(timeit.repeat(function, number=number, repeat=9)) / number * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=60)
    rounds = parser.parse_args().rounds
    listening = socket.create_server(("127.0.0.1", 0), backlog=512)
    server = multiprocessing.get_context("fork").Process(target=serve, args=(listening,), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
    guard = AddressGuard(LOOPBACK)
    pairs = [(cpu_per_connection(url, None), cpu_per_connection(url, guard)) for _ in range(rounds)]
    without, guarded = (min(times) for times in zip(*pairs, strict=True))
    decisions = map(
        guard.allows, (f"93.{number >> 16}.{number >> 8 & 255}.{number & 255}" for number in range(1 << 24))
    )
    print(f"decision, known address:  {per_call(lambda: guard.allows('127.0.0.1'), 100_000):7.2f} us")
    print(f"decision, new address:    {per_call(lambda: next(decisions), 3_000):7.2f} us")
    print(f"connection without guard: {without:7.2f} us")
    print(
        f"connection with guard:    {guarded:7.2f} us  ({guarded - without:+.2f} us, {guarded / without:.3f} times)"
    )
    server.kill()


if __name__ == "__main__":
    main()
