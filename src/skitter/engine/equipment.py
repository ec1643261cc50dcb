"""Equipment: what a program that runs a crawl itself adds to it, on the objects that it has at hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from skitter.request import Request


class Equipment(msgspec.Struct, frozen=True):
    """Additions of this process to a job. They are not kept with the job, and worker processes know nothing of them."""

    hooks: Sequence[object] = ()
    """Hook collections. They stand before the spider's own, so that none of those can answer in their place."""
    settings: Mapping[str, Any] = {}
    """Settings that are objects, such as a fetcher; on top of the spider's, below those of the job."""
    first: Sequence[Request] = ()
    """Requests that are added when the run begins, besides the seeds of the spider; what is known stays known."""
