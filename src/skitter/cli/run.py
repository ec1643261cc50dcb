"""``skitter run``: start or continue the job of a spider or a recipe."""

from __future__ import annotations

import click

from skitter.cli.options import (
    JobOptions,
    ShowOptions,
    complete_file,
    fit_name,
    pairs,
    with_job_options,
    with_show_options,
)


@click.command()
@click.argument("spider", metavar="FILE.py[:CLASS]|MODULE[:CLASS]|RECIPE.yaml", shell_complete=complete_file)
@with_job_options
@with_show_options
def run(spider: str, options: JobOptions, show: ShowOptions) -> int:
    """Run a spider, or a recipe (.yaml, .yml or .toml).

    Repeat the command to resume the run. The job is named after its spider.
    """
    from skitter.cli.running import ForegroundRun, fork_if_several
    from skitter.run.job import JobSpec, teams_of
    from skitter.run.loader import find_spider

    queues = options.all_queues()
    # Each worker loads the spider itself: what its module opens must not be shared.
    with fork_if_several(len(teams_of(options.workers, queues))) as forked:
        reference, spider_class = find_spider(spider)
        name = fit_name(str(spider_class.name or spider_class.__name__.lower()))
        spec = JobSpec(
            job=name if options.job is None else options.job,
            spider=reference,
            arguments=dict(pairs("-a", options.arguments)),
            settings=options.all_settings(),
            outputs=options.all_outputs(spider_class.outputs),
            frontier=options.frontier,
            workers=options.workers,
            queues=queues,
        )
        return ForegroundRun(spec, show, fresh=options.fresh, recrawl=options.recrawl, forked=forked).run()
