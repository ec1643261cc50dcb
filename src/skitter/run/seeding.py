"""Adding: seeds that are given to a job from outside, judged as the job would judge them."""

from __future__ import annotations

from skitter.frontier.records import Entry
from skitter.run.builder import JobBuilder
from skitter.run.control import OpenFrontier
from skitter.run.job import JobFolder
from skitter.scope import Scope
from skitter.worker.links import LinkCollector
from skitter.worker.seed_format import read_seed


def judge(folder: JobFolder, reached: OpenFrontier) -> tuple[LinkCollector, type | None]:
    """Return who knows scope and politeness of the job, and the spider's class where it is known here."""
    spec, seed = folder.read(), reached.info.fingerprint_seed
    if spec.spider:
        assembly = JobBuilder(spec)
        return LinkCollector(assembly.scope, assembly.settings.politeness(), seed), type(assembly.spider)
    assert reached.frontier.politeness is not None
    return LinkCollector(Scope(), reached.frontier.politeness, seed), None


def entry_of(
    text: bytes | str,
    gatherer: LinkCollector,
    methods: type | None,
    priority: int = 0,
    callback: str | None = None,
    queue: str = "",
) -> Entry | str:
    """Return what is to be added for a seed, or why it is refused. Raises :class:`~skitter.errors.RequestError`.

    ``priority``, ``callback`` and ``queue`` hold where the seed names none.
    """
    request = read_seed(text, priority=priority)
    if request.callback is None and callback is not None:
        request = request.replace(callback=callback)
    if queue and not request.queue:
        request = request.replace(queue=queue)
    for name in (request.callback, request.errback):
        if methods is not None and name is not None and not hasattr(methods, str(name)):
            return f"the spider has no method {name!r}"
    entry = gatherer.entry(request)
    return f"{request.url!r:.200} is refused: {entry}" if isinstance(entry, str) else entry
