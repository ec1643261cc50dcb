"""The loop of one worker process: lease, fetch, call back, store, commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # importing the package must stay cheap
    from skitter.fetch.address_guard import AddressGuard
    from skitter.fetch.contract import Fetcher
    from skitter.fetch.identity.contract import Cookies
    from skitter.fetch.identity.cookies import CookieKeeper, CookieSharing
    from skitter.settings import Settings
    from skitter.spider import Spider
    from skitter.store.media import MediaStore
    from skitter.worker.hooks import Hooks
    from skitter.worker.links import LinkCollector
    from skitter.worker.routing import ItemWriter
    from skitter.worker.tracing import Tracer

DRAIN_SECONDS = 15.0
"""Maximum number of seconds to wait for fetches in flight when a crawl stops. Unfinished leases are then released."""


class WorkerParts(NamedTuple):
    """The parts of a worker that depend on its job."""

    spider: Spider
    settings: Settings
    links: LinkCollector
    hooks: Hooks
    fetcher: Fetcher
    site_file_fetcher: Fetcher
    """Fetches robots.txt and tdmrep.json."""
    outputs: ItemWriter
    guard: AddressGuard
    cookies: Cookies
    sharing: CookieSharing | None = None
    """``None`` if the workers of the job do not share cookies on demand."""
    cookie_keeper: CookieKeeper | None = None
    """``None`` unless the cookies of a single worker are stored for the next run."""
    files: MediaStore | None = None
    """``None`` if the job downloads no files."""
    tracer: Tracer | None = None
    """``None`` if the job has no traces."""
