"""The cost of the address guard: the decision about one address, and new connections with and without the guard.

    python benchmarks/guard.py [--rounds 600]

Three kinds of connections alternate within one process: without the guard, with a callback that opens each socket in Python
and decides nothing, and with the guard. The medians of the paired differences are printed.
"""

import argparse
import itertools
import multiprocessing
import socket
import statistics
import time
import timeit

import pycurl

from skitter.fetch.address_guard import AddressGuard
from skitter.fetch.transfer import Transfer, base_headers
from skitter.settings import Settings

REQUESTS = 20
LOOPBACK = ["127.0.0.0/8"]


def serve(listening):
    while True:
        connection, _ = listening.accept()
        connection.recv(4096)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        connection.close()


def connecting(url, guard=None, open_socket=None):
    """Return a curl handle that opens a new connection for each request."""
    settings = Settings(reuse_connections=False, proxy="")
    transfer = Transfer(settings, base_headers(settings), guard)
    transfer.curl.setopt(pycurl.URL, url)
    if open_socket is not None:
        transfer.curl.setopt(pycurl.OPENSOCKETFUNCTION, open_socket)
    return transfer


def open_any(_purpose, address):
    """Open a socket as the fetcher does, but without a decision."""
    family, kind, protocol, _ = address
    return socket.SocketType(family, kind | socket.SOCK_NONBLOCK, protocol).detach()


def cpu_per_connection(transfer):
    """Return the microseconds of CPU that a request on a new connection takes."""
    begun = time.process_time()
    for _ in range(REQUESTS):
        transfer.curl.perform()
        transfer.reset()
    return (time.process_time() - begun) / REQUESTS * 1e6


def differences(times, less, more):
    """Return the median of the paired differences between two kinds, and its standard error."""
    found = [b - a for a, b in zip(times[less], times[more], strict=True)]
    low, median, high = statistics.quantiles(found, n=4)
    error = 1.253 * (high - low) / 1.349 / len(found) ** 0.5
    return f"{median:+7.2f} us (standard error {error:.2f})"


def per_call(function, number):
    return min(timeit.repeat(function, number=number, repeat=9)) / number * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=600)
    rounds = parser.parse_args().rounds
    listening = socket.create_server(("127.0.0.1", 0), backlog=512)
    server = multiprocessing.get_context("fork").Process(target=serve, args=(listening,), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
    guard = AddressGuard(LOOPBACK)
    kinds = [connecting(url), connecting(url, open_socket=open_any), connecting(url, guard)]
    shifts = [list(itertools.islice(itertools.cycle(range(3)), start, start + 3)) for start in range(3)]
    times = [[], [], []]
    for number in range(rounds):
        for kind in shifts[number % 3]:
            times[kind].append(cpu_per_connection(kinds[kind]))
    callback, check, both = (differences(times, *pair) for pair in ((0, 1), (1, 2), (0, 2)))
    decisions = map(
        guard.allows, (f"93.{number >> 16}.{number >> 8 & 255}.{number & 255}" for number in range(1 << 24))
    )
    print(f"decision, known address:  {per_call(lambda: guard.allows('127.0.0.1'), 100_000):7.2f} us")
    print(f"decision, new address:    {per_call(lambda: next(decisions), 3_000):7.2f} us")
    print(f"new connection:           {statistics.median(times[0]):7.2f} us")
    print(f"  the socket callback:    {callback}")
    print(f"  the guard's decision:   {check}")
    print(f"  both:                   {both}")
    server.kill()


if __name__ == "__main__":
    main()
