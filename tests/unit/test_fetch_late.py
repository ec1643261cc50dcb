"""A request whose turn is over is not sent. The permit is checked as late as possible, and also before a new connection."""

import asyncio

import pytest
import trustme

from servers.fetch_h2 import Http2Server
from servers.tls import server_side
from skitter import Request
from skitter.fetch.contract import UNCONDITIONAL, TooLate
from skitter.fetch.http import HttpFetcher
from skitter.settings import Settings
from skitter.testing import Answer


@pytest.fixture
async def fetcher():
    fetcher = HttpFetcher()
    await fetcher.open()
    yield fetcher
    await fetcher.close()


class Permit:
    """Permits a number of requests, then refuses."""

    expires = True
    is_traced = False

    def __init__(self, permitted):
        self.permitted = permitted
        self.asked = 0
        self.connecting = []
        """Reported times before each question."""
        self.reported = 0.0
        """Time reported since the last question."""

    def report_connecting(self, seconds):
        self.reported = seconds

    def may_send(self):
        self.asked += 1
        self.connecting.append(self.reported)
        self.reported = 0.0
        return self.asked <= self.permitted


@pytest.fixture
def server(serve):
    return serve(lambda visit: Answer(visit.path.encode()))


async def test_a_late_request_opens_no_connection(fetcher, server):
    with pytest.raises(TooLate) as error:
        await fetcher.fetch(Request(server.url), permit=Permit(0))
    assert error.value.free
    assert server.log.hits == []


async def test_a_late_request_is_not_sent_on_a_kept_connection(fetcher, server):
    await fetcher.fetch(Request(server.url_of("/first")))
    turn = Permit(0)
    with pytest.raises(TooLate):
        await fetcher.fetch(Request(server.url_of("/late")), permit=turn)
    assert [hit.target for hit in server.log.hits] == ["/first"]
    assert turn.reported > 0, "so that the next request has more time on this busy machine"


async def test_a_request_whose_connection_took_too_long_is_not_sent_and_reports_the_time(fetcher, server):
    turn = Permit(1)
    with pytest.raises(TooLate):
        await fetcher.fetch(Request(server.url_of("/late")), permit=turn)
    assert server.log.hits == []
    begun, connected = turn.connecting
    assert begun == 0.0 < connected < 60.0


async def test_each_request_on_a_kept_connection_checks_its_own_permit(fetcher, server):
    turn = Permit(4)
    for number in range(3):
        await fetcher.fetch(Request(server.url_of(f"/{number}")), permit=turn)
    assert turn.connecting[2:] == [0.0, 0.0], "on the kept connection"
    with pytest.raises(TooLate):
        await fetcher.fetch(Request(server.url_of("/late")), permit=turn)
    assert (await fetcher.fetch(Request(server.url_of("/free")))).body == b"/free"
    assert [hit.target for hit in server.log.hits] == ["/0", "/1", "/2", "/free"]


async def test_of_many_on_one_http2_connection_only_the_late_one_stays():
    async def fetch(path, turn):
        return (await fetcher.fetch(Request(server.origin + path), permit=turn)).body

    fetcher = HttpFetcher(Settings(verify_tls=False))
    await fetcher.open()
    async with Http2Server(server_side(trustme.CA())) as server:
        assert await fetch("/first", UNCONDITIONAL) == b"/first"
        turns = [Permit(0 if number == 2 else 1) for number in range(5)]
        answers = await asyncio.gather(
            *(fetch(f"/{number}", turn) for number, turn in enumerate(turns)), return_exceptions=True
        )
        await fetcher.close()
    assert isinstance(answers.pop(2), TooLate)
    assert answers == [b"/0", b"/1", b"/3", b"/4"]
    assert server.connections == 1
