"""Finds and runs the callbacks of a spider: plain methods, generators and coroutines."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import time
import traceback
from collections import Counter, deque
from collections.abc import AsyncIterable, Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import islice
from pathlib import Path
from types import GeneratorType, MethodType, TracebackType
from typing import TYPE_CHECKING, Any

from skitter.errors import SkitterError, SpiderError, close_names, counted
from skitter.foreign_names import FEED_CALLBACKS, remedy_for, remedy_for_object
from skitter.item import is_item, is_selector
from skitter.links import Links, SkippedLinks
from skitter.request import CallbackName, Request
from skitter.spider import RULES, Spider

if TYPE_CHECKING:
    from skitter.response import Response

log = logging.getLogger("skitter.crawl")

_SHORT_RUN = 0.002
"""Seconds that callbacks may run before the event loop reads its sockets again."""
_LONG_RUN = 0.004
"""Seconds that callbacks may run while the event loop is saturated."""
_SATURATED = 0.9
"""Share of CPU time above which the event loop counts as saturated. Free capacity does not limit the worker then."""
_LARGE = 128 * 1024
"""Size in bytes from which a waiting body is evicted from the CPU caches before its callback runs."""
_MEASURED_SECONDS = 0.3
"""Seconds over which the CPU share is measured. Longer than the first pages of a crawl take: all of their links are new."""
_READ_TURNS = 2
"""Turns of the event loop until it has read the responses that arrived in the meantime, and reported their fetches."""
_REFILL_TURNS = 3
"""Turns of the event loop from the end of a fetch until the next request is sent: lease, start of its task, and
libcurl."""


class CallbackPacer:
    """Decides when the callbacks of a burst of responses run, so that they do not delay the next requests.

    When a fetch ends, the next request is sent a few turns of the event loop later, and callbacks that run in these
    turns would delay it. So callbacks wait for these turns. Then they run for a while, and sockets are read again.
    While the event loop is saturated, and for large pages, callbacks do not wait.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_active = False
        """Whether :meth:`_turn` is called in each turn of the event loop."""
        self._has_new = False
        """Whether a fetch has ended, and the next request may not have been sent yet."""
        self._turns_to_skip = 0
        """Number of turns in which no callback may run."""
        self._share = 1
        """Number of callbacks to run together within the time limit."""
        self._running = 0
        """Number of callbacks that were started in the last turn."""
        self._began = 0.0
        """Time at which they were started."""
        self._is_saturated = False
        self._measured_at = time.perf_counter()
        self._cpu_seconds = time.thread_time()
        """CPU time of the event loop's thread at that time."""

    def next_turn(self, size: int) -> asyncio.Future[None] | None:
        """Return a future for the turn of a callback; ``None`` if it may run now. ``size``: of the body, in bytes."""
        if not self._is_active:
            self._is_active = True
            self._turns_to_skip, self._began = 0, time.perf_counter()
            self._loop.call_soon(self._turn)
        runs_at_once = self._is_saturated or size > _LARGE
        if runs_at_once and not self._waiting and time.perf_counter() - self._began <= _LONG_RUN:
            return None
        self._has_new = True
        turn = self._loop.create_future()
        self._waiting.append(turn)
        return turn

    def _turn(self) -> None:
        """Run once per turn of the event loop while callbacks wait, and until their time has been recorded."""
        now = time.perf_counter()
        if self._running:
            self._adapt_share(now - self._began)
        if now - self._measured_at >= _MEASURED_SECONDS:
            used = time.thread_time()
            self._is_saturated = used - self._cpu_seconds > (now - self._measured_at) * _SATURATED
            self._measured_at, self._cpu_seconds = now, used
        if self._turns_to_skip == 0 and self._has_new and not self._is_saturated:
            self._has_new = False
            self._turns_to_skip = _REFILL_TURNS
        if self._turns_to_skip:
            self._turns_to_skip -= 1
        elif self._waiting:
            self._run_some(now)
        else:
            self._is_active = False
            return
        self._loop.call_soon(self._turn)

    def _run_some(self, now: float) -> None:
        self._began, self._running = now, min(self._share, len(self._waiting))
        for _ in range(self._running):
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
        if not self._is_saturated:
            self._turns_to_skip = _READ_TURNS

    def _adapt_share(self, seconds: float) -> None:
        """Record how long the last callbacks ran."""
        limit = _LONG_RUN if self._is_saturated else _SHORT_RUN
        if seconds > limit:
            self._share = max(1, self._share // 2)
        elif seconds < limit / 2 and self._running == self._share:
            self._share *= 2
        self._running = 0


def find_method(owner: object, name: str) -> Callable[..., Any] | None:
    """Return the method of an object of user code (a spider, a hook collection) by its name, if it has one."""
    method = getattr(owner, name, None)
    return method if callable(method) else None


def callable_name(function: Callable[..., Any]) -> str:
    """Return the name of a user's callable, for messages; its ``repr`` if it has no name."""
    # From Python 3.15 on, a partial is a routine too, but has no name.
    has_name = inspect.isroutine(function) and not isinstance(function, partial)
    return function.__qualname__ if has_name else repr(function)


def check_arguments(function: Callable[..., Any], title: str, name: str, arguments: tuple[str, ...]) -> None:
    """Raise :class:`~skitter.errors.SpiderError` if a function of user code does not take these arguments.

    This is the case if it takes a different number of arguments, takes them in a different order, or has a parameter
    ``spider`` or ``item`` in place of one of them, as in Scrapy.
    ``title`` names the function in the error, ``name`` in the definition that the remedy shows.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError, NameError):
        # A function written in C may have no signature. Python 3.14 evaluates annotations.
        return
    if not _takes(signature, arguments):
        found = ", ".join(signature.parameters)
        own = ("self", *arguments) if inspect.ismethod(function) else arguments
        raise SpiderError(
            f"{title} takes the arguments ({found}), and skitter passes ({', '.join(arguments)})",
            remedy=f"write def {name}({', '.join(own)})",
        )


def _takes(signature: inspect.Signature, arguments: tuple[str, ...]) -> bool:
    try:
        bound = signature.bind(*arguments).arguments
    except TypeError:
        return False
    others = {"spider", "item", *arguments}
    return all(name == value or name not in others for name, value in bound.items())


def check_errback(errback: Callable[..., Any]) -> None:
    """Raise :class:`~skitter.errors.SpiderError` for an errback that does not take a request and its error."""
    name = callable_name(errback)
    check_arguments(errback, f"errback {name}", name.rpartition(".")[2], ("request", "error"))


def _remedy_without_callback(spider: Spider, name: str) -> str:
    own = [
        attribute
        for attribute in dir(spider)
        if attribute not in dir(Spider) and find_method(spider, attribute) is not None
    ]
    ported = [FEED_CALLBACKS[method] for method in own if method in FEED_CALLBACKS]
    if ported and name == "parse":
        return ported[0]
    near = close_names(name, own)
    return f"did you mean {near[0]}?" if near else f"define the method {name}(self, response)"


def _is_own(spider: Spider, passed: CallbackName, method: Callable[..., Any]) -> bool:
    """Return whether the function that was passed is the method that a worker finds by its name."""
    function = passed.function
    if function == method:
        return True
    classes, plain = type(spider).__mro__, _undecorated(function)
    if isinstance(function, MethodType):
        owner = function.__self__
        return (owner is spider or owner in classes) and plain == _undecorated(method)
    # A rule of a base class may hold a function of that class. It means the method that overrides the function.
    own = [method, *(vars(each)[passed] for each in classes if passed in vars(each))]
    return any(plain is _undecorated(each) for each in own)


def _undecorated(method: Any) -> Any:
    return inspect.unwrap(method.__func__ if isinstance(method, _BOUND) else method)


_BOUND = (MethodType, classmethod, staticmethod)


async def _with_rules(
    runner: CallbackRunner,
    spider: Spider,
    callback: Callable[..., Any] | None,
    response: Response,
    **named: Any,
) -> list[Any]:
    from skitter.link_extractor import follow_rules  # noqa: PLC0415 - few spiders have rules

    results = [] if callback is None else await runner.run(callback, response, **named)
    return [*results, *follow_rules(spider, response)]


class CallbackRunner:
    """Runs callbacks on the event loop, or in threads.

    ``threads``
        Number of threads for callbacks that are not coroutines or async generators. 0: they run on the event loop.
    """

    def __init__(self, threads: int = 0) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="skitter-callback") if threads else None

    def find(self, spider: Spider, name: str | None) -> Callable[..., Any]:
        """Return the callback of a spider by its stored name (default ``parse``).

        If the spider has rules, they apply after ``parse``, which is then optional, and after callbacks that are named
        for rules (see :data:`~skitter.spider.RULES`). Raises :class:`~skitter.errors.SpiderError`.
        """
        if name is not None and name.startswith(RULES):
            name, rules = name.removeprefix(RULES), spider.rules
        else:
            name = name or "parse"
            rules = spider.rules if name == "parse" else ()
        callback = find_method(spider, name) if name else None
        if callback is not None and isinstance(name, CallbackName) and not _is_own(spider, name, callback):
            raise SpiderError(
                f"callback {callable_name(name.function)} is not the method {name!r} of spider {spider.name!r}",
                remedy=f"callbacks are stored by name: pass a method of the spider, such as self.{name}, "
                "and its arguments as cb_kwargs",
                field="callback",
            )
        if rules and (callback is not None or name in {"", "parse"}):
            return partial(_with_rules, self, spider, callback)
        if callback is None:
            raise SpiderError(
                f"spider {spider.name!r} has no callback {name or 'parse'!r}",
                remedy=_remedy_without_callback(spider, name or "parse"),
                field="callback",
            )
        return callback

    def run(
        self, callback: Callable[..., Any], *arguments: Any, **named: Any
    ) -> Coroutine[Any, Any, list[Any]]:
        """Run a callback. The coroutine returns all its results; see :func:`run_callback`."""
        if self._pool is None:
            return results_of(callback(*arguments, **named))
        return self._run_off_loop(callback, *arguments, **named)

    async def _run_off_loop(self, callback: Callable[..., Any], *arguments: Any, **named: Any) -> list[Any]:
        return await results_of(await self.call(callback, *arguments, **named))

    async def call(self, callback: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call a callback and return its result.

        If it ran in a thread, a generator is returned as the list of its results.
        """
        if self._pool is None or _is_async(callback):
            return callback(*arguments, **named)
        context = contextvars.copy_context()
        call = partial(context.run, _run_in_thread, partial(callback, *arguments, **named))
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    def blocks(self, callback: Callable[..., Any]) -> bool:
        """Return whether a callback runs on the event loop and blocks it. A callback with rules is asynchronous."""
        return self._pool is None and not _is_async(callback) and not isinstance(callback, partial)

    def close(self) -> None:
        """End each thread after its running callback. Do not wait for them."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


def _is_async(callback: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(callback) or inspect.isasyncgenfunction(callback)


def _run_in_thread(call: Callable[[], Any]) -> Any:
    """Call a callback. A generator is read to its end here, because its steps block as well."""
    try:
        returned = call()
    except StopIteration as error:  # a future cannot carry a StopIteration
        raise RuntimeError("the callback raised StopIteration") from error
    if returned.__class__ is not GeneratorType:
        return returned
    found: list[Any] = []
    try:
        found.extend(returned)
    except Exception as error:
        _note_dropped(error, found)
        raise
    return found


async def run_callback(callback: Callable[..., Any], *arguments: Any, **named: Any) -> list[Any]:
    """Call a coroutine function, async generator, generator or plain function. Return all its results.

    A plain function or coroutine may return one item or request, an iterable of them, or ``None``.
    """
    return await results_of(callback(*arguments, **named))


def results_of(returned: Any) -> Coroutine[Any, Any, list[Any]]:
    """Return all results of a callback. ``returned``: the value that its call returned."""
    return _all_of(returned) if returned.__class__ is GeneratorType else _results_of_other(returned)


async def _results_of_other(returned: Any) -> list[Any]:
    if returned is None:
        return []
    if inspect.isawaitable(returned):
        returned = await returned
    if isinstance(returned, AsyncIterable):
        return await _all_of_async(returned)
    if returned is None:
        return []
    if isinstance(returned, (Request, Links, SkippedLinks)) or is_item(returned):
        return [returned]
    if isinstance(returned, Iterable) and not isinstance(returned, (str, bytes)):
        return list(returned)
    raise unsupported_result(returned)


class CallbackNames:
    """Checks callback names when a page yields a request.

    Otherwise a misspelled name would be stored, even in dead letters, and a function of another object would be replaced
    by the method of the spider with its name.
    """

    def __init__(self, spider: Spider) -> None:
        self._spider = spider
        self._find = CallbackRunner().find
        self._known: set[object] = set()
        self._known_errbacks: set[object] = set()

    def check(self, request: Request) -> None:
        """Raise :class:`~skitter.errors.SpiderError` if the callback or the errback does not exist.

        Raise it as well if the errback cannot be called with the arguments that skitter passes.
        """
        callback, errback = request.callback, request.errback
        # A function is checked itself, not by its name: another object may have a method of that name.
        checked = callback.function if isinstance(callback, CallbackName) else callback
        if checked not in self._known:
            self._find(self._spider, callback if isinstance(callback, str) else None)
            self._known.add(checked)
        if errback is None:
            return
        checked = errback.function if isinstance(errback, CallbackName) else errback
        if checked not in self._known_errbacks:
            check_errback(self._find(self._spider, errback if isinstance(errback, str) else None))
            self._known_errbacks.add(checked)


def unsupported_result(result: object) -> SpiderError:
    """Return the error for a result of a callback that is neither an item nor a request."""
    remedy = "yield items (dict, dataclass, attrs, pydantic) and requests"
    if (foreign := remedy_for_object(result)) is not None:
        remedy = foreign
    elif inspect.iscoroutine(result):
        remedy = "await it in a callback that is an `async def`"
        result.close()  # Python would warn that it was never awaited
    elif isinstance(result, AsyncIterable):
        remedy = "yield its elements one by one: async for ... in ..."
    elif is_selector(result):
        remedy = "call .get() or .getall(), and yield the value in an item, such as a dict"
    elif isinstance(result, str):
        remedy = "follow a URL with response.follow(url), or yield the string in an item, such as a dict"
    elif isinstance(result, Iterable):
        remedy = "yield its elements one by one: yield from ..."
    return SpiderError(
        f"a callback returned an unsupported {type(result).__name__}: {result!r:.60}", remedy=remedy
    )


_STEP = 10
"""Number of results to take from a generator between two checks of the time."""
_MAX_BLOCKING = 0.02
"""Seconds after which a generator yields to the event loop. Each of its results may be a batch of a thousand
links."""


def refuse_repeated(items: Sequence[Any]) -> None:
    """Raise :class:`~skitter.errors.SpiderError` if a callback yielded the same changeable object more than once.

    If it changes the object in between, all of these items would be stored with the last values.
    """
    if len(items) == len(set(map(id, items))):
        return
    seen: set[int] = set()
    for item in items:
        if id(item) in seen and _can_change(item):
            raise SpiderError(
                f"a callback yielded the same {type(item).__name__} more than once: {item!r:.60}",
                remedy="create a new item for each yield, or yield a copy",
            )
        seen.add(id(item))


def _can_change(item: Any) -> bool:
    try:
        hash(item)
    except TypeError:  # dicts, and most dataclasses, models and structs that are not frozen, have no hash
        return True
    return False


async def _all_of(generator: Iterator[Any]) -> list[Any]:
    """Return all results of a generator. If it raises, its error says how many results are lost with the page."""
    found: list[Any] = []
    try:
        found.extend(islice(generator, _STEP))
        taken, began = len(found), time.perf_counter()
        while taken == _STEP:
            if time.perf_counter() - began > _MAX_BLOCKING:
                await asyncio.sleep(0)
                began = time.perf_counter()
            before = len(found)
            found.extend(islice(generator, _STEP))
            taken = len(found) - before
    except Exception as error:
        _note_dropped(error, found)
        raise
    return found


async def _all_of_async(generator: AsyncIterable[Any]) -> list[Any]:
    """Do the same as :func:`_all_of`, for an async generator."""
    found: list[Any] = []
    try:
        async for result in generator:
            found.append(result)  # noqa: PERF401 - the results before an error are counted
    except Exception as error:
        _note_dropped(error, found)
        raise
    return found


def _note_dropped(error: Exception, found: Sequence[Any]) -> None:
    if found:
        links = sum(
            len(result) if isinstance(result, Links) else isinstance(result, Request) for result in found
        )
        items = sum(map(is_item, found))
        counts = f"{counted(links, 'link')} and {counted(items, 'item')}"
        error.add_note(f"{counts} that it had yielded were dropped")


def describe(error: BaseException) -> str:
    """Return one line with an error of user code and the line that raised it, or its remedy."""
    return _described(error, remedy_for(error))


def describe_plain(error: BaseException) -> str:
    """Describe an error in code of a Scrapy project, like :func:`describe` but without remedies for ported spiders."""
    return _described(error, None)


def _described(error: BaseException, remedy: str | None) -> str:
    text = " ".join(str(error).split())
    line = f"{type(error).__name__}: {text}" if text else type(error).__name__
    notes = "".join(f"; {note}" for note in vars(error).get("__notes__", ()))
    if remedy is not None:
        notes = f"; {remedy}{notes}"
    if isinstance(error, SkitterError):  # its remedy is the first note
        return line + notes
    frame = _frame_outside_skitter(traceback.extract_tb(error.__traceback__))
    return line + notes if frame is None else f"{line} ({_describe_frame(frame)}){notes}"


def describe_internal(error: BaseException) -> str:
    """Describe an error of skitter itself, like :func:`describe` but with the line that raised it, in any file."""
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, SkitterError) or not frames or _frame_outside_skitter(frames) is not None:
        return describe(error)
    return f"{describe(error)} ({_describe_frame(frames[-1])})"


def _describe_frame(frame: traceback.FrameSummary) -> str:
    return f"line {frame.lineno} of {frame.filename.rpartition('/')[2]}, in {frame.name}"


def _frame_outside_skitter(frames: Sequence[traceback.FrameSummary]) -> traceback.FrameSummary | None:
    """Return the innermost frame of the user's own code, or else of a library that it uses."""
    outside = [frame for frame in frames if not frame.filename.startswith(_OWN_FILES)]
    own = (frame for frame in reversed(outside) if not frame.filename.startswith(_library_folders()))
    return next(own, outside[-1] if outside else None)


@cache
def _library_folders() -> tuple[str, ...]:
    """Return the folders of Python and of installed libraries, as prefixes of file names."""
    import sysconfig  # noqa: PLC0415 - only for errors

    return ("<frozen", *{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


_MAX_TRACEBACK = 2_000
"""Characters of a traceback that a dead letter keeps."""
_OWN_FILES = str(Path(__file__).parents[1])
_MAX_KINDS = 1_000
"""Kinds of errors that :class:`ErrorLog` distinguishes."""


def traceback_of(error: BaseException) -> str:
    """Return the traceback of an error in user code, from the first frame outside skitter.

    A long traceback loses its middle. Errors of skitter explain themselves, so the result is empty for them.
    """
    if isinstance(error, SkitterError):
        return ""
    text = "".join(traceback.format_exception(type(error), error, _in_user_code(error))).rstrip()
    if len(text) > _MAX_TRACEBACK:
        text = f"{text[: _MAX_TRACEBACK // 4]}\n...\n{text[-_MAX_TRACEBACK * 3 // 4 :]}"
    return text


def _in_user_code(error: BaseException) -> TracebackType | None:
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OWN_FILES):
        trace = trace.tb_next
    return trace or error.__traceback__


class ErrorLog:
    """Logs errors of user code: the first error of each kind with its traceback, then only a count.

    The count is logged at 10, 100, 1,000 and further powers of ten. Errors of one kind have the same type and were
    raised at the same line. The level ``debug`` shows all of them.
    """

    def __init__(self) -> None:
        self._counts: Counter[tuple[object, ...]] = Counter()

    def report(self, url: str, error: BaseException) -> bool:
        """Log an error that occurred at a page. Return whether the log names the page at every level."""
        innermost: TracebackType | None = error.__traceback__
        while innermost is not None and innermost.tb_next is not None:
            innermost = innermost.tb_next
        line = (innermost.tb_frame.f_code.co_filename, innermost.tb_lineno) if innermost is not None else ()
        kind = (type(error), *line)
        if len(self._counts) >= _MAX_KINDS and kind not in self._counts:
            kind = ()  # all further kinds are counted together
        self._counts[kind] += 1
        count, text = self._counts[kind], describe(error)
        if count == 1 and not isinstance(error, SkitterError):
            log.error("%s: %s", url, text, exc_info=(type(error), error, _in_user_code(error)))
        elif count == 1:
            log.error("%s: %s", url, text)
        elif count >= 10 and str(count).rstrip("0") == "1":
            log.error(
                "%d pages have failed with this error in this process, most recently %s: %s", count, url, text
            )
        else:
            log.debug("%s: %s", url, text)
            return False
        return True
