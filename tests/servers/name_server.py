"""A DNS server on loopback."""

import socket
import struct
import threading
from collections import Counter

SILENT = "silent"
"""Replaces an address: the server does not answer."""


class NameServer:
    """Answers queries for A records inside a ``with`` block.

    ``names``: the address of each name, or :data:`SILENT`. Other names do not exist. A name that starts with ``*.``
    matches all names below it. A tuple contains the address for each answer in order; the last one is repeated.
    """

    def __init__(self, names, ttl=60):
        self.names = names
        self.ttl = ttl
        self.asked = Counter()
        """Number of queries for an A record, by name."""
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.settimeout(0.1)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self.may_answer = threading.Event()
        """The server answers while this event is set."""
        self.may_answer.set()
        self._ends = False
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ends = True
        self.may_answer.set()
        self._thread.join()
        self._socket.close()

    def _serve(self):
        while not self._ends:
            try:
                query, client = self._socket.recvfrom(4096)
            except TimeoutError:
                continue
            self.may_answer.wait()
            if (answer := self._answer(query)) is not None:
                self._socket.sendto(answer, client)

    def _answer(self, query):
        labels, at = [], 12
        while length := query[at]:
            labels.append(query[at + 1 : at + 1 + length].decode())
            at += 1 + length
        end = at + 5
        (kind,) = struct.unpack_from(">H", query, at + 1)
        name = ".".join(labels).lower()
        if kind == 1:
            self.asked[name] += 1
        found = self.names.get(name) or self.names.get("*." + name.partition(".")[2])
        if isinstance(found, tuple):
            found = found[min(self.asked[name], len(found)) - 1]
        if found == SILENT:
            return None
        records = b""
        if found and kind == 1:
            records = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, self.ttl, 4) + socket.inet_aton(found)
        flags = 0x8180 if found else 0x8183
        return query[:2] + struct.pack(">HHHHH", flags, 1, bool(records), 0, 0) + query[12:end] + records
