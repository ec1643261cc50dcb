"""DatabaseOutput: a place in a database as the named output of a job."""

from __future__ import annotations

from collections.abc import Callable

import xxhash

from skitter._utils.backoff import Unavailable
from skitter.errors import StoreError
from skitter.secrets import without_secrets
from skitter.store.contract import OutputContext, StoreContext, type_of_ranges
from skitter.store.database import BufferTerms, DatabaseStore, Driver


class DatabaseOutput:
    """A keyed output: its rows or documents stand under the ids of the items, so there is nothing to merge."""

    def __init__(self, kind: str, target: str, driver: Callable[[], Driver], terms: BufferTerms) -> None:
        self._new_driver = driver
        self._terms = terms
        self.target = driver().name
        self.stream = f"{kind}-{xxhash.xxh3_64_hexdigest(without_secrets(target).encode())}"

    async def check(self, context: OutputContext) -> None:
        """Reach the server, as the user who may write, and make what is missing."""
        await self._ask(context, lambda driver: driver.check(context.job))

    async def occupied(self, context: OutputContext) -> bool:  # noqa: ARG002 - ids keep jobs apart
        """Never: the place is shared, and items of other jobs stay."""
        return False

    async def clear(self, context: OutputContext) -> None:
        """Remove the items of this job: a fresh start gives its pages other fingerprints."""
        await self._ask(context, lambda driver: driver.clear(context.job))

    def store(self) -> DatabaseStore:
        """Return a new connection for one worker."""
        return DatabaseStore(self._new_driver(), self._terms)

    async def emit(self, context: OutputContext, ranges: type_of_ranges) -> bool:  # noqa: ARG002 - see Output
        """Nothing: the items are there."""
        return True

    async def merge(self, context: OutputContext, ranges: type_of_ranges) -> None:
        """Nothing: the items are there."""

    async def _ask(self, context: OutputContext, question: Callable[[Driver], object]) -> None:
        driver = self._new_driver()
        try:
            await driver.open(StoreContext(context.job, "parent", context.directory, context.durability))
            await question(driver)  # type: ignore[misc]
        except Unavailable as error:
            raise StoreError(
                f"{driver.name} cannot be reached: {error}",
                remedy="start the server, or correct host and port",
            ) from error
        finally:
            await driver.close()
