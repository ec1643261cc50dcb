"""The end of a job in partitions: two readings, with any changes between them."""

import itertools

import pytest

from skitter.frontier.cluster.partition import PartitionStatus
from skitter.frontier.cluster.partitions import PartitionMap
from skitter.frontier.cluster.state import is_finished, read_all
from skitter.frontier.records import JobState


class Counted:
    """A partition with counts only. ``before_reading`` is called before each reading, with its number."""

    readings = 0

    def __init__(self, left=0):
        self.left, self.sequence, self.done, self.outbox = left, left, 0, 0

    def add(self):
        self.left += 1
        self.sequence += 1

    def finish(self):
        self.left -= 1
        self.done += 1

    async def partition_status(self):
        Counted.before_reading(next(Counted.readings))
        changes = (self.sequence, self.done)
        return PartitionStatus(self.left, 0, 0, self.outbox, False, True, JobState.RUNNING, changes, 0, {}, 0)


@pytest.fixture
def scan():
    """Scan partitions for the end. ``changes``: functions by the number of the reading before which they happen."""

    async def begin(partitions, changes):
        Counted.readings = itertools.count()
        Counted.before_reading = staticmethod(lambda number: changes.get(number, lambda: None)())
        job = PartitionMap(lambda: 0.0)
        job.fill(partitions)
        return await is_finished(job.clients, await read_all(job.clients))

    return begin


async def test_two_equal_quiet_readings_are_the_end(scan):
    assert await scan([Counted(), Counted(), Counted()], {})


@pytest.mark.parametrize("place", [0, 1, 2])
async def test_one_request_anywhere_is_not_the_end(scan, place):
    partitions = [Counted(), Counted(), Counted()]
    partitions[place].add()
    assert not await scan(partitions, {})


@pytest.mark.parametrize("place", [0, 1, 2])
async def test_a_job_with_requests_in_an_outbox_is_not_finished(scan, place):
    partitions = [Counted(), Counted(), Counted()]
    partitions[place].outbox = 1
    assert not await scan(partitions, {})


async def test_a_request_that_moves_between_partitions_is_not_missed(scan):
    """It moves between the readings of two partitions, both times."""
    first, second = Counted(), Counted(left=1)

    def to_first():
        first.add()
        second.finish()

    def to_second():
        second.add()
        first.finish()

    # Reading 0 reads the first partition, 1 the second one; 2 and 3 the same again.
    assert not await scan([first, second], {1: to_first, 2: to_second, 3: to_first})


@pytest.mark.parametrize("moments", list(itertools.combinations_with_replacement(range(1, 5), 2)))
async def test_a_job_that_has_a_request_all_the_time_never_ends(scan, moments):
    """Whenever it moves back and forth between the readings of two partitions."""
    first, second = Counted(), Counted(left=1)
    there, back = moments

    def move(source, target):
        target.add()
        source.finish()

    changes = {there: lambda: move(second, first)}
    if back == there:
        changes = {there: lambda: (move(second, first), move(first, second))}
    else:
        changes[back] = lambda: move(first, second)
    assert not await scan([first, second], changes)


async def test_a_request_that_was_replayed_and_done_again_shows(scan):
    """It is not a new request, but the partition was not quiet."""
    first, second = Counted(), Counted()

    def replayed_and_done():
        first.done += 1
        second.left += 1

    assert not await scan([first, second], {2: replayed_and_done, 3: lambda: setattr(second, "left", 0)})
