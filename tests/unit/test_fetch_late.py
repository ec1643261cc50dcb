"""A request whose turn is over is not sent: asked as late as can be, and of a new connection as it is begun."""

import pytest

from skitter import Request
from skitter.fetch.base import MAY_START, TooLate
from skitter.fetch.http import HttpFetcher
from skitter.testing import Answer


@pytest.fixture
async def fetcher():
    fetcher = HttpFetcher()
    await fetcher.open()
    yield fetcher
    await fetcher.close()


class Turn:
    """Says yes so many times, then no."""

    def __init__(self, yes):
        self.yes = yes
        self.asked = 0

    def __call__(self):
        self.asked += 1
        return self.asked <= self.yes


@pytest.fixture
def server(serve):
    return serve(lambda visit: Answer(visit.path.encode()))


async def test_a_late_request_opens_no_connection(fetcher, server):
    MAY_START.set(Turn(0))
    with pytest.raises(TooLate) as error:
        await fetcher.fetch(Request(server.url))
    assert error.value.free
    assert server.log.hits == []


async def test_a_late_request_is_not_sent_on_a_kept_connection(fetcher, server):
    await fetcher.fetch(Request(server.url_of("/first")))
    MAY_START.set(Turn(0))
    with pytest.raises(TooLate):
        await fetcher.fetch(Request(server.url_of("/late")))
    assert [hit.target for hit in server.log.hits] == ["/first"]


async def test_what_a_connection_takes_to_be_made_is_not_held_against_its_request(fetcher, server):
    MAY_START.set(Turn(1))
    assert (await fetcher.fetch(Request(server.url_of("/first")))).body == b"/first"


async def test_who_was_in_time_is_sent_and_asks_anew_for_the_next(fetcher, server):
    turn = Turn(3)
    MAY_START.set(turn)
    for number in range(3):
        await fetcher.fetch(Request(server.url_of(f"/{number}")))
    with pytest.raises(TooLate):
        await fetcher.fetch(Request(server.url_of("/late")))
    MAY_START.set(None)
    assert (await fetcher.fetch(Request(server.url_of("/free")))).body == b"/free"
    assert [hit.target for hit in server.log.hits] == ["/0", "/1", "/2", "/free"]
