"""What a run leaves behind in the process of those who started it."""

import asyncio
import gc

from skitter.run.process import run_async


def test_a_run_keeps_nothing_from_the_collector_in_a_program_that_goes_on():
    """A program may run many crawls: what it froze at each would never be collected."""
    threshold, frozen = gc.get_threshold(), gc.get_freeze_count()
    try:
        run_async(asyncio.sleep(0))
        assert gc.get_freeze_count() == frozen
    finally:
        gc.set_threshold(*threshold)
