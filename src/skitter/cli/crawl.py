"""``skitter run`` and ``skitter crawl``: start or continue a job, with and without a spider of the user."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from skitter.cli.options import (
    JobOptions,
    ShowOptions,
    complete_file,
    job_name_for,
    pairs,
    with_job_options,
    with_show_options,
)
from skitter.errors import UsageError


@click.command()
@click.argument("spider", metavar="FILE.py[:CLASS]|MODULE[:CLASS]|RECIPE.yaml", shell_complete=complete_file)
@with_job_options
@with_show_options
def run(spider: str, options: JobOptions, show: ShowOptions) -> int:
    """Run a spider, or a recipe (.yaml, .yml or .toml).

    Repeat the command to resume the run. The job is named after its spider.
    """
    from skitter.cli.running import ForegroundRun, fork_if_several
    from skitter.run.job import JobSpec, queues_per_worker
    from skitter.run.loader import find_spider

    queues = options.all_queues()
    # Each worker loads the spider itself: what its module opens must not be shared.
    with fork_if_several(len(queues_per_worker(options.workers, queues)), options.frontier) as forked:
        reference, spider_class = find_spider(spider)
        name = job_name_for(str(spider_class.name or spider_class.__name__.lower()))
        spec = JobSpec(
            job=name if options.job is None else options.job,
            spider=reference,
            arguments=pairs("-a", options.arguments),
            settings=options.all_settings(),
            outputs=options.all_outputs(spider_class.outputs),
            frontier=options.frontier,
            workers=options.workers,
            queues=queues,
        )
        return ForegroundRun(spec, show, fresh=options.fresh, recrawl=options.recrawl, forked=forked).run()


_DEFAULTS = {"scope": "host", "refresh_delay_cap": 10.0}
"""Settings of `skitter crawl` that differ from those of spiders."""


@click.command()
@click.argument("urls", metavar="[URL]...", nargs=-1)
@click.option(
    "--sitemap", "sitemaps", multiple=True, metavar="URL|auto",
    help="Sitemap whose pages are fetched too; auto: the sitemaps that the robots.txt of each URL's host names. Repeatable.",
)  # fmt: skip
@click.option(
    "--files", metavar="SUFFIX,...",
    help="Download the files with these suffixes, such as pdf,jpg, to the folder files, or to --files-store.",
)  # fmt: skip
@click.option("--iframes", is_flag=True, help="Follow the pages in iframe elements as well.")
@click.option(
    "--content",
    type=click.Choice(["markdown", "text"]),
    help="Add the main content of each page and its metadata; needs skitter[content].",
)
@click.option("--browser", "fetcher", flag_value="browser", help="Load all pages in Chromium.")
@click.option(
    "--adaptive",
    "fetcher",
    flag_value="adaptive",
    help="Load pages in Chromium that need JavaScript, and fetch others by HTTP.",
)
@partial(with_job_options, defaults=_DEFAULTS)
@with_show_options
def crawl(
    urls: tuple[str, ...],
    sitemaps: tuple[str, ...],
    files: str | None,
    content: str | None,
    fetcher: str | None,
    options: JobOptions,
    show: ShowOptions,
    *,
    iframes: bool,
) -> int:
    """Crawl from URLs without writing code. Each page becomes one item.

    An item has url, status, title, depth, links (their number), content_type, size and fetched_at, and with --files
    file_urls and files.
    With --content, it also has content, canonical_url, author, date, language, description, site_name, json_ld, opengraph, digest,
    signature, content_error and rights. Files mark near duplicates in the field duplicate_of; add ?duplicates=drop to a file to leave
    them out.
    Links are those of a, area and frame elements. A refresh of at most 10 seconds is followed as well.
    Repeat the command to resume the crawl. The job is named after the host of its first URL.
    """
    from skitter.cli.running import ForegroundRun, fork_if_several
    from skitter.run.job import JobSpec
    from skitter.store.outputs import with_duplicates
    from skitter.web.urls import host_of

    named = [url if url == "auto" else _seed(url) for url in sitemaps]
    seeds = [_seed(url) for url in urls] or [url for url in named if url != "auto"]
    if not seeds:
        raise UsageError("no URL to start from", remedy="name a URL, or the URL of a sitemap", field="urls")
    seeds, settings = _without_userinfo(seeds, options.all_settings())
    named, settings = _without_userinfo(named, settings)
    suffixes = [suffix.strip() for suffix in (files or "").split(",") if suffix.strip()]
    outputs = options.all_outputs()
    if content is not None:
        outputs = [with_duplicates(output, "mark") for output in outputs]
    spec = JobSpec(
        job=job_name_for(host_of(seeds[0])) if options.job is None else options.job,
        spider="skitter.frontends.page_spider:PageSpider",
        arguments={
            "urls": seeds,
            **_without_empty(sitemaps=named, files=suffixes, iframes=iframes, content=content),
            **pairs("-a", options.arguments),
        },
        settings={
            **_DEFAULTS,
            **_without_empty(
                files_store=suffixes and "files", directives_field=content and "rights", fetcher=fetcher
            ),
            **settings,
        },
        outputs=outputs,
        frontier=options.frontier,
        workers=options.workers,
        queues=options.all_queues(),
    )
    with fork_if_several(len(spec.queues_per_worker()), spec.frontier) as forked:
        return ForegroundRun(spec, show, fresh=options.fresh, recrawl=options.recrawl, forked=forked).run()


def _without_empty(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value}


def _seed(text: str) -> str:
    from skitter.run.job import RECIPES
    from skitter.web.urls import normalize, remedy_without_scheme

    url = normalize(text.strip())
    if url is not None and url.startswith(("http://", "https://")):
        return url
    remedy = remedy_without_scheme(text)
    if text.endswith((".py", *RECIPES)):
        remedy = f"`skitter run {text}` runs a spider or a recipe"
    elif text.replace("-", "_").isidentifier() and text != "localhost":
        # The name of a spider, as for `scrapy crawl`.
        remedy = f"{remedy}, or run a spider with `skitter run FILE.py`"
    raise UsageError(f"not an absolute http(s) URL: {text!r}", remedy=remedy)


def _without_userinfo(urls: list[str], settings: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """Move user names and passwords from URLs to the setting ``credentials``, which is stored without them."""
    from skitter.secrets import credentials_in

    plain, found = credentials_in(urls)
    credentials = settings.get("credentials", {})
    if found and not isinstance(credentials, dict):
        raise UsageError(
            "passwords are both in a URL and in credentials", remedy="use one of them", field="credentials"
        )
    return plain, {**settings, "credentials": {**found, **credentials}} if found else settings
