"""The test server: the bytes that it sends, and the requests that it records."""

import gc
import http.client
import socket
import subprocess
import sys
import threading
import time

import pytest

from sites.gated import gated
from skitter.errors import SkitterError
from skitter.testing import Answer, PortTaken, SiteProcess, SiteServer, WireAnswer


def echo(visit):
    text = f"{visit.method} {visit.host} {visit.origin_index} {visit.target} {visit.body.decode()}"
    return Answer(text.encode(), content_type="text/plain")


def connect(server, place=0):
    return http.client.HTTPConnection(server.origins[place], timeout=60)


def ask(connection, target="/", method="GET", **more):
    connection.request(method, target, **more)
    response = connection.getresponse()
    return response.status, response.read()


def talk(server, sent):
    """Send raw bytes. Return all received data until the server closes the connection."""
    with socket.create_connection(server.origins[0].split(":"), timeout=60) as client:
        client.sendall(sent)
        return b"".join(iter(lambda: client.recv(65536), b""))


def test_one_connection_carries_many_requests(serve):
    connection = connect(serve(echo))
    assert ask(connection, "/a?b=1")[1] == b"GET 127.0.0.1 0 /a?b=1 "
    used = connection.sock
    assert ask(connection, "/c", "POST", body="form")[1] == b"POST 127.0.0.1 0 /c form"
    assert connection.sock is used
    connection.close()


def test_pipelined_requests_are_answered_in_order(serve):
    requests = [f"GET /{number} HTTP/1.1\r\nHost: x\r\n\r\n" for number in range(200)]
    requests[-1] = requests[-1].replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n")
    answer = talk(serve(echo), "".join(requests).encode())
    positions = [answer.index(f"/{number} ".encode()) for number in range(200)]
    assert positions == sorted(positions)


def test_head_has_the_length_but_no_body(serve):
    answer = talk(serve(echo), b"HEAD / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert b"Content-Length: 11\r\n" in answer
    assert answer.endswith(b"\r\n\r\n")


def test_hosts_share_a_port_and_are_distinguished(serve):
    server = serve(echo, hosts=3)
    assert len({origin.split(":")[1] for origin in server.origins}) == 1
    for place in range(3):
        connection = connect(server, place)
        assert ask(connection)[1] == f"GET 127.0.0.{place + 1} {place} / ".encode()
        connection.close()


def test_ports_are_separate_hosts(serve):
    server = serve(echo, ports=2)
    assert len(set(server.origins)) == 2
    connection = connect(server, 1)
    assert ask(connection)[1] == b"GET 127.0.0.1 1 / "
    connection.close()


def test_a_taken_port_is_an_error_with_a_remedy(serve):
    port = serve(echo).port
    with pytest.raises(PortTaken) as raised, SiteServer(echo, port=port):
        pass
    assert raised.value.remedy


def test_a_server_whose_second_port_is_taken_leaves_no_socket_open(serve):
    port = serve(echo).port
    with pytest.raises(PortTaken), SiteServer(echo, port=port - 1, ports=2):
        pass
    gc.collect()  # an unclosed socket would be reported


def test_the_log_counts_what_a_host_has_in_flight(serve):
    server = serve(lambda visit: gated(echo(visit), lambda: len(server.log.hits) == 4), hosts=2)
    connections = [connect(server, place) for place in (0, 0, 0, 1)]
    for connection in connections:
        connection.request("GET", "/")
    for connection in connections:
        connection.getresponse().read()
        connection.close()
    by_host = {"127.0.0.1": [], "127.0.0.2": []}
    for hit in server.log.hits:
        by_host[hit.host].append(hit.in_flight)
    assert by_host == {"127.0.0.1": [1, 2, 3], "127.0.0.2": [1]}


def test_each_answer_comes_after_the_delay(serve):
    server = serve(echo, delay=0.05)
    connection = connect(server)
    for _ in range(3):
        ask(connection)
    connection.close()
    assert all(hit.ended - hit.received >= 0.05 for hit in server.log.hits)


def test_log_times_lie_between_the_clients_own(serve):
    server = serve(echo)
    connection = connect(server)
    before = time.monotonic()
    ask(connection)
    after = time.monotonic()
    connection.close()
    (hit,) = server.log.hits
    assert before <= hit.received <= hit.ended <= after
    assert (hit.method, hit.target, hit.status) == ("GET", "/", 200)


def test_a_reset_is_a_reset(serve):
    server = serve(lambda _visit: WireAnswer([], end="reset"))
    connection = connect(server)
    with pytest.raises(ConnectionResetError):
        ask(connection)
    connection.close()


def test_a_stall_is_silent_until_the_client_goes_and_is_logged_then():
    asked = threading.Event()

    def stall(_visit):
        asked.set()
        return WireAnswer([], end="stall")

    with SiteServer(stall) as server:
        connection = connect(server)
        connection.request("GET", "/")
        assert asked.wait(60)
        connection.sock.settimeout(0.2)
        with pytest.raises(TimeoutError):
            connection.getresponse()
        (hit,) = server.log.hits
        assert hit.ended is None
        connection.close()
    assert hit.ended is not None
    assert hit.status == 0


def test_an_endless_body_is_sent_only_as_fast_as_it_is_read(serve):
    sent = []

    def blocks():
        yield b"HTTP/1.1 200 OK\r\n\r\n"
        while True:
            sent.append(1)
            yield bytes(100_000)

    server = serve(lambda _visit: WireAnswer(blocks()))
    with socket.create_connection(server.origins[0].split(":"), timeout=60) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        received = 0
        while received < 30_000_000:
            received += len(client.recv(1_000_000))
        assert len(sent) * 100_000 < received + 50_000_000


def test_wire_bytes_are_sent_as_they_are(serve):
    wire = b"HTTP/1.0 299 Odd\r\nno colon\r\n\r\n\x00"
    server = serve(lambda _visit: WireAnswer([wire[:5], 0.01, wire[5:]]))
    assert talk(server, b"GET / HTTP/1.1\r\n\r\n") == wire


def test_a_site_process_serves_and_keeps_its_log_on_disk():
    with SiteProcess("skitter.testing:GeneratedSite", {"pages": 5}, hosts=2) as server:
        connection = connect(server)
        assert ask(connection)[0] == 200
        assert ask(connection, "/s1/nothing.html")[0] == 404
        connection.close()
        assert [(hit.target, hit.status) for hit in server.hits()] == [("/", 200), ("/s1/nothing.html", 404)]


def test_a_site_process_ends_with_the_process_that_started_it():
    script = (
        "import os, signal\n"
        "from skitter.testing import SiteProcess\n"
        "server = SiteProcess('skitter.testing:GeneratedSite', {'pages': 5}).__enter__()\n"
        "print(server.origins[0], flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, check=False)
    host, port = done.stdout.decode().strip().split(":")
    # The port is closed when the orphan has ended; until then an idle connection stays open.
    try:
        with socket.create_connection((host, int(port)), timeout=60) as client:
            assert client.recv(1) == b""
    except ConnectionError:
        pass


def test_a_site_that_cannot_be_made_is_an_error(capfd):
    with pytest.raises(SkitterError), SiteProcess("skitter.testing:NoSuchSite"):
        pass
    assert "NoSuchSite" in capfd.readouterr().err


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells when data came")
def test_a_request_is_recorded_with_the_time_of_its_arrival(serve):
    server = serve(lambda _visit: Answer(b"x"))
    held_up = threading.Event()
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        server._loop.loop.call_soon_threadsafe(lambda: (held_up.set(), time.sleep(0.5)))
        assert held_up.wait(60)
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        sent = time.monotonic()
        assert connection.recv(100)
        answered = time.monotonic()
    (hit,) = server.log.hits
    assert hit.received < sent + 0.25
    assert hit.ended <= answered
    assert hit.ended > hit.received


@pytest.mark.parametrize(
    ("site", "words"),
    [
        (
            "skitter.testing:GeneratedSite",
            "cannot listen on 127.0.0.1, port {port}: Address already in use; choose",
        ),
        (
            "skitter.testing.demo_site:DemoSite",
            "DemoSite needs 3 origins, but has 1; serve it on 3 ports or hosts, such as --ports 3",
        ),
        ("skitter.testing.nowhere:Site", "skitter.testing.nowhere:Site"),
        ("skitter.testing:Nobody", "skitter.testing:Nobody"),
        ("nothing", "write MODULE:NAME"),
    ],
)
def test_a_site_that_cannot_be_served_from_the_command_line_is_reported_in_one_line(site, words):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = subprocess.run(
            [sys.executable, "-m", "skitter.testing", site, "--port", str(port)],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert (result.returncode, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert words.format(port=port) in line
