"""``skitter crawl`` and ``skitter run``: begin a job, or go on with it."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated

import typer

from skitter.cli.groups import with_options
from skitter.cli.options import JobOptions, ShowOptions, given, pairs
from skitter.errors import UsageError


class CrawlScope(StrEnum):
    """How far links are followed from the URLs given."""

    HOST = "host"
    DOMAIN = "domain"
    PREFIX = "prefix"
    ANY = "any"


@with_options
def crawl(
    urls: Annotated[list[str], typer.Argument(metavar="URL...", show_default=False, help="Where to start.")],
    job: JobOptions,
    show: ShowOptions,
    depth: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Follow links at most so many steps; 0: none.")
    ] = None,
    scope: Annotated[
        CrawlScope | None,
        typer.Option(
            help="Follow links within the same host (the default), registered domain, URL prefix, or any.",
            show_default=False,
        ),
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RE", show_default=False, help="Follow only URLs in which one of these is found."
        ),
    ] = None,
    deny: Annotated[
        list[str] | None,
        typer.Option(metavar="RE", show_default=False, help="Follow no URL in which one of these is found."),
    ] = None,
) -> None:
    """Crawl from URLs without writing any code: one item a page.

    An item has url, status, title, depth, links (how many), content_type, size and fetched_at.

    The same command again resumes; a job is named after the host of its first URL.
    """
    from skitter.cli.running import run_job  # noqa: PLC0415 - `skitter --help` needs no engine
    from skitter.engine.job import JobSpec  # noqa: PLC0415

    seeds = [_seed(url) for url in urls]
    settings = {"scope": CrawlScope.HOST.value} | job.all_settings()
    settings |= given({"depth_limit": depth, "scope": scope and scope.value, "allow": allow, "deny": deny})
    spec = JobSpec(
        job=job.job or _name_of_host(seeds[0]),
        spider="skitter.page_spider:PageSpider",
        arguments={"urls": seeds, **pairs("-a", job.arguments)},
        settings=settings,
        outputs=job.all_outputs(),
        frontier=job.frontier,
        workers=job.workers,
    )
    run_job(spec, show, fresh=job.fresh)


@with_options
def run(
    spider: Annotated[
        str, typer.Argument(metavar="FILE.py[:Class] | package.module:Class", show_default=False)
    ],
    job: JobOptions,
    show: ShowOptions,
) -> None:
    """Run a spider.

    The same command again resumes; a job is named after its spider.
    """
    from skitter.cli.running import run_job  # noqa: PLC0415 - `skitter --help` needs no engine
    from skitter.engine.job import JobSpec  # noqa: PLC0415
    from skitter.engine.loading import find_spider  # noqa: PLC0415

    reference, spider_class = find_spider(spider)
    spec = JobSpec(
        job=job.job or fit_name(spider_class.name or spider_class.__name__.lower()),
        spider=reference,
        arguments=dict(pairs("-a", job.arguments)),
        settings=job.all_settings(),
        outputs=job.all_outputs(),
        frontier=job.frontier,
        workers=job.workers,
    )
    run_job(spec, show, fresh=job.fresh)


def _seed(text: str) -> str:
    from skitter.urls import normalize  # noqa: PLC0415 - as above

    url = normalize(text.strip())
    if url is not None and url.startswith(("http://", "https://")):
        return url
    guess = "" if "://" in text else normalize(f"https://{text.strip()}")
    remedy = f"write {guess}" if guess else "write it like https://example.com/"
    raise UsageError(f"{text!r} is no absolute http(s) URL", remedy=remedy)


def _name_of_host(url: str) -> str:
    from skitter.urls import host_of  # noqa: PLC0415 - as above

    return fit_name(host_of(url))


def fit_name(text: str) -> str:
    """Return a text made fit for the name of a job."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:100] or "job"
