"""Pipeline: processors that each item passes in their order, registered by an id."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from skitter.errors import UsageError
from skitter.frontends.lifecycle.errors import ErrorFeed
from skitter.frontends.lifecycle.modules import Module, ModuleError, ModuleKind, ModuleRegistry
from skitter.item import is_item
from skitter.response import Response
from skitter.worker.callbacks import describe
from skitter.worker.hooks import HookAction, call

Processor = Callable[[Any], Any]
"""Takes an item and returns the one that goes on, ``None`` to let it go on as it is, or ``HookAction.DROP``.
Plain or a coroutine function."""


class Pipeline(Module):
    """Ordered processors.

    ``fail_fast``
        What becomes of an item whose processor fails. ``False``, the default: the error is told, the item goes on
        to the next processor as it was. ``True``: the page fails with all its items, and is a dead letter that can be
        replayed.

    Raises, when made, :class:`~skitter.errors.UsageError` for no processors, and for one that cannot be called.
    """

    component = ModuleKind.PIPELINE

    def __init__(
        self,
        *processors: Processor,
        id: str = "",  # noqa: A002 - as in Module
        fail_fast: bool = False,
    ) -> None:
        super().__init__(id)
        if not processors:
            raise UsageError(
                "a pipeline without processors does nothing", remedy="give it one function at least"
            )
        for processor in processors:
            if not callable(processor):
                raise UsageError(f"processor {processor!r:.60} cannot be called", remedy="give functions")
        self._processors = processors
        self.fail_fast = fail_fast
        self.dropped = 0
        """Items that a processor did not want."""

    async def process(self, item: Any, told: Callable[[ModuleError], None]) -> Any:
        """Return the item as it is to be stored, or ``HookAction.DROP``; errors that do not end its way are told.

        Raises :class:`~skitter.frontends.lifecycle.modules.ModuleError` with ``fail_fast``.
        """
        try:
            with self.at_work() as counts:
                counts.accepted += 1
                return await self._through(item, told)
        except _ProcessorFailed as found:
            return found.item

    async def _through(self, item: Any, told: Callable[[ModuleError], None]) -> Any:
        failed = False
        for processor in self._processors:
            try:
                answer = await _answer(processor, item)
            except Exception as error:
                wrapped = ModuleError(self.component, self.id, f"{_name(processor)}: {describe(error)}")
                wrapped.__cause__ = error
                if self.fail_fast:
                    raise wrapped from error
                told(wrapped)
                failed = True
                continue
            if answer is HookAction.DROP:
                self.dropped += 1
                return answer
            item = item if answer is None else answer
        if failed:
            raise _ProcessorFailed(item)
        return item

    def extra(self) -> dict[str, Any]:
        """Return the number of processors, the fail-fast switch and what was dropped."""
        return {"processors": len(self._processors), "fail_fast": self.fail_fast, "dropped": self.dropped}


class _ProcessorFailed(Exception):
    """The item goes on, and its call does not count as completed."""

    def __init__(self, item: Any) -> None:
        super().__init__()
        self.item = item


class PipelineHook:
    """Hook that sends each item through the pipeline that the balance chooses."""

    def __init__(self, registry: ModuleRegistry, feed: ErrorFeed) -> None:
        self._registry = registry
        self._feed = feed

    async def before_save(self, response: Response | None, items: list[Any]) -> None:
        """Replace the items of a page by what the pipelines make of them."""
        url = "" if response is None else response.url

        def told(error: ModuleError) -> None:
            self._feed.tell(error.component, error.root, str(error), error.module, url)

        kept = []
        for item in items:
            pipeline = cast(Pipeline, self._registry.pick(ModuleKind.PIPELINE))
            processed = await pipeline.process(item, told)
            if processed is not HookAction.DROP:
                kept.append(processed)
        items[:] = kept


async def _answer(processor: Processor, item: Any) -> Any:
    answer = await call(processor, item)
    if answer is not None and answer is not HookAction.DROP and not is_item(answer):
        raise TypeError(f"it returned {type(answer).__name__}, which is no item")
    return answer


def _name(processor: Processor) -> str:
    return getattr(processor, "__name__", type(processor).__name__)
