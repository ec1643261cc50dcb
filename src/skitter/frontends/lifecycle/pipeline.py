"""Pipeline: a module with processors that each item passes in order."""

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
"""Takes an item, and returns the item to continue with, ``None`` to keep it unchanged, or ``HookAction.DROP``. A plain or a
coroutine function."""


class Pipeline(Module):
    """Runs its processors on each item, in order.

    ``fail_fast``
        ``False``, the default: if a processor fails, the error is reported, and the item continues unchanged with the next
        processor. ``True``: the page fails with all its items, and becomes a dead letter that can be replayed.

    Raises :class:`~skitter.errors.UsageError` without processors, and for a processor that is not callable.
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
                "a pipeline needs at least one processor", remedy="pass a function", field="processors"
            )
        for processor in processors:
            if not callable(processor):
                raise UsageError(
                    f"processor {processor!r:.60} is not callable",
                    remedy="pass functions",
                    field="processors",
                )
        self._processors = processors
        self.fail_fast = fail_fast
        self.dropped = 0
        """Number of items that a processor dropped."""

    async def process(self, item: Any, report: Callable[[ModuleError], None]) -> Any:
        """Return the item to store, or ``HookAction.DROP``. ``report`` receives the errors of processors.

        With ``fail_fast``, raises :class:`~skitter.frontends.lifecycle.modules.ModuleError` instead.
        """
        try:
            with self.working() as counts:
                counts.accepted += 1
                return await self._apply(item, report)
        except _ProcessorFailed as found:
            return found.item

    async def _apply(self, item: Any, report: Callable[[ModuleError], None]) -> Any:
        failed = False
        for processor in self._processors:
            try:
                answer = await _answer(processor, item)
            except Exception as error:
                wrapped = ModuleError(self.component, self.id, f"{_name(processor)}: {describe(error)}")
                wrapped.__cause__ = error
                if self.fail_fast:
                    raise wrapped from error
                report(wrapped)
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
        """Return the number of processors, ``fail_fast``, and the number of dropped items."""
        return {"processors": len(self._processors), "fail_fast": self.fail_fast, "dropped": self.dropped}


class _ProcessorFailed(Exception):
    """A processor failed; the item continues, and the call does not count as completed."""

    def __init__(self, item: Any) -> None:
        super().__init__()
        self.item = item


class PipelineHook:
    """Hook that passes each item to the pipeline that load balancing chooses."""

    def __init__(self, registry: ModuleRegistry, feed: ErrorFeed) -> None:
        self._registry = registry
        self._feed = feed

    async def before_save(self, response: Response | None, items: list[Any]) -> None:
        """Replace the items of a page by the results of the pipelines."""
        url = "" if response is None else response.url

        def report(error: ModuleError) -> None:
            self._feed.add(error.component, error.root, str(error), error.module, url)

        kept = []
        for item in items:
            pipeline = cast(Pipeline, self._registry.pick(ModuleKind.PIPELINE))
            processed = await pipeline.process(item, report)
            if processed is not HookAction.DROP:
                kept.append(processed)
        items[:] = kept


async def _answer(processor: Processor, item: Any) -> Any:
    answer = await call(processor, item)
    if answer is not None and answer is not HookAction.DROP and not is_item(answer):
        raise TypeError(f"the processor returned {type(answer).__name__} instead of an item")
    return answer


def _name(processor: Processor) -> str:
    return getattr(processor, "__name__", type(processor).__name__)
